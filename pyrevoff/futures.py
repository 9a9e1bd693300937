# SPDX-License-Identifier: Apache-2.0
"""Answers that come later: handlers that return futures.

C keeps a call open that is to be answered later, serves others meanwhile, and
calls the handler again when any thread has said that the answer is there, or
when nobody waits for it any more.
"""

from __future__ import annotations

import concurrent.futures
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ._lib import ffi, lib
from ._log import log
from ._trampoline import here, owed
from .errors import LaunchTimeout, check

LATER = 1  # REVOFF_LATER
# What most handlers return: not worth a look at its attributes.
_PLAIN = frozenset(
    {type(None), bool, int, float, str, bytes, tuple, dict, list, np.ndarray, np.void, np.bool_}
    | {np.dtype(code).type for code in "bBhHiIlLqQfd"}
)
# Futures of posts that are looked at only when there are so many.
_MANY = 256


def is_future(value: Any, where: str) -> bool:
    """True for a future in the manner of ``concurrent.futures``.

    Raises
    ------
    TypeError
        It is awaitable: the thread that serves a launch runs no event loop.
    """
    kind = type(value)
    if kind in _PLAIN:
        return False
    # asyncio.isfuture, without the time that importing asyncio takes.
    awaitable = kind is types.CoroutineType or hasattr(kind, "_asyncio_future_blocking")
    future = callable(getattr(value, "add_done_callback", None)) and callable(
        getattr(value, "result", None)
    )
    # Dask's futures can be awaited too, but need not be.
    if awaitable or (hasattr(kind, "__await__") and not future):
        if kind is types.CoroutineType:
            value.close()
        raise TypeError(
            f"the handler of {where} returned the awaitable {kind.__name__}; return "
            "asyncio.run_coroutine_threadsafe(coroutine, loop), whose loop runs in another thread"
        )
    return future


def _is_cancelled(error: BaseException) -> bool:
    # asyncio's and Dask's are classes of their own.
    return any(c.__name__ == "CancelledError" for c in type(error).__mro__)


def outcome(future: Any, where: str, seconds: float | None = None) -> Any:
    """What a future came to.

    Raises
    ------
    concurrent.futures.CancelledError
        It was cancelled; the text names the function.
    TimeoutError
        It is not done after `seconds`.
    BaseException
        What its function raised.
    """
    try:
        return future.result() if seconds is None else future.result(seconds)
    except BaseException as error:
        if _is_cancelled(error):
            text = f"the future of {where} was cancelled"
            raise concurrent.futures.CancelledError(text) from error
        raise


def cancel(future: Any) -> None:
    """Cancel what nobody waits for; what goes wrong with that is only logged."""
    try:
        future.cancel()
    except Exception as error:
        log.debug("a future could not be cancelled: %s: %s", type(error).__name__, error)


class Owed:
    """A call whose answer comes later.

    Parameters
    ----------
    future : Future
    where : str
        The function, for messages.
    finish : callable
        Takes the C call and the future's result, and answers.
    release : callable
        Takes the C call, and lets go of its arrays; may be called again.
    """

    __slots__ = ("finish", "future", "release", "where")

    def __init__(
        self,
        future: Any,
        where: str,
        finish: Callable[[Any, Any], None],
        release: Callable[[Any], None],
    ) -> None:
        self.future = future
        self.where = where
        self.finish = finish
        self.release = release

    def resume(self, call: Any) -> None:
        """Answer, or (posted -1) learn that nobody waits any more."""
        future, self.future = self.future, None
        try:
            if call.posted < 0:
                cancel(future)
            else:
                self.finish(call, outcome(future, self.where))
        finally:
            # What still runs with the arrays keeps their memory.
            del future
            self.release(call)


def defer(later: Any, answer: Owed) -> int:
    """Keep a call open until its future is done; REVOFF_LATER.

    Parameters
    ----------
    later : cffi pointer
        A ``struct revoff_later *``, or NULL if C would not.
    answer : Owed

    Raises
    ------
    BaseException
        The call is not kept open: the caller releases its arrays.
    """
    future = answer.future
    if not later:
        cancel(future)
        check(-1)
    owed[int(ffi.cast("uintptr_t", later))] = answer
    once = [later]

    def ready(_: Any = None) -> None:
        # From any thread, also at once; C counts who still knows it.
        if once:
            lib.revoff_later_ready(once.pop())

    try:
        future.add_done_callback(ready)
    except BaseException:
        # C calls again, to say that nobody waits, and finds it in owed.
        ready()
        raise
    return LATER


def posted(future: Any, where: str) -> None:
    """Nobody waits for a post's future but `run`, at its end.

    Raises
    ------
    BaseException
        What an earlier one came to, if it failed.
    """
    record = here.record
    if record is None:
        return
    futures = record.futures
    futures.append((future, where))
    # Those that are done go, so that a long run holds few of them.
    if len(futures) % _MANY == 0:
        record.futures = [f for f in futures if not f[0].done()]
        for other, name in futures:
            if other.done():
                outcome(other, name)


def finish_posted(record: Any, given_up: bool, left: Callable[[], float | None]) -> None:
    """Wait for the futures of posts; their first failure is the launch's.

    Parameters
    ----------
    record : Record
        Of a launch that has ended.
    given_up : bool
        Cancel them, as after the first failure.
    left : callable
        Seconds until the time limit; None: there is none.
    """
    futures, record.futures = record.futures, []
    while futures:
        future, where = futures[0]
        try:
            if given_up or record.error is not None:
                cancel(future)
            else:
                outcome(future, where, left())
        except concurrent.futures.TimeoutError as error:
            # A future's own may look the same.
            if future.done():
                record.failed(error)
            else:
                record.failed(
                    LaunchTimeout(
                        f"the time limit passed: kernel {record.kernel} has ended, but "
                        f"{len(futures)} futures of its posts are not done, the first of {where}"
                    )
                )
                continue
        except Exception as error:
            record.failed(error)
        except BaseException:
            for other, _ in futures:
                cancel(other)
            raise
        del futures[0]


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
