# SPDX-License-Identifier: Apache-2.0
"""The protocol's models, model/*.pml: no error in any state, each defect found."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import ROOT


def _tool():
    spec = importlib.util.spec_from_file_location("revoff_model", ROOT / "tools" / "model.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


tool = _tool()
LIMIT = 3 * tool.SECONDS + 20
CASES = pytest.mark.parametrize("case", tool.CASES, ids=lambda case: case.name)
DEFECTS = pytest.mark.parametrize("case", tool.DEFECTS, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """The searches of the tests that were asked for, on all cores, by case."""
    missing = tool.missing()
    if missing and os.environ.get("CI"):
        pytest.fail(f"no {missing}: tools/prepare.sh test installs it")
    if missing:
        pytest.skip(f"no {missing} here")
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    cases = [spec.params["case"] for spec in specs if spec and "case" in spec.params]
    cases = [case for case in cases if isinstance(case, tool.Case)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        yield {
            case: pool.submit(tool.search, case, tmp_path_factory.mktemp("model")) for case in cases
        }


@pytest.mark.timeout(LIMIT)
@CASES
def test_no_error_in_any_state(case, results):
    result = results[case].result(timeout=LIMIT)
    assert result.errors == 0, result.text
    assert result.complete, result.text


@pytest.mark.timeout(LIMIT)
@DEFECTS
def test_a_defect_is_found(case, results):
    result = results[case].result(timeout=LIMIT)
    assert result.errors > 0, f"{case.what}: not found\n{result.text}"


def test_each_defect_of_a_model_is_looked_for():
    """Each rule that a model can take away is one that some case takes away."""
    for path in sorted((ROOT / "model").glob("*.pml")):
        text = path.read_text(encoding="utf-8")
        known = {int(n) for n in re.findall(r"DEFECT (?:==|!=) (\d+)", text)}
        asked = {case.defect for case in tool.DEFECTS if case.model == path.stem}
        assert known == asked, path.name


def test_the_page_names_each_case_and_defect():
    page = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    for case in tool.CASES + tool.DEFECTS:
        assert case.what in page, case.what
