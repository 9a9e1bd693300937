# SPDX-License-Identifier: Apache-2.0
"""Kernel arguments: scalars, mapped arrays and device arrays to bytes."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import dlpack
from ._lib import ffi, lib
from .errors import check, shown

_ALLOC, _TO, _FROM, _TOFROM = 0, 1, 2, 3
_NAMES = {_ALLOC: "alloc", _TO: "to", _FROM: "from_", _TOFROM: "tofrom"}
# How a parameter is declared, where the image says: see image.parameter_classes.
_REACHABLE = {
    "cpu": (dlpack.CPU, dlpack.CUDA_HOST, dlpack.CUDA_MANAGED),
    "cuda": (dlpack.CUDA, dlpack.CUDA_HOST, dlpack.CUDA_MANAGED),
}
INTEGER: str = "integer"
FLOAT: str = "float"
POINTER: str = "pointer"
OTHER: str = "other"


def _overlaps_itself(array: np.ndarray[Any, Any]) -> bool:
    """Whether two elements of an array may share memory; True in doubt."""
    reach = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(array.strides, array.shape) if n != 1):
        # Sorted, each step must go beyond all that the smaller ones reach.
        if n and stride < reach:
            return bool(array.size)
        reach += stride * (n - 1)
    return False


class Mapped:
    """An array to be mapped for a launch; made by `to` and its sisters."""

    __slots__ = ("array", "kind")

    def __init__(self, array: Any, kind: int) -> None:
        name = _NAMES[kind]
        if not isinstance(array, np.ndarray):
            raise TypeError(
                f"{name}() takes a numpy.ndarray, not {type(array).__name__}; "
                "device arrays are passed as they are"
            )
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"{name}(): a masked array; pass its .data, or .filled(value)")
        if array.dtype.hasobject:
            raise TypeError(f"{name}(): dtype {array.dtype} holds Python objects")
        if not array.dtype.isnative:
            raise TypeError(
                f"{name}(): dtype {array.dtype!r} is not in this machine's byte order; use "
                "a.astype(a.dtype.newbyteorder('='))"
            )
        if kind & _FROM:
            if not array.flags.writeable:
                raise ValueError(f"{name}(): the array is read-only and cannot be written back")
            if _overlaps_itself(array):
                raise ValueError(
                    f"{name}(): several elements of the array are one and the same memory (it is "
                    "broadcast, or a view with such strides); pass a copy"
                )
        self.array = array
        self.kind = kind

    def __repr__(self) -> str:
        return f"{_NAMES[self.kind]}(<{self.array.dtype} array of shape {self.array.shape}>)"


def to(array: np.ndarray[Any, Any]) -> Mapped:
    """Map an array for a launch: copied to the device, not back.

    Parameters
    ----------
    array : numpy.ndarray
        Any shape and strides, native byte order, no Python objects. The kernel
        sees it contiguous in C order; an array that is not is packed first.
        A structured dtype must have the layout of the kernel's struct, which is
        ``align=True`` for plain C structs; nothing can check that here.

    Returns
    -------
    Mapped
        For ``Image.run``; keeps a reference to `array`.

    Raises
    ------
    TypeError
        Not a NumPy array, or a dtype that cannot be passed; the text names it.
    """
    return Mapped(array, _TO)


def from_(array: np.ndarray[Any, Any]) -> Mapped:
    """Map an array for a launch: filled by the kernel, copied back.

    What the kernel does not write is undefined, as for OpenMP's ``map(from:)``.
    Parameters, result and errors as for `to`; and

    Raises
    ------
    ValueError
        The array is read-only, or several of its elements share memory.
    """
    return Mapped(array, _FROM)


def tofrom(array: np.ndarray[Any, Any]) -> Mapped:
    """Map an array for a launch: copied to the device and back.

    Parameters, result and errors as for `from_`.
    """
    return Mapped(array, _TOFROM)


def alloc(array: np.ndarray[Any, Any]) -> Mapped:
    """Map an array for a launch: device memory of its size, nothing copied.

    Parameters, result and errors as for `to`.
    """
    return Mapped(array, _ALLOC)


def _overlap(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=10_000))  # type: ignore[arg-type]
    except RuntimeError:
        # TooHardError, whose place differs between NumPy 1 and 2: interleaved
        # strides without end. Refuse rather than guess.
        return True


@dataclass
class _Entry:
    """One mapped array during a launch."""

    mapped: Mapped
    memory: Any  # C-contiguous array that is mapped: the user's own or a packed one
    kind: int
    index: int
    address: int = 0
    entered: bool = False


@dataclass
class Mapping:
    """The mapped arrays of one launch.

    Owns the device memory from `enter` to `leave`.
    """

    device: Any
    entries: list[_Entry] = field(default_factory=list)

    def add(self, mapped: Mapped, index: int) -> _Entry:
        array = mapped.array
        for old in self.entries:
            other = old.mapped.array
            if other is array or (
                other.size
                and array.size
                and other.__array_interface__["data"] == array.__array_interface__["data"]
                and other.shape == array.shape
                and other.strides == array.strides
                and other.dtype == array.dtype
            ):
                # One mapping for both: in and out as either wants it.
                old.kind |= mapped.kind
                return old
            if _overlap(other, array):
                raise ValueError(
                    f"arguments {old.index} {old.mapped!r} and {index} {mapped!r} overlap in "
                    "memory: map the whole array once"
                )
        memory = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        entry = _Entry(mapped, memory, mapped.kind, index)
        self.entries.append(entry)
        return entry

    def enter(self) -> None:
        out = ffi.new("uint64_t *")
        for e in self.entries:
            if not e.memory.nbytes:
                continue
            check(
                lib.revoff_map_enter(
                    self.device.handle, _pointer(e.memory), e.memory.nbytes, e.kind, out
                )
            )
            e.address, e.entered = int(out[0]), True

    def leave(self, copy_back: bool) -> None:
        """Copy back and free; raises after all of it has been tried."""
        failure: BaseException | None = None
        for e in self.entries:
            if not e.entered:
                continue
            e.entered = False
            kind = e.kind if copy_back else _ALLOC
            try:
                check(
                    lib.revoff_map_exit(
                        self.device.handle, _pointer(e.memory), e.memory.nbytes, kind
                    )
                )
                if kind & _FROM and e.memory is not e.mapped.array:
                    e.mapped.array[...] = e.memory
            except BaseException as error:
                failure = failure or error
        if failure is not None:
            raise failure


def _pointer(array: np.ndarray[Any, Any]) -> Any:
    return ffi.cast("void *", array.__array_interface__["data"][0])


def _integer(value: Any, size: int, where: str) -> bytes:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{where}: an integer is wanted, not {value!r} of type {type(value).__name__}"
        ) from None
    # The sign of the C parameter is not known: both readings of the bits do.
    if not -(1 << (8 * size - 1)) <= number < 1 << (8 * size):
        raise OverflowError(f"{where}: {shown(number)} does not fit in {size} bytes")
    return (number & ((1 << (8 * size)) - 1)).to_bytes(size, "little")


def _floating(value: Any, size: int, where: str) -> bytes:
    if size not in (4, 8):
        raise TypeError(f"{where}: the parameter has {size} bytes, a float has 4 or 8")
    try:
        return struct.pack("<f" if size == 4 else "<d", value)
    except (OverflowError, struct.error):
        # An int that is too large for any float is the latter.
        raise OverflowError(
            f"{where}: {shown(value)} does not fit in a {size}-byte float"
        ) from None


def _numpy_scalar(value: np.generic, size: int, kind: str | None, where: str) -> bytes:
    dtype = value.dtype
    if dtype.hasobject or not dtype.isnative:
        raise TypeError(f"{where}: dtype {dtype!r} cannot be passed by value")
    if dtype.itemsize != size:
        raise TypeError(
            f"{where}: the kernel's parameter has {size} bytes, {dtype} has {dtype.itemsize}"
        )
    if (kind == FLOAT and dtype.kind != "f") or (kind == INTEGER and dtype.kind not in "iub"):
        raise TypeError(f"{where}: {dtype} given for a parameter of {kind} type")
    return value.tobytes()


def _scalar(value: Any, size: int, kind: str | None, where: str) -> bytes:
    if isinstance(value, np.ndarray) and not value.ndim and value.dtype.kind in "biufcV":
        value = value[()]
    if isinstance(value, np.generic):
        return _numpy_scalar(value, size, kind, where)
    if isinstance(value, (bool, int)):
        if kind == FLOAT:
            return _floating(value, size, where)
        if size not in (1, 2, 4, 8):
            raise TypeError(f"{where}: the parameter has {size} bytes, an int has 1, 2, 4 or 8")
        return _integer(value, size, where)
    if isinstance(value, float):
        if kind in (INTEGER, POINTER):
            raise TypeError(f"{where}: float {value!r} given for a parameter of {kind} type")
        return _floating(value, size, where)
    if isinstance(value, complex):
        if kind not in (None, OTHER):
            raise TypeError(f"{where}: complex {value!r} given for a parameter of {kind} type")
        if size not in (8, 16):
            raise TypeError(f"{where}: the parameter has {size} bytes, a complex has 8 or 16")
        return struct.pack("<2f" if size == 8 else "<2d", value.real, value.imag)
    if value is None and size == 8 and kind != FLOAT:
        return bytes(size)
    raise TypeError(
        f"{where}: cannot pass {type(value).__name__} to a kernel; pass a number, a NumPy scalar, "
        "ro.to/from_/tofrom/alloc(array) or a device array"
    )


def _device_address(value: Any, device: Any, where: str) -> tuple[int, Any] | None:
    found = dlpack.device_pointer(value)
    if found is None:
        return None
    if found.kind not in _REACHABLE[device.kind]:
        raise TypeError(
            f"{where}: {type(value).__name__} lies in memory (DLPack device type {found.kind}) "
            f"that a kernel on {device} cannot reach; copy it there, or give a NumPy array as "
            "ro.to(array) or its sisters"
        )
    if found.ordinal >= 0 and found.kind == dlpack.CUDA and found.ordinal != device.ordinal:
        raise ValueError(
            f"{where}: an array of CUDA device {found.ordinal} given to a kernel on {device}"
        )
    return found.address, found.keep


class Packed:
    """Parameters of a launch as C takes them; keeps all they point to."""

    def __init__(self, cells: list[Any], keep: list[Any], mapping: Mapping) -> None:
        self.cells = cells
        self.keep = keep
        self.mapping = mapping
        self.params = ffi.new("void *[]", [ffi.cast("void *", c) for c in cells] or [ffi.NULL])


def pack(
    device: Any,
    kernel: str,
    args: Sequence[Any],
    sizes: list[int] | None,
    classes: list[str] | None,
    own: Callable[[Any], int | None],
) -> Packed:
    """Turn Python arguments into kernel parameters, and map arrays.

    Parameters
    ----------
    device : Device
    kernel : str
        For messages.
    args : sequence
    sizes : list of int or None
        Bytes of each parameter; None if the driver does not tell.
    classes : list of str or None
        ``"integer"``, ``"float"`` or ``"other"`` of each; None if not known.
    own : callable
        Gives the device address of a ``DeviceArray``, or None.

    Raises
    ------
    TypeError, ValueError, OverflowError
        An argument does not fit; the text names kernel and argument.
    """
    if sizes is not None and len(sizes) != len(args):
        raise TypeError(
            f"kernel {kernel} takes {len(sizes)} argument{'s' * (len(sizes) != 1)}, "
            f"{len(args)} given"
        )
    mapping = Mapping(device)
    cells: list[Any] = []
    keep: list[Any] = []
    waiting: list[tuple[Any, _Entry]] = []
    for i, value in enumerate(args):
        where = f"kernel {kernel}, argument {i}"
        size = sizes[i] if sizes is not None else _default_size(value, where)
        kind = classes[i] if classes is not None and i < len(classes) else None
        entry = address = None
        if isinstance(value, Mapped):
            entry = mapping.add(value, i)
        else:
            address = own(value)
            if address is None and isinstance(value, np.ndarray) and value.ndim:
                raise TypeError(
                    f"{where}: a NumPy array; say how it is mapped: ro.to(a), ro.from_(a), "
                    "ro.tofrom(a) or ro.alloc(a)"
                )
            if address is None and not isinstance(value, (np.ndarray, np.generic)):
                found = _device_address(value, device, where)
                if found:
                    address, kept = found
                    keep.append(kept)
        if entry is None and address is None:
            data = _scalar(value, size, kind, where)
        elif size != 8 or kind == FLOAT:
            raise TypeError(
                f"{where}: an array needs a pointer, the parameter is {kind or 'a value'} of "
                f"{size} bytes"
            )
        else:
            data = _integer(address or 0, 8, where)
            keep.append(value)
        cell = ffi.new("char[]", data or b"\0")
        cells.append(cell)
        if entry is not None:
            waiting.append((cell, entry))
    try:
        mapping.enter()
    except BaseException:
        mapping.leave(copy_back=False)
        raise
    for cell, entry in waiting:
        ffi.memmove(cell, entry.address.to_bytes(8, "little"), 8)
    return Packed(cells, keep, mapping)


def _default_size(value: Any, where: str) -> int:
    """Size of a parameter that the driver does not tell (before 12.4)."""
    if isinstance(value, np.generic):
        return value.dtype.itemsize
    if isinstance(value, (bool, int, float, complex)):
        raise TypeError(
            f"{where}: this driver does not tell the size of a kernel's parameters; pass a "
            f"NumPy scalar, such as np.int32({value!r})"
        )
    return 8
