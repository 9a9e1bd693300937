# SPDX-License-Identifier: Apache-2.0
"""Handlers: how a call's words become Python values, and back.

A decode plan is made once, when a handler is bound. A call with scalars only
costs one unpack of the words and one pack of the result.
"""

from __future__ import annotations

import inspect
import math
import operator
import struct
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._lib import ffi, lib
from ._trampoline import here
from .errors import RevoffError, SignatureError
from .futures import LATER, Owed, defer, is_future, posted
from .results import Result, scalar_code
from .signature import Argument, Signature

# Without the GIL a reference count does not tell whether a view survived.
_COUNTS = getattr(sys, "_is_gil_enabled", lambda: True)()
_WORD = struct.Struct("<Q")


def _count_of_one_name() -> int:
    # Python 3.14 borrows references of local names, so it has to be measured.
    names = [bytearray(1)]
    name = names.pop(0)
    return sys.getrefcount(name)


_ONE_NAME = _count_of_one_name()


class Kept:
    """A block of C's that arrays view: theirs, if they outlive the handler.

    Parameters
    ----------
    column : cffi struct
        A ``struct revoff_column``.
    buffer : cffi buffer
        What the arrays view. Nobody else may have a name for it.
    """

    __slots__ = ("buffer", "column")
    counts = _COUNTS

    def __init__(self, column: Any, buffer: Any) -> None:
        self.column = column
        self.buffer = buffer

    @staticmethod
    def settle(all_kept: list[Kept]) -> None:
        """After the handler: give those blocks away whose views survived."""
        while all_kept:
            kept = all_kept.pop()
            buffer, kept.buffer = kept.buffer, None
            if sys.getrefcount(buffer) > _ONE_NAME:
                kept.column.kept = 1
                weakref.finalize(buffer, lib.revoff_block_free, kept.column.data).atexit = False


@dataclass(frozen=True)
class CallInfo:
    """The call that a handler is answering.

    Attributes
    ----------
    function : str
        Name of the reverse function.
    kernel : str
        Name of the kernel that called.
    device : pyrevoff.Device
        The device that called.
    image : pyrevoff.Image
    block, thread : tuple of int
        ``blockIdx`` and ``threadIdx`` of the caller, (x, y, z); zeros for calls
        through libgomp's entry, which does not say.
    posted : bool
        True for a post: nobody waits for an answer.
    """

    function: str
    kernel: str
    device: Any
    image: Any
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    posted: bool = False


def current_call() -> CallInfo:
    """Tell which call the running handler answers.

    Returns
    -------
    CallInfo

    Raises
    ------
    RevoffError
        Not called from a handler, or from another thread than it runs in.
    """
    record = here.record
    call = record.call if record is not None else None
    if call is None or record is None:
        raise RevoffError(
            "current_call() works in a handler, in the thread that runs it; for an executor, let "
            "the handler itself submit what it wants to be known: "
            "lambda *a: pool.submit(f, ro.current_call(), *a)"
        )
    if not hasattr(call, "nargs") or hasattr(call, "count"):
        raise RevoffError("this handler answers many calls: use current_batch()")
    return CallInfo(
        record.image.function_name(call.index),
        record.kernel,
        record.image.device,
        record.image,
        tuple(call.block),
        tuple(call.thread),
        call.posted > 0,
    )


def check_arity(function: Callable[..., Any], signature: Signature, name: str) -> None:
    """Refuse a handler that cannot take the arguments of its function.

    Raises
    ------
    SignatureError
        The handler takes another number of positional arguments.
    """
    if isinstance(function, np.ufunc):
        if (function.nin, function.nout) != (len(signature.arguments), 1):
            raise SignatureError(
                f"handler {function!r} does not fit {name} {signature}: it takes "
                f"{function.nin} arrays and gives {function.nout}"
            )
        return
    try:
        takes = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a builtin that does not say
    try:
        takes.bind(*signature.arguments)
    except TypeError as error:
        raise SignatureError(
            f"handler {function!r} does not fit {name} {signature}: {error}"
        ) from None


