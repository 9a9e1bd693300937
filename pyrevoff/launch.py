# SPDX-License-Identifier: Apache-2.0
"""One launch: start, serve, watch, end."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import Any

from . import _trampoline
from ._lib import ffi, lib
from ._log import log
from .arguments import Packed
from .errors import LaunchTimeout, RevoffError, check, from_record

_ABORT_FAILED, _ABORT_SIGNAL, _ABORT_TIMEOUT = 1, 2, 3
# Between two of these Python looks for signals.
_SLICE_NS = 50_000_000
# What a kernel gets to see the abort word, before it is left behind.
GRACE_S = 2.0


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
        Looks at the mailbox.
    sleeps : int
        Times that the host slept between looks.
    elapsed : float
        Seconds from the launch to the end of the kernel, host clock.
    """

    calls: int
    failed: int
    polls: int
    sleeps: int
    elapsed: float


class Record:
    """What Python knows of a launch while it is served."""

    def __init__(self, image: Any, kernel: str) -> None:
        self.image = image
        self.kernel = kernel
        self.error: BaseException | None = None
        self.thread = 0

    def failed(self, error: BaseException) -> None:
        """Keep the first exception of a handler; later ones follow from it."""
        if self.error is None:
            self.error = error


def watchdog_seconds() -> float:
    """Seconds without progress after which a warning is logged; 0: never."""
    try:
        return float(os.environ.get("PYREVOFF_WATCHDOG", "10"))
    except ValueError:
        return 10.0


class Launch:
    """A launch that has been started."""

    def __init__(self, record: Record, handle: Any, packed: Packed) -> None:
        self.record = record
        self.handle = handle
        self.packed = packed
        self.key = int(ffi.cast("uintptr_t", handle))
        self.started = time.monotonic()
        self.finished = False
        _trampoline.records[self.key] = record

    def stats(self) -> Any:
        out = ffi.new("struct revoff_stats *")
        lib.revoff_launch_stats(self.handle, out)
        return out

    def wait(self, slice_ns: int = _SLICE_NS) -> bool:
        """Serve for a while; True once the kernel has ended."""
        here = _trampoline.here
        outer, here.record = here.record, self.record
        self.record.thread = threading.get_ident()
        try:
            return check(lib.revoff_launch_wait(self.handle, slice_ns)) == 1
        finally:
            here.record = outer

    def abort(self, reason: int) -> None:
        lib.revoff_launch_abort(self.handle, reason)

    def finish(self) -> bool:
        """End with it; False if its kernel still runs and was handed over."""
        if self.finished:
            return True
        self.finished = True
        ended = check(lib.revoff_launch_finish(self.handle)) == 1
        if ended:
            self.forget()
        return ended

    def forget(self) -> None:
        # C uses its records again: this address may be another launch by now.
        if _trampoline.records.get(self.key) is self.record:
            del _trampoline.records[self.key]

    def describe(self) -> str:
        """The state of the launch, for a person."""
        s = self.stats()
        names = list(self.record.image.functions)
        name = names[s.handler_index] if s.handler_index < len(names) else "?"
        lines = [
            f"kernel {self.record.kernel} on {self.record.image.device}, "
            f"{time.monotonic() - self.started:.1f} s, {s.calls} calls served",
            f"mailbox ({self.record.image.device.placement}): "
            + (f"a call of 0x{s.mailbox_fn:x} is open" if s.mailbox_fn else "empty")
            + f", abort word {s.abort}",
        ]
        if s.in_handler:
            lines.append(f"the handler of {name} runs:")
            frame = sys._current_frames().get(self.record.thread)
            if frame is not None:
                lines.append("".join(traceback.format_stack(frame)[-6:]).rstrip())
            lines.append(
                "likely causes: the handler waits for the kernel (a free, a synchronise, a copy on "
                "the null stream, a first launch under lazy loading) or for a thread that does"
            )
        elif not s.calls:
            lines.append(
                "likely causes: the kernel loops or waits for a block that does not fit; "
                "CUDA_LAUNCH_BLOCKING or a profiler makes launches wait"
            )
        else:
            lines.append("likely causes: the kernel computes, or loops, between its calls")
        return "\n  ".join(lines) + "\n  see docs/it-hangs.md"


