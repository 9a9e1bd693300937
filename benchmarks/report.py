# SPDX-License-Identifier: Apache-2.0
"""What is made of the rows: targets, a table for a terminal, and one in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .core import of

Rows = Sequence[dict[str, Any]]

# Measured with programs of our own on 2026-12-01 on the same kind of machine
# (H200), not in the run that is shown: million lane-calls a second by warps.
LLVM = "LLVM 22.1.8 libc RPC, C handler"
ELSEWHERE: dict[str, dict[int, float]] = {
    f"{LLVM}, as shipped": {64: 40, 512: 36, 2048: 19},
    f"{LLVM}, best case": {64: 97, 512: 172, 2048: 156},
}
LIBGOMP_US = (57.0, 61.0)


def _one(rows: Rows, section: str, **detail: Any) -> float:
    return float(of(rows, section, **detail)[0]["value"])


def _copies_ratio(rows: Rows) -> float:
    ours = _one(rows, "ports", what="tofrom", handler="Python", bytes=1 << 20)
    return ours / _one(rows, "ports", what="copies", bytes=1 << 20)


def _batch(rows: Rows) -> float:
    found = of(rows, "throughput", handler="NumPy batch")
    return min(r["value"] for r in found if 512 <= r["detail"]["warps"] <= 2048)


def _posts(rows: Rows) -> float:
    found = of(rows, "posts", handler="NumPy batch")
    return max(r["value"] for r in found if r["detail"]["warps"] >= 64)


def _share(rows: Rows) -> float:
    return max(r["value"] for r in of(rows, "silence", what="cpu"))


def _first(rows: Rows) -> float:
    return max(r["value"] for r in of(rows, "silence", what="first", of="max"))


# What, unit, limit, whether it is the most, and how it is found; floor in us.
TARGETS: list[tuple[str, str, float, bool, Callable[[Rows, float], float]]] = [
    (
        "one call, 64 B each way, C handler, to the floor",
        "x",
        1.1,
        True,
        lambda rows, floor: _one(rows, "ports", what="struct", handler="C", bytes=64) / floor,
    ),
    (
        "one call, scalar Python handler, above the floor",
        "us",
        1.7,
        True,
        lambda rows, floor: _one(rows, "ports", what="scalar", handler="Python") - floor,
    ),
    (
        "tofrom of 1 MiB, Python handler, to two plain copies",
        "x",
        1.15,
        True,
        lambda rows, floor: _copies_ratio(rows),
    ),
    (
        "NumPy batch handler, least of 512 to 2048 warps",
        "M calls/s",
        200,
        False,
        lambda rows, floor: _batch(rows),
    ),
    (
        "posts to a NumPy batch handler that sums, best of 64 to 2048 warps",
        "M records/s",
        400,
        False,
        lambda rows, floor: _posts(rows),
    ),
    (
        "run without reverse functions to a plain launch",
        "x",
        1.02,
        True,
        lambda rows, floor: _one(rows, "unused", what="ratio"),
    ),
    ("CPU in silence, after 10 ms, most of all", "%", 5, True, lambda rows, floor: _share(rows)),
    (
        "first call after silence, longest of all",
        "us",
        70,
        True,
        lambda rows, floor: _first(rows),
    ),
]


def targets(rows: Rows, floor: float) -> list[dict[str, Any]]:
    """Each target with its value, or None where the rows for it are not there."""
    found = []
    for name, unit, limit, at_most, get in TARGETS:
        value: float | None
        try:
            value = get(rows, floor)
        except (IndexError, ValueError):
            value = None
        passed = None if value is None else value <= limit if at_most else value >= limit
        entry = {"name": name, "unit": unit, "limit": limit, "at_most": at_most}
        found.append({**entry, "value": value, "passed": passed})
    return found


def _headline(results: dict[str, Any]) -> str:
    m = results["machine"]
    return (
        f"{m['device']}, driver {m.get('driver', m['driver_api'])}, {m['cores']} cores, "
        f"{results['date']}, commit {results['commit'][:10]}"
        + (", quick: the numbers mean little" if results["quick"] else "")
    )


def _floor_text(results: dict[str, Any]) -> str:
    floor = results["floor"]
    return f"floor {floor['begin_us']:.2f} us at the beginning, {floor['end_us']:.2f} at the end"


def text(results: dict[str, Any]) -> str:
    """The table that a terminal gets, targets last."""
    lines = [_headline(results), _floor_text(results)]
    section = ""
    for r in results["rows"]:
        if r["section"] != section:
            section = r["section"]
            lines.append(section)
        ratio = r["ratio_to_floor"]
        times = f"{ratio:9.2f} x floor" if ratio is not None else ""
        lines.append(f"  {r['name']:70} {r['value']:10.2f} {r['unit']:11} {times}".rstrip())
    for s in results["skipped"]:
        lines.append(f"skipped: {s['section']}: {s['name']}: {s['reason'].splitlines()[0]:.100}")
    failed = [c for c in results["checks"] if not c["ok"]]
    lines.append(f"{len(results['checks'])} checks, {len(failed)} failed")
    lines += [f"  FAILED {c['section']}: {c['name']}: {c['detail']}" for c in failed]
    for t in results["targets"]:
        if t["value"] is None:
            continue
        verdict = "met" if t["passed"] else "MISSED"
        limit = f"at {'most' if t['at_most'] else 'least'} {t['limit']:g}"
        lines.append(f"  {t['name']:68} {t['value']:8.2f} {t['unit']:11} {limit:14} {verdict}")
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> str:
    ratio = row["ratio_to_floor"]
    times = "" if ratio is None else f"{ratio:.2f}"
    unit = row["unit"].replace("us", "µs")
    return f"| {row['name']} | {row['value']:.2f} | {unit} | {times} |"


def markdown(results: dict[str, Any], source: str) -> str:
    """The same for a page of the documentation: a table for each section."""
    lines = [f"{_headline(results)} (`{source}`); {_floor_text(results).replace('us', 'µs')}."]
    if any(t["value"] is not None for t in results["targets"]):
        lines += ["", "| target | measured | limit | |", "| --- | --- | --- | --- |"]
    for t in results["targets"]:
        if t["value"] is not None:
            unit = t["unit"].replace("us", "µs")
            way = "≤" if t["at_most"] else "≥"
            lines.append(
                f"| {t['name']} | {t['value']:.2f} {unit} | {way} {t['limit']:g} | "
                f"{'met' if t['passed'] else '**missed**'} |"
            )
    section = ""
    for r in results["rows"]:
        if r["section"] != section:
            section = r["section"]
            lines += ["", f"**{section}**", "", "| what | value | unit | x floor |"]
            lines.append("| --- | --- | --- | --- |")
        lines.append(_cells(r))
    for s in results["skipped"]:
        lines += ["", f"Skipped: {s['section']}, {s['name']}: {s['reason'].splitlines()[0]}"]
    failed = sum(not c["ok"] for c in results["checks"])
    lines += ["", f"{len(results['checks'])} checks of what was measured, {failed} failed."]
    return "\n".join(lines)