class _Array:
    """Decoder of one array argument."""

    def __init__(self, index: int, argument: Argument) -> None:
        assert argument.dtype is not None
        self.index = index
        self.dtype = argument.dtype
        self.writable = argument.map != "to"
        self.back = argument.map in ("from", "tofrom")

    def decode(self, call: Any) -> tuple[Any, Any]:
        """The array, and the buffer that it views or None if it is a copy."""
        i = self.index
        address = call.words[i]
        size = call.sizes[i]
        if not address:
            return None, None
        if not size:
            return np.empty(0, self.dtype), None
        buffer = ffi.buffer(ffi.cast("char *", address), size)
        if call.keepable[i] and _COUNTS:
            # A read-only view of the memory cannot be made writable again.
            source: Any = buffer if self.writable else memoryview(buffer).toreadonly()
            return np.frombuffer(source, self.dtype), buffer
        # An array over bytes is read-only for good.
        raw = bytearray(buffer) if self.writable else buffer[:]
        return np.frombuffer(raw, self.dtype), None

    def finish(self, call: Any, array: Any) -> None:
        """Bring what the handler wrote into a copy to where C takes it from."""
        i = self.index
        if self.back and array is not None and array.size:
            data = np.ascontiguousarray(array)
            ffi.memmove(ffi.cast("char *", call.words[i]), ffi.from_buffer(data), data.nbytes)

    def release(self, call: Any, buffer: Any) -> None:
        """Give a block away if a view of it outlived the handler."""
        i = self.index
        call.kept[i] = 1
        pointer = ffi.cast("void *", call.words[i])
        weakref.finalize(buffer, lib.revoff_block_free, pointer).atexit = False


def typed_arguments(
    signature: Signature, dtypes: dict[int, np.dtype[Any]] | None, where: str
) -> list[Argument]:
    """The arguments of a signature, some with the better types of `dtypes`.

    Raises
    ------
    SignatureError
        A dtype of another size.
    """
    arguments = list(signature.arguments)
    for i, dtype in (dtypes or {}).items():
        old = arguments[i]
        if old.dtype is None or dtype.itemsize != old.dtype.itemsize:
            raise SignatureError(
                f"{where}: argument {i} has "
                f"{old.dtype.itemsize if old.dtype is not None else 'no'} bytes an element, "
                f"dtype {dtype} has {dtype.itemsize}"
            )
        arguments[i] = Argument(dtype, old.map, old.name)
    return arguments


