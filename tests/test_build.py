# SPDX-License-Identifier: Apache-2.0
"""The build: generated files are fresh, and what is installed is whole."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD_SECONDS = 100
PARTS = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "MANIFEST.in",
    "Makefile",
    "README.md",
    ".clang-format",
    "pyproject.toml",
    "setup.py",
    "csrc",
    "ptx",
    "pyrevoff",
    "tools",
)


def load(path: Path):
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_ptx = load(ROOT / "tools" / "make_ptx.py")
build_ffi = load(ROOT / "pyrevoff" / "_build_ffi.py")


# ---- the device library in the tree -----------------------------------------


def test_ptx_is_made_from_these_sources():
    assert not make_ptx.is_stale(), "csrc/device or a header changed: run make ptx"


def test_ptx_is_what_nvcc_gives():
    try:
        nvcc = make_ptx.find_compiler()
    except SystemExit as error:
        pytest.skip(str(error))
    assert make_ptx.generate(nvcc) == make_ptx.PTX.read_text()


def test_ptx_check_sees_a_change(tmp_path, monkeypatch, capsys):
    try:
        make_ptx.find_compiler()
    except SystemExit as error:
        pytest.skip(str(error))
    monkeypatch.setattr(sys, "argv", ["make_ptx.py", "--check"])
    assert make_ptx.main() == 0
    monkeypatch.setattr(make_ptx, "PTX", make_ptx.ROOT / "ptx" / "no-such-file.ptx")
    assert make_ptx.main() == 1
    assert "make ptx" in capsys.readouterr().err


def test_ptx_suits_old_drivers_and_names_no_machine():
    text = make_ptx.PTX.read_text()
    assert re.search(r"^\.version 6\.3$", text, re.MULTILINE)
    assert re.search(r"^\.target sm_75$", text, re.MULTILINE)
    assert re.search(r"^\.visible \.func .*GOMP_target_ext\b", text, re.MULTILINE)
    comments = [line for line in text.splitlines() if "//" in line]
    assert len(comments) == 3


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """make_ptx over a copy of the device sources."""
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    shutil.copytree(ROOT / "ptx", tmp_path / "ptx")
    monkeypatch.setattr(make_ptx, "ROOT", tmp_path)
    monkeypatch.setattr(make_ptx, "INCLUDE", tmp_path / "csrc" / "include")
    monkeypatch.setattr(make_ptx, "SOURCE", tmp_path / "csrc" / "device" / "pyrevoff.cu")
    monkeypatch.setattr(make_ptx, "PTX", tmp_path / "ptx" / "pyrevoff.ptx")
    return tmp_path


def test_layout_and_comments_do_not_make_the_ptx_stale(copied):
    header = copied / "csrc" / "include" / "revoff" / "device.h"
    header.write_text("/* new */\n\n" + header.read_text().replace("\t", "    ") + "// end\n")
    assert not make_ptx.is_stale()


@pytest.mark.parametrize("name", ["device/pyrevoff.cu", "include/revoff/protocol.h"])
def test_code_makes_the_ptx_stale(copied, name):
    source = copied / "csrc" / name
    source.write_text(source.read_text() + "\nstruct added;\n")
    assert make_ptx.is_stale()


def test_missing_ptx_is_stale(copied):
    make_ptx.PTX.unlink()
    assert make_ptx.is_stale()


# ---- declarations for cffi --------------------------------------------------


HEADER = """/* A comment
   of two lines: #define IN_COMMENT 1 */
