# SPDX-License-Identifier: Apache-2.0
"""Compilers: where they are found, what they say, and what is kept."""

from __future__ import annotations

import os
import stat
import threading
import time

import pytest

from pyrevoff import _cache, _cpu_source, _nvrtc, _options, _paths, _toolchain, compiler
from pyrevoff.errors import CompileError

GPU_SOURCE = """#include <pyrevoff.h>
REVOFF_FUNCTION(report, void(int));
extern "C" __global__ void kernel_of_ours(int *p) { report(*p); }
"""
WRONG_SOURCE = """// line 1

extern "C" __global__ void kernel() {
    undeclared_name(1); // line 4
}
"""

HAVE_NVRTC = _nvrtc.load()[0] is not None
HAVE_NVCC = bool(_toolchain.find_nvcc().command)
HAVE_CXX = bool(_toolchain.find_cxx().command)
needs_cxx = pytest.mark.skipif(not HAVE_CXX, reason="no host C++ compiler here")


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.delenv("PYREVOFF_CACHE", raising=False)
    monkeypatch.setenv("PYREVOFF_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(
    params=[
        pytest.param("nvrtc", marks=pytest.mark.skipif(not HAVE_NVRTC, reason="no NVRTC here")),
        pytest.param("nvcc", marks=pytest.mark.skipif(not HAVE_NVCC, reason="no nvcc here")),
        pytest.param("cpu", marks=needs_cxx),
    ]
)
def compile_any(request):
    """compile(source, options=..., name=...) by each compiler there is."""

    def run(source, **arguments):
        if request.param == "cpu":
            return compiler.compile_cpu(source, **arguments)
        return compiler.compile_cuda(source, backend=request.param, **arguments)

    return run


@pytest.fixture(params=["nvrtc", "nvcc"])
def gpu_backend(request):
    if not {"nvrtc": HAVE_NVRTC, "nvcc": HAVE_NVCC}[request.param]:
        pytest.skip(f"no {request.param} here")
    return request.param


@pytest.fixture
def no_compiler_runs(monkeypatch):
    """Make every compilation fail, so that only the cache can answer."""

    def start():
        def refuse(*_arguments, **_options):
            raise AssertionError("a compiler was run")

        monkeypatch.setattr(_nvrtc.Nvrtc, "compile", refuse)
        monkeypatch.setattr(compiler.subprocess, "run", refuse)

    return start


def script(path, text="exit 0"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


# ---- what comes out ---------------------------------------------------------


def test_ptx_by_default(gpu_backend):
    image = compiler.compile_cuda(GPU_SOURCE, backend=gpu_backend)
    assert image.kind == "ptx"
    assert b".target sm_75" in image.data
    assert b".entry kernel_of_ours" in image.data
    assert not image.data.endswith(b"\0")
    assert image.log == ""


def test_cubin_for_a_real_architecture(gpu_backend):
    image = compiler.compile_cuda(GPU_SOURCE, arch="sm_90", backend=gpu_backend)
    assert image.kind == "cubin"
    assert image.data.startswith(b"\x7fELF")


@pytest.mark.parametrize(("arch", "target"), [("compute_90", b"sm_90"), ("80", b"sm_80")])
def test_architecture(gpu_backend, arch, target):
    image = compiler.compile_cuda(GPU_SOURCE, arch=arch, backend=gpu_backend)
    assert b".target " + target in image.data


def test_unknown_new_architecture_gives_older_ptx(gpu_backend):
    image = compiler.compile_cuda(GPU_SOURCE, arch="compute_999", backend=gpu_backend)
    assert image.kind == "ptx"
    assert b".target sm_999" not in image.data


def test_options_reach_the_compiler(compile_any):
    source = GPU_SOURCE + "\n#if OURS != 7\n#error no macro\n#endif\n"
    assert compile_any(source, options=["-DOURS=7"]).data
    with pytest.raises(CompileError, match="no macro"):
        compile_any(source)


def test_relocatable_code(gpu_backend):
    source = 'extern "C" __device__ int other(int);\n__global__ void k(int *p) { *p = other(1); }'
    image = compiler.compile_cuda(source, options=["-rdc=true"], backend=gpu_backend)
    assert b".extern .func" in image.data


@needs_cxx
def test_shared_object_for_the_cpu_device():
    image = compiler.compile_cpu(GPU_SOURCE)
    assert image.kind == "so"
    assert image.data.startswith(b"\x7fELF")
    assert b"kernel_of_ours" in image.data


@needs_cxx
def test_options_of_gpus_are_left_out_for_the_cpu_device():
    options = ["--gpu-architecture=compute_90", "-lineinfo", "--use_fast_math", "-rdc=true"]
    assert compiler.compile_cpu(GPU_SOURCE, options=options).kind == "so"


def test_errors_name_the_users_file_and_line(compile_any):
    with pytest.raises(CompileError) as caught:
        compile_any(WRONG_SOURCE, name="mine.cu")
    assert "undeclared_name" in caught.value.log
    assert "mine.cu(4)" in caught.value.log or "mine.cu:4" in caught.value.log
    assert caught.value.log in str(caught.value)
    assert "/tmp" not in caught.value.log.replace(str(_paths.include_dir()), "")


def test_names_with_odd_characters(compile_any):
    with pytest.raises(CompileError) as caught:
        compile_any(WRONG_SOURCE, name='my "odd" \\ file.cu')
    assert "odd" in caught.value.log
    assert "undeclared_name" in caught.value.log


@pytest.mark.skipif(not HAVE_NVRTC, reason="no NVRTC here")
def test_missing_host_header_has_a_hint():
    with pytest.raises(CompileError, match="backend='nvcc'"):
        compiler.compile_cuda("#include <cstdint>\n", backend="nvrtc")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"arch": "turing"}, ValueError),
        ({"backend": "gcc"}, ValueError),
        ({"options": "-O3"}, TypeError),
        ({"options": [3]}, TypeError),
        ({"name": "a\nb"}, ValueError),
        ({"source": b"int x;"}, TypeError),
        ({"source": "int x;\0"}, ValueError),
    ],
)
def test_wrong_arguments(arguments, error):
    with pytest.raises(error):
        compiler.compile_cuda(**{"source": GPU_SOURCE, **arguments})


