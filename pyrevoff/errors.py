# SPDX-License-Identifier: Apache-2.0
"""The errors of pyrevoff: one root, one table, one check.

Wrong arguments are ``TypeError`` and ``ValueError``; what a handler raises
comes out of ``Image.run`` as itself.
"""

from __future__ import annotations

from typing import Any


def shown(value: Any, most: int = 60) -> str:
    """A value as messages show it, of `most` characters at most."""
    # Python refuses to write integers of thousands of digits.
    if isinstance(value, int) and value.bit_length() > 8 * most:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)[:most]


class RevoffError(Exception):
    """Root of all errors of pyrevoff."""


class NoDriverError(RevoffError):
    """The CUDA driver is not there, does not start or is too old."""


class NoDeviceError(RevoffError):
    """There is no such device."""


class DriverError(RevoffError):
    """A driver call failed.

    Attributes
    ----------
    code : int
        The driver's result, a ``CUresult``.
    name : str
        Its symbolic name, such as ``CUDA_ERROR_ILLEGAL_ADDRESS``.
    entry : str
        The driver entry point.
    """

    def __init__(self, message: str, code: int = 0, name: str = "", entry: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.entry = entry


class ImageError(RevoffError):
    """The driver refused an image.

    Attributes
    ----------
    log : str
        What its compiler or linker said.
    code : int
        The driver's result, or 0.
    """

    def __init__(self, message: str, *, log: str = "", code: int = 0) -> None:
        super().__init__(message)
        self.log = log
        self.code = code


class PtxVersionError(ImageError):
    """The image's PTX is of a newer version than the driver reads."""


class ArchitectureError(ImageError):
    """The image has no code for this device."""


class AbiError(RevoffError):
    """The image was compiled with another version of the wire."""


class NotFoundError(RevoffError):
    """The image has no such kernel, reverse function or variable."""


class OutOfMemoryError(RevoffError, MemoryError):
    """No host or device memory is left."""


class ReentrancyError(RevoffError):
    """A handler asked for what would wait for the kernel that waits for it."""


class InUseError(RevoffError):
    """Something cannot be closed or launched, since it is in use."""


class ClosedError(RevoffError):
    """The image or the device is closed."""


class ContextLostError(RevoffError):
    """An earlier fault of a kernel took the device's context."""


class UnsupportedError(RevoffError):
    """This device or driver cannot do it."""


class LaunchTimeout(RevoffError, TimeoutError):
    """The time limit of a launch passed."""


class ForkError(RevoffError):
    """Used in a child process after ``fork``."""


class CallError(RevoffError):
    """A call from a kernel could not be served."""


class KernelAssertionError(RevoffError, AssertionError):
    """A ``REVOFF_ASSERT`` of a kernel did not hold.

    Attributes
    ----------
    condition : str
        The source text of the condition.
    message : str or None
        As given to ``REVOFF_ASSERT``.
    file : str
    line : int
        Where it stands.
    kernel : str
    block, thread : tuple of int
        ``blockIdx`` and ``threadIdx`` of the thread, (x, y, z).
    more : int
        Further threads of the launch whose assertion failed.
    """

    def __init__(
        self,
        condition: str,
        *,
        message: str | None = None,
        file: str = "",
        line: int = 0,
        kernel: str = "",
        block: tuple[int, int, int] = (0, 0, 0),
        thread: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        super().__init__(condition)
        self.condition = condition
        self.message = message
        self.file = file
        self.line = line
        self.kernel = kernel
        self.block = block
        self.thread = thread
        self.more = 0

    def __str__(self) -> str:
        text = (
            f"{self.file}:{self.line}: kernel {self.kernel}, block {self.block}, "
            f"thread {self.thread}: {self.condition} does not hold"
        )
        text += f": {self.message}" if self.message is not None else ""
        return text + (f" (and in {self.more} threads more)" if self.more else "")


class SignatureError(RevoffError, TypeError):
    """A signature, or a type that does not fit it."""


class CompileError(RevoffError):
    """A compiler refused a source.

    Attributes
    ----------
    log : str
        The compiler's messages.
    """

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class CompilerNotFoundError(RevoffError):
    """No compiler for a source was found; the text lists what was tried."""


# C's REVOFF_E* in order, from -1 down.
_CLASSES: dict[int, type[Exception]] = {
    -1: ValueError,
    -2: NoDriverError,
    -3: NoDeviceError,
    -4: DriverError,
    -5: ImageError,
    -6: AbiError,
    -7: NotFoundError,
    -8: OutOfMemoryError,
    -9: InUseError,
    -10: ClosedError,
    -11: ContextLostError,
    -12: UnsupportedError,
    -13: LaunchTimeout,
    -14: ForkError,
    -15: CallError,
    -16: CallError,
}


def from_record(record: Any) -> Exception:
    """Make the exception that a ``struct revoff_error`` stands for."""
    from ._lib import ffi

    text = ffi.string(record.text).decode(errors="replace")
    name = ffi.string(record.driver_name).decode(errors="replace")
    entry = ffi.string(record.entry).decode(errors="replace")
    kind = _CLASSES.get(record.code, RevoffError)
    if kind is DriverError:
        return DriverError(text, record.driver_code, name, entry)
    if kind is ImageError:
        return ImageError(text, log=text, code=record.driver_code)
    # One code for "busy": from a handler it is a matter of re-entry.
    if kind is InUseError and "handler of the same device" in text:
        return ReentrancyError(text)
    return kind(text)


def check(rc: int) -> int:
    """Return `rc`, or raise what the library says of a negative one.

    Raises
    ------
    RevoffError
        The class that belongs to the code; ``ValueError`` for a wrong argument.
    """
    if rc >= 0:
        return rc
    from ._lib import lib

    raise from_record(lib.revoff_last_error())
