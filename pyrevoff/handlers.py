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
from .signature import Argument, Signature

_CODES = {"i": {1: "b", 2: "h", 4: "i", 8: "q"}, "u": {1: "B", 2: "H", 4: "I", 8: "Q"}}
_FLOATS = {4: "f", 8: "d"}
# Without the GIL a reference count does not tell whether a view survived.
_COUNTS = getattr(sys, "_is_gil_enabled", lambda: True)()
_WORD = struct.Struct("<Q")


def _count_of_one_name() -> int:
    # Python 3.14 borrows references of local names, so it has to be measured.
    names = [bytearray(1)]
    name = names.pop(0)
    return sys.getrefcount(name)


_ONE_NAME = _count_of_one_name()


def _scalar_code(dtype: np.dtype[Any]) -> str | None:
    if dtype.kind in _CODES:
        return _CODES[dtype.kind][dtype.itemsize]
    if dtype.kind == "f":
        return _FLOATS[dtype.itemsize]
    return "?" if dtype.kind == "b" else None


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
    """

    function: str
    kernel: str
    device: Any
    image: Any
    block: tuple[int, int, int]
    thread: tuple[int, int, int]


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
        raise RevoffError("current_call() works in a handler, in the thread that runs it")
    return CallInfo(
        record.image.function_name(call.index),
        record.kernel,
        record.image.device,
        record.image,
        tuple(call.block),
        tuple(call.thread),
    )


def check_arity(function: Callable[..., Any], signature: Signature, name: str) -> None:
    """Refuse a handler that cannot take the arguments of its function.

    Raises
    ------
    SignatureError
        The handler takes another number of positional arguments.
    """
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


def _describe(value: Any) -> str:
    return f"{value!r:.60} of type {type(value).__name__}"


def _scalar(value: Any, dtype: np.dtype[Any], wrong: Callable[..., TypeError]) -> Any:
    """A Python number for a scalar of `dtype`; nothing is rounded to an integer."""
    if isinstance(value, np.ndarray):
        if value.ndim:
            raise wrong(value, ": one value, not an array")
        value = value[()]
    if dtype.kind == "f":
        if isinstance(value, (float, int, np.floating, np.integer, np.bool_)):
            return float(value)
        raise wrong(value)
    if dtype.kind == "b":
        if isinstance(value, (bool, np.bool_)) or (type(value) is int and value in (0, 1)):
            return bool(value)
        raise wrong(value)
    if isinstance(value, np.bool_):
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        raise wrong(value) from None


def _fields(value: Any, dtype: np.dtype[Any], wrong: Callable[..., TypeError]) -> Any:
    """A value that NumPy stores in `dtype` as it is.

    NumPy itself would cut a float for an integer field, in silence.
    """
    if isinstance(value, (np.void, np.ndarray)) and value.dtype == dtype:
        return value
    if dtype.names:
        if isinstance(value, dict):
            if set(value) != set(dtype.names):
                raise wrong(value, f": the fields are {', '.join(dtype.names)}")
            value = tuple(value[name] for name in dtype.names)
        if not isinstance(value, tuple) or len(value) != len(dtype.names):
            raise wrong(value, ": a tuple, dict or structured scalar")
        return tuple(_field(v, dtype[name], name, wrong) for v, name in zip(value, dtype.names))
    raise wrong(value, f": bytes or a NumPy scalar of dtype {dtype}")


def _field(value: Any, dtype: np.dtype[Any], name: str, wrong: Callable[..., TypeError]) -> Any:
    def here(v: Any, why: str = "") -> TypeError:
        return wrong(v, f" for field {name!r}{why}")

    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        try:
            array = np.asarray(value, None if base.kind != "V" else base)
        except (TypeError, ValueError) as error:
            raise here(value, f": {error}") from None
        if array.shape != shape or not np.can_cast(array.dtype, base, "same_kind"):
            raise here(value, f": {shape} values of {base}")
        with np.errstate(over="ignore"):
            stored = array.astype(base)
        if base.kind in "iu" and not (array == stored).all():
            raise OverflowError(f"field {name!r}")
        if base.kind == "f" and (np.isinf(stored) & np.isfinite(array)).any():
            raise OverflowError(f"field {name!r}")
        return stored
    if dtype.kind == "V":
        return _fields(value, dtype, here)
    number = _scalar(value, dtype, here)
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
        raise OverflowError(f"field {name!r}: {number}")
    if dtype.kind == "f" and math.isfinite(number) and abs(number) > np.finfo(dtype).max:
        raise OverflowError(f"field {name!r}: {number}")
    return number


class Result:
    """Encoder of a reverse function's result.

    Parameters
    ----------
    argument : Argument
        Type of the result.
    where : str
        Name and signature of the function, for messages.
    """

    def __init__(self, argument: Argument, where: str) -> None:
        assert argument.dtype is not None
        self.argument = argument
        self.dtype = argument.dtype
        self.where = where
        code = _scalar_code(self.dtype)
        self.pack = struct.Struct(f"<{code}{8 - self.dtype.itemsize}x").pack if code else None
        self.large = self.dtype.itemsize > 8

    def wrong(self, value: Any, why: str = "") -> TypeError:
        return TypeError(
            f"the handler of {self.where} returned {_describe(value)}, "
            f"{self.argument.name} is wanted{why}"
        )

    def scalar(self, value: Any) -> Any:
        return _scalar(value, self.dtype, self.wrong)

    def structure(self, value: Any) -> bytes:
        dtype = self.dtype
        if isinstance(value, (bytes, bytearray)) and not dtype.names:
            if len(value) != dtype.itemsize:
                raise self.wrong(value, f": {dtype.itemsize} bytes")
            return bytes(value)
        if isinstance(value, (np.void, np.ndarray)):
            if value.dtype != dtype or np.ndim(value):
                raise self.wrong(value, f", dtype {dtype}")
            return value.tobytes()
        out = np.zeros((), dtype)
        out[()] = _fields(value, dtype, self.wrong)
        return out.tobytes()

    def encode(self, value: Any) -> bytes:
        """Bytes of the result, at least 8.

        Raises
        ------
        TypeError, OverflowError
            The value does not fit; both name the function and the value.
        """
        try:
            if not self.pack:
                return self.structure(value).ljust(8, b"\0")
            if type(value) is not float or self.dtype.kind != "f":
                value = self.scalar(value)
            return self.pack(value)
        except (struct.error, OverflowError) as error:
            field = f" ({error})" if not self.pack else ""
            raise OverflowError(
                f"the handler of {self.where} returned {_describe(value)}, which "
                f"{self.argument.name} cannot hold{field}"
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
        arguments = list(signature.arguments)
        for i, dtype in (dtypes or {}).items():
            old = arguments[i]
            if old.dtype is None or dtype.itemsize != old.dtype.itemsize:
                raise SignatureError(
                    f"{self.where}: argument {i} has "
                    f"{old.dtype.itemsize if old.dtype is not None else 'no'} bytes an element, "
                    f"dtype {dtype} has {dtype.itemsize}"
                )
            arguments[i] = Argument(dtype, old.map, old.name)
        self.count = len(arguments)
        self.result = Result(signature.result, self.where) if signature.result else None
        self.nargs = self.count + bool(self.result and self.result.large)
        codes: list[str] = []
        self.others: list[tuple[int, Callable[[Any, int], Any]]] = []
        self.arrays: list[_Array] = []
        for i, a in enumerate(arguments):
            code = _scalar_code(a.dtype) if a.dtype is not None and not a.map else None
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

    def __call__(self, call: Any) -> None:
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
        if self.simple:
            result = self.function(*values)
        else:
            result = self._with_data(call, list(values))
        if self.result:
            raw = self.result.encode(result)
            if self.result.large:
                ffi.memmove(ffi.cast("char *", call.words[self.count]), raw, len(raw))
            else:
                call.result = _WORD.unpack(raw)[0]

    def _with_data(self, call: Any, values: list[Any]) -> Any:
        for i, decode in self.others:
            values[i] = decode(call, i)
        buffers = []
        try:
            for a in self.arrays:
                values[a.index], buffer = a.decode(call)
                buffers.append(buffer)
            result = self.function(*values)
            for a, buffer in zip(self.arrays, buffers):
                if buffer is None:
                    a.finish(call, values[a.index])
            # The result may be a view of an argument: let it stand by itself.
            if isinstance(result, np.ndarray):
                result = result.copy()
            return result
        finally:
            values.clear()
            for a in self.arrays[: len(buffers)]:
                buffer = buffers.pop(0)
                if buffer is not None and sys.getrefcount(buffer) > _ONE_NAME:
                    a.release(call, buffer)


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
