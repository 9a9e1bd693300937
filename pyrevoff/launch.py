# SPDX-License-Identifier: Apache-2.0
"""One launch: start, serve, watch, end."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import operator
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _trampoline
from ._lib import ffi, lib
from ._log import log
from .arguments import Packed
from .device import watchdog_seconds
from .errors import LaunchTimeout, RevoffError, check, from_record
from .futures import finish_posted

_ABORT_FAILED, _ABORT_SIGNAL, _ABORT_TIMEOUT = 1, 2, 3
# Between two of these Python looks for signals.
_SLICE_NS = 50_000_000
# What a kernel gets to see the abort word, before it is left behind: after an
# interrupt, and after a time limit, which callers want to be kept.
GRACE_S = 2.0
LATE_GRACE_S = 1.0


def _open_calls(image: Any, s: Any) -> str:
    """What waits for an answer, for a person."""
    if image.device.transport == "mailbox":
        return f"a call of {image.function_at(s.mailbox_fn)} is open" if s.mailbox_fn else "empty"
    waiting = f"{s.open_ports} warps wait for an answer" if s.open_ports else "nobody waits"
    return waiting + (f", {s.deferred} answers are owed by handlers" if s.deferred else "")


@dataclass(frozen=True)
class LaunchStats:
    """What a launch did.

    Attributes
    ----------
    calls : int
        Calls answered, failed ones included.
    failed : int
        Calls answered with a status other than ok.
    polls : int
        Looks for calls.
    sleeps : int
        Times that the host slept between looks.
    elapsed : float
        Seconds from the launch to the end of the kernel, host clock.
    posts : int
        Records of posts handled.
    dropped : int
        Records that ``try_post`` did not send, as the ring was full.
    batches : int
        Calls of batch handlers.
    """

    calls: int
    failed: int
    polls: int
    sleeps: int
    elapsed: float
    posts: int = 0
    dropped: int = 0
    batches: int = 0


def dims(value: Any, what: str) -> tuple[int, int, int]:
    """Check a grid or a block, and fill it up to three numbers."""
    try:
        values = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
        numbers = [operator.index(v) for v in values] + [1] * (3 - len(values))
    except TypeError:
        raise TypeError(f"{what} is an int or up to 3 of them, not {value!r}") from None
    if len(numbers) != 3 or not values:
        raise ValueError(f"{what} has 1 to 3 numbers, not {len(values)}")
    if any(not 1 <= n <= 0x7FFFFFFF for n in numbers):
        raise ValueError(f"{what} {tuple(numbers)}: each number must be 1 to {0x7FFFFFFF}")
    return (numbers[0], numbers[1], numbers[2])


def stream_handle(value: Any) -> int:
    """Handle of a stream: an int, or an object that has one."""
    if value is None:
        return 0
    protocol = getattr(value, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("ptr", "cuda_stream", "handle"):
        if hasattr(value, name):
            return int(getattr(value, name))
    return operator.index(value)


class Record:
    """What Python knows of a launch while it is served."""

    __slots__ = ("bound", "call", "error", "futures", "image", "kernel", "outer", "thread")

    def __init__(self, image: Any, kernel: str) -> None:
        self.image = image
        self.kernel = kernel
        self.error: BaseException | None = None
        self.thread = 0
        # Of posts, with the names of their functions: run() waits for them.
        self.futures: list[tuple[Any, str]] = []
        # Set by the trampoline while a handler runs.
        self.call: Any = None
        self.bound: Any = None
        # The record in whose handler this launch was started, if any.
        self.outer: Record | None = None

    def failed(self, error: BaseException) -> None:
        """Keep the first exception of a handler; later ones follow from it."""
        if self.error is not None:
            return
        self.error = error
        note = self.whose()
        # Python 3.11 and later; an exception may be raised again and again.
        if note and hasattr(error, "add_note") and note not in getattr(error, "__notes__", ()):
            error.add_note(note)

    def whose(self) -> str:
        """Which call is being answered, for a person; empty if none is."""
        call = self.call
        if call is None or not hasattr(call, "index"):
            return ""
        name = self.image.function_name(call.index)
        if hasattr(call, "count"):
            return f"pyrevoff: {call.count} calls of {name} by kernel {self.kernel}"
        block, thread = tuple(call.block), tuple(call.thread)
        return f"pyrevoff: {name} called by kernel {self.kernel}, block {block}, thread {thread}"


@contextlib.contextmanager
def serving(record: Record) -> Iterator[None]:
    """Let the trampoline find the record while this thread waits in C."""
    here = _trampoline.here
    outer = here.record
    if outer is not record:
        record.outer = outer
    record.thread = threading.get_ident()
    here.record = record
    try:
        yield
    finally:
        here.record = outer


class Launch:
    """A launch that has been started."""

    def __init__(self, record: Record, handle: Any, packed: Packed) -> None:
        self.record = record
        self.handle = handle
        self.packed = packed
        self.started = time.monotonic()
        # When calls were first refused, and how many had been answered last.
        self.refusing: tuple[float, int] | None = None
        record.image.launched(self)
        watchdog.add(self)

    def stats(self) -> Any:
        out = ffi.new("struct revoff_stats *")
        lib.revoff_launch_stats(self.handle, out)
        return out

    def wait(self, slice_ns: int = _SLICE_NS) -> bool:
        """Serve for a while; True once the kernel has ended."""
        with serving(self.record):
            return check(lib.revoff_launch_wait(self.handle, slice_ns)) == 1

    def abort(self, reason: int) -> None:
        lib.revoff_launch_abort(self.handle, reason)

    def goes_on_for_nothing(self) -> bool:
        """True once the kernel has been calling for long after a failed call.

        Every such call is refused, and a kernel that does not look at the
        status may have millions to make. One that only computes is let be.
        """
        s = self.stats()
        if not s.abort:
            return False
        since, calls = self.refusing or (time.monotonic(), -1)
        self.refusing = (since, int(s.calls))
        return int(s.calls) > calls >= 0 and time.monotonic() - since > GRACE_S

    def finish(self) -> bool:
        """End with it; False if its kernel still runs and was handed over.

        C uses its records again, so the handle is not to be used from here on.
        """
        watchdog.remove(self)
        self.record.image.launched(None)
        return check(lib.revoff_launch_finish(self.handle)) == 1

    def describe(self) -> str:
        """The state of the launch, for a person."""
        s = self.stats()
        image = self.record.image
        lines = [
            f"kernel {self.record.kernel} on {image.device}, "
            f"{time.monotonic() - self.started:.1f} s, {s.calls} calls served",
            f"{image.device.describe()}: {_open_calls(image, s)}, abort word {s.abort}",
        ]
        if s.in_handler:
            lines.append(f"the handler of {image.function_name(s.handler_index)} runs:")
            frame = sys._current_frames().get(self.record.thread)
            if frame is not None:
                lines.append("".join(traceback.format_stack(frame)[-6:]).rstrip())
            lines.append(
                "likely causes: the handler waits for the kernel (a free, a synchronise, a copy on "
                "the null stream, a first launch under lazy loading) or for a thread that does"
            )
        elif s.deferred:
            lines.append(
                "likely causes: what the futures of handlers wait for is busy, or gone, or waits "
                "for this kernel"
            )
        elif not s.calls:
            lines.append(
                "likely causes: the kernel loops or waits for a block that does not fit; "
                "CUDA_LAUNCH_BLOCKING or a profiler makes launches wait"
            )
        else:
            lines.append("likely causes: the kernel computes, or loops, between its calls")
        return "\n  ".join(lines) + "\n  see docs/it-hangs.md"


def _warn(text: str) -> None:
    """Log a hang; without any handler for it, let Python's warnings show it."""
    log.warning("%s", text)
    handlers = [*log.handlers, *(logging.getLogger().handlers if log.propagate else [])]
    if all(isinstance(h, logging.NullHandler) for h in handlers):
        warnings.warn(f"pyrevoff: {text}", RuntimeWarning, stacklevel=2)


