# SPDX-License-Identifier: Apache-2.0
"""Answers that come later: handlers that return futures.

C keeps a call open that is to be answered later, serves others meanwhile, and
calls the handler again when any thread has said that the answer is there, or
when nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable
from typing import Any

from ._lib import ffi, lib
from ._trampoline import here
from .errors import check

LATER = 1  # REVOFF_LATER
# What most handlers return: not worth a look at its attributes.
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, tuple, dict, list})


def is_future(value: Any, where: str) -> bool:
    """True for a future in the manner of ``concurrent.futures``.

    Raises
    ------
    TypeError
        It is awaitable: the thread that serves a launch runs no event loop.
    """
    if type(value) in _PLAIN:
        return False
    if asyncio.isfuture(value) or inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(
            f"the handler of {where} returned the awaitable {type(value).__name__}; return "
            "asyncio.run_coroutine_threadsafe(coroutine, loop), whose loop runs in another thread"
        )
    return callable(getattr(value, "add_done_callback", None)) and callable(
        getattr(value, "result", None)
    )


def outcome(future: Any, where: str) -> Any:
    """What a future that is done came to.

    Raises
    ------
    concurrent.futures.CancelledError
        It was cancelled; the text names the function.
    BaseException
        What its function raised.
    """
    if future.cancelled():
        raise concurrent.futures.CancelledError(f"the future of {where} was cancelled")
    return future.result()


class Later:
    """The open answers of one bound handler."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.open: dict[int, tuple[Any, Any]] = {}

    def defer(self, later: Any, future: Any, state: Any) -> int:
        """Keep a call open until `future` is done.

        Parameters
        ----------
        later : cffi pointer
            A ``struct revoff_later *``, or NULL if C would not.
        future : Future
        state : object
            Given back by `resume`.
        """
        if not later:
            future.cancel()
            check(-1)
        self.open[int(ffi.cast("uintptr_t", later))] = future, state
        # From any thread, also at once; C counts who still knows it.
        future.add_done_callback(lambda _: lib.revoff_later_ready(later))
        return LATER

    def resume(self, later: Any) -> tuple[Any, Any]:
        """Future and state of a call whose answer is wanted now."""
        return self.open.pop(int(ffi.cast("uintptr_t", later)))

    def posted(self, future: Any) -> None:
        """Nobody waits for a post's future but `run`, at its end."""
        record = here.record
        if record is not None:
            record.futures.append((future, self.where))


def finish_posted(record: Any, seconds: float | None) -> None:
    """Wait for the futures of posts; their first failure is the launch's."""
    futures, record.futures = record.futures, []
    given_up = record.error is not None
    for future, where in futures:
        if given_up:
            future.cancel()
            continue
        try:
            # Dask's futures tell a cancelled one by another class.
            future.result(seconds)
        except concurrent.futures.CancelledError:
            record.failed(concurrent.futures.CancelledError(f"the future of {where} was cancelled"))
        except Exception as error:
            record.failed(error)
        except BaseException:
            for other, _ in futures:
                other.cancel()
            raise


def submitting(function: Callable[..., Any], executor: Any) -> Callable[..., Any]:
    """A handler that runs `function` by `executor`."""

    def submit(*values: Any) -> Any:
        return executor.submit(function, *values)

    return submit


def check_executor(executor: Any, name: str) -> None:
    """Refuse what is no executor.

    Raises
    ------
    TypeError
    """
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"executor of {name}: an object with submit(), such as "
            f"concurrent.futures.ThreadPoolExecutor(), not {executor!r}"
        )
