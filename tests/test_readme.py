# SPDX-License-Identifier: Apache-2.0
"""The README's example runs, says what the README says, and is the demo."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT

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


def _path() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def run(*command: str, kind: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYREVOFF_DEVICE": kind, "PYTHONPATH": _path()},
        capture_output=True,
        text=True,
        timeout=100,
        start_new_session=True,
        cwd=ROOT,
    )
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", KINDS)
def test_example_prints_what_the_readme_promises(kind):
    expected = [line.replace("cpu:0", f"{kind}:0") for line in promised()]
    assert run("-c", example(), kind=kind) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_demo_prints_the_same(kind):
    expected = [line.replace("cpu:0", f"{kind}:0") for line in promised()]
    assert run("examples/hello.py", kind=kind) == expected


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
