# SPDX-License-Identifier: Apache-2.0
"""From what a user gives as an image to what the driver loads."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from . import _paths, compiler
from ._lib import ffi, lib
from .arguments import FLOAT, INTEGER, OTHER, POINTER
from .errors import (
    ArchitectureError,
    ImageError,
    OutOfMemoryError,
    PtxVersionError,
    UnsupportedError,
    check,
)

# C's REVOFF_INPUT_*.
_TYPES = {"so": 0, "ptx": 1, "cubin": 2, "fatbin": 3, "object": 4, "library": 5}
_FATBIN = b"\x50\xed\x55\xba"
_ELF = b"\x7fELF"
_EM_CUDA = 190
_PTX_START = re.compile(rb"\A(?:\s|//[^\n]*\n|/\*.*?\*/)*\.version\s+(\d+)\.(\d+)", re.DOTALL)
_TARGET = re.compile(rb"^\s*\.target\s+([\w, ]+)", re.MULTILINE)
_EXTERN = re.compile(rb"\.extern\s+\.func[^;]*?\bGOMP_target_ext\b", re.DOTALL)
_ENTRY = re.compile(rb"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?", re.DOTALL)
# For messages only: what a source seems to declare.
_KERNEL = re.compile(r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(\w+)\s*\(")
_PARAM = re.compile(rb"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)(\s+\.ptr)?")
_UNSUPPORTED_PTX, _NO_BINARY, _INVALID_PTX = 222, 209, 218


class Input(NamedTuple):
    """One input of the driver's loader or linker."""

    data: bytes
    kind: str
    name: str
    kernels: tuple[str, ...] = ()


def _kind_of_bytes(data: bytes) -> str | None:
    if data.startswith(_FATBIN):
        return "fatbin"
    if data.startswith(_ELF):
        return "cubin" if int.from_bytes(data[18:20], "little") == _EM_CUDA else "so"
    if _PTX_START.match(data):
        return "ptx"
    return None


def _read(path: Path) -> Any:
    data = path.read_bytes()
    if _kind_of_bytes(data) is not None:
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ImageError(f"{path} is no CUDA source, PTX, cubin, fatbin or shared object") from None


def _is_path(source: str) -> bool:
    # One line with a known ending; source code has more.
    return "\n" not in source and source.endswith((".cu", ".ptx", ".cubin", ".fatbin", ".so"))


def _content(source: Any) -> tuple[Any, str]:
    """Text or bytes, and a name, of anything that `load_image` takes."""
    if isinstance(source, os.PathLike):
        path = Path(source)
        return _read(path), path.name
    if isinstance(source, str):
        if _is_path(source):
            return _read(Path(source)), Path(source).name
        return source, "kernel.cu"
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source), "image"
    code = getattr(source, "code", None)
    if code is not None:
        return _content(code)[0], str(getattr(source, "name", "") or type(source).__name__)
    raise TypeError(
        "an image is CUDA source, PTX, bytes, a path or an object with .code, "
        f"not {type(source).__name__}"
    )


def _compile(text: str, device: Any, options: list[str], backend: str, name: str) -> Input:
    if device.kind == "cpu":
        made = compiler.compile_cpu(text, options=options, name=name)
        return Input(made.data, "so", name, tuple(_KERNEL.findall(text)))
    info = device.info()
    # Relocatable: the host finds the device variables of every unit by name.
    if not any(o.startswith(("-rdc", "--relocatable-device-code", "-dc")) for o in options):
        options = ["-rdc=true", *options]
    made = compiler.compile_cuda(
        text,
        arch=f"compute_{info['major']}{info['minor']}",
        options=options,
        backend=backend,
        name=name,
    )
    data = made.data
    if made.kind == "ptx":
        data = compiler.lower_ptx_version(data, info["driver_version"])
    return Input(data, made.kind, name)


def _input(source: Any, device: Any, options: list[str], backend: str, name: str | None) -> Input:
    content, label = _content(source)
    label = name or label
    if isinstance(content, str):
        raw = content.encode()
        if _kind_of_bytes(raw) != "ptx":
            return _compile(content, device, options, backend, label)
        content = raw
    kind = _kind_of_bytes(content)
    if kind is None:
        raise ImageError(
            f"image {label}: the bytes are no PTX, cubin, fatbin or shared object (they begin "
            f"with {content[:8]!r}); CUDA source is given as str"
        )
    if device.kind == "cpu" and kind != "so":
        raise ArchitectureError(
            f"image {label} is {kind}, for a GPU; the CPU device takes CUDA source or a shared "
            "object made from it"
        )
    if device.kind != "cpu" and kind == "so":
        raise ArchitectureError(
            f"image {label} is a shared object of the host, {device} takes CUDA source, PTX, "
            "cubin or fatbin"
        )
    return Input(content, kind, label)


