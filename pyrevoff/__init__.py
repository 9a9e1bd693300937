# SPDX-License-Identifier: Apache-2.0
"""Call Python functions from inside running GPU kernels."""

from . import errors, gomp
from ._paths import include_dir as _include_dir
from ._version import __version__
from .arguments import Mapped, alloc, from_, to, tofrom
from .batch import BatchInfo, current_batch
from .device import Device, DeviceArray, asarray, devices, empty, is_available, why_not
from .errors import (
    AbiError,
    ArchitectureError,
    CallError,
    ClosedError,
    CompileError,
    CompilerNotFoundError,
    ContextLostError,
    DriverError,
    ForkError,
    ImageError,
    InUseError,
    KernelAssertionError,
    LaunchTimeout,
    NoDeviceError,
    NoDriverError,
    NotFoundError,
    OutOfMemoryError,
    PtxVersionError,
    ReentrancyError,
    RevoffError,
    SignatureError,
    UnsupportedError,
)
from .handlers import CallInfo, current_call
from .image import Image
from .launch import LaunchStats
from .load import load_image


def get_include() -> str:
    """Folder to give a compiler, so that it finds ``pyrevoff.h``."""
    return str(_include_dir())


__all__ = [
    "AbiError",
    "ArchitectureError",
    "BatchInfo",
    "CallError",
    "CallInfo",
    "ClosedError",
    "CompileError",
    "CompilerNotFoundError",
    "ContextLostError",
    "Device",
    "DeviceArray",
    "DriverError",
    "ForkError",
    "Image",
    "ImageError",
    "InUseError",
    "KernelAssertionError",
    "LaunchStats",
    "LaunchTimeout",
    "Mapped",
    "NoDeviceError",
    "NoDriverError",
    "NotFoundError",
    "OutOfMemoryError",
    "PtxVersionError",
    "ReentrancyError",
    "RevoffError",
    "SignatureError",
    "UnsupportedError",
    "__version__",
    "alloc",
    "asarray",
    "current_batch",
    "current_call",
    "devices",
    "empty",
    "errors",
    "from_",
    "get_include",
    "gomp",
    "is_available",
    "load_image",
    "to",
    "tofrom",
    "why_not",
]
