# SPDX-License-Identifier: Apache-2.0
"""The PTX has the very instructions that docs/memory-order.md names."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from test_memory_order import INCLUDE, PAGE, instructions, order_of, rows

from pyrevoff import _toolchain

PTX = (ROOT / "ptx" / "pyrevoff.ptx").read_text(encoding="utf-8")
COMPILE_SECONDS = 100
ORDERED = re.compile(
    r"^\s*(?:@!?%p\d+\s+)?((?:ld|st|atom|red|fence|membar|bar\.warp)(?:\.\w+)*)", re.MULTILINE
)


def ordered(ptx: str) -> list[str]:
    """What PTX has of ordered accesses, fences and barriers: without types."""
    found = []
    for name in ORDERED.findall(ptx):
        short = re.sub(r"\.(?:global|[busf](?:8|16|32|64))\b", "", name)
        plain = short.split(".")[0] in ("ld", "st") and order_of(short) not in short
        if not plain or "volatile" in short:
            found.append(short)
    return found


def entries(ptx: str) -> dict[str, list[str]]:
    """Ordered instructions of each kernel."""
    parts = re.split(r"^\.visible \.entry (\w+)\(", ptx, flags=re.MULTILINE)
    return dict(zip(parts[1::2], [ordered(part) for part in parts[2::2]]))


def named_in(page: str) -> set[str]:
    inline = {row.access.strip("`") for row in rows(page) if row.access[0] == "`"}
    bare = {re.sub(r"\.[bu]64$", "", name) for name in inline if " " not in name}
    return bare | set(instructions(page).values()) | {"ld.relaxed.sys.v2"}


def library_problems(ptx: str) -> list[str]:
    """What the device library has that the page does not name, or the reverse."""
    found = set(ordered(ptx))
    wrong = [f"{name} is in the library only" for name in sorted(found - named_in(PAGE))]
    # The library makes calls of libgomp's entry, one lane at a time, and no posts.
    unused = ("local_load", "local_store", "load_cached", "swap_if", "sync", "load_unit")
    wanted = {ptx for name, ptx in instructions(PAGE).items() if name not in unused}
    wanted |= {"ld.acquire.sys.v2", "ld.relaxed.sys.v2"}
    return wrong + [f"{name} is not in the library" for name in sorted(wanted - found)]


def test_the_library_has_the_instructions_of_the_page():
    assert library_problems(PTX) == []


@pytest.mark.parametrize(
    "there, instead",
    [
        ("st.release.sys.b64", "st.relaxed.gpu.b64"),
        ("fence.acq_rel.sys", "fence.acq_rel.gpu"),
        ("ld.acquire.sys.v2.u64", "ld.volatile.v2.u64"),
        ("fence.acq_rel.gpu", "membar.gl"),
    ],
)
def test_another_library_is_found(there, instead):
    assert there in PTX
    assert library_problems(PTX.replace(there, instead))


WORD = "revoff_u32 *p, revoff_u64 *q, revoff_unit *u, revoff_u64 a, revoff_u64 b"
# A call of each function of the page's table.
CALLS = {
    "load_relaxed": "*q = load_relaxed(p)",
    "load_acquire": "*q = load_acquire(q + 1)",
    "store_relaxed": "store_relaxed(q, a)",
    "store_release": "store_release(q, a)",
    "exchange_sys": "*q = exchange_sys(p, 1u)",
    "exchange_acquire": "*q = exchange_acquire(p, 1u)",
    "local_acquire": "*q = local_acquire(p)",
    "local_relaxed": "*q = local_relaxed(p)",
    "local_release": "local_release(p, 1u)",
    "fetch_add": "*q = fetch_add(q + 1, a)",
    "count": "count(p)",
    "store_unit": "store_unit(u, a, b)",
    "load_unit": "load_unit(u, q, q + 1)",
    "load_cached": "load_cached(u, q, q + 1)",
    "store_byte": "store_byte((revoff_u8 *)p, 1)",
    "store_pair": "store_pair(u, a, b)",
    "store_last": "store_last(q, a)",
    "fence_system": "fence_system()",
    "fence_device": "fence_device()",
    "fetch_or": "*q = fetch_or(q + 1, a)",
    "swap_if": "*p = swap_if(q, &a, b)",
    "load_word": "*q = load_word(q + 1)",
    "local_load": "*q = local_load(q + 1)",
    "local_store": "local_store(q, a)",
    "give_back": "give_back(q, a)",
    "sync": "sync(group{ 3u, 2u, 0u })",
}
# Whole steps, and the order in which their instructions must stand.
STEPS = {
    "publish": (
        "publish(converge(p), where(), q, 1, 5)",
        "st.relaxed.sys.v2 bar.warp.sync fence.acq_rel.sys st.relaxed.sys",
    ),
    "give_slot": (
        "give_slot(converge(p), 5)",
        "bar.warp.sync fence.acq_rel.gpu st.relaxed.gpu",
    ),
    "give_port": (
        "port m; m.states = q; m.index = 3; m.seq = 1; m.hint = 2; m.release(converge(p))",
        "bar.warp.sync st.relaxed.gpu",
    ),
    "frame": (
        "port m; m.claim(converge(p), where());"
        "revoff::detail::ask_with_frame<void, int>(converge(p), m, where(), 0, 5, 64)",
        "atom.or fence.acq_rel.sys st.relaxed.sys.v2 ld.relaxed.sys.b128 fence.acq_rel.sys",
    ),
    "words": (
        "double d; revoff::detail::call_words<double, double>("
        "converge(p), where(), 0, &d, (double)a); *q = (revoff_u64)d",
        "atom.or st.relaxed.sys.v2 ld.relaxed.sys.b128 bar.warp.sync st.relaxed.gpu",
    ),
    "mailbox": (
        "*q = exchange((revoff_mailbox *)u, q).result",
        "st.release.sys ld.relaxed.sys.v2 ld.acquire.sys.v2 fence.acq_rel.sys atom.sys.add",
    ),
}
SOURCE = "#include <pyrevoff.h>\nusing namespace revoff::wire;\n" + "".join(
    f'extern "C" __global__ void {kind}_{name}({WORD}) {{ {code}; }}\n'
    for kind, table in (("one", CALLS), ("step", {name: step[0] for name, step in STEPS.items()}))
    for name, code in table.items()
)


def compiled(folder: Path, include: Path) -> dict[str, list[str]]:
    """Ordered instructions of the kernels above, compiled for sm_90."""
    search = _toolchain.find_nvcc()
    if not search.command:
        pytest.skip("no nvcc here")
    (folder / "order.cu").write_text(SOURCE)
    options = ["-ptx", "-arch=sm_90", "-std=c++17", f"-I{include}"]
    done = subprocess.run(
        [*map(str, search.command), *options, "-o", "order.ptx", "order.cu"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=COMPILE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return entries((folder / "order.ptx").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("order"), INCLUDE)


def wrong_functions(kernels: dict[str, list[str]]) -> set[str]:
    """Functions that are not the one instruction of the page."""
    wanted = instructions(PAGE)
    return {name for name in CALLS if kernels[f"one_{name}"] != [wanted[name]]}


def missing_steps(kernels: dict[str, list[str]], name: str) -> list[str]:
    """What is not there, or not in its place."""
    found = iter(kernels[f"step_{name}"])
    return [wanted for wanted in STEPS[name][1].split() if wanted not in found]


def test_every_function_of_the_table_is_tried():
    assert set(CALLS) == set(instructions(PAGE))


def test_each_function_is_one_instruction(kernels):
    assert wrong_functions(kernels) == set()


@pytest.mark.parametrize("name", STEPS)
def test_steps_keep_their_order(kernels, name):
    assert missing_steps(kernels, name) == [], kernels[f"step_{name}"]


def test_no_fence_more_than_needed(kernels):
    fences = {
        name: kernels[f"step_{name}"].count("fence.acq_rel.sys")
        for name in ("words", "publish", "frame", "give_port")
    }
    assert fences == {"words": 0, "publish": 1, "frame": 2, "give_port": 0}


def test_another_header_is_found(tmp_path):
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)

    def change(name: str, there: str, instead: str) -> None:
        path = include / "revoff" / name
        text = path.read_text(encoding="utf-8")
        assert there in text
        path.write_text(text.replace(there, instead, 1), encoding="utf-8")

    change("atomic.h", "fence.acq_rel.sys", "fence.acq_rel.gpu")
    change("atomic.h", "st.relaxed.sys.u8", "st.u8")
    change("ports.h", "\tsync(g); /* [slot barrier] */\n", "")
    kernels = compiled(tmp_path, include)
    assert wrong_functions(kernels) == {"fence_system", "store_byte"}
    wrong = {name for name in STEPS if missing_steps(kernels, name)}
    assert wrong == {"publish", "frame", "mailbox", "give_slot"}
