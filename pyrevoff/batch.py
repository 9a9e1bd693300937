# SPDX-License-Identifier: Apache-2.0
"""Batch handlers: every call of a function that waits now, as NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._lib import ffi, lib
from ._trampoline import here
from .errors import RevoffError, SignatureError, shown
from .futures import LATER, Owed, defer, is_future, posted
from .handlers import Kept
from .signature import Argument, Signature

MOST = 32768


@dataclass(frozen=True)
class BatchInfo:
    """The calls that a batch handler is answering.

    Attributes
    ----------
    function : str
        Name of the reverse function.
    kernel : str
        Name of the kernel that called.
    device : pyrevoff.Device
    image : pyrevoff.Image
    count : int
        Calls, the length of each array.
    posted : bool
        True for posts: nobody waits for them.
    blocks, threads : numpy.ndarray
        ``blockIdx`` and ``threadIdx`` of each call, shape (count, 3), uint32.
    """

    function: str
    kernel: str
    device: Any
    image: Any
    count: int
    posted: bool
    blocks: np.ndarray[Any, Any]
    threads: np.ndarray[Any, Any]


def current_batch() -> BatchInfo:
    """Tell which calls the running batch handler answers.

    Returns
    -------
    BatchInfo

    Raises
    ------
    RevoffError
        Not called from a batch handler, or from another thread than it runs in.
    """
    record = here.record
    batch = record.call if record is not None else None
    if record is None or batch is None or not isinstance(record.bound, BatchBound):
        raise RevoffError(
            "current_batch() works in a batch handler, in the thread that runs it; in other "
            "handlers use current_call()"
        )
    blocks = np.empty((batch.count, 3), np.uint32)
    threads = np.empty_like(blocks)
    lib.revoff_batch_callers(
        batch, ffi.from_buffer("uint32_t[]", blocks), ffi.from_buffer("uint32_t[]", threads)
    )
    return BatchInfo(
        record.image.function_name(batch.index),
        record.kernel,
        record.image.device,
        record.image,
        int(batch.count),
        batch.posted > 0,
        blocks,
        threads,
    )


class _Store:
    """Checks what a batch handler returns, and writes it to where C takes it."""

    def __init__(self, where: str) -> None:
        self.where = where

    def wrong(self, value: Any, dtype: np.dtype[Any], why: str) -> TypeError:
        return TypeError(
            f"the batch handler of {self.where} returned {type(value).__name__}"
            f"{f' of dtype {value.dtype}' if isinstance(value, np.ndarray) else ''}, "
            f"values of {dtype} are wanted: {why}"
        )

    def put(self, out: np.ndarray[Any, Any], value: Any) -> None:
        """Write `value`, of shape ``out.shape`` or ``()``, to `out`.

        Raises
        ------
        TypeError
            Another kind of value than the function returns.
        ValueError
            Another shape.
        OverflowError
            A value that the function's type cannot hold.
        """
        dtype = out.dtype
        if type(value) is np.ndarray and value.dtype == dtype and value.shape == out.shape:
            out[...] = value
            return
        if value is None:
            raise self.wrong(value, dtype, "the function has a result")
        if isinstance(value, np.ma.MaskedArray):
            raise self.wrong(value, dtype, "a masked array; return its .filled(value)")
        if dtype.names and not isinstance(value, (np.ndarray, np.void)):
            self._columns(out, value)
            return
        try:
            array = np.asarray(value)
        except (TypeError, ValueError) as error:
            raise self.wrong(value, dtype, str(error)) from None
        if array.shape not in (out.shape, ()):
            raise ValueError(
                f"the batch handler of {self.where} returned an array of shape {array.shape}, "
                f"{out.shape} is wanted: one value for each call"
            )
        if dtype.kind == "V":
            if array.dtype != dtype:
                raise self.wrong(array, dtype, "another layout")
            out[...] = array
            return
        if array.dtype.kind == "O":
            array = self._integers(array, dtype)
        if array.dtype.kind not in {"f": "fiub", "b": "biu"}.get(dtype.kind, "iub"):
            raise self.wrong(array, dtype, "convert them, as the handler means it")
        if dtype.kind == "b" and array.dtype.kind != "b" and ((array != 0) & (array != 1)).any():
            raise self.wrong(array, dtype, "other integers than 0 and 1")
        if np.can_cast(array.dtype, dtype, "safe"):
            out[...] = array
            return
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if array.min() < limits.min or array.max() > limits.max:
                raise self.overflow(array, dtype)
        try:
            with np.errstate(over="raise"):
                np.copyto(out, array, casting="unsafe")
        except FloatingPointError:
            raise self.overflow(array, dtype) from None

    def _integers(self, array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> Any:
        """Python's integers of more than 64 bits are objects to NumPy."""
        if not all(type(v) is int for v in array.flat):
            return array
        if dtype.kind in "iu":
            raise self.overflow(array, dtype)
        try:
            return array.astype(np.float64)
        except OverflowError:
            raise self.overflow(array, dtype) from None

    def overflow(self, array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> OverflowError:
        least, most = (
            shown(v) if isinstance(v, int) else str(v) for v in (array.min(), array.max())
        )
        return OverflowError(
            f"the batch handler of {self.where} returned values from {least} to {most}, which "
            f"{dtype} cannot hold"
        )

    def _columns(self, out: np.ndarray[Any, Any], value: Any) -> None:
        names = out.dtype.names or ()
        if isinstance(value, dict):
            if set(value) != set(names):
                raise self.wrong(value, out.dtype, f"the fields are {', '.join(names)}")
            value = tuple(value[name] for name in names)
        if not isinstance(value, tuple) or len(value) != len(names):
            raise self.wrong(
                value, out.dtype, "a structured array, or a tuple or dict with a column each"
            )
        for name, column in zip(names, value):
            self.put(out[name], column)


class BatchBound:
    """A batch handler, bound to a typed reverse function."""

    def __init__(
        self,
        name: str,
        signature: Signature,
        function: Callable[..., Any],
        arguments: list[Argument],
        copy: bool | None,
        submit: Callable[..., Any] | None,
    ) -> None:
        self.name = name
        self.where = f"{name} {signature}"
        for i, a in enumerate(arguments):
            if a.map or a.dtype is None:
                raise SignatureError(
                    f"{self.where}: argument {i} is {a.name}; batch handlers take functions of "
                    "values only. Bind a handler without batch=True"
                )
        self.dtypes = [a.dtype for a in arguments if a.dtype is not None]
        self.result = signature.result.dtype if signature.result else None
        self.function = submit or function
        self.submits = submit is not None
        self.store = _Store(self.where)
        # A ufunc keeps nothing, and can write to where the result belongs.
        self.copy = not isinstance(function, np.ufunc) if copy is None else copy
        self.into = submit is None and self._gives_result(function)

    def _gives_result(self, function: Any) -> bool:
        """True for a ufunc that gives the very type of the result."""
        try:
            given = function.resolve_dtypes((*self.dtypes, None))[-1]
        except (AttributeError, TypeError):
            return False  # no ufunc, or NumPy before 1.25; or it says why when it runs
        return bool(self.result is not None and given == self.result)

    def arrays(self, batch: Any, kept: list[Kept]) -> list[np.ndarray[Any, Any]]:
        out = []
        count, columns = batch.count, batch.argument
        for i, dtype in enumerate(self.dtypes):
            column = columns[i]
            stride, item = column.stride, dtype.itemsize
            buffer = ffi.buffer(ffi.cast("char *", column.data), (count - 1) * stride + item)
            own = column.keepable and Kept.counts
            memory: Any = buffer if own else memoryview(buffer).toreadonly()
            array: np.ndarray[Any, Any]
            if stride == item:
                array = np.frombuffer(memory, dtype)
            else:
                array = np.ndarray((count,), dtype, memory, 0, (stride,))
            if own:
                kept.append(Kept(column, buffer))
            elif self.copy or self.submits or not batch.posted:
                array = array.copy()
            out.append(array)
        return out

    def column(self, batch: Any) -> np.ndarray[Any, Any]:
        """The result's memory; it is C's, and is not given to the handler."""
        dtype = self.result
        assert dtype is not None
        c, count = batch.result, batch.count
        stride, item = c.stride, dtype.itemsize
        buffer = ffi.buffer(ffi.cast("char *", c.data), (count - 1) * stride + item)
        if stride == item:
            return np.frombuffer(buffer, dtype)
        out: np.ndarray[Any, Any] = np.ndarray((count,), dtype, buffer, 0, (stride,))
        return out

    def __call__(self, batch: Any) -> int:
        kept: list[Kept] = []
        code = 0
        values = self.arrays(batch, kept)
        try:
            if self.into:
                self.function(*values, out=self.column(batch))
                return 0
            result = self.function(*values)
            if is_future(result, self.where):
                code = self.defer(batch, result, kept, values)
            else:
                self.answer(batch, result)
            del result
            return code
        finally:
            if code != LATER:
                del values
                Kept.settle(kept)

    def defer(self, batch: Any, future: Any, kept: list[Kept], values: list[Any]) -> int:
        if batch.posted:
            posted(future, self.where)
            return 0

        def release(_: Any) -> None:
            values.clear()
            Kept.settle(kept)

        return defer(lib.revoff_batch_later(batch), Owed(future, self.where, self.answer, release))

    def answer(self, batch: Any, result: Any) -> None:
        if self.result is not None:
            self.store.put(self.column(batch), result)


def check_most(most: Any) -> int:
    """Check the largest batch of ``Image.handler``.

    Raises
    ------
    TypeError, ValueError
    """
    if most is None:
        return 0
    if isinstance(most, bool) or not isinstance(most, (int, np.integer)):
        raise TypeError(f"most is a number of calls, not {most!r}")
    if not 32 <= most < math.inf:
        raise ValueError(f"most: {most} calls; the lanes of a warp stay together, so at least 32")
    return min(int(most), MOST)
