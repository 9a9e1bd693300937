# SPDX-License-Identifier: Apache-2.0
"""The README's example runs, says what the README says, and is the demo."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT, run_child

README = (ROOT / "README.md").read_text(encoding="utf-8")
KINDS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def example() -> str:
    (code,) = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return code


def promised() -> list[str]:
    """What `make demo` prints, according to the README."""
    console = re.search(r"^\$ make demo.*?\n(.*?)^\$", README, re.DOTALL | re.MULTILINE)
    assert console
    return console.group(1).splitlines()


def run(kind: str, code: str, *args: str) -> list[str]:
    done = run_child(code, 100, env={"PYREVOFF_DEVICE": kind}, args=args)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", KINDS)
def test_example_prints_what_the_readme_promises(kind):
    expected = [line.replace("cpu:0", f"{kind}:0") for line in promised()]
    assert run(kind, example()) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_demo_prints_the_same(kind):
    expected = [line.replace("cpu:0", f"{kind}:0") for line in promised()]
    assert run(kind, "", "examples/hello.py") == expected


def test_demo_is_the_readmes_example():
    def bare(text: str) -> list[str]:
        lines = (line.strip() for line in text.splitlines())
        return [line for line in lines if line and not line.startswith(("#", '"""'))]

    demo = (ROOT / "examples" / "hello.py").read_text(encoding="utf-8")
    assert bare(demo) == bare(example()) or bare(demo)[1:] == bare(example())


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_readme_stays_short():
    assert len(README.splitlines()) <= 120
