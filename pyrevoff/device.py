# SPDX-License-Identifier: Apache-2.0
"""Devices: which there are, which is taken, and memory on them."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ._lib import ffi, lib
from .errors import NoDeviceError, NoDriverError, RevoffError, check

_PLATFORMS = {"cuda": 0, "cpu": 1}
_PLACEMENTS = {"pinned": 0, "managed": 1, "copy": 2}
_LOCKS = {"device": 0, "mailbox": 1}
_WAITS = {"adaptive": 0, "spin": 1, "patch": 2}
_TRANSPORTS = {"ports": 0, "mailbox": 1}


def _choice(value: str | None, variable: str, known: Sequence[str], default: str) -> str:
    """An option: the argument, else the environment, else the default."""
    if value is None:
        value = os.environ.get(variable) or default
        what = variable
    else:
        what = variable.removeprefix("PYREVOFF_").lower()
    if value not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}, not {value!r}")
    return value


# What C reads itself, where it could only go on in silence (csrc/cpu).
_NUMBERS: dict[str, tuple[float, float]] = {
    "PYREVOFF_CPU_DEVICES": (1, 16),
    "PYREVOFF_CPU_WORKERS": (1, 64),
    "PYREVOFF_CPU_FAULTS": (0, 1),
    "PYREVOFF_CPU_STACK": (16 << 10, 1 << 30),
}


def _check_numbers() -> None:
    """Refuse settings that are no numbers, or out of range.

    Raises
    ------
    ValueError
    """
    for variable, (least, most) in _NUMBERS.items():
        text = os.environ.get(variable)
        if text and not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise ValueError(f"{variable} is a number from {least} to {most}, not {text!r}")
    watchdog_seconds()


def watchdog_seconds() -> float:
    """Seconds without progress after which a warning is logged; 0: never.

    Raises
    ------
    ValueError
        ``PYREVOFF_WATCHDOG`` is not such a number.
    """
    text = os.environ.get("PYREVOFF_WATCHDOG") or "10"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise ValueError(f"PYREVOFF_WATCHDOG is a number of seconds, or 0 for never, not {text!r}")
    return seconds


def _parse(spec: str) -> tuple[str, int]:
    if not isinstance(spec, str):
        raise TypeError(f"a device is 'cpu', 'cpu:N', 'cuda' or 'cuda:N', not {spec!r}")
    kind, _, number = spec.strip().lower().partition(":")
    if kind not in _PLATFORMS or (number and not number.isdigit()):
        raise ValueError(f"a device is 'cpu', 'cpu:N', 'cuda' or 'cuda:N', not {spec!r}")
    return kind, int(number or 0)


def _count(kind: str) -> int:
    out = ffi.new("int *")
    check(lib.revoff_device_count(_PLATFORMS[kind], out))
    return int(out[0])


def _query(kind: str, ordinal: int) -> dict[str, Any]:
    info = ffi.new("struct revoff_device_info *")
    check(lib.revoff_device_query(_PLATFORMS[kind], ordinal, info))
    found = {n: getattr(info, n) for n, _ in ffi.typeof(info[0]).fields}
    found["name"] = ffi.string(info.name).decode(errors="replace")
    return found


def why_not(device: str = "cuda") -> str | None:
    """Say why a device cannot be used.

    Parameters
    ----------
    device : str
        As for `Device`.

    Returns
    -------
    str or None
        None if it can. Never raises for a device that is not there.
    """
    kind, ordinal = _parse(device)
    try:
        info = _query(kind, ordinal)
    except RevoffError as error:
        return str(error)
    if kind == "cuda" and info["major"] < 7:
        return f"compute capability {info['major']}.{info['minor']}: 7.0 is needed"
    return None


def is_available(device: str = "cuda") -> bool:
    """Tell whether a device can be used; `why_not` says why if not."""
    return why_not(device) is None


def devices() -> list[str]:
    """Names of all devices, such as ``["cuda:0", "cpu:0"]``."""
    found = []
    for kind in ("cuda", "cpu"):
        try:
            found += [f"{kind}:{i}" for i in range(_count(kind))]
        except RevoffError:
            continue
    return found


class Device:
    """A device, opened once for each combination of options.

    Parameters
    ----------
    spec : str, optional
        ``"cpu"``, ``"cpu:1"``, ``"cuda"`` or ``"cuda:1"``, numbered as the driver
        does under its visibility rules. Default: ``PYREVOFF_DEVICE``, else the
        first usable CUDA device, else the CPU device.
    transport : str, optional
        ``"ports"`` (many calls at a time) or ``"mailbox"`` (one at a time, libgomp's
        protocol). Default: ``PYREVOFF_TRANSPORT``, else ports, or the mailbox where
        one of the options below is asked for that only it has.
    placement : str, optional
        ``"pinned"`` (default), ``"managed"`` or ``"copy"``: where the mailbox lies.
        Ports always lie in pinned memory.
    lock : str, optional
        ``"device"`` (default) or ``"mailbox"``: where the mailbox's lock lies.
    wait : str, optional
        ``"adaptive"`` (default), ``"spin"`` or ``"patch"`` (mailbox only): how the
        host waits.

    Attributes
    ----------
    kind : str
        ``"cuda"`` or ``"cpu"``.
    ordinal : int
    placement, lock, wait, transport : str

    Raises
    ------
    NoDeviceError, NoDriverError
        There is no such device; the text lists what there is.
    UnsupportedError
        The device cannot have its mailbox there.
    ValueError
        An option that does not exist, or that ports do not have.
    """

    kind: str
    ordinal: int
    placement: str
    lock: str
    wait: str
    transport: str
    handle: Any

    _opened: ClassVar[dict[tuple[Any, ...], Device]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __new__(
        cls,
        spec: str | Device | None = None,
        *,
        transport: str | None = None,
        placement: str | None = None,
        lock: str | None = None,
        wait: str | None = None,
    ) -> Device:
        if isinstance(spec, Device):
            return spec
        placement = _choice(placement, "PYREVOFF_PLACEMENT", list(_PLACEMENTS), "pinned")
        lock = _choice(lock, "PYREVOFF_LOCK", list(_LOCKS), "device")
        wait = _choice(wait, "PYREVOFF_WAIT", list(_WAITS), "adaptive")
        transport = _transport(transport, placement, lock, wait)
        _check_numbers()
        kind, ordinal = _parse(spec) if spec is not None else default_device()
        key = (kind, ordinal, transport, placement, lock, wait)
        with cls._guard:
            found = cls._opened.get(key)
            if found is None:
                found = object.__new__(cls)
                found.handle = _open(*key)
                found.kind, found.ordinal, found.transport = kind, ordinal, transport
                found.placement, found.lock, found.wait = placement, lock, wait
                cls._opened[key] = found
        return found

    def __repr__(self) -> str:
        return f"<pyrevoff.Device {self} {self.describe()}>"

    def __str__(self) -> str:
        return f"{self.kind}:{self.ordinal}"

    def describe(self) -> str:
        """The transport, and where it lies: ``"ports"``, ``"mailbox copy"``."""
        return "ports" if self.transport == "ports" else f"mailbox {self.placement}"

    def __reduce__(self) -> Any:
        raise TypeError("a Device belongs to its process and cannot be pickled")

    def info(self) -> dict[str, Any]:
        """What the driver says of it: name, capability, attributes, bytes of memory."""
        return _query(self.kind, self.ordinal)

    @property
    def context(self) -> int:
        """Address of its primary context, a ``CUcontext``."""
        return int(ffi.cast("uintptr_t", lib.revoff_device_context(self.handle)))


def _transport(transport: str | None, placement: str, lock: str, wait: str) -> str:
    """The transport that goes with the other options."""
    asked = {"placement": placement, "lock": lock, "wait": wait}
    only = {"placement": ("managed", "copy"), "lock": ("mailbox",), "wait": ("patch",)}
    of_mailbox = [f"{n}={v!r}" for n, v in asked.items() if v in only[n]]
    found = _choice(
        transport,
        "PYREVOFF_TRANSPORT",
        list(_TRANSPORTS),
        "mailbox" if of_mailbox else "ports",
    )
    if found == "ports" and of_mailbox:
        raise ValueError(
            f"transport='ports' does not go with {', '.join(of_mailbox)}, which only the "
            "mailbox has: leave out one of them, or take transport='mailbox'"
        )
    return found


def _open(kind: str, ordinal: int, transport: str, placement: str, lock: str, wait: str) -> Any:
    options = ffi.new("struct revoff_device_options *")
    options.transport = _TRANSPORTS[transport]
    options.placement = _PLACEMENTS[placement]
    options.lock = _LOCKS[lock]
    options.wait = _WAITS[wait]
    out = ffi.new("struct revoff_device **")
    try:
        check(lib.revoff_device_open(_PLATFORMS[kind], ordinal, options, out))
    except (NoDeviceError, NoDriverError) as error:
        there = ", ".join(devices()) or "none"
        raise type(error)(f"{kind}:{ordinal}: {error}. Devices here: {there}") from None
    return out[0]


def default_device() -> tuple[str, int]:
    """Kind and number of the device that is taken where none is named."""
    wanted = os.environ.get("PYREVOFF_DEVICE")
    if wanted:
        return _parse(wanted)
    try:
        for ordinal in range(_count("cuda")):
            if is_available(f"cuda:{ordinal}"):
                return "cuda", ordinal
    except (NoDriverError, NoDeviceError):
        pass
    return "cpu", 0


class DeviceArray:
    """Device memory with a shape; made by `empty` and `asarray`.

    Owns its memory, which is given back when the object goes. A kernel takes it
    as an argument as it is.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    address : int
        Device address; 0 if the array is empty.
    nbytes : int
    device : Device
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: Device) -> None:
        if dtype.hasobject or not dtype.isnative:
            raise TypeError(f"dtype {dtype!r} cannot lie in device memory")
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.nbytes = math.prod(shape) * dtype.itemsize
        out = ffi.new("uint64_t *")
        check(lib.revoff_alloc(device.handle, self.nbytes, out))
        self.address = int(out[0])
        finalizer = weakref.finalize(self, lib.revoff_free, device.handle, self.address)
        finalizer.atexit = False

    def __repr__(self) -> str:
        return f"<pyrevoff.DeviceArray {self.shape} {self.dtype} on {self.device}>"

    def __array__(self, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
        raise TypeError("device memory is no NumPy array: copy_to_host() makes one")

    def copy_from_host(self, array: Any) -> DeviceArray:
        """Copy host data in; allowed in handlers.

        Parameters
        ----------
        array : array_like
            Of this shape, or broadcastable to it, and convertible to its dtype
            without loss (``same_kind``).
        """
        data = np.empty(self.shape, self.dtype)
        np.copyto(data, array, casting="same_kind")
        pointer = ffi.cast("void *", data.__array_interface__["data"][0])
        check(lib.revoff_copy_to_device(self.device.handle, self.address, pointer, self.nbytes))
        return self

    def copy_to_host(self) -> np.ndarray[Any, Any]:
        """Copy to a new NumPy array; allowed in handlers."""
        data = np.empty(self.shape, self.dtype)
        pointer = ffi.cast("void *", data.__array_interface__["data"][0])
        check(lib.revoff_copy_from_device(self.device.handle, pointer, self.address, self.nbytes))
        return data

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.device.kind != "cuda":
            raise AttributeError("the memory of a CPU device is not CUDA's")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None,
            "descr": self.dtype.descr,
        }


def empty(
    shape: int | Sequence[int], dtype: Any = float, *, device: str | Device | None = None
) -> DeviceArray:
    """Allocate a device array with undefined content.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : data-type
    device : str or Device, optional

    Raises
    ------
    OutOfMemoryError
        The device has no such memory left.
    """
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if any(int(n) < 0 for n in sizes):
        raise ValueError(f"negative size in shape {sizes}")
    return DeviceArray(tuple(int(n) for n in sizes), np.dtype(dtype), Device(device))


def asarray(array: Any, dtype: Any = None, *, device: str | Device | None = None) -> DeviceArray:
    """Copy host data to a new device array.

    Parameters
    ----------
    array : array_like
    dtype : data-type, optional
    device : str or Device, optional
    """
    data = np.asarray(array, dtype)
    return empty(data.shape, data.dtype, device=device).copy_from_host(data)
