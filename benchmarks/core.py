# SPDX-License-Identifier: Apache-2.0
"""What the sections of the benchmark share: devices, C handlers, rows, checks."""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import pyrevoff as ro
from pyrevoff._lib import ffi, lib
from pyrevoff.errors import check

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


class Skip(Exception):
    """A row, or a section, that cannot be had here; the text says why."""


class Native:
    """Programs beside the package, compiled for this machine, side by side.

    Parameters
    ----------
    cuda : bool
        Whether the floor is that of a GPU.
    folder : str
        Where the compiled files go.
    """

    def __init__(self, cuda: bool, folder: str) -> None:
        nvcc = os.environ.get("PYREVOFF_NVCC") or shutil.which("nvcc")
        nvcc = nvcc or "/usr/local/cuda/bin/nvcc"
        cu = [nvcc, "-std=c++17", "-arch=native", "-O2", "-Xcompiler", "-fPIC", "-shared"]
        cc = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-pthread"]
        cc.append(f"-I{ROOT / 'csrc' / 'host'}")
        wanted = {"handlers": [*cc, "handlers.c"]}
        if cuda:
            wanted["floor"] = [*cu, "floor.cu"]
            wanted["peers"] = [*cu, "peers.cu"]
        else:
            wanted["floor"] = [*cc, "floor_cpu.c"]
        self.paths = {name: os.path.join(folder, f"{name}.so") for name in wanted}
        running = {
            name: subprocess.Popen([*command, "-o", self.paths[name]], cwd=HERE)
            for name, command in wanted.items()
        }
        failed = [name for name, child in running.items() if child.wait(timeout=300)]
        if failed:
            raise RuntimeError(f"the compiler refused {', '.join(failed)} of benchmarks/")
        self.handlers = ctypes.CDLL(self.paths["handlers"])
        self.floor = ctypes.CDLL(self.paths["floor"])
        for name in ("floor_pingpong_us", "floor_usleep_us", "floor_copy_us"):
            if hasattr(self.floor, name):
                getattr(self.floor, name).restype = ctypes.c_double
        self.handlers.scan_ns.restype = ctypes.c_double
        self.handlers.nap_share.restype = ctypes.c_double

    def address(self, name: str) -> int:
        """Address of a C handler."""
        return ctypes.cast(getattr(self.handlers, name), ctypes.c_void_p).value or 0