#ifndef H
#define H
#include <stddef.h>
#define PLAIN 12
#define NEGATIVE   -3\t/* why */
#define IN_PARENTHESES (-2)
#define HEX 0x10
#define LONG 0x8000000000000000ull // the top bit
#define WITH_COMMENT 5 /* that goes
\t\t\t  on */
#define ON_TWO_LINES \\
\t7 /* here */
#define EXPRESSION (1 << 3)
#define TEXT "text"
#define CALL(x) 4
#define EMPTY
struct s { int a; /* one */ int b; };
int f(struct s *); // a function
#endif
"""


def test_header_for_cffi():
    assert build_ffi.declarations(HEADER).splitlines() == [
        "#define PLAIN 12",
        "#define NEGATIVE -3",
        "#define IN_PARENTHESES -2",
        "#define HEX 16",
        "#define LONG 9223372036854775808",
        "#define WITH_COMMENT 5",
        "#define ON_TWO_LINES 7",
        "struct s { int a;   int b; };",
        "int f(struct s *);",
    ]
    assert "struct" not in build_ffi.declarations(HEADER, only_integers=True)


@pytest.mark.parametrize(
    "header", [build_ffi.HOST_HEADER, build_ffi.WIRE_HEADER], ids=os.path.basename
)
def test_each_integer_of_a_header_is_in_the_module(header):
    from pyrevoff._lib import lib

    # The preprocessor's own list, so that none is dropped without notice.
    command = ["gcc", "-dM", "-E", "-I", str(ROOT / "csrc" / "include"), str(header)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    integer = re.compile(r"#define (REVOFF_\w+) \(?(-?(?:0x[0-9a-f]+|\d+))[ul]*\)?", re.IGNORECASE)
    found = [integer.fullmatch(line) for line in said.splitlines()]
    values = {match.group(1): int(match.group(2), 0) for match in found if match}
    assert len(values) > 20
    assert {name: getattr(lib, name) for name in values} == values


def test_each_declaration_works():
    from pyrevoff._lib import lib

    for name in dir(lib):  # cffi compares a constant only when it is used
        getattr(lib, name)


# ---- the compiled module ----------------------------------------------------


def readelf(*options: str) -> str:
    import pyrevoff._lib  # noqa: F401

    module = sys.modules["pyrevoff._revoff"]
    command = ["readelf", "-W", *options, str(module.__file__)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_nothing_links_to_the_driver():
    needed = re.findall(r"NEEDED\).*\[(.*)\]", readelf("--dynamic"))
    assert any(name.startswith("libc.") for name in needed)
    assert not [name for name in needed if "cuda" in name or "nv" in name]


def test_only_the_public_functions_are_visible():
    symbols = re.findall(
        r"(?:FUNC|OBJECT)\s+(?:GLOBAL|WEAK)\s+DEFAULT\s+\d+ (\S+)", readelf("--dyn-syms")
    )
    assert "revoff_device_open" in symbols
    for name in symbols:
        assert name.startswith(("revoff_", "PyInit_", "_cffi_")), name


def test_thread_local_memory_is_small():
    # A library opened at run time shares a reserve of about 1600 bytes with
    # all others; past it, the import fails.
    sizes = re.findall(r"^\s*TLS\s.*?(0x[0-9a-f]+)\s+R\s", readelf("--segments"), re.MULTILINE)
    assert sum(int(size, 16) for size in sizes) <= 512


# ---- installing -------------------------------------------------------------


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of what a clone holds, nothing built."""
    for module in ("pip", "setuptools"):
        if not importlib.util.find_spec(module):
            pytest.skip(f"no {module} here")
    folder = tmp_path_factory.mktemp("clone") / "pyrevoff"
    folder.mkdir()
    ignore = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=ignore)
        else:
            shutil.copy(source, folder / part)
    return folder


@pytest.fixture(scope="module")
def watched_nvcc(tmp_path_factory):
    """An nvcc that leaves a mark when it is run, and fails."""
    folder = tmp_path_factory.mktemp("nvcc")
    nvcc = folder / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho run >>'{folder}/mark'\nexit 1\n")
    nvcc.chmod(0o755)
    return nvcc


