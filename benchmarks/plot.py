# SPDX-License-Identifier: Apache-2.0
"""Make the pictures of docs/ from a result file, and the table of a page.

    python benchmarks/plot.py benchmarks/results/FILE.json [--to docs] [--page docs/performance.md]

Writes latency.png, throughput.png, posts.png and peers.png into the folder, each
only if the file has rows for it. With --page, the part of that page between its
two marker lines is replaced by the tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from benchmarks import report  # noqa: E402
from benchmarks.core import of, size_name  # noqa: E402

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
# Okabe and Ito's colours, told apart by all; each line has its own marker too.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PINK, GREY = "#0072B2", "#D55E00", "#CC79A7", "#777777"
Point = tuple[float, float]


def _figure(results: dict[str, Any], title: str, size: tuple[float, float] = (9, 5.6)) -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    fig, ax = plt.subplots(figsize=size, layout="constrained")
    m = results["machine"]
    where = f"{m['device']}, {results['date']}, commit {results['commit'][:10]}"
    ax.set_title(f"{title}\n{where}", fontsize=11, loc="left")
    ax.grid(True, which="major", color="#dddddd", linewidth=0.7)
    ax.set_axisbelow(True)
    return fig, ax


def _line(ax: Any, points: list[Point], label: str, colour: str, marker: str, style: str) -> None:
    points = sorted(points)
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    ax.plot(xs, ys, color=colour, marker=marker, linestyle=style, linewidth=1.8, markersize=5)
    ax.texts_to_place.append((xs[-1], ys[-1], label, colour))


def _spread(entries: list[list[Any]], gap: float) -> None:
    """Push heights (the first item) apart, and back into the picture."""
    entries.sort(key=lambda e: e[0])
    for low, high in zip(entries, entries[1:]):
        high[0] = max(high[0], low[0] + gap)
    if entries and entries[-1][0] > 1.0:
        entries[-1][0] = 1.0
        for high, low in zip(entries[::-1], entries[-2::-1]):
            low[0] = min(low[0], high[0] - gap)


def _place(ax: Any, gap: float = 0.052) -> None:
    """Name each line at its end, so that no name covers another.

    Names of lines that end early stand beside their end, the others at the right.
    """
    ax.figure.canvas.draw()
    beside: list[list[Any]] = []
    right: list[list[Any]] = []
    for x, y, label, colour in ax.texts_to_place:
        px, py = ax.transAxes.inverted().transform(ax.transData.transform((x, y)))
        (beside if px < 0.7 else right).append([py, px, py, label, colour])
    for entries in (beside, right):
        _spread(entries, gap)
        for at, px, py, label, colour in entries:
            ax.annotate(
                label,
                xy=(px, py),
                xytext=(px + 0.03 if entries is beside else 1.03, at),
                xycoords="axes fraction",
                textcoords="axes fraction",
                color=colour,
                va="center",
                fontsize=9,
                bbox={"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8},
                arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "alpha": 0.6},
            )


def _log_y(ax: Any) -> None:
    """A logarithmic axis with numbers that can be read off."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax.set_yscale("log")
    low, high = ax.get_ylim()
    subs = (1.0, 2.0, 5.0) if high / low < 3000 else (1.0,)
    ax.yaxis.set_major_locator(LogLocator(base=10, subs=subs))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))


def _points(rows: list[dict[str, Any]], by: str) -> list[Point]:
    return [(r["detail"][by], r["value"]) for r in rows]


def latency(results: dict[str, Any], path: Path) -> bool:
    """One call and its answer by payload."""
    rows = results["rows"]
    lines = []
    for handler, colour, marker in (("C", BLUE, "o"), ("Python", RED, "s")):
        scalar = of(rows, "ports", what="scalar", handler=handler)
        structs = of(rows, "ports", what="struct", handler=handler)
        values = _points(scalar + structs, "bytes")
        arrays = _points(of(rows, "ports", what="tofrom", handler=handler), "bytes")
        if values:
            lines.append((values, f"by value, {handler} handler", colour, marker, ":"))
        if arrays:
            lines.append((arrays, f"array tofrom, {handler} handler", colour, marker, "-"))
    for way, colour, marker in (
        ("pinned", GREEN, "^"),
        ("copy", PINK, "v"),
        ("pinned, the patch's loop", ORANGE, "D"),
    ):
        found = of(rows, "mailbox", way=way, handler="C")
        if found:
            points = [p for p in _points(found, "bytes") if p[0]]
            lines.append((points, f"mailbox, {way}", colour, marker, "--"))
    copies = _points(of(rows, "ports", what="copies"), "bytes")
    if copies:
        lines.append((copies, "two plain copies", BLACK, "x", "-."))
    if not lines:
        return False
    fig, ax = _figure(results, "One call from a running kernel and its answer, one lane")
    ax.texts_to_place = []
    ax.set_xscale("log", base=2)
    for line in lines:
        _line(ax, *line)
    _log_y(ax)
    floor = results["floor"]["mean_us"]
    ax.axhline(floor, color=GREY, linewidth=1.2)
    sizes = sorted({p[0] for line in lines for p in line[0]})
    ax.texts_to_place.append((sizes[-1], floor, f"floor, a flag alone: {floor:.2f} µs", GREY))
    ticks = [s for s in sizes if s in (8, 64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20)]
    ax.set_xticks(ticks, [size_name(int(s)) for s in ticks])
    ax.set_xlabel("payload each way (bytes, log scale)")
    ax.set_ylabel("time of one call (µs, log scale)")
    _place(ax)
    fig.savefig(path, dpi=150)
    return True