# ---- PTX versions -----------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "driver", "expected"),
    [
        ("9.5", 12040, "8.4"),
        ("9.5", 13000, "9.0"),
        ("9.0", 13000, "9.0"),
        ("8.0", 13000, "8.0"),
        ("9.0", 11000, "7.0"),
        ("9.0", 10000, "6.3"),
        ("9.0", 10020, "6.5"),
        ("9.0", 12060, "8.5"),
        ("9.0", 12090, "8.8"),
        ("9.9", 14000, "9.9"),
        ("9.0", 8000, "9.0"),
        ("10.0", 13000, "9.0"),
    ],
)
def test_lower_ptx_version(version, driver, expected):
    ptx = f"// .version 1.0\n.version {version}\n.target sm_75\n".encode()
    lowered = compiler.lower_ptx_version(ptx, driver)
    assert lowered == f"// .version 1.0\n.version {expected}\n.target sm_75\n".encode()


def test_lower_ptx_version_leaves_other_text():
    assert compiler.lower_ptx_version(b"no version", 12040) == b"no version"


# ---- the cache --------------------------------------------------------------


def test_second_compilation_is_read_from_disk(compile_any, no_compiler_runs):
    first = compile_any(GPU_SOURCE)
    no_compiler_runs()
    assert compile_any(GPU_SOURCE) == first


@pytest.mark.parametrize(
    "change",
    [
        {"options": ["-DX=2"]},
        {"options": []},
        {"name": "other.cu"},
        {"source": GPU_SOURCE + "// more\n"},
    ],
)
def test_another_input_is_another_image(compile_any, no_compiler_runs, change):
    arguments = {"source": GPU_SOURCE, "options": ["-DX=1"]}
    compile_any(**arguments)
    no_compiler_runs()
    with pytest.raises(AssertionError, match="a compiler was run"):
        compile_any(**{**arguments, **change})


def test_our_own_headers_count(compile_any, no_compiler_runs, monkeypatch):
    compile_any(GPU_SOURCE)
    monkeypatch.setattr(compiler, "_headers_digest", lambda: b"other headers")
    no_compiler_runs()
    with pytest.raises(AssertionError, match="a compiler was run"):
        compile_any(GPU_SOURCE)


def test_a_changed_header_of_the_user_counts(compile_any, tmp_path, no_compiler_runs):
    folder = tmp_path / "my headers"
    folder.mkdir()
    (folder / "outer.h").write_text('#include "inner.h"\n')
    (folder / "inner.h").write_text("#define VALUE 1\n")
    for header in folder.iterdir():  # older than the compilation, as headers are
        os.utime(header, (1, 1))
    source = '#include "outer.h"\nextern "C" __global__ void k(int *p) { *p = VALUE; }\n'
    options = [f"-I{folder}"]
    first = compile_any(source, options=options)
    (folder / "inner.h").write_text("#define VALUE 654321\n")
    os.utime(folder / "inner.h", (1, 1))  # content counts, not the time
    second = compile_any(source, options=options)
    assert second.data != first.data
    no_compiler_runs()
    assert compile_any(source, options=options) == second