class _Watchdog:
    """Warns once of a launch without progress.

    One thread for all launches, while there are any: a handler that never
    returns keeps the thread that runs it from looking itself.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.watched: dict[Launch, tuple[float, int, float]] = {}
        self.thread: threading.Thread | None = None

    def add(self, launch: Launch) -> None:
        try:
            limit = watchdog_seconds()
        except ValueError:
            # Set after the device was opened, which refuses such; the kernel runs by now.
            limit = 10.0
        if not limit or not launch.record.image.connected:
            return
        with self.lock:
            self.watched[launch] = (limit, -1, launch.started)
            if self.thread is None:
                self.thread = threading.Thread(
                    target=self.work, name="pyrevoff-watchdog", daemon=True
                )
                self.thread.start()

    def remove(self, launch: Launch) -> None:
        with self.lock:
            self.watched.pop(launch, None)

    def work(self) -> None:
        while True:
            time.sleep(self.pause())
            with self.lock:
                if not self.watched:
                    self.thread = None
                    return
                # Under the lock: afterwards the launch may have ended.
                texts = [t for launch in list(self.watched) if (t := self.look(launch))]
            for text in texts:
                _warn(text)

    def pause(self) -> float:
        with self.lock:
            return min([1.0, *(limit / 4 for limit, _, _ in self.watched.values())])

    def look(self, launch: Launch) -> str:
        limit, calls, since = self.watched[launch]
        s = launch.stats()
        now = time.monotonic()
        if s.calls != calls:
            self.watched[launch] = (limit, s.calls, now if calls >= 0 else since)
            if calls >= 0 or s.calls:
                return ""
        if now - since < limit or not (s.in_handler or s.mailbox_fn or s.deferred or not s.calls):
            return ""
        del self.watched[launch]
        return f"no progress for {limit:g} s: {launch.describe()}"


watchdog = _Watchdog()


class _Aside:
    """A thread of its own that serves a launch, so that the caller can leave."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.done = threading.Event()
        self.problem: BaseException | None = None
        self.stop = False
        # np.errstate, decimal's context and the like hold in handlers here, too.
        work = contextvars.copy_context().run
        threading.Thread(target=work, args=(self.work,), name="pyrevoff-serve", daemon=True).start()

    def work(self) -> None:
        try:
            while not self.stop and not self.launch.wait():
                pass
        except BaseException as error:
            self.problem = error
        finally:
            self.done.set()

    def wait(self, deadline: float) -> bool:
        """True if the kernel has ended; False if it is to be given up."""
        while not self.done.wait(min(0.05, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline or self.launch.goes_on_for_nothing():
                return False
        if self.problem is not None:
            raise self.problem
        return True

    def give_up(self, grace: float) -> None:
        """After an abort: let the kernel end, or get the thread out of C.

        When this returns the thread is out, or in a handler, which C knows.
        """
        if self.done.wait(grace):
            return
        self.stop = True
        while not self.done.wait(0.05) and not self.launch.stats().in_handler:
            pass


def _grace(launch: Launch) -> None:
    """Wait, bounded, for a kernel that was told to end."""
    end = time.monotonic() + GRACE_S
    try:
        while time.monotonic() < end and not launch.wait():
            pass
    except RevoffError:
        pass  # it is told elsewhere


def _leave_behind(launch: Launch) -> None:
    """The kernel still runs: keep what it uses, and free it when it is over.

    Nothing is copied back: the user's arrays are the user's again.
    """

    def later() -> None:
        while lib.revoff_device_drain(device.handle, 100_000_000):
            pass
        try:
            packed.mapping.leave(copy_back=False)
        except RevoffError as error:
            log.warning("memory of kernel %s: %s", kernel, error)

    device, packed = launch.record.image.device, launch.packed
    kernel = launch.record.kernel
    if lib.revoff_device_drain(device.handle, 0):
        threading.Thread(target=later, name="pyrevoff-drain", daemon=True).start()
    else:
        later()


def _wait(launch: Launch, timeout: float | None, deadline: float) -> str:
    """Serve to the end of the kernel; if the time limit passes, its text."""
    if timeout is None:
        try:
            while not launch.wait() and not launch.goes_on_for_nothing():
                pass
        except BaseException:
            launch.abort(_ABORT_SIGNAL)
            _grace(launch)
            raise
        return ""
    aside = _Aside(launch)
    try:
        if aside.wait(deadline):
            return ""
    except BaseException:
        launch.abort(_ABORT_SIGNAL)
        aside.give_up(GRACE_S)
        raise
    if launch.stats().abort == _ABORT_FAILED:
        # What failed before the limit is the reason, not the limit.
        aside.give_up(LATE_GRACE_S)
        return ""
    text = launch.describe()
    launch.abort(_ABORT_TIMEOUT)
    aside.give_up(LATE_GRACE_S)
    return f"{timeout:g} s passed: {text}"


def serve(launch: Launch, timeout: float | None, deadline: float) -> LaunchStats:
    """Serve a launch to its end and clear up; raise what went wrong.

    The kernel ends first, then the user's data comes back, then errors are
    raised: what a handler raised, an interrupt, the time limit, what C found.
    """
    record = launch.record
    problem: BaseException | None = None
    late = ""
    try:
        late = _wait(launch, timeout, deadline)
    except BaseException as error:
        problem = error
    stats = launch.stats()
    failure = lib.revoff_launch_failure(launch.handle)
    found = from_record(failure) if failure.code else None
    data_problem: BaseException | None = None
    if launch.finish():
        try:
            launch.packed.mapping.leave(copy_back=True)
        except BaseException as error:
            data_problem = error
    else:
        _leave_behind(launch)
        if not late:
            log.warning(
                "kernel %s goes on after a failed call: it is left behind, and its arrays are "
                "not copied back. Look at the status of try_call, or at revoff::aborted()",
                record.kernel,
            )
    finish_posted(
        record,
        bool(late or problem or found),
        lambda: None if timeout is None else max(0.0, deadline - time.monotonic()),
    )
    raised, record.error = record.error, None
    if late:
        raise LaunchTimeout(late) from (raised or data_problem)
    if raised is not None:
        raise raised
    # An interrupt counts more than what C found because of it.
    if problem is not None and not isinstance(problem, RevoffError):
        raise problem
    for reason in (found, problem, data_problem):
        if reason is not None:
            raise reason
    return LaunchStats(
        int(stats.calls),
        int(stats.failed),
        int(stats.polls),
        int(stats.sleeps),
        stats.elapsed_ns * 1e-9,
        int(stats.posts),
        int(stats.dropped),
        int(stats.batches),
    )


def in_handler_of(device: Any) -> bool:
    """True in the thread of a handler of the same device."""
    record = _trampoline.here.record
    while record is not None:
        other = record.image.device
        if record.call is not None and (other.kind, other.ordinal) == (device.kind, device.ordinal):
            return True
        record = record.outer
    return False
