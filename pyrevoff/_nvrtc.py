# SPDX-License-Identifier: Apache-2.0
"""NVRTC, NVIDIA's run-time compiler, through a binding of our own.

Needs neither a driver nor a host compiler. The library is opened at first
use, never at import.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import _toolchain

_DECLARATIONS = """
typedef int nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;
const char *nvrtcGetErrorString(nvrtcResult result);
nvrtcResult nvrtcVersion(int *major, int *minor);
nvrtcResult nvrtcGetNumSupportedArchs(int *count);
nvrtcResult nvrtcGetSupportedArchs(int *archs);
nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source,
        const char *name, int nheaders, const char *const *headers,
        const char *const *include_names);
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program);
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int noptions,
        const char *const *options);
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *size);
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *ptx);
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *size);
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *cubin);
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *size);
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log);
"""

_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12")


class NvrtcFailure(Exception):
    """NVRTC refused a program; ``log`` is the compiler's text."""

    def __init__(self, reason: str, log: str) -> None:
        super().__init__(reason)
        self.log = log


class Result(NamedTuple):
    """What a compilation gave: the code without a final NUL, and the log."""

    data: bytes
    log: str


def _in_folder(folder: Path) -> list[str]:
    return [str(folder / name) for name in _SONAMES if (folder / name).exists()]


def _candidates() -> Iterator[str]:
    """Paths, or names for the loader, in order of preference."""
    named = os.environ.get("PYREVOFF_NVRTC", "").strip()
    if named:
        yield named
    for folder in _toolchain.wheel_folders():
        yield from _in_folder(folder / "lib")
    # Only now: finding the toolkit may start a process.
    nvcc = _toolchain.find_nvcc().command
    if nvcc:
        root = _toolchain.toolkit_root(nvcc[0])
        for name in ("lib64", "lib", "targets/x86_64-linux/lib"):
            yield from _in_folder(root / name)
    yield from _SONAMES


class Nvrtc:
    """An opened NVRTC library. Safe to use from several threads."""

    def __init__(self, ffi: Any, lib: Any, path: str, builtins: Any) -> None:
        self._ffi = ffi
        self._lib = lib
        self._builtins = builtins  # keeps the library open
        self.path = path
        numbers = ffi.new("int[2]")
        self._check(lib.nvrtcVersion(numbers, numbers + 1), "nvrtcVersion")
        self.version: tuple[int, int] = (numbers[0], numbers[1])

    def _check(self, result: int, what: str, log: str = "") -> None:
        if result:
            text = self._ffi.string(self._lib.nvrtcGetErrorString(result)).decode()
            raise NvrtcFailure(f"{what}: {text}", log)

    def archs(self) -> list[int]:
        """Compute capabilities that it compiles for, ascending: 75 is 7.5."""
        count = self._ffi.new("int *")
        self._check(self._lib.nvrtcGetNumSupportedArchs(count), "nvrtcGetNumSupportedArchs")
        numbers = self._ffi.new("int[]", count[0])
        self._check(self._lib.nvrtcGetSupportedArchs(numbers), "nvrtcGetSupportedArchs")
        return sorted(numbers)

    def _text(self, program: Any, what: str) -> bytes:
        size = self._ffi.new("size_t *")
        self._check(getattr(self._lib, f"nvrtcGet{what}Size")(program, size), what)
        buffer = self._ffi.new("char[]", max(size[0], 1))
        self._check(getattr(self._lib, f"nvrtcGet{what}")(program, buffer), what)
        return bytes(self._ffi.buffer(buffer, size[0]))

    def compile(self, source: str, name: str, options: Sequence[str], kind: str) -> Result:
        """Compile CUDA C++.

        Parameters
        ----------
        source : str
            The text; no NUL in it.
        name : str
            What the log calls the source.
        options : sequence of str
            NVRTC's own options.
        kind : {"ptx", "cubin"}
            What to get; "cubin" wants a real architecture in `options`.

        Raises
        ------
        NvrtcFailure
            The program has errors, or an option is wrong.
        """
        ffi, lib = self._ffi, self._lib
        program = ffi.new("nvrtcProgram *")
        words = [ffi.new("char[]", option.encode()) for option in options]
        self._check(
            lib.nvrtcCreateProgram(program, source.encode(), name.encode(), 0, ffi.NULL, ffi.NULL),
            "nvrtcCreateProgram",
        )
        try:
            result = lib.nvrtcCompileProgram(
                program[0], len(words), ffi.new("const char *[]", words)
            )
            log = self._text(program[0], "ProgramLog").rstrip(b"\0").decode(errors="replace")
            self._check(result, "NVRTC", log)
            data = self._text(program[0], "CUBIN" if kind == "cubin" else "PTX")
        finally:
            lib.nvrtcDestroyProgram(program)
        return Result(data if kind == "cubin" else data.rstrip(b"\0"), log.strip())


def _open_one(path: str) -> Nvrtc:
    """Open the library at a path or by a loader's name; OSError if it fails."""
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(_DECLARATIONS)
    # NVRTC opens its builtins by name when it first compiles, and looks in the
    # loader's folders only. A copy that is loaded already is found by name.
    builtins = []
    if os.sep in path:
        for companion in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")):
            if re.fullmatch(r"libnvrtc-builtins\.so\.\d+\.\d+", companion.name):
                builtins.append(ffi.dlopen(str(companion)))
    return Nvrtc(ffi, ffi.dlopen(path), path, builtins)


_lock = threading.Lock()
_opened: dict[str, Nvrtc] = {}


def load() -> tuple[Nvrtc | None, list[str]]:
    """Open the first NVRTC that can be opened.

    Returns
    -------
    Nvrtc or None
        The library; opened once per path.
    list of str
        What was tried before it, with the reason of each failure.
    """
    tried = []
    with _lock:
        for path in _candidates():
            try:
                if path not in _opened:
                    _opened[path] = _open_one(path)
            except (OSError, AttributeError, NvrtcFailure) as error:
                tried.append(f"{path} ({error})")
                continue
            return _opened[path], tried
    return None, tried
