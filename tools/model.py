#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check the protocol's models in model/ with spin.

    python tools/model.py              every case and every defect, as a table
    python tools/model.py ports        those of one model
    python tools/model.py --markdown   the table of docs/model.md

A case must have no error in a search of all its states. A defect takes one
rule of the protocol away: spin must find an error, or the model does not see
what the rule is for.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "model"
#: Seconds and MiB for one search; those of the table need a part of it.
SECONDS = 100
MEMORY = 3000


@dataclass(frozen=True)
class Case:
    """One search: a model, its options, and what is shown or taken away."""

    model: str
    what: str
    options: str
    defect: int = 0

    @property
    def name(self) -> str:
        mark = f"defect-{self.defect}" if self.defect else "whole"
        return "-".join([self.model, mark, *re.findall(r"[A-Z]+=\d+|LIVENESS", self.options)])


@dataclass(frozen=True)
class Result:
    """What spin found in a search."""

    errors: int
    states: int
    seconds: float
    complete: bool
    text: str


def _cases(model: str, *rows: tuple[str, str]) -> list[Case]:
    return [Case(model, what, options) for what, options in rows]


def _defects(model: str, *rows: tuple[int, str, str]) -> list[Case]:
    return [Case(model, what, options, defect) for defect, what, options in rows]


CASES = [
    *_cases(
        "ports",
        ("two warps, two ports, halves of units apart", "PORTS=2 PARTS=2"),
        ("two warps of two lanes, numbers that run out", "PORTS=2 LANES=2 LAST=2"),
        ("three calls each, one port", "PORTS=1 PARTS=2 CALLS=3"),
        ("frames in one slot", "PORTS=2 FRAMES=1 CALLS=3"),
        ("two launches, every number used", "PORTS=1 CALLS=1 LAST=2 LAUNCHES=2 LANES=2"),
        ("too few numbers: given up", "PORTS=1 LAST=2 LANES=2 ABORT=2"),
        ("given up at any time", "PORTS=2 PARTS=2 ABORT=1"),
        ("handed over, two ports of two lanes", "PORTS=2 CALLS=1 LANES=2 HANDOVER=1"),
        ("handed over, one port after the other", "PORTS=1 PARTS=2 HANDOVER=1"),
        ("every kernel ends, under weak fairness", "PORTS=1 CALLS=1 LIVENESS"),
        ("and so when it is given up", "PORTS=1 CALLS=2 LAST=2 ABORT=2 LIVENESS"),
    ),
    *_cases(
        "mailbox",
        ("two warps of one image", "CALLS=3"),
        ("two images, each with its thread", "IMAGES=2 CALLS=3"),
        ("handed over; its handler may never return", "HANDOVER=1"),
        ("handed over beside another image", "HANDOVER=1 IMAGES=2 CALLS=3"),
    ),
    *_cases(
        "posts",
        ("two warps, a ring that wraps three times", "POSTS=3"),
        ("one warp, a lap that wraps", "CALLERS=1 POSTS=10 WRAP=8"),
        ("try_post", "TRY=1 POSTS=2"),
        ("given up; nobody may serve any more", "ABORT=1 POSTS=2"),
    ),
]

DEFECTS = [
    *_defects(
        "ports",
        (1, "the number is in the head alone, not in every unit", "PORTS=1"),
        (2, "one half of a reply is looked at, not both", "PORTS=1 PARTS=2"),
        (3, "the port is given back before all lanes have their replies", "PORTS=1 LANES=2"),
        (4, "numbers begin again while the kernel runs", "PORTS=1 LANES=2 LAST=2"),
        (5, "a bell is trusted to arrive before the next one", "PORTS=1 CALLS=3"),
        (6, "no fence between a frame and its request", "PORTS=1 FRAMES=1"),
        (7, "a slot is given back before its frame is read", "PORTS=2 FRAMES=1"),
        (8, "who takes over answers lanes that have answers", "PORTS=1 CALLS=1 LANES=2 HANDOVER=1"),
        (9, "a handler answers after it was handed over", "PORTS=1 CALLS=1 LANES=2 HANDOVER=1"),
        (10, "whoever looks for a port does not look at abort", "PORTS=1 LAST=2 ABORT=2"),
        (11, "used-up ports are not zeroed between launches", "PORTS=1 CALLS=1 LAST=2 LAUNCHES=2"),
        (12, "the reply is not released after the frame", "PORTS=1 FRAMES=1"),
    ),
    *_defects(
        "mailbox",
        (1, "fn is stored without release", ""),
        (2, "the host clears fn without release", ""),
        (3, "the lock is released before the answer is read", ""),
        (4, "the mailbox is freed while the handler still runs", "HANDOVER=1 IMAGES=2"),
        (5, "whoever waits for the lock does not look at abort", "HANDOVER=1"),
        (6, "words read before fn was 0 are taken without their mark", ""),
        (7, "one copy brings the flag and the rest", ""),
        (8, "a caller that leaves releases the lock", "HANDOVER=1"),
        (9, "leave is cleared after the lock, not before", "HANDOVER=1 IMAGES=2"),
        (10, "a caller leaves while stores of its own are under way", "HANDOVER=1"),
    ),
    *_defects(
        "posts",
        (1, "no fence between the records and the lap", "POSTS=2"),
        (2, "room is given before the handler has returned", "POSTS=3"),
        (3, "any lap counts, not only the expected one", "POSTS=2"),
        (4, "records and heads are taken by two additions", "POSTS=3"),
        (5, "try_post does not count what it drops", "TRY=1 POSTS=3"),
        (6, "try_post takes room that it looked for at another tail", "TRY=1 POSTS=3"),
        (7, "whoever waits for room does not look at abort", "ABORT=1 POSTS=3"),
    ),
]


