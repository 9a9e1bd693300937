# SPDX-License-Identifier: Apache-2.0
"""The three hooks of libgomp's nvptx plugin for reverse offload, at their level.

``load_image`` gives the target table and the reverse-function table, ``run``
launches with libgomp's launch arguments and serves until the kernel has ended,
``set_target_rev`` installs the function that serves reverse calls. Without one,
the default maps the items and calls the function that is bound to the region.

Source: ``GOMP_OFFLOAD_load_image``, ``GOMP_OFFLOAD_run`` and
``GOMP_PLUGIN_target_rev`` of the 2022 patch; docs/gomp.md says what differs.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from . import _trampoline
from ._lib import ffi, lib
from .device import Device
from .errors import NotFoundError, check
from .futures import finish_posted
from .handlers import finite_seconds
from .image import Image
from .launch import Record, serving
from .load import load_image as _load_image

KIND_MASK = 0xFF
FIRSTPRIVATE_INT = 0x0D

NUM_TEAMS = 0x100
THREAD_LIMIT = 0x200


class AddrPair(NamedTuple):
    """An entry of the target table: device addresses, end exclusive."""

    start: int
    end: int


@dataclass(frozen=True)
class Tables:
    """What loading an image gives libgomp.

    Attributes
    ----------
    image : Image
    target : list of AddrPair
        A pair for each function (start is an opaque kernel handle for `run`, 0
        for a reverse function), each variable, and the ICVs last.
    rev_fn : list of int or None
        A device address for each function, 0 for kernels; None if the image has
        no reverse function.
    """

    image: Image
    target: list[AddrPair]
    rev_fn: list[int] | None


class Item(NamedTuple):
    """One map item of a reverse call, on the host.

    Attributes
    ----------
    value : int
        Host address; the value itself for FIRSTPRIVATE_INT; 0 for NULL.
    size : int
        Bytes, as the compiler gave them.
    kind : int
        Map kind, without the alignment.
    device : int
        Device address (or value) as sent.
    """

    value: int
    size: int
    kind: int
    device: int

    def as_array(self, dtype: Any = np.uint8) -> np.ndarray[Any, Any]:
        """View the item's host memory; valid until the region returns.

        Raises
        ------
        ValueError
            The item is a value or NULL.
        """
        if self.kind == FIRSTPRIVATE_INT or not self.value:
            raise ValueError(f"map item of kind 0x{self.kind:02x} has no host memory")
        buffer = ffi.buffer(ffi.cast("char *", self.value), self.size)
        return np.frombuffer(buffer, dtype)


class Region:
    """A Python function, bound to a function of libgomp's table.

    Called with a list of `Item`; what it returns is ignored.
    """

    def __init__(self, name: str, function: Callable[[list[Item]], Any]) -> None:
        self.name = name
        self.function = function

    def __call__(self, call: Any) -> None:
        items = [
            Item(
                int(call.words[i]),
                int(call.sizes[i]),
                int(call.kinds[i]) & KIND_MASK,
                int(call.addresses[i]),
            )
            for i in range(call.nargs)
        ]
        self.function(items)


def _device(ord: int | str | Device | None) -> Device:
    """A device by libgomp's device number, or as anywhere else."""
    if isinstance(ord, int):
        first = Device()
        return first if first.ordinal == ord else Device(f"{first.kind}:{ord}")
    return Device(ord)


def load_image(
    ord: int | str | Device | None,
    image: Any,
    *,
    functions: Sequence[str],
    variables: Sequence[str] = (),
    options: Sequence[str] = (),
    link: Sequence[Any] = (),
) -> Tables:
    """Load an image as libgomp's plugin does.

    Parameters
    ----------
    ord : int, str or Device
        Device number.
    image
        As for `pyrevoff.load_image`; `link` holds further objects, as
        ``mkoffload`` makes several PTX texts.
    functions : sequence of str
        Names of kernels and reverse functions, in the order of the image's
        ``$offload_func_table``.
    variables : sequence of str
        Names of the image's mapped variables.

    Returns
    -------
    Tables

    Raises
    ------
    ImageError
        The image was refused, or its table has another length.
    NotFoundError
        A kernel or variable is not in it.
    """
    loaded = _load_image(
        image,
        device=_device(ord),
        options=options,
        link=link,
        function_names=list(functions),
    )
    try:
        rev = _reverse_table(loaded, functions)
        target = []
        for i, name in enumerate(functions):
            # A reverse function is an empty .func: it cannot be launched.
            handle = 0 if rev and rev[i] else _kernel(loaded, name)
            target.append(AddrPair(handle, handle + 1))
        for name in variables:
            address, size = loaded.symbol(name)
            target.append(AddrPair(address, address + size))
        try:
            address, size = loaded.symbol("__gomp_additional_icvs")
            target.append(AddrPair(address, address + size))
        except NotFoundError:
            target.append(AddrPair(0, 0))
    except BaseException:
        loaded.close()
        raise
    return Tables(loaded, target, rev)


# Kernels that tables name, so that `run` never takes a stray number for one.
_launchable: dict[int, tuple[weakref.ref[Image], str]] = {}


def _kernel(image: Image, name: str) -> int:
    handle = int(ffi.cast("uintptr_t", image._kernel(name)[0]))
    _launchable[handle] = (weakref.ref(image, lambda _: _launchable.pop(handle, None)), name)
    return handle


