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
from .errors import RevoffError, SignatureError
from .futures import Later, is_future, outcome
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
        if value is None:
            raise self.wrong(value, dtype, "the function has a result")
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
        if array.dtype.kind not in {"f": "fiub", "b": "biu"}.get(dtype.kind, "iub"):
            raise self.wrong(array, dtype, "convert them, as the handler means it")
        if dtype.kind == "b" and array.dtype.kind != "b" and ((array != 0) & (array != 1)).any():
            raise self.wrong(array, dtype, "other integers than 0 and 1")
        if dtype.kind in "iu" and not np.can_cast(array.dtype, dtype, "safe") and array.size:
            limits = np.iinfo(dtype)
            if array.min() < limits.min or array.max() > limits.max:
                raise self.overflow(array, dtype)
        try:
            with np.errstate(over="raise"):
                np.copyto(out, array, casting="unsafe")
        except FloatingPointError:
            raise self.overflow(array, dtype) from None

    def overflow(self, array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> OverflowError:
        return OverflowError(
            f"the batch handler of {self.where} returned values from {array.min()} to "
            f"{array.max()}, which {dtype} cannot hold"
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
        self.later = Later(self.where)
        ufunc = isinstance(function, np.ufunc) and function.nout == 1
        # A ufunc keeps nothing, and can write to where the result belongs.
        self.copy = not ufunc if copy is None else copy
        self.into = (
            ufunc and not self.submits and self.result is not None and self.result.kind == "f"
        )

    def arrays(self, batch: Any, kept: list[Kept]) -> list[np.ndarray[Any, Any]]:
        out = []
        for i, dtype in enumerate(self.dtypes):
            column = batch.arguments[i]
            size = (batch.count - 1) * column.stride + dtype.itemsize
            buffer = ffi.buffer(ffi.cast("char *", column.data), size)
            own = column.keepable and Kept.counts
            memory: Any = buffer if own else memoryview(buffer).toreadonly()
            array: np.ndarray[Any, Any] = np.ndarray(
                (batch.count,), dtype, memory, 0, (column.stride,)
            )
            if own:
                kept.append(Kept(batch.argument[i], buffer))
                del memory, buffer
            elif self.copy or self.submits or not batch.posted:
                array = array.copy()
            out.append(array)
        return out

    def column(self, batch: Any) -> np.ndarray[Any, Any]:
        """The result's memory; it is C's, and is not given to the handler."""
        assert self.result is not None
        c = batch.result
        size = (batch.count - 1) * c.stride + self.result.itemsize
        buffer = ffi.buffer(ffi.cast("char *", c.data), size)
        out: np.ndarray[Any, Any] = np.ndarray((batch.count,), self.result, buffer, 0, (c.stride,))
        return out

    def __call__(self, batch: Any) -> int:
        if batch.later:
            future, (kept, values) = self.later.resume(batch.later)
            try:
                if batch.posted < 0:
                    future.cancel()
                else:
                    self.answer(batch, outcome(future, self.where))
            finally:
                del values
                Kept.settle(kept)
            return 0
        kept = []
        values = self.arrays(batch, kept)
        deferred = False
        try:
            if self.into and batch.result:
                self.apply(batch, values)
                return 0
            result = self.function(*values)
            if is_future(result, self.where):
                if batch.posted:
                    self.later.posted(result)
                    return 0
                deferred = True
                return self.later.defer(lib.revoff_batch_later(batch), result, (kept, values))
            self.answer(batch, result)
            del result
            return 0
        finally:
            if not deferred:
                del values
                Kept.settle(kept)

    def apply(self, batch: Any, values: list[Any]) -> None:
        out = self.column(batch)
        try:
            self.function(*values, out=out)
        except TypeError as error:
            raise TypeError(f"{self.where}: {error}") from None

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
