# SPDX-License-Identifier: Apache-2.0
"""What kernels say: revoff::print, printf, log, progress and REVOFF_ASSERT.

All are posts to functions whose names begin with ``revoff::``, in the order in
which the device took its places in the ring. csrc/include/revoff/output.h has
the device half. A format comes from the kernel; it can only name values that
came with it.
"""

from __future__ import annotations

import functools
import logging
import re
import string
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ._lib import ffi, lib
from ._trampoline import here
from .errors import KernelAssertionError, check
from .handlers import Bound
from .signature import parse

PREFIX = "revoff::"
_TEXTS = 4
_LEVEL = 14  # where a log's level begins among the 16 codes
_SIZES = {"b": 8, "B": 8, "c": 8, "?": 8, "h": 16, "H": 16, "i": 32, "I": 32}
_C = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?P<point>\.(?:\*|\d*))?"
    r"(?:hh|h|ll|l|q|j|z|t|L)?(?P<kind>[a-zA-Z%])"
)

_WIDE = re.compile(r"\d{6}")

_logger = logging.getLogger("pyrevoff.kernel")


class Pointer(int):
    """A pointer's value, which shows itself as C shows it."""

    def __format__(self, spec: str) -> str:
        return (
            format(hex(self), spec)
            if not spec or spec[-1] not in "bcdoxXn"
            else format(int(self), spec)
        )

    def __str__(self) -> str:
        return hex(self)


def _values(words: np.ndarray[Any, Any], texts: tuple[str | None, ...]) -> list[tuple[str, Any]]:
    """Codes and values of a record."""
    raw = words.tobytes()
    waiting = iter(texts)
    out: list[tuple[str, Any]] = []
    for i, code in enumerate(raw[:_LEVEL].rstrip(b"\0").decode("latin-1")):
        at = 16 + 8 * i
        value: Any
        if code == "s":
            text = next(waiting)
            value = "(null)" if text is None else text
        elif code == "c":
            value = chr(raw[at])
        elif code == "P":
            value = Pointer(struct.unpack_from("<Q", raw, at)[0])
        else:
            value = struct.unpack_from("<" + code, raw, at)[0]
        out.append((code, value))
    return out


@functools.lru_cache(maxsize=256)
def _check_format(format: str) -> None:
    """Refuse a format that would look into values.

    Raises
    ------
    ValueError
        It is no format, or has a field other than a number.
    """
    for _, field, spec, _ in string.Formatter().parse(format):
        if field is None:
            continue
        if field and not field.isdecimal():
            raise ValueError(f"field {{{field}}}: values are given by their place")
        if spec:
            if _WIDE.search(spec):
                raise ValueError(f"{spec!r}: a width of more than five digits")
            _check_format(spec)


def format_braces(format: str, values: list[tuple[str, Any]]) -> str:
    """Format as ``str.format`` does.

    Raises
    ------
    ValueError, IndexError
        The format is wrong, or wants more values than there are.
    """
    _check_format(format)
    return format.format(*(value for _, value in values))


def _integer(code: str, value: Any, unsigned: bool) -> int:
    """A value as C's conversion would read its bits."""
    if code == "c":
        value = ord(value)
    if isinstance(value, str):
        raise ValueError(f"a number is wanted, not {value!r}")
    number = int(value)
    bits = _SIZES.get(code, 64)
    if unsigned:
        return number % (1 << bits)
    return number if number < 1 << (bits - 1) or bits < 32 else number - (1 << bits)


def format_percent(format: str, values: list[tuple[str, Any]]) -> str:
    """Format as C's ``printf`` does.

    Raises
    ------
    ValueError, IndexError
        The format is wrong, or wants more values than there are.
    """
    waiting = list(values)
    out: list[str] = []
    at = 0
    for found in _C.finditer(format):
        plain = format[at : found.start()]
        if "%" in plain:
            raise ValueError(f"{plain[plain.index('%') :]!r} is no conversion")
        out.append(plain)
        at = found.end()
        kind = found["kind"]
        if kind == "%":
            out.append("%")
            continue
        stars = [
            _integer(*waiting.pop(0), False)
            for part in (found["width"], found["point"] or "")
            if "*" in part
        ]
        if any(abs(star) > 99999 for star in stars) or _WIDE.search(found.group()):
            raise ValueError(f"{found.group()!r}: a width of more than five digits")
        code, value = waiting.pop(0)
        item: Any = value
        if kind in "di":
            kind, item = "d", _integer(code, value, False)
        elif kind in "uoxX":
            item, kind = _integer(code, value, True), "d" if kind == "u" else kind
        elif kind == "p":
            kind, item = "s", hex(_integer(code, value, True))
        elif kind in "aA":
            text = float(value).hex()
            kind, item = "s", text.upper() if kind == "A" else text
        elif kind == "c":
            item = value if code == "c" else chr(_integer(code, value, True) % 256)
        elif kind == "s":
            item = str(value)
        elif kind not in "eEfFgG":
            raise ValueError(f"%{kind} is no conversion")
        flags = found["flags"]
        if kind == "o" and "#" in flags:
            # Python would write 0o17 for C's 017.
            flags, kind, item = flags.replace("#", ""), "s", f"0{item:o}" if item else "0"
        spec = f"%{flags}{found['width']}{found['point'] or ''}{kind}"
        out.append(spec % (*stars, item))
    if "%" in format[at:]:
        raise ValueError(f"{format[at + format[at:].index('%') :]!r} is no conversion")
    return "".join(out) + format[at:]


