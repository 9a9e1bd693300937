# SPDX-License-Identifier: Apache-2.0
"""Measure pyrevoff against the floor, in one process, and write a table.

    python benchmarks/bench.py [--device cuda|cpu] [--out FILE] [--only SECTION,...] [--quick]

Every time is given with its ratio to the floor of the same run: a flag that goes
to the host and back, in pinned memory, with no payload, measured at the beginning
and once more at the end. Medians over rounds. Nothing here asserts a time, but
everything that is measured is checked, and a check that fails is an exit status
of 1.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402

import pyrevoff as ro  # noqa: E402
from benchmarks import latency, peers, report, throughput  # noqa: E402
from benchmarks.core import Native, Run, Skip  # noqa: E402

SECTIONS = {
    "floor": latency.floor,
    "ports": latency.ports,
    "mailbox": latency.mailbox,
    "throughput": throughput.throughput,
    "posts": throughput.posts,
    "unused": latency.unused,
    "silence": latency.silence,
    "peers": peers.peers,
}


def commit() -> str:
    """The commit that is measured; said by the caller where there is no history."""
    said = os.environ.get("PYREVOFF_COMMIT")
    if said:
        return said
    command = ["git", "-C", str(HERE), "rev-parse", "--verify", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except OSError:
        return "unknown"
    return done.stdout.strip() if not done.returncode else "unknown"


def machine(kind: str) -> dict[str, Any]:
    """What the numbers were measured on; nothing of whose it is."""
    info = ro.Device(kind).info()
    version = int(info["driver_version"])
    result = {
        "kind": kind,
        "device": info["name"],
        "compute_capability": f"{info['major']}.{info['minor']}",
        "driver_api": version,
        "cuda": f"{version // 1000}.{version % 1000 // 10}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyrevoff": ro.__version__,
        "kernel": platform.release().split("-")[0],
    }
    smi = shutil.which("nvidia-smi")
    if kind == "cuda" and smi:
        query = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
        out = subprocess.run(query, capture_output=True, text=True, timeout=30)
        result["driver"] = out.stdout.split("\n")[0].strip()
    return result


def collect(run: Run, head: dict[str, Any], begin: float, end: float) -> dict[str, Any]:
    """All that is known by now, as it is written to a file."""
    floor = (begin + end) / 2
    for row in run.rows:
        if row["unit"] == "us":
            row["ratio_to_floor"] = row["value"] / floor
    return {
        **head,
        "floor": {"begin_us": begin, "end_us": end, "mean_us": floor},
        "rows": run.rows,
        "skipped": run.skipped,
        "checks": run.checks,
        # They are about a GPU, and about enough repeats.
        "targets": report.targets(run.rows, floor) if run.kind == "cuda" and not run.quick else [],
    }


def measure(run: Run, wanted: list[str], save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All wanted sections. One that breaks is a failed check; the others go on."""
    began = time.monotonic()
    begin = latency.pingpong(run)
    sections: dict[str, dict[str, float]] = {}
    head = {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "quick": run.quick,
        "machine": machine(run.kind),
        "sections": sections,
    }
    for name in wanted:
        run.section = name
        print(f"{name}: {(SECTIONS[name].__doc__ or '').splitlines()[0]}", flush=True)
        start = time.monotonic()
        try:
            SECTIONS[name](run)
        except Skip as reason:
            run.skip(name, reason)
        except Exception as error:
            traceback.print_exc()
            run.check(f"section {name} runs", False, f"{type(error).__name__}: {error}")
        else:
            run.check(f"section {name} runs", True)
        sections[name] = {"seconds": round(time.monotonic() - start, 2)}
        # What comes later may hang: this much is safe.
        save({**collect(run, head, begin, begin), "seconds": round(time.monotonic() - began, 1)})
    run.section = "floor"
    results = collect(run, head, begin, latency.pingpong(run))
    results["seconds"] = round(time.monotonic() - began, 1)
    save(results)
    return results


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: PYREVOFF_DEVICE")
    parser.add_argument("--out", metavar="FILE", help="write all results as JSON")
    parser.add_argument("--only", default=os.environ.get("BENCH_ONLY", ""), metavar="SECTION,...")
    parser.add_argument("--quick", action="store_true", help="few repeats, to try it out")
    parser.add_argument("--limit", type=float, default=280, help="seconds; then it is given up")
    parser.add_argument("--plant", default="", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    args.only = [name for name in args.only.replace(" ", "").split(",") if name]
    unknown = sorted(set(args.only) - set(SECTIONS))
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    return args


def main(argv: list[str] | None = None) -> int:
    """Entry point; 1 if a check failed."""
    args = arguments(argv)
    # A kernel that hangs must not hold the machine: say where, and end.
    faulthandler.dump_traceback_later(args.limit, exit=True)
    kind = args.device or ro.device.default_device()[0]

    def save(results: dict[str, Any]) -> None:
        if args.out:
            Path(args.out).write_text(json.dumps(results, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as folder:
        run = Run(kind, args.quick, Native(kind == "cuda", folder), args.plant)
        wanted = [name for name in SECTIONS if not args.only or name in args.only]
        results = measure(run, wanted, save)
    print(f"\n{report.text(results)}\n{results['seconds']} s")
    faulthandler.cancel_dump_traceback_later()
    return int(any(not c["ok"] for c in results["checks"]))


if __name__ == "__main__":
    sys.exit(main())