class Run:
    """One run of the benchmark: its device, its counts and what it has found.

    Attributes
    ----------
    kind : str
        ``"cuda"`` or ``"cpu"``.
    quick : bool
        Few repeats: the numbers mean little, the checks mean the same.
    plant : str
        Name of a handler that is made wrong on purpose, to see a check fail.
    rows, checks, skipped : list of dict
    """

    def __init__(self, kind: str, quick: bool, native: Native, plant: str = "") -> None:
        self.kind = kind
        self.quick = quick
        self.native = native
        self.plant = plant
        self.section = ""
        self.rows: list[dict[str, Any]] = []
        self.checks: list[dict[str, Any]] = []
        self.skipped: list[dict[str, str]] = []
        full = (3000, 7) if kind == "cuda" else (2000, 5)
        self.calls, self.rounds = (200, 2) if quick else full
        self.slice_s = 0.004 if quick else 0.03
        self.source = (HERE / "kernels.cu").read_text()

    # ---- what is found ------------------------------------------------------

    def row(self, name: str, value: float, unit: str, **detail: Any) -> dict[str, Any]:
        """Add a row; its ratio to the floor is filled in at the end."""
        if not math.isfinite(value):
            raise ValueError(f"{self.section}: {name} is {value}, no number")
        found = {
            "section": self.section,
            "name": name,
            "value": float(value),
            "unit": unit,
            "ratio_to_floor": None,
            "detail": detail,
        }
        self.rows.append(found)
        print(f"  {name:66} {value:12.3f} {unit}", flush=True)
        return found

    def skip(self, name: str, reason: object) -> None:
        self.skipped.append({"section": self.section, "name": name, "reason": str(reason)})
        print(f"  {name:66} skipped: {reason}", flush=True)

    def check(self, name: str, ok: bool, detail: str = "") -> None:
        """Note whether what was measured did what it should."""
        self.checks.append(
            {"section": self.section, "name": name, "ok": bool(ok), "detail": detail}
        )
        if not ok:
            print(f"  CHECK FAILED: {name}: {detail}", file=sys.stderr, flush=True)

    # ---- images and handlers --------------------------------------------------

    @contextmanager
    def image(self, **options: Any) -> Iterator[ro.Image]:
        """The benchmark's kernels on a device with these options."""
        device = ro.Device(self.kind, **options)
        with ro.load_image(self.source, device=device, name="kernels.cu") as image:
            yield image

    def bind_c(self, image: ro.Image, name: str, handler: str) -> None:
        """Bind a handler of handlers.c."""
        if self.plant == handler:
            # It answers, with nothing: the kernel has to notice.
            handler = "c_nothing"
        image.handler(name, self.native.address(handler))

    def bind_c_batch(self, image: ro.Image, name: str, handler: str, user: Any = None) -> None:
        """Bind a batch handler of handlers.c; `user` must outlive the launches."""
        function = ffi.cast("revoff_batch_handler *", self.native.address(handler))
        index = check(lib.revoff_image_find(image._handle, name.encode()))
        pointer = ffi.NULL if user is None else ffi.cast("void *", user)
        check(
            lib.revoff_image_bind_batch(image._handle, index, function, ffi.NULL, pointer, 0),
        )

    def wrong(self, image: ro.Image, what: str) -> None:
        """Check that the kernels saw no wrong answer since the last look."""
        found = int(image.read_symbol("wrong", np.uint32)[0])
        self.check(what, found == 0, f"{found} wrong answers")
        image.write_symbol("wrong", np.zeros(1, np.uint32))

    # ---- times ------------------------------------------------------------------

    def per_call(
        self, image: ro.Image, kernel: str, *args: Any, calls: int, rounds: int = 0
    ) -> tuple[float, dict[str, Any]]:
        """Microseconds of a call by one lane: the median of rounds, and the rest."""
        times = []
        for i in range((rounds or self.rounds) + 1):
            stats = image.run(kernel, calls, *args, grid=1, block=1)
            if i:
                times.append(stats.elapsed * 1e6 / calls)
        detail = {"calls": calls, "rounds": len(times), "min": min(times), "max": max(times)}
        return statistics.median(times), detail

    def rate(
        self, once: Callable[[int], float], lanes: int, rounds: int = 5
    ) -> tuple[float, dict[str, Any]]:
        """Million calls a second, of `lanes` lanes that make the same number of calls.

        Parameters
        ----------
        once : callable
            Runs a kernel whose lanes call so many times; gives the seconds it took.
        """
        n, took = 1, once(1)
        while took < self.slice_s / 2 and n < 1 << 22:
            n = max(n + 1, int(n * min(20.0, self.slice_s / max(took, 1e-6))))
            took = once(n)
        if took < 10 * self.slice_s:
            times = [once(n) for _ in range(2 if self.quick else rounds)]
        else:
            times = [took]
        rates = [n * lanes * 1e-6 / t for t in times]
        detail = {
            "calls_of_a_lane": n,
            "rounds": len(times),
            "min": min(rates),
            "max": max(rates),
        }
        return statistics.median(rates), detail


def shape(warps: int, lanes: int = 32) -> dict[str, int]:
    """Grid and block for so many warps; blocks of 8 warps, as users have them."""
    if warps <= 8:
        return {"grid": warps, "block": lanes}
    return {"grid": warps // 8, "block": 8 * lanes}


def size_name(n: int) -> str:
    """Bytes for a person."""
    if n >= 1 << 20:
        return f"{n >> 20} MiB"
    return f"{n >> 10} KiB" if n >= 1 << 10 else f"{n} B"


def of(rows: Sequence[dict[str, Any]], section: str, **detail: Any) -> list[dict[str, Any]]:
    """The rows of a section whose details are these."""
    return [
        r
        for r in rows
        if r["section"] == section and all(r["detail"].get(k) == v for k, v in detail.items())
    ]
