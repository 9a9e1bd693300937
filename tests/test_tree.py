# SPDX-License-Identifier: Apache-2.0
"""Rules of the source tree: who may know what, and that headers stand alone."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "csrc" / "include"
C_SUFFIXES = {".c", ".h", ".cu", ".cc", ".def", ".S"}
COMPILE_SECONDS = 100


def tree_files() -> list[Path]:
    """Files of the project; what git ignores is left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=True)
        names = [name for name in done.stdout.decode().split("\0") if name]
        found = [ROOT / name for name in names if (ROOT / name).is_file()]
    except (OSError, subprocess.CalledProcessError):
        found = []
    if not found:  # an unpacked sdist
        parts = ("csrc", "pyrevoff", "tests", "tools", "examples", "benchmarks", "docs", "ptx")
        found = [path for part in parts for path in (ROOT / part).rglob("*") if path.is_file()]
        found = [path for path in found if path.suffix not in {".so", ".o", ".pyc"}]
    return sorted(found)


FILES = tree_files()
C_FILES = [path for path in FILES if path.suffix in C_SUFFIXES]
PYTHON_FILES = [path for path in FILES if path.suffix in {".py", ".pyi"}]
PACKAGE = [path for path in PYTHON_FILES if path.parent == ROOT / "pyrevoff"]
SOURCES = C_FILES + PYTHON_FILES + [path for path in FILES if path.suffix in {".sh", ".ptx"}]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def c_code(path: Path) -> str:
    """Text of a C file without its comments; strings stay."""
    text = path.read_text(encoding="utf-8")
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    return token.sub(lambda m: m.group() if m.group()[0] == '"' else " ", text)