class _Watch:
    """Warns once if nothing happens for long."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.limit = watchdog_seconds()
        self.calls = -1
        self.since = time.monotonic()
        self.warned = False

    def look(self) -> None:
        if not self.limit or self.warned:
            return
        s = self.launch.stats()
        now = time.monotonic()
        if s.calls != self.calls:
            self.calls, self.since = s.calls, now
        elif now - self.since > self.limit and (s.in_handler or s.mailbox_fn or not s.calls):
            self.warned = True
            log.warning("no progress for %.0f s: %s", self.limit, self.launch.describe())


def _serve_here(launch: Launch) -> None:
    watch = _Watch(launch)
    while not launch.wait():
        watch.look()


def _serve_aside(launch: Launch, deadline: float) -> bool:
    """Serve in a thread of its own until the deadline; False if it passed."""
    done = threading.Event()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            while not launch.wait():
                pass
        except BaseException as error:
            problems.append(error)
        finally:
            done.set()

    threading.Thread(target=work, name="pyrevoff-serve", daemon=True).start()
    watch = _Watch(launch)
    ended = False
    try:
        while not ended and time.monotonic() < deadline:
            ended = done.wait(min(0.05, max(0.0, deadline - time.monotonic())))
            watch.look()
    except BaseException:
        launch.abort(_ABORT_SIGNAL)
        done.wait(GRACE_S)
        raise
    if not ended:
        return False
    if problems:
        raise problems[0]
    return True


def _grace(launch: Launch) -> bool:
    """Wait, bounded, for a kernel that was told to end; True if it did."""
    end = time.monotonic() + GRACE_S
    try:
        while time.monotonic() < end:
            if launch.wait(_SLICE_NS):
                return True
    except Exception:
        return False  # another thread still serves it, in a handler
    return False


def _leave_behind(launch: Launch) -> None:
    """The kernel still runs: keep what it uses, and free it when it is over.

    Nothing is copied back: the user's arrays are the user's again.
    """

    def later() -> None:
        while lib.revoff_device_drain(device.handle, 100_000_000):
            pass
        launch.forget()
        try:
            packed.mapping.leave(copy_back=False)
        except RevoffError as error:
            log.warning("memory of kernel %s: %s", launch.record.kernel, error)

    device = launch.record.image.device
    packed = launch.packed
    if lib.revoff_device_drain(device.handle, 0):
        threading.Thread(target=later, name="pyrevoff-drain", daemon=True).start()
    else:
        later()


def serve(launch: Launch, timeout: float | None, deadline: float) -> LaunchStats:
    """Serve a launch to its end and clear up; raise what went wrong.

    The kernel ends first, then the user's data comes back, then errors are
    raised: what a handler raised, an interrupt, the time limit, what C found.
    """
    record = launch.record
    problem: BaseException | None = None
    message = ""
    try:
        if timeout is None:
            _serve_here(launch)
        elif not _serve_aside(launch, deadline):
            message = launch.describe()
            launch.abort(_ABORT_TIMEOUT)
            _grace(launch)
    except BaseException as error:
        problem = error
        launch.abort(_ABORT_SIGNAL)
        _grace(launch)
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
    raised, record.error = record.error, None
    if raised is not None:
        raise raised
    if problem is not None and not isinstance(problem, RevoffError):
        raise problem
    if message:
        raise LaunchTimeout(f"{timeout} s passed: {message}")
    for late in (found, problem, data_problem):
        if late is not None:
            raise late
    return LaunchStats(
        int(stats.calls),
        int(stats.failed),
        int(stats.polls),
        int(stats.sleeps),
        stats.elapsed_ns * 1e-9,
    )


def in_handler_of(device: Any) -> bool:
    """True in the thread of a handler of the same device."""
    record = _trampoline.here.record
    if record is None or _trampoline.here.call is None:
        return False
    other = record.image.device
    return bool(other.kind == device.kind and other.ordinal == device.ordinal)
