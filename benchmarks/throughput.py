# SPDX-License-Identifier: Apache-2.0
"""Many callers: calls by number of warps, and posts."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pyrevoff as ro

from .core import Run, shape

MASK = (1 << 64) - 1


def callers(run: Run) -> list[tuple[int, int]]:
    """Warps and lanes of each that call."""
    if run.quick:
        return [(1, 1), (8, 32)]
    if run.kind == "cpu":
        return [(1, 1), (1, 32), (8, 32), (64, 32)]
    return [(1, 1), *((w, 32) for w in (1, 8, 64, 512, 1024, 2048))]


def timed(
    image: ro.Image, kernel: str, where: dict[str, int], *args: Any
) -> Callable[[int], float]:
    """Seconds from the launch of a kernel to its end, by the number of calls of a lane."""
    return lambda n: image.run(kernel, n, *args, **where).elapsed


def _calls(run: Run, image: ro.Image, what: str, handler: str, kernel: str) -> None:
    for warps, lanes in callers(run):
        rate, detail = run.rate(timed(image, kernel, shape(warps, lanes)), warps * lanes)
        name = f"{what}, {warps} x {lanes}"
        where = {"what": what, "handler": handler, "warps": warps, "lanes": lanes}
        run.row(name, rate, "M calls/s", **where, **detail)
    run.wrong(image, what)


def _j0(run: Run, image: ro.Image) -> None:
    """A function of SciPy in a kernel, compared with SciPy's own values."""
    try:
        from scipy.special import j0
    except ImportError as error:
        run.skip("scipy.special.j0, batch", error)
        return
    image.handler("twice", j0, batch=True)
    for warps, lanes in callers(run):
        x = np.linspace(0, 50, warps * lanes)
        y = np.zeros_like(x)
        once = timed(image, "k_apply", shape(warps, lanes), ro.to(x), ro.from_(y))
        rate, detail = run.rate(once, warps * lanes)
        what = "scipy.special.j0, batch"
        where = {"what": what, "handler": "SciPy", "warps": warps, "lanes": lanes}
        run.row(f"{what}, {warps} x {lanes}", rate, "M calls/s", **where, **detail)
        run.check(f"j0 in {warps} x {lanes} lanes is SciPy's", bool((y == j0(x)).all()))


def throughput(run: Run) -> None:
    """Calls a second, lanes counted, by number of warps that call."""
    with run.image(transport="ports") as image:
        run.bind_c(image, "twice", "c_twice")
        _calls(run, image, "C handler, one call each", "C", "k_twice")
        run.bind_c_batch(image, "twice", "c_batch_twice")
        _calls(run, image, "C handler, batch", "C batch", "k_twice")
        image.handler("twice", lambda x: x * 2)
        _calls(run, image, "Python handler, one call each", "Python", "k_twice")
        image.handler("twice", lambda x: x * 2, batch=True)
        _calls(run, image, "NumPy handler, batch, lambda x: x * 2", "NumPy batch", "k_twice")
        image.handler("product", np.multiply, batch=True)
        _calls(run, image, "NumPy handler, batch, np.multiply", "NumPy ufunc", "k_product")
        _j0(run, image)


# ---- posts -----------------------------------------------------------------------


class Tally(ctypes.Structure):
    """What came of posts; as in handlers.c."""

    _fields_ = (
        ("count", ctypes.c_uint64),
        ("sum", ctypes.c_uint64),
        ("disorder", ctypes.c_uint64),
        ("nlanes", ctypes.c_uint64),
        ("next", ctypes.c_void_p),
    )


def expected(lanes: int, n: int) -> int:
    """Sum that the kernels' records have: (lane ^ i) + (lane + i), modulo 2**64."""
    lane = np.arange(lanes, dtype=np.uint64)
    total = 0
    for first in range(0, n, 256):
        i = np.arange(first, min(n, first + 256), dtype=np.uint64)[:, None]
        total += int(((lane ^ i) + (lane + i)).sum(dtype=np.uint64))
    return total & MASK


class Columns:
    """A NumPy batch handler of four columns: counts and sums, and looks if asked."""

    def __init__(self, lanes: int = 0) -> None:
        self.count = self.sum = self.disorder = 0
        self.next = np.zeros(lanes, np.uint64)

    def __call__(self, lane: Any, number: Any, a: Any, b: Any) -> None:
        self.count += len(lane)
        self.sum += int(a.sum(dtype=np.uint64)) + int(b.sum(dtype=np.uint64))
        if len(self.next):
            self.look(lane, number)

    def look(self, lane: Any, number: Any) -> None:
        """Each lane's records must go on where its last one ended."""
        order = np.argsort(lane, kind="stable")
        lanes, first, count = np.unique(lane[order], return_index=True, return_counts=True)
        rank = np.arange(len(order)) - np.repeat(first, count)
        wanted = np.repeat(self.next[lanes], count) + rank.astype(np.uint64)
        self.disorder += int((number[order] != wanted).sum())
        self.next[lanes] += count.astype(np.uint64)


