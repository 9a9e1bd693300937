# SPDX-License-Identifier: Apache-2.0
"""The one door from C into Python.

One call, told once: C finds a call in the mailbox, brings its data to the host
and calls ``revoff_py_handler`` in the thread that serves the launch, with no
lock held. The user pointer is a handle of a bound handler, which decodes the
arguments, calls the user's function and encodes its result. Whatever it raises
is caught here and stored for the ``run`` that waits; C gets a nonzero value,
tells the kernel, and ``run`` raises the very same exception later.
"""

from __future__ import annotations

import _thread
import threading
from typing import TYPE_CHECKING, Any

from ._lib import ffi

if TYPE_CHECKING:
    from .launch import Record


class _Here(threading.local):
    """What this thread is serving."""

    record: Record | None = None


here = _Here()

# Answers that C was promised (`futures.Owed`), by address of its revoff_later.
owed: dict[int, Any] = {}


def _escaped(exception: Any, value: BaseException, traceback: Any) -> int:
    # Only an error outside the try below comes here, such as a signal that
    # arrives between two lines. It must not be lost or printed.
    record = here.record
    if record is not None:
        record.failed(value)
    return -1


def _resume(call: Any, record: Record | None) -> int:
    # Not by the user pointer: its image may have let go of it meanwhile. And
    # the record may be an outer launch's, if nobody waits any more.
    try:
        answer = owed.pop(int(ffi.cast("uintptr_t", call.later)), None)
        if answer is not None:
            answer.resume(call)
        return 0
    except BaseException as error:
        if record is not None:
            record.failed(error)
        elif isinstance(error, KeyboardInterrupt):
            _thread.interrupt_main()
        return -1


@ffi.def_extern(name="revoff_py_handler", error=-1, onerror=_escaped)  # type: ignore[untyped-decorator]
def _handler(call: Any, user: Any) -> int:
    # Whoever waits for a launch has put its record here: calls come only
    # from within that wait. One look, since it costs as much as the rest.
    record = here.record
    if owed and call.later:
        return _resume(call, record)
    try:
        bound = ffi.from_handle(user)
        if record is not None:
            record.call = call
            record.bound = bound
        # None, or REVOFF_LATER.
        return bound(call) or 0
    except BaseException as error:
        if record is not None:
            record.failed(error)
        return -1
    finally:
        if record is not None:
            record.call = None


@ffi.def_extern(name="revoff_py_batch_handler", error=-1, onerror=_escaped)  # type: ignore[untyped-decorator]
def _batch_handler(batch: Any, user: Any) -> int:
    record = here.record
    if owed and batch.later:
        return _resume(batch, record)
    try:
        bound = ffi.from_handle(user)
        if record is not None:
            record.call = batch
            record.bound = bound
        return bound(batch) or 0
    except BaseException as error:
        if record is not None:
            record.failed(error)
        return -1
    finally:
        if record is not None:
            record.call = None


# The raw callbacks of pyrevoff.gomp, by address of the device.
target_rev: dict[int, Any] = {}


@ffi.def_extern(name="revoff_py_target_rev", onerror=_escaped)  # type: ignore[untyped-decorator]
def _target_rev(
    fn_ptr: int,
    mapnum: int,
    devaddrs: int,
    sizes: int,
    kinds: int,
    dev_num: int,
    token: Any,
) -> None:
    from ._lib import lib

    record = here.record
    try:
        call = lib.revoff_target_rev_call(token)
        if record is not None:
            record.call = call
        callback = target_rev[int(ffi.cast("uintptr_t", call.device))]
        callback(fn_ptr, mapnum, devaddrs, sizes, kinds, dev_num, token)
    except BaseException as error:
        if record is not None:
            record.failed(error)
        text = f"the target_rev callback failed: {type(error).__name__}: {error}"
        lib.revoff_target_rev_fail(token, text.encode(errors="replace"))
    finally:
        if record is not None:
            record.call = None