def test_damaged_entries_are_made_again(compile_any, cache_folder):
    first = compile_any(GPU_SOURCE)
    (entry,) = cache_folder.glob("*.image")
    whole = entry.read_bytes()
    for damaged in (whole[:-1], whole[:100], b"", whole[:-40] + b"\xff" + whole[-39:]):
        entry.write_bytes(damaged)
        assert compile_any(GPU_SOURCE).data[:4] == first.data[:4]
        assert len(entry.read_bytes()) > 200


def test_cache_can_be_switched_off(compile_any, cache_folder, monkeypatch):
    monkeypatch.setenv("PYREVOFF_CACHE", "0")
    compile_any(GPU_SOURCE)
    assert not cache_folder.exists()


def test_failures_are_not_kept(compile_any, cache_folder):
    for _ in range(2):
        with pytest.raises(CompileError):
            compile_any(WRONG_SOURCE)
    assert not list(cache_folder.glob("*.image"))


def test_cache_is_private(compile_any, cache_folder):
    compile_any(GPU_SOURCE)
    assert stat.S_IMODE(cache_folder.stat().st_mode) == 0o700
    for entry in cache_folder.iterdir():
        assert stat.S_IMODE(entry.stat().st_mode) == 0o600


def test_folder_that_others_can_write_to_is_not_used(cache_folder):
    cache_folder.mkdir()
    cache_folder.chmod(0o777)
    with pytest.warns(UserWarning, match="chmod 700"):
        assert _cache.folder() is None
    _cache.put("key", _cache.Entry(b"data", ""), [])
    assert list(cache_folder.iterdir()) == []


def test_folder_of_another_user_is_not_used(cache_folder, monkeypatch):
    cache_folder.mkdir(mode=0o700)
    monkeypatch.setattr(_cache.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.warns(UserWarning, match="another user"):
        assert _cache.folder() is None


def test_links_in_the_folder_are_not_followed(cache_folder, tmp_path):
    _cache.put("one", _cache.Entry(b"data", ""), [])
    (cache_folder / "one.image").rename(tmp_path / "elsewhere")
    (cache_folder / "one.image").symlink_to(tmp_path / "elsewhere")
    assert _cache.get("one") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_folder_costs_nothing(tmp_path, monkeypatch):
    (tmp_path / "locked").mkdir(mode=0o500)
    monkeypatch.setenv("PYREVOFF_CACHE_DIR", str(tmp_path / "locked" / "cache"))
    _cache.put("key", _cache.Entry(b"data", ""), [])
    assert _cache.get("key") is None


def test_folder_that_is_a_file_costs_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PYREVOFF_CACHE_DIR", str(tmp_path / "file"))
    _cache.put("key", _cache.Entry(b"data", ""), [])
    assert _cache.get("key") is None


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.delenv("PYREVOFF_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert _cache.folder() == tmp_path / "xdg" / "pyrevoff"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert _cache.folder() == tmp_path / "home" / ".cache" / "pyrevoff"


def test_oldest_entries_go_first(cache_folder, monkeypatch):
    for number in range(4):
        _cache.put(f"k{number}", _cache.Entry(bytes(1000), ""), [])
        os.utime(cache_folder / f"k{number}.image", (100 + number, 100 + number))
    assert _cache.get("k0")  # used again: now the newest
    monkeypatch.setattr(_cache, "MAX_BYTES", 3500)
    _cache.put("k4", _cache.Entry(bytes(1000), ""), [])
    left = {path.stem for path in cache_folder.glob("*.image")}
    assert left == {"k0", "k3", "k4"}


def test_leftovers_of_a_crash_are_removed(cache_folder):
    _cache.put("one", _cache.Entry(b"data", ""), [])
    old, new = cache_folder / ".new-old", cache_folder / ".new-now"
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    _cache.put("two", _cache.Entry(b"data", ""), [])
    assert not old.exists()
    assert new.exists()


def test_key_depends_on_where_a_part_ends():
    assert _cache.make_key([b"ab", b"c"]) != _cache.make_key([b"a", b"bc"])


def test_threads_compile_at_once(compile_any, cache_folder):
    results, failures = [], []

    def work(number):
        try:
            results.append(compile_any(GPU_SOURCE, options=[f"-DNUMBER={number % 2}"]).data)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert len(results) == 6
    assert len(list(cache_folder.glob("*.image"))) == 2


@needs_cxx
def test_compiler_that_never_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(compiler, "COMPILE_SECONDS", 1)
    hang = script(tmp_path / "hang", 'case "$1" in --version) exit 0;; esac\nexec sleep 60')
    monkeypatch.setenv("PYREVOFF_CXX", hang)
    started = time.monotonic()
    with pytest.raises(CompileError, match="did not end within 1 s"):
        compiler.compile_cpu(GPU_SOURCE)
    assert time.monotonic() - started < 30


# ---- options and includes ---------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--define-macro=A=1", "-DB", "-D", "C=2"], ["-DA=1", "-DB", "-D", "C=2"]),
        (["--define-macro", "A"], ["-DA"]),
        (["--undefine-macro=A"], ["-UA"]),
        (["--include-path=/x", "-I/y", "-I=/z", "-I", "/w"], ["-I/x", "-I/y", "-I/z", "-I", "/w"]),
        (["--pre-include=a.h"], ["-include", "a.h"]),
        (["--std=c++20", "-std=c++14"], ["-std=c++20", "-std=c++14"]),
        (["-arch=sm_90", "-arch", "sm_90", "-O3"], ["-O3"]),
        (["--gpu-architecture=compute_90", "-lineinfo", "-G", "-Wall"], ["-Wall"]),
        (["-Xcompiler", "-Wall,-g"], ["-Wall", "-g"]),
        (["-Xptxas", "-v", "-maxrregcount=32"], []),
    ],
)
def test_cpu_options(given, expected):
    assert _options.cpu_options(given) == expected