class Records(Columns):
    """The same of whole records, one structured array."""

    def __call__(self, r: Any) -> None:  # type: ignore[override]
        super().__call__(r["lane"], r["number"], r["a"], r["b"])


class CountOnly:
    """The least that a handler can do: how many there are."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, lane: Any, number: Any, a: Any, b: Any) -> None:
        self.count += len(lane)


def check_tally(run: Run, what: str, tally: Any, lanes: int, n: int) -> None:
    """None lost, the sum right, and each lane's in its order."""
    wanted = expected(lanes, n)
    ok = tally.count == lanes * n and tally.sum & MASK == wanted and not tally.disorder
    if run.plant == "posts":
        ok = ok and tally.count == lanes * n + 1
    run.check(
        f"posts, {what}: none lost, sum, order of each lane",
        ok,
        f"{tally.count} of {lanes * n} records, sum {tally.sum & MASK} of {wanted}, "
        f"{tally.disorder} out of order",
    )


class Sender:
    """Posts of a kernel in wall time: the ring is emptied after the kernel's end."""

    def __init__(self, image: ro.Image, kernel: str, warps: int) -> None:
        self.image, self.kernel, self.where = image, kernel, shape(warps)
        self.lanes = 32 * warps
        self.sent = 0

    def __call__(self, n: int) -> float:
        start = time.perf_counter()
        self.image.run(self.kernel, n, **self.where)
        self.sent += n * self.lanes
        return time.perf_counter() - start


def _post_rates(
    run: Run, image: ro.Image, what: str, handler: str, kernel: str, tally: Any
) -> None:
    for warps in [w for w, lanes in callers(run) if lanes == 32 and w >= 8]:
        sender = Sender(image, kernel, warps)
        before = tally.count
        rate, detail = run.rate(sender, sender.lanes)
        got = tally.count - before
        name = f"posts, {what}, {warps} warps: none lost"
        run.check(name, got == sender.sent, f"{got} of {sender.sent} records")
        name = f"posts of 32 B, {what}, {warps} warps"
        run.row(name, rate, "M records/s", what=what, handler=handler, warps=warps, **detail)


def _looked_at(
    run: Run, image: ro.Image, what: str, kernel: str, bind: Callable[[int], Any]
) -> None:
    """A run of its own in which every record is looked at."""
    warps = 8 if run.kind == "cpu" else 512
    n = 50 if run.quick else 200 if run.kind == "cpu" else 300
    tally = bind(warps * 32)
    image.run(kernel, n, **shape(warps))
    check_tally(run, what, tally, warps * 32, n)


def posts(run: Run) -> None:
    """Records that nobody waits for."""
    keep: list[Any] = []

    def c_tally(image: ro.Image, name: str, lanes: int) -> Tally:
        numbers = np.zeros(max(lanes, 1), np.uint64)
        tally = Tally(nlanes=lanes, next=numbers.ctypes.data if lanes else None)
        keep.append((numbers, tally))
        run.bind_c_batch(image, name, f"c_batch_{name}", ctypes.addressof(tally))
        return tally

    with run.image(transport="ports") as image:
        for name, what in (("note", "C batch, 4 x u64"), ("record", "C batch, struct")):
            tally = c_tally(image, name, 0)
            _post_rates(run, image, what, "C batch", f"k_{name}", tally)
            _looked_at(run, image, what, f"k_{name}", lambda k, name=name: c_tally(image, name, k))

        def bind(name: str, handler: Any) -> Any:
            image.handler(name, handler, batch=True, copy=False)
            return handler

        for name, what, make in (
            ("note", "NumPy batch, 4 columns, two summed", Columns),
            ("record", "NumPy batch, struct, two fields summed", Records),
        ):
            kernel = f"k_{name}"
            _post_rates(run, image, what, "NumPy batch", kernel, bind(name, make()))
            _looked_at(
                run, image, what, kernel, lambda k, name=name, make=make: bind(name, make(k))
            )
        what = "NumPy batch, 4 columns, counted"
        _post_rates(run, image, what, "NumPy count", "k_note", bind("note", CountOnly()))
