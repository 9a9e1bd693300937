# SPDX-License-Identifier: Apache-2.0
"""Images: what is loaded on a device, its handlers, and running its kernels."""

from __future__ import annotations

import contextlib
import operator
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ._lib import ffi, lib
from .arguments import FLOAT, INTEGER, OTHER, POINTER, pack
from .binding import Binding
from .device import Device, DeviceArray
from .errors import (
    ClosedError,
    ForkError,
    InUseError,
    LaunchTimeout,
    NotFoundError,
    ReentrancyError,
    check,
)
from .handlers import finite_seconds
from .launch import (
    Launch,
    LaunchStats,
    Record,
    dims,
    in_handler_of,
    serve,
    stream_handle,
)
from .output import Output

# By C's REVOFF_PARAM_*.
_CLASSES: tuple[str, ...] = (OTHER, INTEGER, FLOAT, POINTER)


def _bytes(shared: Any) -> int:
    try:
        number = operator.index(shared)
    except TypeError:
        raise TypeError(f"shared is a number of bytes, not {shared!r}") from None
    if not 0 <= number < 1 << 31:
        raise ValueError(f"shared: {number} bytes of shared memory")
    return number


# Handlers of images that went while a kernel of theirs still ran.
_left: list[Any] = []


class Image(Binding, Output):
    """Kernels and reverse functions, loaded on a device; made by `load_image`.

    A context manager; `close` may be called twice. It keeps its handlers alive.

    Attributes
    ----------
    device : Device
    name : str
        For messages.
    functions : dict of str to Signature or None
        Reverse functions by name, in no particular order; None for functions of
        libgomp's table, which have no signature.
    """

    def __init__(
        self,
        handle: Any,
        device: Device,
        name: str,
        classes: dict[str, list[str]],
        listed: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.device = device
        self.name = name
        self._handle = handle
        self._classes = classes
        self._listed = listed
        self._kernels: dict[str, tuple[Any, list[int] | None]] = {}
        self._closed = False
        self._list_functions()
        self._bound[-1] = self._bind_output(handle)

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<pyrevoff.Image {self.name} on {self.device}{state}>"

    def __del__(self) -> None:
        # Not by weakref.finalize: to unload before the handlers go, it would
        # have to hold them, and with them an image that they refer to.
        if getattr(self, "_closed", True) or sys.is_finalizing():
            return
        self._closed = True
        # There is nobody to tell if it cannot be done.
        if lib.revoff_image_unload(self._handle):
            _left.append(self._bound)

    def __enter__(self) -> Image:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            self.close()
        except InUseError:
            # After a time limit its kernel may still run; that error counts.
            if error is None:
                raise

    def _open(self) -> Any:
        if self._closed:
            raise ClosedError(f"image {self.name} is closed")
        return self._handle

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    @property
    def connected(self) -> bool:
        """True if its kernels are looked at for calls."""
        return bool(lib.revoff_image_is_connected(self._open()))

    @property
    def kernels(self) -> list[str]:
        """Names of its kernels, where the image's form tells them."""
        return sorted({*self._classes, *self._listed})

    def close(self) -> None:
        """Unload; a second call does nothing.

        Raises
        ------
        InUseError
            One of its kernels still runs.
        ReentrancyError
            Called from a handler of this image.
        """
        if self._closed:
            return
        if in_handler_of(self.device) and self._turn.locked():
            raise ReentrancyError(
                f"close of image {self.name} from a handler: its kernel waits for the handler. "
                "Close it after run() has returned"
            )
        try:
            check(lib.revoff_image_unload(self._handle))
        except ForkError:
            pass  # the parent's image: there is nothing of it here to unload
        self._closed = True
        self._bound.clear()
        self._retired.clear()

    # ---- variables ----------------------------------------------------------

    def symbol(self, name: str) -> tuple[int, int]:
        """Device address and size in bytes of an ``extern "C"`` variable.

        Raises
        ------
        NotFoundError
            The image has no such variable.
        """
        address, size = ffi.new("uint64_t *"), ffi.new("size_t *")
        check(lib.revoff_image_symbol(self._open(), name.encode(), address, size))
        return int(address[0]), int(size[0])

    def read_symbol(self, name: str, dtype: Any = np.uint8) -> np.ndarray[Any, Any]:
        """Copy a variable to a new array of `dtype`, one-dimensional.

        Raises
        ------
        ValueError
            The variable is no whole number of such elements.
        """
        address, size = self.symbol(name)
        if size % np.dtype(dtype).itemsize:
            raise ValueError(f"{name} has {size} bytes, no whole number of {np.dtype(dtype)}")
        data = np.empty(size // np.dtype(dtype).itemsize, dtype)
        pointer = ffi.cast("void *", data.__array_interface__["data"][0])
        check(lib.revoff_copy_from_device(self.device.handle, pointer, address, data.nbytes))
        return data

    def write_symbol(self, name: str, value: Any) -> None:
        """Copy an array into a variable.

        Parameters
        ----------
        name : str
        value : array_like
            Of the variable's size in bytes, in native byte order; its C type is not
            known here, so give an array of the dtype that fits.

        Raises
        ------
        ValueError
            It has another size than the variable.
        TypeError
            Its dtype holds Python objects, or is in another byte order.
        """
        address, size = self.symbol(name)
        data = np.ascontiguousarray(value)
        if data.dtype.hasobject or not data.dtype.isnative:
            raise TypeError(f"{name}: dtype {data.dtype!r} cannot lie in device memory")
        if data.nbytes != size:
            raise ValueError(f"{name} has {size} bytes, {data.nbytes} given ({data.dtype})")
        pointer = ffi.cast("void *", data.__array_interface__["data"][0])
        check(lib.revoff_copy_to_device(self.device.handle, address, pointer, data.nbytes))

    # ---- running -------------------------------------------------------------

    def _kernel(self, name: str) -> tuple[Any, list[int] | None]:
        if not isinstance(name, str) or not name:
            raise TypeError(f"a kernel is given by its name, not {name!r}")
        found = self._kernels.get(name)
        if found is not None:
            return found
        out = ffi.new("struct revoff_kernel **")
        try:
            check(lib.revoff_kernel_get(self._open(), name.encode(), out))
        except NotFoundError:
            names = ", ".join(self.kernels) or "none that can be listed"
            raise NotFoundError(
                f"image {self.name} has no kernel {name!r} (declare it "
                f'extern "C" __global__); it has {names}'
            ) from None
        kernel, sizes = out[0], None
        count = lib.revoff_kernel_param_count(kernel)
        if count >= 0:
            size, offset = ffi.new("size_t *"), ffi.new("size_t *")
            sizes = []
            for i in range(count):
                check(lib.revoff_kernel_param(kernel, i, offset, size))
                sizes.append(int(size[0]))
            if name not in self._classes and self.device.kind == "cpu":
                known = [lib.revoff_kernel_param_class(kernel, i) for i in range(count)]
                self._classes[name] = [_CLASSES[k] for k in known]
        self._kernels[name] = kernel, sizes
        return kernel, sizes

    def _own_array(self, value: Any) -> int | None:
        if not isinstance(value, DeviceArray):
            return None
        if value.device.kind != self.device.kind or value.device.ordinal != self.device.ordinal:
            raise ValueError(f"{value!r} given to a kernel on {self.device}")
        return value.address

    @contextlib.contextmanager
    def launching(self, kernel: str, deadline: float = float("inf")) -> Iterator[None]:
        """Have the image's only launch; wait, in slices, for another thread's.

        Handlers that are replaced meanwhile live until the end of it.
        """
        while not self._turn.acquire(timeout=0.05):
            if time.monotonic() > deadline:
                raise LaunchTimeout(
                    f"kernel {kernel} was not launched: another thread's launch of image "
                    f"{self.name} did not end within the time limit"
                )
        try:
            yield
        finally:
            self._retired.clear()
            self._turn.release()

    def run(
        self,
        kernel: str,
        *args: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared: int = 0,
        stream: Any = None,
        timeout: float | None = None,
    ) -> LaunchStats:
        """Launch a kernel and serve its calls until it ends.

        Parameters
        ----------
        kernel : str
        *args
            Numbers and NumPy scalars (of the parameter's size); arrays as
            `to`, `from_`, `tofrom` or `alloc`; device arrays as they are. A
            cubin or fatbin does not tell floats from integers: use NumPy scalars.
        grid, block : int or sequence of up to 3 int
            Blocks, and threads of a block.
        shared : int
            Bytes of dynamic shared memory.
        stream : optional
            A stream to launch on: a handle, or an object of another library.
            Default: a non-blocking stream of the device.
        timeout : float, optional
            Seconds until the launch is given up. Handlers then run in a thread
            of their own. Default: no limit.

        Returns
        -------
        LaunchStats

        Raises
        ------
        Exception
            Whatever a handler raised, as it is; the kernel has ended.
        CallError
            A call could not be served: no handler, a map that is refused.
        LaunchTimeout
            `timeout` passed. The text has the state of the launch.
        KeyboardInterrupt
            Ctrl-C; the kernel has been told to end.
        ReentrancyError
            Called from a handler of the same device.
        DriverError, ContextLostError
            The kernel failed.
        TypeError, ValueError, OverflowError
            An argument does not fit.

        Notes
        -----
        Blocks; the GIL is released while it waits. Arrays mapped `from_` and
        `tofrom` are copied back whenever the kernel has ended, also if a call
        failed. Source: ``GOMP_OFFLOAD_run`` of libgomp's nvptx plugin.
        """
        self._open()
        limit = finite_seconds(timeout, "timeout")
        deadline = time.monotonic() + limit if limit is not None else float("inf")
        if in_handler_of(self.device):
            raise ReentrancyError(
                f"run of kernel {kernel} from a handler of the same device: it would wait for "
                "itself. Run it after the outer run() has returned"
            )
        config = ffi.new("struct revoff_launch_config *")
        config.grid = dims(grid, "grid")
        config.block = dims(block, "block")
        config.shared = _bytes(shared)
        config.stream = ffi.cast("void *", stream_handle(stream))
        with self.launching(kernel, deadline):
            handle, sizes = self._kernel(kernel)
            packed = pack(
                self.device, kernel, args, sizes, self._classes.get(kernel), self._own_array
            )
            config.params = packed.params
            out = ffi.new("struct revoff_launch **")
            try:
                check(lib.revoff_launch_start(handle, config, out))
            except BaseException:
                packed.mapping.leave(copy_back=False)
                raise
            return serve(Launch(Record(self, kernel), out[0], packed), limit, deadline)