def prepare(
    source: Any,
    device: Any,
    options: list[str],
    name: str | None,
    backend: str,
    link: list[Any],
) -> tuple[list[Input], str]:
    """Compile what has to be compiled, and add the device library if wanted.

    Raises
    ------
    TypeError, ImageError, CompileError, CompilerNotFoundError
    """
    inputs = [_input(source, device, options, backend, name)]
    inputs += [_input(more, device, options, backend, None) for more in link]
    if device.kind == "cpu" and len(inputs) > 1:
        raise UnsupportedError("the CPU device cannot link images: give one source")
    # Code generated for libgomp has its entry undefined.
    if any(i.kind == "ptx" and _EXTERN.search(i.data) for i in inputs):
        inputs.append(Input(_paths.ptx_path().read_bytes(), "ptx", "pyrevoff.ptx"))
    return inputs, inputs[0].name


def _explain(error: ImageError, inputs: list[Input], device: Any) -> ImageError:
    """Turn a refusal into one that says what does not fit."""
    info = device.info()
    capability = f"{info['major']}.{info['minor']}"
    driver = f"{info['driver_version'] // 1000}.{info['driver_version'] % 1000 // 10}"
    ptx = next((i for i in inputs if i.kind == "ptx"), None)
    found = _PTX_START.match(ptx.data) if ptx else None
    version = ".".join(p.decode() for p in found.groups()) if found else "?"
    target = _TARGET.search(ptx.data) if ptx else None
    targets = target.group(1).decode() if target else "?"
    about = (
        f"image {inputs[0].name}: PTX version {version}, target {targets}; driver for CUDA "
        f"{driver}; device {info['name']} of compute capability {capability}"
    )
    text = str(error)
    if error.code == _UNSUPPORTED_PTX or "Unsupported .version" in text:
        return PtxVersionError(
            f"{about}. The PTX is newer than the driver reads: update the driver, or compile "
            f"with a CUDA toolkit of {driver} or older. {text}",
            log=error.log,
            code=error.code,
        )
    wanted = re.search(r"\d+", targets)
    newer = wanted and int(wanted.group()) > info["major"] * 10 + info["minor"]
    if error.code == _NO_BINARY or (ptx and newer):
        return ArchitectureError(
            f"{about}. There is no code for this device in it: compile for "
            f"compute_{info['major']}{info['minor']} or older. {text}",
            log=error.log,
            code=error.code,
        )
    if error.code == _INVALID_PTX:
        return ImageError(f"{about}. {text}", log=error.log, code=error.code)
    return error


def load(inputs: list[Input], device: Any, names: list[str], label: str) -> Any:
    """Give the inputs to the driver; returns the C image.

    Raises
    ------
    PtxVersionError, ArchitectureError, ImageError, AbiError, OutOfMemoryError
    """
    c_inputs = ffi.new("struct revoff_input[]", len(inputs))
    keep = []
    for c, i in zip(c_inputs, inputs):
        data = i.data if i.kind != "ptx" or i.data.endswith(b"\0") else i.data + b"\0"
        buffer, text = ffi.from_buffer(data), ffi.new("char[]", i.name.encode())
        keep += [data, buffer, text]
        c.data, c.size, c.name = buffer, len(data), text
        # One input is loaded as it is, the driver sees what it is.
        c.type = _TYPES[i.kind] if len(inputs) > 1 else 0
    options = ffi.new("struct revoff_image_options *")
    options.device_number = -1
    if names:
        texts = [ffi.new("char[]", n.encode()) for n in names]
        table = ffi.new("char *[]", texts)
        keep += [texts, table]
        options.function_names, options.nfunction_names = table, len(names)
    out = ffi.new("struct revoff_image **")
    try:
        check(lib.revoff_image_load(device.handle, c_inputs, len(inputs), options, out))
    except OutOfMemoryError:
        raise
    except ImageError as error:
        raise _explain(error, inputs, device) from None
    return out[0]


def parameter_classes(inputs: list[Input]) -> dict[str, list[str]]:
    """How the parameters of each kernel are declared, where PTX tells.

    Returns
    -------
    dict of str to list of str
        ``"integer"``, ``"float"``, ``"pointer"`` or ``"other"`` for each parameter.
    """
    found: dict[str, list[str]] = {}
    for i in inputs:
        if i.kind != "ptx":
            continue
        for name, parameters in _ENTRY.findall(i.data):
            kinds = []
            for p, pointer in _PARAM.findall(parameters or b""):
                letter = p[:1]
                plain = FLOAT if letter == b"f" else INTEGER if letter in b"us" else OTHER
                kinds.append(POINTER if pointer else plain)
            found[name.decode()] = kinds
    return found