def scan(source, *options):
    return _options.scan_includes(source, list(options), _paths.include_dir())


def test_includes_are_followed(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.h").write_text('#include "sub/b.h"\n')
    (tmp_path / "sub" / "b.h").write_text('# include "c.h" // beside it\n')
    (tmp_path / "sub" / "c.h").write_text("int c;\n")
    ours = f"-I{_paths.include_dir()}"
    found = scan("#include <pyrevoff.h>\n#include <a.h>\n", f"-I{tmp_path}", ours)
    names = [os.path.relpath(path, tmp_path) for path, _ in found]
    assert names == ["a.h", "sub/b.h", "sub/c.h"]
    assert all(len(digest) == 64 for _, digest in found)
    pre = scan("int x;", f"--include-path={tmp_path}", "--pre-include=a.h")
    assert [path for path, _ in pre] == [path for path, _ in found]


@pytest.mark.parametrize(
    "source",
    [
        "#include <vector>\n",
        "#define H <a.h>\n#include H\n",
        "#if __has_include(<a.h>)\n#endif\n",
        '#\\\ninclude "missing.h"\n',
        "/* a */ #include <b.h>\n",
    ],
)
def test_unknown_includes_are_not_guessed(source):
    assert scan(source) is None


@pytest.mark.parametrize(
    "source",
    [
        "// #include <vector>\n",
        "/*\n#include <vector>\n*/\n",
        'const char *s = R"(\n#include <vector>\n)";\n',
        "char c = '\"'; // \"\n",
    ],
)
def test_text_that_is_no_include(source):
    assert scan(source) == []


@pytest.mark.skipif(not HAVE_NVRTC, reason="no NVRTC here")
def test_what_cannot_be_followed_is_not_cached(tmp_path, cache_folder):
    (tmp_path / "a.h").write_text("\n")
    source = "#define H <a.h>\n#include H\n__global__ void k() {}\n"
    compiler.compile_cuda(source, backend="nvrtc", options=[f"-I{tmp_path}"])
    assert not list(cache_folder.glob("*.image"))


def test_cpu_translation_keeps_line_numbers():
    # What the messages of the host compiler rest on.
    assert "#line" in _cpu_source.translate(WRONG_SOURCE, "mine.cu")


def test_dependency_files_are_parsed(tmp_path):
    strange = tmp_path / "a b$c.h"
    strange.write_text("\n")
    depends = tmp_path / "depends"
    escaped = str(strange).replace(" ", "\\ ").replace("$", "$$")
    depends.write_text(f"out : {tmp_path}/own/source.cc \\\n {escaped} \\\n /usr/include/x.h\n")
    found = compiler._dependencies(depends, (f"{tmp_path}/own", "/opt/toolkit"))
    assert found == [(str(strange), _cache.file_hash(str(strange)))]


def test_subprocesses_get_no_input(monkeypatch, tmp_path):
    # A compiler that reads standard input must not wait for a terminal.
    monkeypatch.setenv("PYREVOFF_CXX", script(tmp_path / "reads", "cat >/dev/null; exit 3"))
    with pytest.raises(CompileError, match="status 3"):
        compiler.compile_cpu(GPU_SOURCE)
