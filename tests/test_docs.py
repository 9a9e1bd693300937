# SPDX-License-Identifier: Apache-2.0
"""The Python blocks of the pages of docs/ run as they stand, each page's in order."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT

PAGES = ["api.md", "gomp.md", "handlers.md", "output.md"]


def blocks(page: str) -> str:
    """The page's Python blocks, on the lines where the page has them."""
    lines: list[str] = []
    inside = False
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        fence = line.startswith("```")
        lines.append(line if inside and not fence else "")
        if fence:
            inside = not inside and line == "```python"
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run(page, run_child):
    code = blocks(page)
    assert code.strip(), f"{page} has no Python block"
    done = run_child(code, timeout=100, env={"PYREVOFF_DEVICE": "cpu"})
    assert done.returncode == 0, f"{page}:\n{done.stdout}{done.stderr}"


def test_api_names_all_that_is_public():
    import pyrevoff as ro

    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    for name in ro.__all__:
        if name in ("__version__", "Mapped"):
            continue
        page = reference if name.endswith("Error") or name == "LaunchTimeout" else text
        assert re.search(rf"\b{name}\b", page), name
