# SPDX-License-Identifier: Apache-2.0
"""``load_image``: from whatever a user has to an `Image`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import loading
from .device import Device
from .errors import ReentrancyError
from .image import Image
from .launch import in_handler_of


def load_image(
    source: Any,
    *,
    device: str | Device | None = None,
    options: Sequence[str] = (),
    name: str | None = None,
    backend: str = "auto",
    link: Sequence[Any] = (),
    function_names: Sequence[str] = (),
) -> Image:
    """Compile and load an image on a device.

    Parameters
    ----------
    source : str, bytes, path or object
        CUDA C++ source or PTX as text; a cubin, fatbin or (CPU device) shared
        object as bytes; a path to any of these; or an object with a ``code``
        attribute, such as cuda.core's ``ObjectCode``.
    device : str or Device, optional
    options : sequence of str
        For the compiler.
    name : str, optional
        For messages.
    backend : str
        Compiler of CUDA source: ``"auto"``, ``"nvrtc"`` or ``"nvcc"``.
    link : sequence
        More images to link with, as `source`. Not for the CPU device.
    function_names : sequence of str
        Names of the functions in libgomp's table, in its order.

    Returns
    -------
    Image

    Raises
    ------
    CompileError, CompilerNotFoundError
        The source could not be compiled.
    PtxVersionError, ArchitectureError, ImageError
        The driver refused the image; the text says what to do.
    AbiError
        It was compiled with another version of ``pyrevoff.h``.
    ReentrancyError
        Called from a handler of the same device.
    """
    if isinstance(options, str) or isinstance(link, (str, bytes)):
        raise TypeError("options and link are sequences, such as a list of str")
    if backend not in ("auto", "nvrtc", "nvcc"):
        raise ValueError(f"backend must be 'auto', 'nvrtc' or 'nvcc', not {backend!r}")
    where = Device(device)
    if in_handler_of(where):
        raise ReentrancyError(
            "load_image from a handler of the same device: loading waits for the kernel that "
            "waits for the handler. Load images before run()"
        )
    inputs, label = loading.prepare(source, where, list(options), name, backend, list(link))
    handle = loading.load(inputs, where, list(function_names), label)
    listed = [name for i in inputs for name in i.kernels]
    return Image(handle, where, label, loading.parameter_classes(inputs), listed)