def _text(how: Any, format: str | None, words: Any, texts: tuple[str | None, ...]) -> str:
    """The formatted text; where the format is wrong, all that came, and why."""
    values = _values(words, texts)
    if format is None:
        return "(null)"
    try:
        return str(how(format, values))
    except Exception as error:
        why = "too few values" if isinstance(error, IndexError) else error
        if not str(why):
            why = type(error).__name__
        shown = "".join(f" {value!r}" for _, value in values)
        end = "\n" if how is format_percent and format.endswith("\n") else ""
        why = f"[pyrevoff: this format does not fit its values: {why}]{end}"
        return f"{format.rstrip()}{shown} {why}"


def _write(text: str) -> None:
    record = here.record
    output: Any = record.image.output if record is not None else None
    if output is None:
        output = sys.stdout
    if output is None:
        return  # as print() in a program without a console
    getattr(output, "write", output)(text)


def _print(format: str | None, words: Any, *texts: str | None) -> None:
    # One write, so that lines of several threads stay whole.
    _write(_text(format_braces, format, words, texts) + "\n")


def _printf(format: str | None, words: Any, *texts: str | None) -> None:
    _write(_text(format_percent, format, words, texts))


def _log(format: str | None, words: Any, *texts: str | None) -> None:
    level = int.from_bytes(words.tobytes()[_LEVEL:16], "little")
    if not _logger.isEnabledFor(level):
        return
    record, extra = here.record, {}
    if record is not None:
        block, thread = tuple(record.call.block), tuple(record.call.thread)
        extra = {"kernel": record.kernel, "cuda_block": block, "cuda_thread": thread}
    entry = _logger.makeRecord(
        _logger.name, level, "(kernel)", 0, _text(format_braces, format, words, texts), (), None,
        "", extra,
    )  # fmt: skip
    _logger.handle(entry)
    # The package's logger is silent on its own; a kernel's warning is not.
    last = logging.lastResort
    if last is not None and level >= last.level and _unheard():
        last.handle(entry)


def _unheard() -> bool:
    logger: logging.Logger | None = _logger
    while logger is not None:
        if any(not isinstance(h, logging.NullHandler) for h in logger.handlers):
            return False
        logger = logger.parent if logger.propagate else None
    return True


def _progress(done: int, total: int) -> None:
    record = here.record
    target = record.image.progress if record is not None else None
    if target is None:
        return
    if callable(target) and not hasattr(target, "update"):
        target(done, total)
        return
    # An object like tqdm's; blocks report in any order.
    if target.total != total:
        target.total = total
    if done > target.n:
        target.update(done - target.n)


def _assert(file: str | None, line: int, condition: str | None, message: str | None) -> None:
    record = here.record
    if record is None:
        return
    first = record.error
    if isinstance(first, KernelAssertionError):
        first.more += 1
    raise KernelAssertionError(
        condition or "",
        message=message,
        file=file or "",
        line=line,
        kernel=record.kernel,
        block=tuple(record.call.block),
        thread=tuple(record.call.thread),
    )


_HANDLERS: dict[str, Callable[..., None]] = {
    "print": _print,
    "printf": _printf,
    "log": _log,
    "progress": _progress,
    "assert": _assert,
}


class Output:
    """The part of an image that its kernels' output belongs to."""

    _output: Any = None
    _progress: Any = None

    def _bind_output(self, handle: Any) -> list[Any]:
        """Bind the ready-made functions of a C image; gives what must live as long."""
        self._launch: Any = None
        self._stop_lock = threading.Lock()
        keep: list[Any] = []
        out = ffi.new("struct revoff_function *")
        for i in range(lib.revoff_image_function_count(handle)):
            check(lib.revoff_image_function(handle, i, out))
            name = ffi.string(out.name).decode()
            function = _HANDLERS.get(name[len(PREFIX) :]) if name.startswith(PREFIX) else None
            if function is None:
                continue
            bound = Bound(name, parse(ffi.string(out.signature).decode()), function)
            user = ffi.new_handle(bound)
            check(lib.revoff_image_bind(handle, i, lib.revoff_py_handler, user))
            keep += [user, bound]
        return keep

    @property
    def output(self) -> Any:
        """Where ``revoff::print`` and ``printf`` write.

        None (the default) is ``sys.stdout`` as it is at that moment; else a text
        file, or a callable that gets each text, line end included.

        Raises
        ------
        TypeError
            Set to something else.
        """
        return self._output

    @output.setter
    def output(self, value: Any) -> None:
        if value is not None and not hasattr(value, "write") and not callable(value):
            raise TypeError(
                "output is None (sys.stdout), a text file or a callable that gets text, not "
                f"{value!r}"
            )
        self._output = value

    @property
    def progress(self) -> Any:
        """What ``revoff::progress`` tells.

        A callable of ``(done, total)``, or an object with ``n``, ``total`` and
        ``update()``, such as tqdm's. None (the default): nobody.

        Raises
        ------
        TypeError
            Set to something else.
        """
        return self._progress

    @progress.setter
    def progress(self, value: Any) -> None:
        like = all(hasattr(value, name) for name in ("update", "n", "total"))
        if value is not None and not callable(value) and not like:
            raise TypeError(
                "progress is None, a callable of (done, total) or an object with n, total and "
                f"update(), such as tqdm's, not {value!r}"
            )
        self._progress = value

    def request_stop(self) -> bool:
        """Ask the running kernel to end early; from any thread or a handler.

        From then on ``revoff::stop_requested()`` is true in it, as it is when the
        launch is given up for whatever reason. What a kernel
        does with that is its own affair; `run` returns as usual.

        Returns
        -------
        bool
            False if no kernel of the image runs.
        """
        with self._stop_lock:
            if self._launch is None:
                return False
            check(lib.revoff_launch_stop(self._launch.handle))
            return True

    def launched(self, launch: Any) -> None:
        """Note the launch under way; None at its end, before C lets go of it."""
        with self._stop_lock:
            self._launch = launch