class Bound:
    """A Python handler, bound to a typed reverse function.

    Called by the trampoline with the C call; raises what the handler raises.
    """

    def __init__(
        self,
        name: str,
        signature: Signature,
        function: Callable[..., Any],
        dtypes: dict[int, np.dtype[Any]] | None = None,
    ) -> None:
        self.name = name
        self.signature = signature
        self.function = function
        self.where = f"{name} {signature}"
        arguments = typed_arguments(signature, dtypes, self.where)
        self.count = len(arguments)
        self.result = Result(signature.result, self.where) if signature.result else None
        self.nargs = self.count + bool(self.result and self.result.large)
        codes: list[str] = []
        self.others: list[tuple[int, Callable[[Any, int], Any]]] = []
        self.arrays: list[_Array] = []
        for i, a in enumerate(arguments):
            code = scalar_code(a.dtype) if a.dtype is not None and not a.map else None
            if code and a.dtype is not None:
                codes.append(f"{code}{8 - a.dtype.itemsize}x")
                continue
            codes.append("Q")
            if a.map == "str":
                self.others.append((i, self._text))
            elif a.map:
                self.arrays.append(_Array(i, a))
            else:
                self.others.append((i, self._structure(a)))
        self.unpack = struct.Struct("<" + "".join(codes)).unpack_from
        self.simple = not self.others and not self.arrays
        self.words: Any = None
        self.buffer: Any = b""

    @staticmethod
    def _text(call: Any, i: int) -> Any:
        if not call.words[i]:
            return None
        raw = ffi.buffer(ffi.cast("char *", call.words[i]), call.sizes[i])[:]
        return raw.decode(errors="backslashreplace")

    @staticmethod
    def _structure(a: Argument) -> Callable[[Any, int], Any]:
        dtype = a.dtype
        assert dtype is not None

        def decode(call: Any, i: int) -> Any:
            if dtype.itemsize <= 8:
                raw = _WORD.pack(call.words[i])[: dtype.itemsize]
            else:
                raw = ffi.buffer(ffi.cast("char *", call.words[i]), dtype.itemsize)[:]
            return np.frombuffer(bytearray(raw), dtype)[0]

        return decode

    def __call__(self, call: Any) -> int:
        if call.nargs != self.nargs:
            raise SignatureError(
                f"{self.where}: the kernel passed {call.nargs} items, {self.nargs} are expected"
            )
        values: Any = ()
        if self.count:
            words = call.words
            # The words lie at one place during a launch: keep its buffer.
            if words != self.words:
                self.words, self.buffer = words, ffi.buffer(words, 8 * self.count)
            values = self.unpack(self.buffer)
        if not self.simple:
            return self._with_data(call, list(values))
        result = self.function(*values)
        if type(result) is not float and is_future(result, self.where):
            return self._defer(call, result, [], [])
        self._answer(call, result)
        return 0

    def _answer(self, call: Any, result: Any) -> None:
        if self.result:
            raw = self.result.encode(result)
            if self.result.large:
                ffi.memmove(ffi.cast("char *", call.words[self.count]), raw, len(raw))
            else:
                call.result = _WORD.unpack(raw)[0]

    def _with_data(self, call: Any, values: list[Any]) -> int:
        for i, decode in self.others:
            values[i] = decode(call, i)
        buffers: list[Any] = []
        deferred = False
        try:
            for a in self.arrays:
                values[a.index], buffer = a.decode(call)
                buffers.append(buffer)
            buffer = None  # a name would count as a view that survived
            result = self.function(*values)
            if is_future(result, self.where):
                code = self._defer(call, result, values, buffers)
                deferred = code == LATER
                return code
            self._finish(call, values, buffers, result)
            del result
            return 0
        finally:
            if not deferred:
                self._release(call, values, buffers)

    def _finish(self, call: Any, values: list[Any], buffers: list[Any], result: Any) -> None:
        for a, buffer in zip(self.arrays, buffers):
            if buffer is None:
                a.finish(call, values[a.index])
        self._answer(call, result)

    def _release(self, call: Any, values: list[Any], buffers: list[Any]) -> None:
        values.clear()
        for a in self.arrays[: len(buffers)]:
            buffer = buffers.pop(0)
            if buffer is not None and sys.getrefcount(buffer) > _ONE_NAME:
                a.release(call, buffer)

    def _defer(self, call: Any, future: Any, values: list[Any], buffers: list[Any]) -> int:
        if call.posted:
            posted(future, self.where)
            return 0
        return defer(
            lib.revoff_call_later(call),
            Owed(
                future,
                self.where,
                lambda c, result: self._finish(c, values, buffers, result),
                lambda c: self._release(c, values, buffers),
            ),
        )


def parse_dtypes(signature: Signature, dtypes: Any, name: str) -> dict[int, np.dtype[Any]] | None:
    """Check `dtypes` of ``Image.handler``: argument index to dtype."""
    if dtypes is None:
        return None
    if not isinstance(dtypes, dict):
        raise TypeError(f"dtypes of {name}: a dict of argument index to dtype is wanted")
    out = {}
    for i, d in dtypes.items():
        index = operator.index(i)
        if not 0 <= index < len(signature.arguments):
            raise SignatureError(f"{name} {signature} has no argument {index}")
        out[index] = np.dtype(d)
    return out


def finite_seconds(value: Any, what: str) -> float | None:
    """Check a time in seconds; None stays None."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what} is a number of seconds, not {value!r}") from None
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"{what} must be a number of seconds, not {value!r}")
    return seconds