def _reverse_table(image: Image, functions: Sequence[str]) -> list[int] | None:
    found: dict[str, int] = {}
    out = ffi.new("struct revoff_function *")
    for i in range(lib.revoff_image_function_count(image._open())):
        check(lib.revoff_image_function(image._handle, i, out))
        if out.kind == 1:
            found[ffi.string(out.name).decode()] = int(out.fn)
    return [found.get(name, 0) for name in functions] if found else None


def run(
    ord: int | str | Device | None,
    fn: int,
    vars: int,
    args: Sequence[tuple[int, int]] = (),
    *,
    timeout: float | None = None,
) -> None:
    """Launch a kernel with libgomp's conventions, and serve until it ends.

    Parameters
    ----------
    ord : int, str or Device
    fn : int
        Start of the kernel's pair in the target table.
    vars : int
        Device address that the kernel gets as its first parameter; the others
        are its soft stack and the size of one.
    args : sequence of (int, int)
        Launch arguments: ``(NUM_TEAMS, n)``, ``(THREAD_LIMIT, n)``.
    timeout : float, optional
        Seconds; default: no limit.

    Raises
    ------
    Exception
        Whatever a Python function raised, as it is.
    LaunchTimeout
    CallError
        A reverse call could not be served.
    DriverError
    ValueError
        `fn` is no kernel of an image that is loaded, or one of another device.

    Notes
    -----
    Blocks in C; Ctrl-C is seen by the next call that a Python function serves.
    """
    found = _launchable.get(fn)
    image = found[0]() if found is not None else None
    if found is None or image is None or image.closed:
        raise ValueError(f"0x{fn:x} is not the start of a kernel's pair in a target table")
    device = _device(ord)
    if (device.kind, device.ordinal) != (image.device.kind, image.device.ordinal):
        raise ValueError(f"kernel {found[1]} is loaded on {image.device}, not on {device}")
    words: list[int] = []
    for identifier, value in args:
        # The value stands in the next word: any size fits.
        words += [identifier | 0x80, value]
    words.append(0)
    c_args = ffi.new("void *[]", [ffi.cast("void *", w) for w in words])
    seconds = finite_seconds(timeout, "timeout")
    limit = (1 << 64) - 1 if seconds is None else min(int(seconds * 1e9), (1 << 64) - 1)
    kernel = ffi.cast("struct revoff_kernel *", fn)
    record = Record(image, found[1])
    with image.launching(found[1]), serving(record):
        end = time.monotonic() + seconds if seconds is not None else None
        rc = lib.revoff_gomp_run(kernel, ffi.cast("void *", vars), c_args, limit)
        finish_posted(
            record, rc < 0, lambda: None if end is None else max(0.0, end - time.monotonic())
        )
    failure = record.error
    if failure is not None:
        record.error = None
        raise failure
    check(rc)


def _copied(rc: int) -> None:
    if rc:
        raise ValueError("copies of a target_rev callback work in its thread, until it returns")


def set_target_rev(callback: Callable[..., Any] | None, device: Any = None) -> None:
    """Install what serves the reverse calls of a device's libgomp functions.

    Parameters
    ----------
    callback : callable or None
        Called as ``callback(fn_ptr, mapnum, devaddrs, sizes, kinds, dev_num,
        dev_to_host, host_to_dev)``. The first five are raw: device addresses and
        a count. ``dev_to_host(address, size)`` gives bytes,
        ``host_to_dev(address, data)`` takes a buffer; both copy on the copy
        stream and may be used until the callback returns. None: the default,
        which maps and calls the bound functions.
    device : str, int or Device, optional

    Raises
    ------
    TypeError
        Not callable.
    """
    where = _device(device)
    key = int(ffi.cast("uintptr_t", where.handle))
    if callback is None:
        check(lib.revoff_py_set_target_rev(where.handle, 0))
        _trampoline.target_rev.pop(key, None)
        return
    if not callable(callback):
        raise TypeError(f"target_rev callback {callback!r} is not callable")

    def call(
        fn_ptr: int, mapnum: int, devaddrs: int, sizes: int, kinds: int, dev_num: int, token: Any
    ) -> None:
        def dev_to_host(address: int, size: int) -> bytes:
            data = ffi.new("char[]", max(1, size))
            _copied(lib.revoff_py_dev_to_host(token, data, address, size))
            return bytes(ffi.buffer(data, size))

        def host_to_dev(address: int, data: Any) -> None:
            buffer = ffi.from_buffer(data)
            _copied(lib.revoff_py_host_to_dev(token, address, buffer, len(buffer)))

        callback(fn_ptr, mapnum, devaddrs, sizes, kinds, dev_num, dev_to_host, host_to_dev)

    _trampoline.target_rev[key] = call
    check(lib.revoff_py_set_target_rev(where.handle, 1))


def bind(tables: Tables | Image, fn: int | str, function: Callable[[list[Item]], Any]) -> None:
    """Bind a Python function to a reverse function, by name or device address.

    Raises
    ------
    NotFoundError
        The image has no such reverse function.
    """
    image = tables.image if isinstance(tables, Tables) else tables
    if isinstance(fn, str):
        image.handler(fn, function)
        return
    out = ffi.new("struct revoff_function *")
    for i in range(lib.revoff_image_function_count(image._open())):
        check(lib.revoff_image_function(image._handle, i, out))
        if out.fn == fn:
            image.handler(ffi.string(out.name).decode(), function)
            return
    raise NotFoundError(f"image {image.name} has no reverse function at 0x{fn:x}")
