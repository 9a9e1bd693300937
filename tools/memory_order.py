#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the line numbers into docs/memory-order.md.

A comment beside a line of code names it, as in ``/* [lap store] */``: what is
stored or loaded, and in which role. The page links to it with that name as the
link's title; its text is the page's own, only file and line are written here.
A title such as ``store_unit()`` stands for where the device's function begins.

    python tools/memory_order.py            write the page
    python tools/memory_order.py --check    exit status 1 if that would change it
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "memory-order.md"
FOLDERS = ("csrc/include", "csrc/include/revoff", "csrc/host")

TAG = re.compile(r"\[([a-z][a-z-]*) (store|load|atomic|fence|barrier)\]")
LINK = re.compile(r'\[`([\w.]+?):\d+`\]\(\S+ "([^"]+)"\)')
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


class Tag(NamedTuple):
    """A line of code that a comment names; lines count from 1."""

    file: str
    name: str
    role: str
    line: int

    @property
    def title(self) -> str:
        return f"{self.name} {self.role}"


def sources() -> dict[str, str]:
    """Text of each C file that may have tags, by its path in the tree."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.[ch]"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def without_comments(text: str) -> str:
    """The same lines and columns, with spaces for comments."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return found if found[0] == '"' else re.sub(r"[^\n]", " ", found)

    return _STRING_OR_COMMENT.sub(blank, text)


def tags(texts: dict[str, str]) -> list[Tag]:
    """All tags; one names its own line, or the next that has code."""
    found = []
    for path, text in texts.items():
        code = without_comments(text).split("\n")
        for comment in _STRING_OR_COMMENT.finditer(text):
            if comment.group()[0] == '"':
                continue
            for tag in TAG.finditer(text, comment.start(), comment.end()):
                line = text.count("\n", 0, tag.start())
                while line < len(code) - 1 and not code[line].strip():
                    line += 1
                found.append(Tag(path, tag.group(1), tag.group(2), line + 1))
    return found


def definition(text: str, function: str) -> int:
    """Line where a function of the device half begins, or 0; atomic.h has it thrice."""
    code = without_comments(text)
    start = max(0, code.find("#elif defined(__CUDA_ARCH__)\n#if __CUDA_ARCH__"))
    found = re.compile(rf"^.*__device__ inline .*\b{function}\(", re.M).search(code, start)
    return code.count("\n", 0, found.start()) + 1 if found else 0


def fresh(page: str, texts: dict[str, str]) -> tuple[str, list[str]]:
    """The page with today's lines, and what does not fit together.

    Parameters
    ----------
    page : str
        Text of the page.
    texts : dict
        Text of the sources by path, as of `sources`.

    Returns
    -------
    tuple
        Text of the page, and a sentence for each tag without link, link without
        tag, and tag or link that is there twice.
    """
    paths = {path.rpartition("/")[2]: path for path in texts}
    lines: dict[tuple[str, str], int] = {}
    wrong = []
    for tag in tags(texts):
        key = (tag.file.rpartition("/")[2], tag.title)
        if key in lines:
            wrong.append(f"{tag.file}:{tag.line}: [{tag.title}] is there twice")
        lines[key] = tag.line
    used: set[tuple[str, str]] = set()

    def place(link: re.Match[str]) -> str:
        file, title = link.groups()
        key = (file, title)
        line = lines.get(key, 0)
        if title.endswith("()") and file in paths:
            line = definition(texts[paths[file]], title[:-2])
        elif key in used:
            wrong.append(f"docs/{PAGE.name} has [{title}] of {file} twice")
        used.add(key)
        if not line:
            wrong.append(f"docs/{PAGE.name} has [{title}] of {file}, which is not there")
            return link.group()
        return f'[`{file}:{line}`](../{paths[file]}#L{line} "{title}")'

    text = LINK.sub(place, page)
    wrong += [
        f"{paths[file]}:{lines[file, title]}: [{title}] is not in docs/{PAGE.name}"
        for file, title in lines
        if (file, title) not in used
    ]
    return text, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    text, wrong = fresh(page, sources())
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    if wrong:
        return 1
    if text != page and arguments.check:
        print(f"docs/{PAGE.name} has other lines than the code: run make format", file=sys.stderr)
        return 1
    if text != page:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
