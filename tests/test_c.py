# SPDX-License-Identifier: Apache-2.0
"""The C regression programs of tests/c, each in every variant that it wants.

A program's exit status is its result: 0 passed, 1 failed, 77 cannot run here.
``xfail_*`` programs do something wrong that a sanitizer must report: they show
that the sanitizers see such things at all.
"""

from __future__ import annotations

import cbuild
import pytest

if not cbuild.compilers():
    pytest.skip("no C and C++ compiler", allow_module_level=True)

PROGRAMS = cbuild.programs()
CASES = [(program, variant) for program in PROGRAMS for variant in program.variants]
# The first program of a variant builds the library as well.
LIMIT = cbuild.RUN_SECONDS + 3 * cbuild.COMPILE_SECONDS


def check(program: cbuild.Program, variant: str) -> None:
    """Fail or skip the running test as the program did."""
    outcome = cbuild.session().outcome(program, variant)
    wanted = cbuild.SANITIZER_EXIT if program.must_fail else 0
    what = f"{program.name} ({variant})"
    if outcome.status is None:
        pytest.fail(f"{what} did not end within {cbuild.RUN_SECONDS} s:\n{outcome.output}")
    if outcome.status == cbuild.SKIP:
        pytest.skip(f"{what}: {outcome.output.strip()[-200:]}")
    if program.must_fail and outcome.status == 0:
        pytest.fail(f"{what}: no sanitizer has seen what it does wrong")
    if outcome.status != wanted:
        pytest.fail(f"{what} gave {outcome.status}, not {wanted}:\n{outcome.output}")


@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize(
    ("program", "variant"), CASES, ids=[f"{program.name}-{variant}" for program, variant in CASES]
)
def test_program(program: cbuild.Program, variant: str) -> None:
    check(program, variant)


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_opening_comment(program: cbuild.Program) -> None:
    assert program.description.startswith("Description:"), "a program opens with what it shows"
    assert program.variants
    assert set(program.variants) <= set(cbuild.VARIANTS)
    for image in program.images:
        source = cbuild.IMAGES.get(image, (image, ()))[0]
        assert image.startswith("fake-cuda") or (cbuild.C / "kernels" / f"{source}.cu").exists()


def test_each_kernel_is_used() -> None:
    used = {cbuild.IMAGES.get(i, (i, ()))[0] for p in PROGRAMS for i in p.images}
    assert {path.stem for path in (cbuild.C / "kernels").glob("*.cu")} <= used
    assert set(cbuild.IMAGES) <= {image for program in PROGRAMS for image in program.images}


def test_sanitizers_are_put_to_the_test() -> None:
    shown = {variant for p in PROGRAMS if p.must_fail for variant in p.variants}
    assert shown == set(cbuild.VARIANTS) - {"plain"}
