# SPDX-License-Identifier: Apache-2.0
"""The benchmark: it runs, checks what it measures, and notices what is wrong."""

from __future__ import annotations

import json
import math
import os

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BENCH = ("-m", "pyrevoff", "bench", "--quick")
SECTIONS = ["floor", "ports", "mailbox", "throughput", "posts", "unused", "silence", "peers"]


def bench(run_child, tmp_path, *args: str, timeout: float = 110):
    path = tmp_path / "bench.json"
    done = run_child("", timeout, args=(*BENCH, "--device", "cpu", "--out", str(path), *args))
    return done, json.loads(path.read_text()) if path.exists() else None


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    from conftest import run_child

    done, found = bench(run_child, tmp_path_factory.mktemp("bench"))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, found


def test_all_sections_ran(results):
    _, found = results
    assert list(found["sections"]) == SECTIONS
    assert found["quick"] and found["machine"]["kind"] == "cpu"
    assert {"device", "driver_api", "cuda", "python", "cores"} <= set(found["machine"])
    assert len(found["date"]) == 10 and found["commit"]
    have = {r["section"] for r in found["rows"]}
    left = {s["section"] for s in found["skipped"]}
    assert have == {"floor", "ports", "mailbox", "throughput", "posts", "silence"}
    assert {"unused", "peers"} <= left and all(s["reason"] for s in found["skipped"])
    # They are about a GPU: none is claimed from here.
    assert found["targets"] == []


def test_every_row_has_a_finite_value(results):
    _, found = results
    begin, end, mean = (found["floor"][k] for k in ("begin_us", "end_us", "mean_us"))
    assert begin > 0 and end > 0 and mean == pytest.approx((begin + end) / 2)
    for r in found["rows"]:
        assert set(r) == {"section", "name", "value", "unit", "ratio_to_floor", "detail"}, r
        assert math.isfinite(r["value"]) and r["value"] >= 0, r
        if r["unit"] == "us":
            assert r["value"] > 0 and r["ratio_to_floor"] == pytest.approx(r["value"] / mean)
        else:
            assert r["ratio_to_floor"] is None
    names = [(r["section"], r["name"]) for r in found["rows"]]
    assert len(names) == len(set(names))


def test_what_was_measured_was_checked(results):
    out, found = results
    assert found["checks"] and all(c["ok"] for c in found["checks"])
    names = " ".join(c["name"] for c in found["checks"])
    for wanted in (
        "values through C handlers",
        "values through Python handlers",
        "array of 1 MiB through a Python handler",
        "values through the mailbox, copy",
        "C handler, batch",
        "NumPy handler, batch, np.multiply",
        "posts, NumPy batch, struct, two fields summed: none lost, sum, order",
        "none lost, sum, order of each lane",
    ):
        assert wanted in names
    assert f"{len(found['checks'])} checks, 0 failed" in out


@pytest.mark.parametrize(
    "section, plant, seen",
    [
        ("ports", "c_up", "values through C handlers"),
        ("ports", "c_up_array", "array of 64 B through a C handler"),
        ("throughput", "c_twice", "C handler, one call each"),
    ],
)
def test_a_wrong_handler_is_noticed(run_child, tmp_path, section, plant, seen):
    done, found = bench(run_child, tmp_path, "--only", section, "--plant", plant)
    assert done.returncode == 1
    failed = [c["name"] for c in found["checks"] if not c["ok"]]
    assert any(name.startswith(seen) for name in failed), failed
    assert "FAILED" in done.stdout


def test_a_section_that_does_not_exist(run_child, tmp_path):
    done, found = bench(run_child, tmp_path, "--only", "ports,speed")
    assert done.returncode == 2 and found is None
    assert "no section speed" in done.stderr and "throughput" in done.stderr


class Notes:
    """Stands in for a run: keeps what is checked."""

    plant = ""

    def __init__(self) -> None:
        self.checks: list[tuple[bool, str]] = []

    def check(self, name: str, ok: bool, detail: str = "") -> None:
        self.checks.append((ok, detail))


@pytest.mark.parametrize(
    "spoil, ok",
    [
        (lambda records: records, True),
        (lambda records: records[:-1], False),
        (lambda records: [records[1], records[0], *records[2:]], False),
        (lambda records: [(0, 0, 0, 1), *records[1:]], False),
        (lambda records: [records[0], *records[:-1]], False),
    ],
    ids=["as sent", "one lost", "order", "value", "one twice"],
)
def test_posts_are_looked_at(spoil, ok):
    import numpy as np

    from benchmarks.throughput import Columns, check_tally

    lanes, n = 3, 5
    sent = [(k, i, k ^ i, k + i) for i in range(n) for k in range(lanes)]
    # Neighbours of one lane, so that a swap of the first two is out of order.
    sent.sort()
    columns = Columns(lanes)
    got = np.array(spoil(sent), np.uint64)
    for part in (got[:4], got[4:]):
        columns(*part.T)
    notes = Notes()
    check_tally(notes, "test", columns, lanes, n)
    ((found, detail),) = notes.checks
    assert found is ok, detail


def test_targets_and_tables():
    from benchmarks import report

    def row(section, value, unit="us", **detail):
        name = f"{section} {detail}"
        ratio = value / 2.0 if unit == "us" else None
        kept = {"name": name, "value": value, "unit": unit, "ratio_to_floor": ratio}
        return {"section": section, "detail": detail, **kept}

    rows = [
        row("ports", 2.1, what="struct", handler="C", bytes=64),
        row("ports", 4.0, what="scalar", handler="Python", bytes=8),
        row("ports", 60.0, what="tofrom", handler="Python", bytes=1 << 20),
        row("ports", 54.0, what="copies", bytes=1 << 20),
        row("throughput", 300.0, "M calls/s", handler="NumPy batch", warps=512),
        row("throughput", 150.0, "M calls/s", handler="NumPy batch", warps=2048),
        row("silence", 3.0, "%", what="cpu"),
    ]
    found = report.targets(rows, 2.0)
    met = [t["passed"] for t in found]
    assert met == [True, False, True, False, None, None, True, None]
    results = {
        "rows": rows,
        "machine": {"device": "GPU", "driver_api": 13000, "cores": 1, "kind": "cuda"},
        "date": "2026-01-01",
        "commit": "c" * 40,
        "quick": False,
        "floor": {"begin_us": 1.9, "end_us": 2.1, "mean_us": 2.0},
        "skipped": [{"section": "peers", "name": "jax", "reason": "not installed"}],
        "checks": [{"section": "ports", "name": "values", "ok": False, "detail": "1 wrong"}],
        "targets": found,
    }
    text = report.text(results)
    assert "FAILED ports: values: 1 wrong" in text and "MISSED" in text and "jax" in text
    page = report.markdown(results, "r.json")
    assert "**missed**" in page and "1 checks of what was measured, 1 failed" in page
    for line in page.splitlines():
        if line.startswith("|"):
            assert line.endswith("|") and line.count("|") == 5, line


def test_pictures(results, tmp_path, run_child):
    pytest.importorskip("matplotlib")
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(results[1]))
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- results: begin -->\nold\n<!-- results: end -->\nafter\n")
    script = os.path.join(ROOT, "benchmarks", "plot.py")
    args = (script, str(path), "--to", str(tmp_path), "--page", str(page))
    done = run_child("", 100, args=args)
    assert done.returncode == 0, done.stderr
    for name in ("latency.png", "throughput.png", "posts.png"):
        data = (tmp_path / name).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 10_000, name
    assert not (tmp_path / "peers.png").exists()
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "x floor" in text
