# SPDX-License-Identifier: Apache-2.0
"""docs/memory-order.md says what the code does: lines, functions and orders.

What is wrong with a set of sources and a page is a list of sentences, so that
the same rules can be held against copies with a mistake in them.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import ROOT

TOOL = ROOT / "tools" / "memory_order.py"
INCLUDE = ROOT / "csrc" / "include"


def _tool():
    spec = importlib.util.spec_from_file_location("revoff_memory_order", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = _tool()
SOURCES = tool.sources()
PAGE = tool.PAGE.read_text(encoding="utf-8")

# Every atomic access of these is named, in other files of the host those with order.
TRANSPORTS = {f"csrc/host/{name}.c" for name in ("ports", "ports_memory", "post", "mailbox")}
# What stands for the instructions on both sides; docs/memory-order.md, "Instructions".
PRIMITIVES = "csrc/include/revoff/atomic.h"
HOST_ATOMIC = re.compile(r"\b__atomic_(\w+)\s*\(")
HOST_KINDS = {
    "load_n": "load",
    "store_n": "store",
    "compare_exchange_n": "compare-exchange",
    "thread_fence": "fence",
    "exchange_n": "exchange",
    "fetch_add": "add",
    "fetch_or": "or",
}


class Row(NamedTuple):
    """A line of one of the tables of "Stores and loads"."""

    file: str
    line: int
    title: str
    function: str
    access: str


def cells(page: str, heading: str) -> list[list[str]]:
    text = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:1] == "|"]
    return [row for row in rows if "](" in row[1]]


def rows(page: str) -> list[Row]:
    found = []
    for _, place, function, access, _ in cells(page, "Stores and loads"):
        file, line, title = re.fullmatch(
            r'\[`[\w.]+:\d+`\]\(\.\./(\S+)#L(\d+) "([^"]+)"\)', place
        ).groups()
        found.append(Row(file, int(line), title, function.strip("`"), access))
    return found


def instructions(page: str) -> dict[str, str]:
    """What each function of the device half becomes on a GPU."""
    return {name.strip("`"): ptx.strip("`") for name, _, ptx, _ in cells(page, "Instructions")}


def order_of(instruction: str) -> str:
    """Order and scope of a PTX instruction; what it does not say is the default."""
    words = instruction.split(".")
    if words[0] == "bar":
        return "bar.warp"
    orders = [word for word in words if word in ("relaxed", "acquire", "release", "acq_rel")]
    scopes = [word for word in words if word in ("sys", "gpu", "cta")]
    return ".".join([*(orders or ["relaxed"]), *(scopes or ["gpu"])])


def statement(code: list[str], line: int) -> str:
    """From a line to where its parentheses and its statement end."""
    text = ""
    for more in code[line - 1 : line + 11]:
        text += more + "\n"
        if re.search(r"[;{]\s*$", text) and text.count("(") <= text.count(")"):
            break
    return text


def host_calls(text: str, start: int = 0, end: int | None = None) -> list[tuple[int, str, str]]:
    """Atomic calls that begin in a part of the text: where, kind, and first order."""
    found = []
    for call in HOST_ATOMIC.finditer(text, start, len(text) if end is None else end):
        at, depth = call.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        inside = text[call.end() : at]
        # Of a call within the call, as in a value that is stored, not this one's order.
        order = re.findall(r"__ATOMIC_([A-Z_]+)", inside.partition("__atomic_")[0])
        kind = HOST_KINDS.get(call.group(1), call.group(1))
        found.append((call.start(), kind, order[0].lower() if order else "?"))
    return found


def in_function(code: list[str], line: int, name: str) -> bool:
    """Whether a line is in the body of a function, or of a method, of that name."""
    function = re.compile(rf"(?:[^\s].*[ *])?{name}\(")
    method = re.compile(rf"\t__device__ .*\b{name}\(")
    closed = False
    for at in range(line - 1, -1, -1):
        if function.match(code[at]) or (method.match(code[at]) and not closed):
            return True
        if code[at].startswith("}"):
            return False
        closed = closed or code[at] == "\t}"
    return False


def line_problems(row: Row, text: str, becomes: dict[str, str]) -> str:
    """What is wrong with a row, given its file without comments; else nothing."""
    code = text.split("\n")
    first = code[row.line - 1]
    if not in_function(code, row.line, row.function):
        return f"is not in {row.function}"
    begin = sum(len(more) + 1 for more in code[: row.line - 1])
    # Access by a function of the device half, by inline PTX, or in C.
    primitive = re.fullmatch(r"`(\w+)` (\S+)", row.access)
    if primitive:
        name, order = primitive.groups()
        if not re.search(rf"\b{name}\(", first):
            return f"does not use {name}"
        if name not in becomes:
            return f"uses {name}, which the page does not explain"
        found = order_of(becomes[name])
        return "" if found == order else f"is {found}, not {order}"
    if row.access[0] == "`":
        return "" if f'"{row.access[1:-1]} ' in first else f"has no {row.access}"
    if row.file.startswith("csrc/host/") and ", " in row.access:
        calls = host_calls(text, begin, begin + len(first))
        said = ", ".join(f"{kind}, {order}" for _, kind, order in calls)
        return "" if row.access == said else f"is {said or 'no atomic access'}, not {row.access}"
    whole = statement(code, row.line)
    if row.access in ("vector load", "vector store"):
        loads = re.search(r"=\s*\*\(const volatile pair \*\)", whole)
        stores = re.search(r"^\s*\*\(volatile pair \*\)[^=]*=", whole)
        fits = loads if row.access == "vector load" else stores
        return "" if fits else f"is no {row.access}"
    if row.access == "plain":
        if "=" not in whole and "copy(" not in whole:
            return "neither stores nor loads"
        return "an atomic access, not a plain one" if HOST_ATOMIC.search(whole) else ""
    return f"has an access that means nothing: {row.access}"


def unnamed(texts: dict[str, str], page: str) -> list[str]:
    """Accesses of the code that have no tag."""
    wrong = []
    named = {(tag.file, tag.line) for tag in tool.tags(texts)}
    uses = re.compile(rf"\b({'|'.join(set(instructions(page)) - {'sync'})})\(")
    for path, text in texts.items():
        code = tool.without_comments(text)
        if path.startswith("csrc/host/"):
            found = [
                (at, f"{kind}, {order}")
                for at, kind, order in host_calls(code)
                if path in TRANSPORTS or order != "relaxed"
            ]
        elif path.startswith("csrc/include/") and "cpu" not in path and path != PRIMITIVES:
            # A semicolon after the type is a declaration; none is outside of atomic.h.
            found = [(use.start(), use.group(1)) for use in uses.finditer(code)]
            raw = re.compile(
                r"__threadfence\w*|\bmembar\b|\bfence\.\w+|__atomic_\w+|__nv_atomic_\w+"
            )
            found += [(use.start(), use.group()) for use in raw.finditer(code)]
        else:
            continue
        for at, what in found:
            line = code.count("\n", 0, at) + 1
            if (path, line) not in named:
                wrong.append(f"{path}:{line}: {what} has no tag")
    return wrong


def problems(texts: dict[str, str], page: str) -> list[str]:
    """All that does not fit between sources and page."""
    text, wrong = tool.fresh(page, texts)
    if text != page:
        wrong.append("the page has other lines than the code: run make format")
    becomes = instructions(text)
    bare = {path: tool.without_comments(source) for path, source in texts.items()}
    for row in rows(text):
        problem = line_problems(row, bare[row.file], becomes)
        if problem:
            wrong.append(f"{row.file}:{row.line} [{row.title}] {problem}")
    return wrong + unnamed(texts, text)


def test_page_and_code_agree():
    assert problems(SOURCES, PAGE) == []


def test_the_page_is_not_empty():
    found = rows(PAGE)
    assert len(found) == len(tool.tags(SOURCES)) > 100
    assert {Path(row.file).name for row in found} >= {"ports.h", "device.h", "ports.c", "post.c"}
    assert len(instructions(PAGE)) > 20


def test_the_cpu_device_has_the_orders_of_the_page():
    code = tool.without_comments(SOURCES[PRIMITIVES]).partition("#elif defined(__CUDA_ARCH__)")[0]
    for name, _, _, said in cells(PAGE, "Instructions"):
        if name == "`sync`":  # of ports.h, the same for both
            continue
        bodies = re.findall(rf"\b{name.strip('`')}\([^;{{]*\)\n{{(.*?)\n}}", code, re.DOTALL)
        assert bodies, name
        for body in bodies:
            orders = {f"{kind}, {order}" for _, kind, order in host_calls(body)}
            if said == "as `load_unit`":
                assert "load_unit(" in body
            elif said in ("plain", "none"):
                assert orders == set(), name
            else:
                assert orders == {said}, name


def test_check_tells_a_stale_page(tmp_path):
    for name in ("csrc", "docs", "tools"):
        (tmp_path / name).mkdir()
    (tmp_path / "csrc" / "include").symlink_to(INCLUDE)
    (tmp_path / "csrc" / "host").symlink_to(ROOT / "csrc" / "host")
    page = tmp_path / "docs" / tool.PAGE.name
    page.write_text(re.sub(r"#L\d+", "#L1", PAGE, count=1), encoding="utf-8")
    copy = tmp_path / "tools" / TOOL.name
    copy.write_text(TOOL.read_text(encoding="utf-8"), encoding="utf-8")

    def run(*options: str) -> int:
        return subprocess.run(
            [sys.executable, str(copy), *options], capture_output=True, timeout=60, check=False
        ).returncode

    assert run("--check") == 1
    assert run() == 0
    assert page.read_text(encoding="utf-8") == PAGE
    assert run("--check") == 0


MUTATIONS = [
    # file, what is there, what instead, what must be said
    (
        "csrc/host/ports.c",
        "__atomic_store_n(&u->hi, word >> 32 | number, __ATOMIC_RELEASE)",
        "__atomic_store_n(&u->hi, word >> 32 | number, __ATOMIC_RELAXED)",
        "is store, relaxed, not store, release",
    ),
    (
        "csrc/host/post.c",
        "__atomic_load_n(last, __ATOMIC_ACQUIRE)",
        "__atomic_load_n(last, __ATOMIC_RELAXED)",
        "is load, relaxed, not load, acquire",
    ),
    (
        "csrc/host/mailbox.c",
        "__atomic_store_n(&m->host->call.fn, 0, __ATOMIC_RELEASE)",
        "m->host->call.fn = 0",
        "is no atomic access, not store, release",
    ),
    (
        "csrc/host/mailbox.c",
        "/* The flag is set",
        "/* [new store] The flag is set",
        "[new store] is not in docs/memory-order.md",
    ),
    (
        "csrc/host/orphan.c",
        "\treturn l->ended;",
        "\t__atomic_thread_fence(__ATOMIC_SEQ_CST);\n\treturn l->ended;",
        "fence, seq_cst has no tag",
    ),
    (
        "csrc/host/post.c",
        "\tp->next = next;",
        "\t__atomic_store_n(p->done, p->next, __ATOMIC_RELAXED);\n\tp->next = next;",
        "store, relaxed has no tag",
    ),
    (
        "csrc/host/ports.c",
        "pair b = *(const volatile pair *)&u[i + 1];",
        "pair b = load_pair(&u[i + 1]);",
        "is no vector load",
    ),
    (
        "csrc/include/revoff/ports.h",
        "fence_system();",
        "fence_device();",
        "does not use fence_system",
    ),
    (
        "csrc/include/revoff/ports.h",
        " /* [slot fence] */",
        "",
        "has [slot fence] of ports.h, which is not there",
    ),
    ("csrc/include/revoff/ports.h", " /* [slot fence] */", "", "fence_device has no tag"),
    (
        "csrc/include/revoff/call.h",
        "\tp.release(g);",
        "\t__threadfence_system();\n\tp.release(g);",
        "__threadfence_system has no tag",
    ),
    (
        "csrc/include/revoff/device.h",
        "ld.acquire.sys.v2.u64 {%2",
        "ld.relaxed.sys.v2.u64 {%2",
        "has no `ld.acquire.sys.v2.u64`",
    ),
    (
        "csrc/include/revoff/device.h",
        "store_release(&r->fn",
        "store_relaxed(&r->fn",
        "does not use store_release",
    ),
    (
        "csrc/include/revoff/image.h",
        "[gate load]",
        "[gate atomic]",
        "[gate atomic] is there twice",
    ),
    ("csrc/host/post.c", "static void give_room(", "static void room(", "is not in give_room"),
    ("csrc/include/revoff/ports.h", "void take_lines(", "void take_all(", "is not in take_lines"),
    ("csrc/host/launch.c", "#include <", "\n#include <", "other lines than the code"),
]


@pytest.mark.parametrize("file, there, instead, said", MUTATIONS, ids=lambda value: value[:24])
def test_a_wrong_line_is_found(file, there, instead, said):
    assert there in SOURCES[file]
    texts = {**SOURCES, file: SOURCES[file].replace(there, instead, 1)}
    # The new line numbers are another matter.
    page = PAGE if said.startswith("other lines") else tool.fresh(PAGE, texts)[0]
    found = problems(texts, page)
    assert [sentence for sentence in found if said in sentence], found


@pytest.mark.parametrize(
    "there, instead, said",
    [
        ("`store_release` release.sys", "`store_release` release.gpu", "release.sys, not release"),
        ("| load, acquire | with the lap", "| load, relaxed | with the lap", "is load, acquire"),
        ('"lap store"', '"lip store"', "[lip store] of ports.h, which is not there"),
        ('"bell store"', '"request store"', "[request store] of ports.h twice"),
        ("`fence_device` acq_rel.gpu", "`fence_system` acq_rel.sys", "does not use fence_system"),
    ],
    ids=lambda value: value[:24],
)
def test_a_wrong_page_is_found(there, instead, said):
    assert there in PAGE
    page = tool.fresh(PAGE.replace(there, instead, 1), SOURCES)[0]
    found = problems(SOURCES, page)
    assert [sentence for sentence in found if said in sentence], found