def imported(tree: ast.AST) -> set[str]:
    """Names of the modules, and of what is taken from them."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(f"{node.module or ''}.{alias.name}" for alias in node.names)
    return names


def test_there_are_files_to_look_at():
    kinds = {path.suffix for path in FILES}
    assert {".c", ".h", ".cu", ".py", ".ptx"} <= kinds
    assert len(PACKAGE) > 5


def test_only_the_driver_table_opens_libcuda():
    using = [path for path in C_FILES if path.is_relative_to(ROOT / "csrc")]
    using = [path for path in using if '"libcuda' in c_code(path)]
    assert using
    for path in using:
        assert path.parent == ROOT / "csrc" / "host", name(path)
        assert path.name.startswith("driver"), name(path)


def test_no_source_includes_a_header_of_the_toolkit():
    pattern = re.compile(r'#\s*include\s*[<"](cuda[\w/]*|nvrtc|vector_types)\.h')
    for path in C_FILES:
        if path.is_relative_to(ROOT / "csrc"):
            assert not pattern.search(c_code(path)), name(path)


def test_only_lib_imports_the_compiled_module():
    for path in PACKAGE:
        if path.suffix == ".py" and path.name != "_lib.py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for module in imported(tree):
                assert "_revoff" not in module.split("."), name(path)
    assert (ROOT / "pyrevoff" / "_lib.py").is_file()


def test_only_the_trampoline_is_called_from_c():
    using = {
        path.name
        for path in PACKAGE
        if path.suffix == ".py"
        and any(
            isinstance(node, ast.Attribute) and node.attr in ("def_extern", "callback")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
    }
    assert using == {"_trampoline.py"}


def test_only_nvrtc_opens_a_library_from_python():
    pattern = re.compile(r"\bdlopen\(|\bCDLL\(|\bLoadLibrary\(")
    using = {path.name for path in PACKAGE if pattern.search(path.read_text(encoding="utf-8"))}
    assert using == {"_nvrtc.py"}


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_has_a_licence_line(path):
    head = path.read_text(encoding="utf-8").split("\n", 3)[:3]
    assert any("SPDX-License-Identifier: Apache-2.0" in line for line in head)


def test_no_file_is_too_long():
    limits = [(path, 700) for path in C_FILES] + [(path, 500) for path in PYTHON_FILES]
    lengths = [(name(p), p.read_text(encoding="utf-8").count("\n"), most) for p, most in limits]
    assert [entry for entry in lengths if entry[1] > entry[2]] == []


def test_the_wire_is_declared_once():
    wire = c_code(INCLUDE / "revoff" / "protocol.h")
    structs = re.findall(r"^struct (\w+) \{", wire, re.MULTILINE)
    assert "rev_offload" in structs
    declared = re.compile(rf"\bstruct\s+(?:{'|'.join(structs)})\s*\{{")
    for path in C_FILES:
        if path.is_relative_to(ROOT / "csrc") and path.name != "protocol.h":
            assert not declared.search(c_code(path)), name(path)


def test_no_file_names_a_folder_of_one_machine():
    # Written apart, so that this file is clean as well.
    folders = ["/" + "work/", "/" + "root/", "/" + "home/"]
    for path in FILES:
        if path.suffix in {".png", ".gif"}:
            continue
        text = path.read_text(encoding="utf-8")
        assert [folder for folder in folders if folder in text] == [], name(path)


def compile_alone(command: list[str], text: str, suffix: str, tmp_path: Path) -> None:
    if not shutil.which(command[0]):
        pytest.skip(f"no {command[0]} here")
    source = tmp_path / f"alone{suffix}"
    source.write_text(text)
    done = subprocess.run(
        [*command, str(source)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=COMPILE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


WARNINGS = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
HOST = f"-I{ROOT / 'csrc' / 'host'}"
OURS = f"-I{INCLUDE}"
# pyrevoff.h and what it includes are device code; the shim makes g++ take it.
KERNEL_HEADERS = sorted(
    path.relative_to(INCLUDE).as_posix()
    for path in FILES
    if path.suffix == ".h" and path.is_relative_to(INCLUDE) and "cpu" not in path.name
)


@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize("header", ["revoff.h", "revoff/protocol.h"])
def test_header_alone_in_c(cc, header, tmp_path):
    text = f"#include <{header}>\n#include <{header}>\n"
    compile_alone([cc, "-std=c11", *WARNINGS, HOST, OURS], text, ".c", tmp_path)


@pytest.mark.parametrize("cxx", ["g++", "clang++"])
@pytest.mark.parametrize("header", ["revoff.h", "revoff/protocol.h", "revoff/cpu.h"])
def test_header_alone_in_cxx(cxx, header, tmp_path):
    text = f"#include <{header}>\n#include <{header}>\n"
    compile_alone([cxx, "-std=c++17", *WARNINGS, HOST, OURS], text, ".cc", tmp_path)


@pytest.mark.parametrize("cxx", ["g++", "clang++"])
@pytest.mark.parametrize("header", KERNEL_HEADERS)
def test_kernel_header_alone_for_the_cpu_device(cxx, header, tmp_path):
    shim = ["-include", "revoff/cpu.h"]
    text = f"#include <{header}>\n#include <{header}>\n"
    compile_alone([cxx, "-std=c++17", *WARNINGS, OURS, *shim], text, ".cc", tmp_path)


@pytest.mark.parametrize("backend", ["nvrtc", "nvcc"])
@pytest.mark.parametrize("header", KERNEL_HEADERS)
def test_kernel_header_alone_for_a_gpu(backend, header, tmp_path, monkeypatch):
    from pyrevoff import compiler
    from pyrevoff.errors import CompilerNotFoundError

    monkeypatch.setenv("PYREVOFF_CACHE", "0")
    text = f"#include <{header}>\n#include <{header}>\n"
    try:
        image = compiler.compile_cuda(text, backend=backend)
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    assert b".version" in image.data
    assert image.log == ""


@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize(
    "path", [p for p in C_FILES if p.suffix == ".c" and "csrc" in p.parts], ids=name
)
def test_source_has_no_warnings(cc, path, tmp_path):
    if not shutil.which(cc):
        pytest.skip(f"no {cc} here")
    flags = ["-std=gnu11", "-O2", "-D_GNU_SOURCE=", "-pthread", *WARNINGS[:3]]
    done = subprocess.run(
        [cc, *flags, OURS, HOST, "-c", "-o", str(tmp_path / "out.o"), str(path)],
        capture_output=True,
        text=True,
        timeout=COMPILE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
