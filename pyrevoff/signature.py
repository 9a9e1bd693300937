# SPDX-License-Identifier: Apache-2.0
"""Signatures of reverse functions: text in the image, dtypes here.

The grammar is in docs/protocol.md, "Signatures".
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import SignatureError

_SCALARS = {
    "b1": ("?", "bool"),
    "i1": ("i1", "int8"),
    "i2": ("i2", "int16"),
    "i4": ("i4", "int32"),
    "i8": ("i8", "int64"),
    "u1": ("u1", "uint8"),
    "u2": ("u2", "uint16"),
    "u4": ("u4", "uint32"),
    "u8": ("u8", "uint64"),
    "f4": ("f4", "float32"),
    "f8": ("f8", "float64"),
    "p8": ("u8", "pointer"),
}
_MAPS = ("to", "from", "tofrom", "alloc")


@dataclass(frozen=True)
class Argument:
    """One argument or the result of a reverse function.

    Attributes
    ----------
    dtype : numpy.dtype or None
        Type of the value, or of one element of an array; None for text.
    map : str
        ``""`` for a value, ``"to"``, ``"from"``, ``"tofrom"`` or ``"alloc"`` for
        an array, ``"str"`` for text.
    name : str
        How C++ would call it, for messages.
    pointer : bool
        The value is an address.
    """

    dtype: np.dtype[Any] | None
    map: str
    name: str
    pointer: bool = False

    @property
    def raw(self) -> bool:
        """True for a struct whose fields the image does not describe."""
        return self.dtype is not None and self.dtype.kind == "V" and not self.dtype.names


@dataclass(frozen=True)
class Signature:
    """Types of a reverse function.

    Attributes
    ----------
    result : Argument or None
        None for ``void``.
    arguments : tuple of Argument
    text : str
        As it stands in the image.
    """

    result: Argument | None
    arguments: tuple[Argument, ...]
    text: str

    def __str__(self) -> str:
        result = self.result.name if self.result else "void"
        return f"{result}({', '.join(a.name for a in self.arguments)})"


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, why: str) -> SignatureError:
        return SignatureError(f"signature {self.text!r}: {why} at character {self.at}")

    def accept(self, token: str) -> bool:
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.fail(f"{token!r} expected")

    def match(self, pattern: str, what: str) -> str:
        found = re.compile(pattern).match(self.text, self.at)
        if not found:
            raise self.fail(f"{what} expected")
        self.at = found.end()
        return found.group()

    def number(self) -> int:
        return int(self.match(r"\d+", "a number"))

    def value(self) -> tuple[np.dtype[Any], str, bool]:
        if self.accept("{"):
            return self.struct()
        code = self.match(r"[biufp]\d", "a type")
        if code not in _SCALARS:
            raise self.fail(f"unknown type {code!r}")
        dtype, name = _SCALARS[code]
        return np.dtype(dtype), name, code == "p8"

    def struct(self) -> tuple[np.dtype[Any], str, bool]:
        # A C++ name may hold colons and templates: up to the two numbers.
        name = self.match(r".*?(?=:\d+:\d+[;}])", "a struct's name, size and alignment")
        self.expect(":")
        size = self.number()
        self.expect(":")
        self.number()  # alignment: already in the offsets
        names: list[str] = []
        formats: list[Any] = []
        offsets: list[int] = []
        while self.accept(";"):
            names.append(self.match(r"\w+", "a field"))
            self.expect("=")
            dtype = self.value()[0]
            shape: list[int] = []
            while self.accept("["):
                shape.append(self.number())
                self.expect("]")
            self.expect("@")
            offset = self.number()
            count = int(np.prod(shape, dtype=object)) if shape else 1
            if offset + dtype.itemsize * count > size:
                raise self.fail(f"field {names[-1]!r} lies outside its struct")
            formats.append((dtype, tuple(shape)) if shape else dtype)
            offsets.append(offset)
        self.expect("}")
        if not names:
            return np.dtype(f"V{size}"), name or f"struct of {size} bytes", False
        try:
            made = np.dtype(
                {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}
            )
        except ValueError as error:
            raise self.fail(str(error)) from None
        return made, name, False

    def argument(self) -> Argument:
        if re.compile(r"str[,)]").match(self.text, self.at):
            self.at += 3
            return Argument(None, "str", "str")
        for kind in _MAPS:
            if self.accept(kind + ":"):
                dtype, name, _ = self.value()
                return Argument(dtype, kind, f"{kind}<{name}>")
        dtype, name, pointer = self.value()
        return Argument(dtype, "", name, pointer)


@functools.lru_cache(maxsize=1024)
def parse(text: str) -> Signature:
    """Parse the signature of a reverse function.

    Parameters
    ----------
    text : str
        For example ``"f8(i4,to:f4,str)"``.

    Raises
    ------
    SignatureError
        The text is not of the grammar; it names the place.
    """
    p = _Parser(text)
    result = None
    if not p.accept("v("):
        dtype, name, pointer = p.value()
        result = Argument(dtype, "", name, pointer)
        p.expect("(")
    arguments: list[Argument] = []
    if not p.accept(")"):
        arguments.append(p.argument())
        while p.accept(","):
            arguments.append(p.argument())
        p.expect(")")
    if p.at != len(text):
        raise p.fail("nothing more expected")
    return Signature(result, tuple(arguments), text)
