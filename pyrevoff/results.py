# SPDX-License-Identifier: Apache-2.0
"""What handlers return, as the bytes that a kernel gets."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import shown
from .signature import Argument

_CODES = {"i": {1: "b", 2: "h", 4: "i", 8: "q"}, "u": {1: "B", 2: "H", 4: "I", 8: "Q"}}
_FLOATS = {4: "f", 8: "d"}


def scalar_code(dtype: np.dtype[Any]) -> str | None:
    """Letter of Python's struct module for a number, or None."""
    if dtype.kind in _CODES:
        return _CODES[dtype.kind][dtype.itemsize]
    if dtype.kind == "f":
        return _FLOATS[dtype.itemsize]
    return "?" if dtype.kind == "b" else None


def _describe(value: Any) -> str:
    return f"{shown(value)} of type {type(value).__name__}"


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
        if isinstance(value, (int, np.integer, np.bool_)) and value in (0, 1):
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
        # An integer is known by its value, below: lists of them are int64.
        whole = base.kind in "iu" and array.dtype.kind in "iub"
        if array.shape != shape or not (whole or np.can_cast(array.dtype, base, "same_kind")):
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
        code = scalar_code(self.dtype)
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
            # What the image knows as bytes only may be called by any names.
            same = value.dtype == dtype or (
                not dtype.names and value.dtype.kind == "V" and value.itemsize == dtype.itemsize
            )
            if not same or np.ndim(value):
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
