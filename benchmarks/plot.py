# SPDX-License-Identifier: Apache-2.0
"""Make the plot and the table of docs/performance.md from a result file.

    python benchmarks/plot.py benchmarks/results/FILE.json

Writes docs/performance.png and the part of docs/performance.md between its
two marker lines.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def bars(r: dict) -> list[tuple[str, float]]:
    """Label and microseconds of each bar, best first."""
    out = [("floor: flag ping-pong, relaxed", r["floor"]["relaxed_us"])]
    out.append(("floor: the same, release and acquire", r["floor"]["ordered_us"]))
    for g in r["gomp"]:
        label = f"GOMP_target_ext, {g['placement']}"
        if g["wait"] == "patch":
            label += ", usleep(1) as the patch"
        if g["lists"] == "copied":
            continue
        out.append((label, g["gomp_us"]))
    for m in r["mailbox"]:
        if m["lock"] == "device" and m["wait"] == "adaptive":
            out.append((f"typed double(double), C handler, {m['placement']}", m["scale_us"]))
    out.append(("typed double(double), Python handler", r["python"]["scale_us"]))
    return sorted(out, key=lambda b: b[1])


def plot(r: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    data = bars(r)
    floor = r["floor"]["relaxed_us"]
    fig, ax = plt.subplots(figsize=(9, 0.34 * len(data) + 1.2))
    names = [d[0] for d in data]
    values = [d[1] for d in data]
    colours = [
        "#888888" if n.startswith("floor") else "#c44e52" if "usleep" in n else "#4c72b0"
        for n in names
    ]
    ax.barh(names, values, color=colours)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xlabel("microseconds for one call and its answer (log scale)")
    ax.set_title(f"{r['machine']['device']}, mailbox transport, one calling thread", fontsize=10)
    for i, v in enumerate(values):
        ax.text(v * 1.03, i, f"{v:.1f}  ({v / floor:.1f} x)", va="center", fontsize=8)
    ax.set_xlim(right=max(values) * 2.2)
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def table(r: dict, source: str) -> str:
    floor = r["floor"]["relaxed_us"]
    m = r["machine"]

    def row(what: str, us: float) -> str:
        return f"| {what} | {us:.2f} | {us / floor:.2f} |"

    lines = [
        f"{m['device']}, driver {m.get('driver', m['driver_api'])}, {m['cores']} cores, "
        f"{r['date']}, commit {r['commit'][:10]} (`{source}`).",
        "",
        "| one call and its answer | µs | x floor |",
        "| --- | --- | --- |",
        row("**floor**: flag ping-pong in pinned memory, relaxed", floor),
        row("the same with release and acquire", r["floor"]["ordered_us"]),
    ]
    for g in r["gomp"]:
        label = f"`GOMP_target_ext`, {g['placement']}, lists {g['lists']}, wait {g['wait']}"
        lines.append(row(label + ", nothing mapped", g["gomp_us"]))
        lines.append(row(label + ", `tofrom` 8 B", g["gomp8_us"]))
    for t in r["mailbox"]:
        label = f"typed, {t['placement']}, lock {t['lock']}, wait {t['wait']}"
        lines.append(row(label + ", `void()`", t["nothing_us"]))
        lines.append(row(label + ", `double(double)`", t["scale_us"]))
    for name, us in r["python"].items():
        lines.append(row(f"Python handler, pinned: {name[:-3].replace('_', ' ')}", us))
    lines += ["", "| other | µs |", "| --- | --- |"]
    for name, us in r["floor"].items():
        if name not in ("relaxed_us", "ordered_us"):
            lines.append(f"| {name[:-3].replace('_', ' ')} | {us:.2f} |")
    if r["unused"]:
        u = r["unused"]
        lines.append(f"| plain launch and synchronise | {u['plain_us']:.2f} |")
        lines.append(
            f"| `run`, image without reverse functions (ratio {u['ratio']:.3f}) | "
            f"{u['run_us']:.2f} |"
        )
    return "\n".join(lines)


def main() -> int:
    path = Path(sys.argv[1])
    r = json.loads(path.read_text())
    plot(r, DOCS / "performance.png")
    page = DOCS / "performance.md"
    text = page.read_text()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    body = table(r, f"benchmarks/results/{path.name}")
    page.write_text(f"{head}{BEGIN}\n{body}\n{END}{tail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