def _by_warps(results: dict[str, Any], section: str) -> dict[str, list[Point]]:
    """Lines of a section: name to points, full warps only."""
    found: dict[str, list[Point]] = {}
    for r in of(results["rows"], section):
        d = r["detail"]
        if d.get("warps") and d.get("lanes", 32) == 32:
            found.setdefault(d["what"], []).append((d["warps"], r["value"]))
    return found


def _warps_plot(
    results: dict[str, Any],
    path: Path,
    lines: list[tuple[list[Point], str, str, str, str]],
    title: str,
    unit: str,
) -> bool:
    if not lines:
        return False
    fig, ax = _figure(results, title)
    ax.texts_to_place = []
    ax.set_xscale("log", base=2)
    for line in lines:
        _line(ax, *line)
    warps = sorted({p[0] for line in lines for p in line[0]})
    ax.set_xticks(warps, [str(int(w)) for w in warps])
    _log_y(ax)
    ax.minorticks_off()
    ax.set_xlabel("warps of 32 lanes that call at once (log scale)")
    ax.set_ylabel(unit)
    _place(ax)
    fig.savefig(path, dpi=150)
    return True


STYLES = [(BLUE, "o"), (GREEN, "^"), (RED, "s"), (PINK, "D"), (ORANGE, "v"), (SKY, "P")]


def throughput(results: dict[str, Any], path: Path) -> bool:
    """Calls a second by number of warps."""
    found = _by_warps(results, "throughput")
    lines = [
        (points, what, *STYLES[i % len(STYLES)], "-")
        for i, (what, points) in enumerate(found.items())
    ]
    if lines and results["machine"]["kind"] == "cuda":
        for i, (what, points) in enumerate(report.ELSEWHERE.items()):
            marker = ("1", "2")[i % 2]
            lines.append((list(points.items()), f"{what}*", GREY, marker, ":"))
    title = "Calls answered by one host thread"
    if results["machine"]["kind"] == "cuda":
        title += "   (* measured apart, same kind of machine)"
    return _warps_plot(results, path, lines, title, "million lane-calls a second (log scale)")


def posts(results: dict[str, Any], path: Path) -> bool:
    """Posts a second by number of warps."""
    found = _by_warps(results, "posts")
    lines = [
        (points, what, *STYLES[i % len(STYLES)], "-")
        for i, (what, points) in enumerate(found.items())
    ]
    title = "Posts of 32 bytes, received by one host thread"
    return _warps_plot(results, path, lines, title, "million records a second (log scale)")


def peers(results: dict[str, Any], path: Path) -> bool:
    """One step to the host and back, by what does it."""
    rows = results["rows"]
    bars = [(r["name"], r["value"], GREY) for r in of(rows, "peers")]
    if not bars:
        return False
    for section, detail, name in (
        ("ports", {"what": "scalar", "handler": "C"}, "pyrevoff, C handler"),
        ("ports", {"what": "scalar", "handler": "Python"}, "pyrevoff, Python handler"),
        (
            "mailbox",
            {"way": "pinned", "what": "scalar", "handler": "C"},
            "pyrevoff, mailbox, C handler",
        ),
    ):
        bars += [(name, r["value"], BLUE) for r in of(rows, section, **detail)]
    way = "managed, the patch's loop"
    for r in of(rows, "mailbox", way=way, what="scalar", handler="C"):
        bars.append(("the patch's loop in pyrevoff's mailbox, managed", r["value"], ORANGE))
    floor = results["floor"]["mean_us"]
    bars.append(("floor: a flag alone", floor, BLACK))
    bars.sort(key=lambda b: b[1])
    size = (9, 0.36 * len(bars) + 1.4)
    fig, ax = _figure(results, "From the device to the host and back", size)
    ax.barh([b[0] for b in bars], [b[1] for b in bars], color=[b[2] for b in bars], height=0.7)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.grid(False, axis="y")
    ax.set_xlim(min(b[1] for b in bars) / 2, max(b[1] for b in bars) * 3)
    for i, (_, us, _) in enumerate(bars):
        ax.text(us * 1.06, i, f"{us:.1f} µs", va="center", fontsize=9)
    ax.set_xlabel("time of one step (µs, log scale)")
    fig.savefig(path, dpi=150)
    return True


PICTURES: dict[str, Callable[[dict[str, Any], Path], bool]] = {
    "latency.png": latency,
    "throughput.png": throughput,
    "posts.png": posts,
    "peers.png": peers,
}


def replace(page: Path, body: str) -> None:
    """Put the tables between the markers of a page."""
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"{page.name} must have one line {BEGIN} and one line {END}")
    head, rest = text.split(BEGIN)
    page.write_text(f"{head}{BEGIN}\n{body}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="plot", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="JSON that bench.py --out wrote")
    parser.add_argument("--to", type=Path, default=HERE.parent / "docs", metavar="FOLDER")
    parser.add_argument("--page", type=Path, metavar="FILE", help="whose tables to replace")
    args = parser.parse_args(argv)
    results = json.loads(args.file.read_text())
    if "rows" not in results:
        parser.error(f"{args.file} was not written by this bench.py: it has no rows")
    args.to.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        if draw(results, args.to / name):
            print(f"wrote {args.to / name}")
        else:
            print(f"no rows for {name}")
    if args.page:
        replace(args.page, report.markdown(results, f"benchmarks/results/{args.file.name}"))
        print(f"wrote {args.page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
