# SPDX-License-Identifier: Apache-2.0
"""Device pointers out of other libraries' arrays."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

# kDL* of dlpack.h.
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13


class DevicePointer(NamedTuple):
    """Memory that a kernel can use as it is.

    Attributes
    ----------
    address : int
        Device address of the first element.
    kind : int
        A device type of DLPack.
    ordinal : int
        Device number, or -1 if the object does not say.
    keep : object
        Keeps the memory alive; owned by the caller.
    """

    address: int
    kind: int
    ordinal: int
    keep: Any


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def device_pointer(value: Any) -> DevicePointer | None:
    """Find the memory of a device array.

    Parameters
    ----------
    value : object
        Something with ``__cuda_array_interface__`` or ``__dlpack__``; the
        strides are the kernel's business.

    Returns
    -------
    DevicePointer or None
        None if `value` offers neither.

    Raises
    ------
    TypeError
        The interface is there but broken.
    """
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        try:
            address = interface["data"][0]
        except (TypeError, KeyError, IndexError):
            raise TypeError(
                f"the __cuda_array_interface__ of {type(value).__name__} has no data pointer"
            ) from None
        ordinal = -1
        device = getattr(value, "__dlpack_device__", None)
        if device is not None:
            kind, number = device()
            ordinal = int(number) if int(kind) == CUDA else -1
        return DevicePointer(int(address or 0), CUDA, ordinal, value)
    if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
        return None
    kind, number = value.__dlpack_device__()
    # Stream -1: no synchronisation; the launch's stream is the user's choice.
    capsule = value.__dlpack__(stream=-1) if int(kind) == CUDA else value.__dlpack__()
    tensor = _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
    address = (tensor.data or 0) + tensor.byte_offset
    # An unused capsule gives the tensor back when it goes.
    return DevicePointer(address, int(kind), int(number), (value, capsule))
