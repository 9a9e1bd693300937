#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generate ptx/pyrevoff.ptx, the device library, from csrc/device/pyrevoff.cu.

The file is kept in the tree so that installing needs no nvcc. It is made by
one release of nvcc and cleaned of what differs between machines, so that
anyone can make it again and compare:

    python tools/make_ptx.py            write it
    python tools/make_ptx.py --check    compare; exit status 1 if it differs
    python tools/make_ptx.py --stale    exit status 0 if the sources changed
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "csrc" / "device" / "pyrevoff.cu"
INCLUDE = ROOT / "csrc" / "include"
PTX = ROOT / "ptx" / "pyrevoff.ptx"

RELEASE = (13, 0)
ARCH = "compute_75"
# The PTX version of CUDA 10.0, the oldest that knows sm_75: nothing newer is
# used, and a driver refuses a file that says more than it knows.
PTX_VERSION = "6.3"
CHECKED = ("sm_75", "sm_90", "sm_100")
SECONDS = 300

_COMMENT_OR_STRING = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
_HASH_LINE = re.compile(r"^// source-sha256: ([0-9a-f]{64})$", re.MULTILINE)


def _toolchain():  # type: ignore[no-untyped-def]
    # By path: importing the package would import its compiled module.
    path = ROOT / "pyrevoff" / "_toolchain.py"
    spec = importlib.util.spec_from_file_location("_revoff_toolchain", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


toolchain = _toolchain()


def _bare(text: str) -> str:
    """Code without comments and with single spaces: what the compiler sees."""

    def keep_strings(match: re.Match[str]) -> str:
        return " " if match.group().startswith("/") else match.group()

    return " ".join(_COMMENT_OR_STRING.sub(keep_strings, text).split())


def inputs() -> list[Path]:
    """The source and the headers of ours that it includes, at any depth."""
    found: list[Path] = []
    todo = [SOURCE]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.append(path)
        for name in _INCLUDE.findall(path.read_text(encoding="utf-8")):
            todo += [p for p in (INCLUDE / name, path.parent / name) if p.is_file()][:1]
    return sorted(found)


def source_hash() -> str:
    """Hash over the inputs; comments and layout do not count."""
    digest = hashlib.sha256(f"{RELEASE} {ARCH} {PTX_VERSION}".encode())
    for path in inputs():
        text = _bare(path.read_text(encoding="utf-8"))
        digest.update(f"\0{path.relative_to(ROOT).as_posix()}\0{text}".encode())
    return digest.hexdigest()


def is_stale() -> bool:
    """Whether the file in the tree was made from other sources than these."""
    try:
        found = _HASH_LINE.search(PTX.read_text(encoding="utf-8"))
    except OSError:
        return True
    return not found or found.group(1) != source_hash()


def clean(text: str) -> str:
    """Drop comments (they name the compiler's build), lower the version."""
    lines = [re.sub(r"\s*//.*", "", line).rstrip() for line in text.splitlines()]
    body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
    body, changed = re.subn(r"^\.version\s+\S+$", f".version {PTX_VERSION}", body, flags=re.M)
    if changed != 1:
        raise SystemExit("the compiler's PTX has no .version line")
    return (
        "// SPDX-License-Identifier: Apache-2.0\n"
        "// generated from csrc/device/pyrevoff.cu by tools/make_ptx.py; do not edit\n"
        f"// source-sha256: {source_hash()}\n\n{body}"
    )


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        text = done.stdout.decode(errors="replace")
        raise SystemExit(f"{' '.join(command)}\nfailed with status {done.returncode}:\n{text}")


def generate(nvcc: str) -> str:
    """Compile the device library and have ptxas accept what comes out.

    Returns
    -------
    str
        Text of the PTX file.

    Raises
    ------
    SystemExit
        A tool failed; the message holds its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        raw, ptx = Path(folder, "raw.ptx"), Path(folder, "pyrevoff.ptx")
        options = ["-ptx", f"-arch={ARCH}", "-rdc=true", "-std=c++17", f"-I{INCLUDE}"]
        _run([nvcc, *options, "-o", str(raw), str(SOURCE)])
        text = clean(raw.read_text(encoding="utf-8"))
        ptx.write_text(text, encoding="utf-8")
        ptxas = toolchain.toolkit_root(nvcc) / "bin" / "ptxas"
        for arch in CHECKED:
            _run([str(ptxas), "-c", f"-arch={arch}", "-o", str(Path(folder, "out")), str(ptx)])
    return text


def find_compiler(*, any_release: bool = False) -> str:
    """Path of an nvcc of the release that the file in the tree is made by.

    Raises
    ------
    SystemExit
        There is none.
    """
    search = toolchain.find_nvcc()
    if not search.command:
        raise SystemExit(toolchain.missing_nvcc(search, "making ptx/pyrevoff.ptx"))
    releases = {path: toolchain.nvcc_release(path) for path in toolchain.every_nvcc()}
    fitting = [path for path, release in releases.items() if release == RELEASE]
    if any_release and not fitting:
        fitting = search.command
    if not fitting:
        raise SystemExit(
            f"ptx/pyrevoff.ptx is made by nvcc {RELEASE[0]}.{RELEASE[1]}, so that it can be "
            f"compared, and none of {', '.join(releases)} is that. "
            f"pip install '{toolchain.NVCC_PACKAGE}', or set PYREVOFF_NVCC."
        )
    return str(fitting[0])


def write(text: str) -> None:
    """Replace the file in the tree."""
    PTX.parent.mkdir(exist_ok=True)
    PTX.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="compare instead of writing")
    what.add_argument("--stale", action="store_true", help="look at the hash only")
    what.add_argument("--have-compiler", action="store_true", help="look for the compiler only")
    arguments = parser.parse_args()
    if arguments.have_compiler:
        try:
            find_compiler()
        except SystemExit:
            return 1
        return 0
    if arguments.stale:
        return 0 if is_stale() else 1
    text = generate(find_compiler())
    if not arguments.check:
        write(text)
        return 0
    if PTX.is_file() and PTX.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PTX.relative_to(ROOT)} is not what its sources give: run make ptx", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