@pytest.fixture(scope="module")
def environment(watched_nvcc):
    """No CUDA variables; the nvcc that is found first must not be run."""
    drop = ("NVCC", "CUDA_PATH", "CUDA_HOME", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    return {**kept, "PYREVOFF_NVCC": str(watched_nvcc), "PYTHONNOUSERSITE": "1"}


def run(command: list[str], cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def pip(*words: str) -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]


OFFLINE = ("--no-deps", "--no-build-isolation", "--no-index")


@pytest.fixture(scope="module")
def wheel(tree, environment, tmp_path_factory):
    """clone -> sdist -> wheel, each from the one before only."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "setup.py", "-q", "sdist", "-d", str(folder)], tree, environment)
    (sdist,) = folder.glob("*.tar.gz")
    run(pip("wheel", *OFFLINE, "-w", str(folder), str(sdist)), folder, environment)
    (built,) = folder.glob("*.whl")
    return built


def headers() -> set[str]:
    include = ROOT / "csrc" / "include"
    return {path.relative_to(include).as_posix() for path in include.rglob("*.h")}


def test_wheel_is_whole(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {f"pyrevoff/{path.name}" for path in (ROOT / "pyrevoff").glob("*.py")}
    assert modules | {"pyrevoff/py.typed", "pyrevoff/ptx/pyrevoff.ptx"} <= names
    assert {f"pyrevoff/include/{name}" for name in headers()} <= names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith((".c", ".cu", ".pyc"))]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"pyrevoff"}


def test_wheel_serves_every_python(wheel):
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("a free-threaded Python has no stable ABI")
    assert "-cp39-abi3-" in wheel.name
    assert any(n.endswith("_revoff.abi3.so") for n in zipfile.ZipFile(wheel).namelist())


def test_version_is_written_once(wheel):
    from pyrevoff._version import __version__

    assert wheel.name.startswith(f"pyrevoff-{__version__}-")
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


USE = """
import pathlib, pyrevoff
from pyrevoff import _paths
home = pathlib.Path(pyrevoff.__file__).resolve()
assert home.is_relative_to(pathlib.Path({home!r}).resolve()), home
assert (_paths.include_dir() / "pyrevoff.h").is_file()
assert _paths.ptx_path().read_bytes() == pathlib.Path({ptx!r}).read_bytes()
assert pyrevoff._lib.lib.revoff_abi_version() == pyrevoff._lib.lib.REVOFF_ABI_VERSION
print("works")
"""


def use(home: Path) -> str:
    return USE.format(home=str(home), ptx=str(make_ptx.PTX))


def test_installed_wheel_works_outside_the_tree(wheel, environment, tmp_path):
    site = tmp_path / "site"
    run(pip("install", *OFFLINE, "--target", str(site), str(wheel)), tmp_path, environment)
    env = {**environment, "PYTHONPATH": str(site)}
    assert "works" in run([sys.executable, "-c", use(site)], tmp_path, env)
    told = run([sys.executable, "-m", "pyrevoff", "--includes"], tmp_path, env)
    assert str(site / "pyrevoff" / "include") in told
    told = run([sys.executable, "-m", "pyrevoff", "info"], tmp_path, env)
    assert str(site / "pyrevoff" / "ptx" / "pyrevoff.ptx") in told


def test_editable_install_works(tree, environment, tmp_path):
    prefix = tmp_path / "prefix"
    run(pip("install", *OFFLINE, "--prefix", str(prefix), "-e", str(tree)), tmp_path, environment)
    (site,) = prefix.glob("lib*/python*/site-packages")
    # Without the site module first: this Python may have the package itself.
    folders = [str(site), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    start = f"import site\nfor folder in {folders!r}: site.addsitedir(folder)\n"
    command = [sys.executable, "-S", "-c", start + use(tree)]
    assert "works" in run(command, tmp_path, environment)
    assert not (tree / "pyrevoff" / "include").exists()


def test_build_in_place_works_and_does_nothing_twice(tree, environment):
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    run(command, tree, environment)
    (module,) = (tree / "pyrevoff").glob("_revoff*.so")
    made = module.stat().st_mtime_ns
    run([sys.executable, "-c", use(tree)], tree, environment)
    assert "gcc" not in run(command, tree, environment)
    assert module.stat().st_mtime_ns == made


def test_no_build_ran_nvcc(wheel, watched_nvcc):
    assert not (watched_nvcc.parent / "mark").exists()


def test_stale_ptx_is_made_again(tree, environment, tmp_path):
    try:
        nvcc = make_ptx.find_compiler()
    except SystemExit as error:
        pytest.skip(str(error))
    copy = tmp_path / "copy"
    shutil.copytree(tree, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "*.so"))
    source = copy / "csrc" / "device" / "pyrevoff.cu"
    added = '\nextern "C" __device__ int added(int x) { return x; }\n'
    source.write_text(source.read_text() + added)
    env = {**environment, "PYREVOFF_NVCC": nvcc}
    run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], copy, env)
    assert " added(" in (copy / "ptx" / "pyrevoff.ptx").read_text()


def test_stale_ptx_without_nvcc_is_one_paragraph(monkeypatch):
    monkeypatch.setattr(make_ptx.toolchain, "_executable", lambda path: False)
    with pytest.raises(SystemExit) as caught:
        make_ptx.find_compiler(any_release=True)
    text = str(caught.value)
    assert "\n" not in text
    assert "Tried:" in text
    assert make_ptx.toolchain.NVCC_PACKAGE in text