def missing() -> str:
    """What is needed and not here; empty if all is."""
    return " and ".join(tool for tool in ("spin", "gcc") if not shutil.which(tool))


def _run(command: list[str], folder: Path, seconds: float) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
    )
    text = done.stdout.decode(errors="replace")
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} gave {done.returncode}:\n{text}")
    return text


def search(case: Case, folder: Path, seconds: float = SECONDS) -> Result:
    """Search all states of a case.

    Parameters
    ----------
    case : Case
        What to search.
    folder : Path
        Where spin and gcc may write.
    seconds : float
        For the search; compiling comes on top.

    Returns
    -------
    Result
        ``complete`` is false if the search was cut short anywhere.

    Raises
    ------
    RuntimeError
        spin, gcc or the search refused; the text is theirs.
    subprocess.TimeoutExpired
        It took longer.
    """
    liveness = "LIVENESS" in case.options
    options = [f"-D{word}" for word in case.options.split()]
    defect = [f"-DDEFECT={case.defect}"] if case.defect else []
    _run(["spin", *options, *defect, "-a", str(FOLDER / f"{case.model}.pml")], folder, seconds)
    kind = "-DNFAIR=3" if liveness else "-DSAFETY"
    # Compiling takes longer than a short search.
    flags = ["-O0" if case.defect else "-O1", "-w", "-DCOLLAPSE", "-DVECTORSZ=2048", kind]
    _run(["gcc", *flags, f"-DMEMLIM={MEMORY}", "-o", "pan", "pan.c"], folder, seconds)
    begin = time.monotonic()
    text = _run(["./pan", "-m1000000", *(["-a", "-f"] if liveness else [])], folder, seconds)
    took = time.monotonic() - begin
    errors = re.search(r"errors: (\d+)", text)
    states = re.search(r"([\d.e+]+) states, stored", text)
    if not errors or not states:
        raise RuntimeError(f"not a result of spin:\n{text}")
    count = round(float(states[1]))
    cut = any(words in text for words in ("too small", "not completed", "out of memory"))
    return Result(int(errors[1]), count, took, not cut, text)


def _table(cases: list[Case], markdown: bool) -> int:
    bad = 0
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="pyrevoff-model-") as folder:
            r = search(case, Path(folder))
        ok = r.errors > 0 if case.defect else not r.errors and r.complete
        bad += not ok
        number = f"{case.defect:2d}" if case.defect else "  "
        if markdown and case.defect:
            print(f"| {case.model} | {number} | {case.what} | {r.states} |")
        elif markdown:
            print(f"| {case.model} | {case.what} | {r.states} | {r.seconds:.1f} |")
        else:
            verdict = ("found" if case.defect else "no error") if ok else "WRONG"
            result = f"{r.states:9d} states {r.seconds:5.1f} s  {verdict:8}"
            print(f"{case.model:8} {number} {result}  {case.what}", flush=True)
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the protocol's models with spin.")
    parser.add_argument("model", nargs="?", choices=["ports", "mailbox", "posts"])
    parser.add_argument("--markdown", action="store_true", help="as in docs/model.md")
    arguments = parser.parse_args()
    if missing():
        print(f"needs {missing()}: install the packages of that name", file=sys.stderr)
        return 77
    both = (CASES, DEFECTS)
    wanted = [[c for c in cases if arguments.model in (None, c.model)] for cases in both]
    return max([_table(cases, arguments.markdown) for cases in wanted])


if __name__ == "__main__":
    sys.exit(main())
