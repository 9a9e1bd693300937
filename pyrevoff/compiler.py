# SPDX-License-Identifier: Apache-2.0
"""Compile users' CUDA C++ for a GPU (NVRTC or nvcc) or for the CPU device."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from . import _cache, _nvrtc, _paths, _toolchain
from ._options import cpu_options, has_option, scan_includes
from ._version import __version__
from .errors import CompileError, CompilerNotFoundError

__all__ = ["CompiledImage", "compile_cpu", "compile_cuda", "lower_ptx_version"]

DEFAULT_ARCH = "compute_75"
COMPILE_SECONDS = 600

# What changes a compiler's work from outside of its command line.
_VARIABLES = (
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "NVCC_PREPEND_FLAGS",
)

# PTX version of each CUDA release, (major, minor) in ascending order.
_PTX_OF_CUDA = (
    ((9, 0), (6, 0)),
    ((9, 1), (6, 1)),
    ((9, 2), (6, 2)),
    ((10, 0), (6, 3)),
    ((10, 1), (6, 4)),
    ((10, 2), (6, 5)),
    *(((11, minor), (7, minor)) for minor in range(9)),
    *(((12, minor), (8, minor)) for minor in range(6)),
    ((12, 6), (8, 5)),
    ((12, 7), (8, 6)),
    ((12, 8), (8, 7)),
    ((12, 9), (8, 8)),
    *(((13, minor), (9, minor)) for minor in range(6)),
)
_VERSION_LINE = re.compile(rb"^([ \t]*\.version[ \t]+)(\d+)\.(\d+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class CompiledImage:
    """A compiled image.

    Attributes
    ----------
    data : bytes
        The code; PTX is without a final NUL.
    kind : str
        "ptx", "cubin", or "so" (for the CPU device).
    log : str
        What the compiler said; warnings, as a rule.
    """

    data: bytes = dataclasses.field(repr=False)
    kind: str
    log: str = ""


def lower_ptx_version(ptx: bytes, driver_version: int) -> bytes:
    """Lower PTX's ``.version`` to what a driver takes, if it is higher.

    A compiler writes the newest version that it knows, needed or not, and an
    older driver refuses it unseen. PTX that does use something newer is still
    refused, by the driver's own message.

    Parameters
    ----------
    ptx : bytes
        PTX text.
    driver_version : int
        As cuDriverGetVersion gives it: 12040 is 12.4.

    Returns
    -------
    bytes
        The same text, or the text with another version.
    """
    driver = (driver_version // 1000, driver_version % 1000 // 10)
    if driver > _PTX_OF_CUDA[-1][0]:
        return ptx
    known = [version for cuda, version in _PTX_OF_CUDA if cuda <= driver]
    found = _VERSION_LINE.search(ptx)
    if not known or not found or (int(found.group(2)), int(found.group(3))) <= known[-1]:
        return ptx
    line = found.group(1) + b"%d.%d" % known[-1]
    return ptx[: found.start()] + line + ptx[found.end() :]


def _headers_digest() -> bytes:
    root = _paths.include_dir()
    parts: list[bytes] = []
    for path in sorted(root.rglob("*.h")):
        parts += [path.relative_to(root).as_posix().encode(), path.read_bytes()]
    return _cache.make_key(parts).encode()


def _key(identity: Sequence[str], source: str, name: str, options: Sequence[str]) -> str:
    outside = [f"{variable}={os.environ.get(variable, '')}" for variable in _VARIABLES]
    parts = [__version__, *identity, name, os.getcwd() if options else "", *outside]
    return _cache.make_key(
        [
            _headers_digest(),
            *(part.encode() for part in parts),
            b"options",
            *(option.encode() for option in options),
            source.encode(),
        ]
    )


def _check(source: object, name: object, options: Sequence[str]) -> list[str]:
    """Refuse what no compiler call can carry; returns the options as a list."""
    if not isinstance(source, str):
        raise TypeError(f"the source must be a str, not {type(source).__name__}")
    if not isinstance(name, str):
        raise TypeError(f"the name must be a str, not {type(name).__name__}")
    if isinstance(options, (str, bytes)):
        raise TypeError("options must be a sequence of str, one option each")
    words = list(options)
    for text in (source, name, *words):
        if not isinstance(text, str):
            raise TypeError(f"an option must be a str, not {type(text).__name__}")
        if "\0" in text:
            raise ValueError("source, name and options cannot hold NUL characters")
    if "\n" in name:
        raise ValueError("the name cannot hold a line break")
    return words


def _arch_flag(arch: str | None) -> str:
    flag = arch or DEFAULT_ARCH
    if re.fullmatch(r"\d+[af]?", flag):
        flag = f"compute_{flag}"
    if not re.fullmatch(r"(compute|sm)_\d+[af]?", flag):
        raise ValueError(f"arch must look like 'compute_75' or 'sm_90', not {arch!r}")
    return flag


def _clamp(arch: str, known: Sequence[int]) -> str:
    """The newest virtual architecture of a compiler that is not above `arch`.

    Drivers compile PTX of an older architecture for a newer GPU.
    """
    number = re.fullmatch(r"compute_(\d+)", arch)
    lower = [n for n in known if number and n <= int(number.group(1))]
    return f"compute_{max(lower)}" if lower else arch


def compile_cuda(
    source: str,
    *,
    arch: str | None = None,
    options: Sequence[str] = (),
    backend: str = "auto",
    name: str = "kernel.cu",
) -> CompiledImage:
    """Compile CUDA C++ for a GPU. No GPU and no driver is needed.

    Parameters
    ----------
    source : str
        The text. ``#include <pyrevoff.h>`` is found; folders of other headers
        must be in `options` (``-Ifolder``).
    arch : str, optional
        "compute_90" gives PTX, "sm_90" a cubin. Default: compute_75, PTX for
        every supported GPU. A virtual architecture that the compiler
        does not know is lowered to the next that it does.
    options : sequence of str
        Further options of the compiler. ``-std=c++17`` is the default.
    backend : {"auto", "nvrtc", "nvcc"}
        NVRTC is faster and needs no host compiler, but has no host headers.
        "auto" takes nvcc only if there is no NVRTC.
    name : str
        What messages call the source.

    Returns
    -------
    CompiledImage
        From the cache on disk where nothing has changed.

    Raises
    ------
    CompileError
        The source has errors; ``log`` holds the compiler's messages.
    CompilerNotFoundError
        There is no such compiler; the text says what was tried.
    TypeError, ValueError
        An argument is wrong.
    """
    words = _check(source, name, options)
    target = _arch_flag(arch)
    if backend not in ("auto", "nvrtc", "nvcc"):
        raise ValueError(f"backend must be 'auto', 'nvrtc' or 'nvcc', not {backend!r}")
    tried: list[str] = []
    if backend != "nvcc":
        library, tried = _nvrtc.load()
        if library:
            return _compile_nvrtc(library, source, target, words, name)
    if backend != "nvrtc":
        search = _toolchain.find_nvcc()
        if search.command:
            return _compile_nvcc(search.command[0], source, target, words, name)
        tried += search.tried
    what = {"auto": "NVRTC or nvcc", "nvrtc": "NVRTC", "nvcc": "nvcc"}[backend]
    raise CompilerNotFoundError(
        f"compiling {name} for a GPU needs {what}, and there is none. "
        f"Tried: {'; '.join(tried)}. Install one with: pip install 'pyrevoff[cuda]', or set "
        "PYREVOFF_NVRTC to a libnvrtc.so or PYREVOFF_NVCC to an nvcc."
    )


def _compile_nvrtc(
    library: _nvrtc.Nvrtc, source: str, arch: str, options: list[str], name: str
) -> CompiledImage:
    arch = _clamp(arch, library.archs())
    kind = "cubin" if arch.startswith("sm_") else "ptx"
    include = _paths.include_dir()
    flags = [f"-I{include}", *options]
    if not has_option(options, "-arch", "--gpu-architecture"):
        flags.insert(0, f"--gpu-architecture={arch}")
    if not has_option(options, "-std", "--std"):
        flags.insert(0, "-std=c++17")
    files = scan_includes(source, flags, include)
    stat = os.stat(library.path) if os.path.exists(library.path) else None
    identity = [
        "nvrtc",
        *(str(part) for part in library.version),
        library.path,
        f"{stat.st_size} {stat.st_mtime_ns}" if stat else "",
    ]
    key = ""
    if files is not None:
        # The files found are part of the key: another file found first, by
        # the same name, is another key.
        key = _key([*identity, *(path for path, _ in files)], source, name, flags)
        entry = _cache.get(key)
        if entry:
            return CompiledImage(entry.data, kind, entry.log)
    try:
        data, log = library.compile(source, name, flags, kind)
    except _nvrtc.NvrtcFailure as failure:
        hint = ""
        if re.search(r"cannot open source file|could not open source file", failure.log):
            hint = (
                "\nNVRTC has no host headers, such as <stdint.h> or <cmath>: leave them out, "
                "add folders with options=['-I...'], or use backend='nvcc'."
            )
        raise CompileError(
            f"{name} does not compile ({failure}):\n{failure.log}{hint}", log=failure.log
        ) from None
    if files is not None:
        _cache.put(key, _cache.Entry(data, log), files)
    return CompiledImage(data, kind, log)


def _compile_nvcc(
    nvcc: str, source: str, arch: str, options: list[str], name: str
) -> CompiledImage:
    host = _toolchain.find_cxx()
    if not host.command:
        raise CompilerNotFoundError(
            f"nvcc ({nvcc}) needs a C++ compiler for the host, and there is none. "
            f"Tried: {', '.join(host.tried)}. Install g++, or set PYREVOFF_CXX."
        )
    arch = _clamp(arch, _toolchain.nvcc_archs(nvcc))
    kind = "cubin" if arch.startswith("sm_") else "ptx"
    flags = [f"-I{_paths.include_dir()}", *options]
    if not has_option(options, "-arch", "--gpu-architecture", "-gencode", "--generate-code"):
        flags.insert(0, f"-arch={arch}")
    if not has_option(options, "-std", "--std"):
        flags.insert(0, "-std=c++17")
    if not has_option(options, "-ccbin", "--compiler-bindir") and "NVCC_CCBIN" not in os.environ:
        flags += ["-ccbin", host.command[0]]
    identity = ["nvcc", nvcc, _toolchain.version_text([nvcc]), *_identity(host.command)]
    text = f"#line 1 {_quoted(name)}\n{source}"
    skip = str(_toolchain.toolkit_root(nvcc))
    return _run_compiler([nvcc, f"-{kind}", *flags], identity, text, name, ".cu", kind, skip)


def compile_cpu(
    source: str, *, options: Sequence[str] = (), name: str = "kernel.cu"
) -> CompiledImage:
    """Compile CUDA C++ for the CPU device, with the host's C++ compiler.

    Parameters
    ----------
    source : str
        The text, the same as for a GPU.
    options : sequence of str
        As for a GPU: macros, folders and the language standard count, and so
        do the host compiler's own options; options that only a compiler for
        GPUs knows are left out.
    name : str
        What messages call the source.

    Returns
    -------
    CompiledImage
        A shared object (kind "so"); from the cache where nothing has changed.

    Raises
    ------
    CompileError
        The source has errors; ``log`` holds the compiler's messages.
    CompilerNotFoundError
        There is no C++ compiler; the text says what was tried.
    TypeError, ValueError
        An argument is wrong.
    """
    from . import _cpu_source

    words = cpu_options(_check(source, name, options))
    for word in words:
        if re.match("-fsanitize=.*(address|thread|leak|memory)", word) and not re.search(
            "lib[atlm]san", os.environ.get("LD_PRELOAD", "")
        ):
            raise ValueError(
                f"option {word}: a process must be started with it (LD_PRELOAD=libasan.so); one "
                "that only loads such a kernel is ended by it"
            )
    host = _toolchain.find_cxx()
    if not host.command:
        raise CompilerNotFoundError(
            f"compiling {name} for the CPU device needs a C++ compiler, and there is none. "
            f"Tried: {', '.join(host.tried)}. Install g++ or clang++, or set PYREVOFF_CXX."
        )
    flags = [*_cpu_source.compile_flags(), f"-I{_paths.include_dir()}"]
    if "-include" not in flags:
        flags += ["-include", "revoff/cpu.h"]
    command = [*host.command, *flags, *words]
    text = _cpu_source.translate(source, name)
    return _run_compiler(command, ["cpu", *_identity(host.command)], text, name, ".cc", "so")


def _identity(command: list[str]) -> list[str]:
    stat = os.stat(command[0])
    return [
        *command,
        f"{stat.st_size} {stat.st_mtime_ns}",
        _toolchain.version_text(command),
    ]


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _run_compiler(
    command: list[str],
    identity: list[str],
    text: str,
    name: str,
    suffix: str,
    kind: str,
    skip: str = "/usr/include",
) -> CompiledImage:
    """Run a compiler, unless the cache has its output.

    Headers under the folder `skip` are the compiler's own.
    """
    key = _key([*identity, kind], text, name, command)
    entry = _cache.get(key)
    if entry:
        return CompiledImage(entry.data, kind, entry.log)
    started = time.time()
    with tempfile.TemporaryDirectory(prefix="pyrevoff-") as folder:
        source, output, depends = (
            Path(folder, part) for part in (f"source{suffix}", "output", "depends")
        )
        source.write_text(text, encoding="utf-8")
        words = [*command, "-MD", "-MF", str(depends), "-o", str(output), str(source)]
        try:
            done = subprocess.run(
                words,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                # Messages are searched and shown; other languages than the
                # user's editor knows help nobody.
                env={**os.environ, "LC_ALL": "C"},
                timeout=COMPILE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CompileError(
                f"{command[0]} did not end within {COMPILE_SECONDS} s on {name}", log=""
            ) from None
        except OSError as error:
            raise CompilerNotFoundError(f"{command[0]} does not start: {error}") from error
        log = done.stdout.decode(errors="replace").replace(str(source), name).strip()
        if done.returncode or not output.exists():
            raise CompileError(
                f"{name} does not compile ({command[0]}, status {done.returncode}):\n{log}",
                log=log,
            )
        data = output.read_bytes()
        files = _dependencies(depends, (folder, skip))
    if all(os.path.getmtime(path) < started for path, digest in files if digest):
        _cache.put(key, _cache.Entry(data, log), files)
    return CompiledImage(data, kind, log)


def _dependencies(path: Path, own: tuple[str, ...]) -> list[tuple[str, str]]:
    """The user's headers of a dependency file in make's syntax, with hashes.

    The system's come with the compiler, whose version is in the key, and ours
    are in the key.
    """
    text = path.read_text(encoding="utf-8", errors="surrogateescape").replace("\\\n", " ")
    _, _, names = text.partition(": ")
    skipped = (*own, "/usr/include", "/usr/lib", str(_paths.include_dir()))
    files = []
    for word in re.findall(r"(?:\\.|[^\s\\])+", names):
        name = os.path.abspath(re.sub(r"\\(.)", r"\1", word).replace("$$", "$"))
        if not any(name.startswith(os.path.join(start, "")) for start in skipped):
            files.append((name, _cache.file_hash(name)))
    return sorted(set(files))
