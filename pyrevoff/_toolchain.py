# SPDX-License-Identifier: Apache-2.0
"""Where the compilers are: nvcc, its toolkit, and the host C++ compiler.

setup.py and tools/make_ptx.py load this file by its path, so it imports
nothing of the package. Nothing here raises when a compiler is missing: a
search returns what it found and what it tried, and the caller says what to do.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

NVCC_PACKAGE = "cuda-toolkit[nvcc]==13.0.*"
"""What to ask pip for. nvidia-cuda-nvcc alone draws in parts of newer
releases, whose PTX its own assembler refuses."""

PROBE_SECONDS = 60


class Search(NamedTuple):
    """Result of a search: the command (empty if none) and what was tried."""

    command: list[str]
    tried: list[str]


def wheel_folders() -> list[Path]:
    """Folders of installed ``nvidia-*`` wheels, such as ``.../nvidia/cu13``."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    roots = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    names = ("cu13", "cuda_nvrtc", "cuda_nvcc")
    return [root / name for root in roots for name in names if (root / name).is_dir()]


def _executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _nvcc_candidates() -> Iterator[tuple[str, str]]:
    """Pairs of (where it comes from, path), in order of preference."""
    for variable in ("PYREVOFF_NVCC", "NVCC"):
        value = os.environ.get(variable, "").strip()
        if value:
            yield f"${variable}", shutil.which(value) or value
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        # A list separator at the end is a common slip in shell profiles.
        value = os.environ.get(variable, "").strip().rstrip(":")
        if value:
            yield f"${variable}", os.path.join(value, "bin", "nvcc")
    yield "PATH", shutil.which("nvcc") or "nvcc"
    for folder in wheel_folders():
        yield "pip", str(folder / "bin" / "nvcc")
    yield "system", "/usr/local/cuda/bin/nvcc"


def _warn_if_toolkits_differ() -> None:
    path, home = (
        os.environ.get(name, "").strip().rstrip(":") for name in ("CUDA_PATH", "CUDA_HOME")
    )
    if path and home and os.path.realpath(path) != os.path.realpath(home):
        warnings.warn(
            f"CUDA_PATH ({path}) and CUDA_HOME ({home}) name different toolkits; "
            "CUDA_PATH is used first. Unset one, or set PYREVOFF_NVCC.",
            stacklevel=3,
        )


def _warn_if_ours(origin: str, path: str) -> None:
    """Other programs' variables may be stale; ours was set for us."""
    if origin.startswith("$PYREVOFF_"):
        warnings.warn(f"{origin[1:]}: {path} is no program; another is used", stacklevel=3)


def find_nvcc() -> Search:
    """Find nvcc.

    Returns
    -------
    Search
        Order: ``$PYREVOFF_NVCC``, ``$NVCC``, ``$CUDA_PATH/bin``,
        ``$CUDA_HOME/bin``, ``PATH``, the pip wheels, ``/usr/local/cuda``.
        A variable that names a missing file is passed over.

    Warns
    -----
    UserWarning
        ``CUDA_PATH`` and ``CUDA_HOME`` name different toolkits;
        ``PYREVOFF_NVCC`` names no program.
    """
    _warn_if_toolkits_differ()
    tried = []
    for origin, path in _nvcc_candidates():
        tried.append(f"{path} ({origin})")
        if _executable(path):
            return Search([path], tried)
        _warn_if_ours(origin, path)
    return Search([], tried)


def every_nvcc() -> list[str]:
    """All that exist of the places where `find_nvcc` looks, in its order."""
    paths = [path for _, path in _nvcc_candidates() if _executable(path)]
    return list(dict.fromkeys(paths))


def find_cxx() -> Search:
    """Find a C++ compiler for the host.

    Returns
    -------
    Search
        Order: ``$PYREVOFF_CXX``, ``$CXX``, ``g++``, ``clang++``, ``c++``. The
        variables may hold arguments too (``ccache g++``).
    """
    tried = []
    for variable in ("PYREVOFF_CXX", "CXX"):
        words = shlex.split(os.environ.get(variable, ""))
        if words:
            tried.append(f"{words[0]} (${variable})")
            path = shutil.which(words[0])
            if path:
                return Search([path, *words[1:]], tried)
            _warn_if_ours(f"${variable}", words[0])
    for name in ("g++", "clang++", "c++"):
        tried.append(f"{name} (PATH)")
        path = shutil.which(name)
        if path:
            return Search([path], tried)
    return Search([], tried)


def missing_nvcc(search: Search, why: str) -> str:
    """One paragraph: why nvcc is needed, what was tried, what to do."""
    return (
        f"{why} needs nvcc, and there is none. Tried: {', '.join(search.tried)}. "
        f"Install a CUDA toolkit, or: pip install '{NVCC_PACKAGE}'; "
        "or set PYREVOFF_NVCC to the path of an nvcc."
    )


def _output(command: list[str]) -> bytes:
    """What a short command prints on both streams; empty if it fails."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout


@functools.lru_cache(maxsize=16)
def _version_text(command: tuple[str, ...], _size: int, _mtime_ns: int) -> str:
    return _output([*command, "--version"]).decode(errors="replace")


def version_text(command: list[str]) -> str:
    """What the compiler says to ``--version``; asked once per binary."""
    stat = os.stat(command[0])
    return _version_text(tuple(command), stat.st_size, stat.st_mtime_ns)


def nvcc_release(nvcc: str) -> tuple[int, int] | None:
    """Release of an nvcc, such as (13, 0), or None if it does not say."""
    found = re.search(r"release (\d+)\.(\d+)", version_text([nvcc]))
    return (int(found.group(1)), int(found.group(2))) if found else None


@functools.lru_cache(maxsize=16)
def nvcc_archs(nvcc: str) -> list[int]:
    """Compute capabilities that an nvcc compiles for, ascending: 75 is 7.5."""
    said = _output([nvcc, "--list-gpu-arch"])
    return sorted({int(number) for number in re.findall(rb"^compute_(\d+)$", said, re.MULTILINE)})


@functools.lru_cache(maxsize=16)
def toolkit_root(nvcc: str) -> Path:
    """Folder of the toolkit that an nvcc belongs to.

    nvcc on PATH may be a script or a link that stands elsewhere, so the
    compiler itself is asked.
    """
    said = _output([nvcc, "--dryrun", "-E", "-x", "cu", os.devnull])
    found = re.search(rb"^#\$ TOP=(.*)$", said, re.MULTILINE)
    if found:
        return Path(os.path.realpath(os.fsdecode(found.group(1).strip())))
    return Path(os.path.realpath(nvcc)).parent.parent
