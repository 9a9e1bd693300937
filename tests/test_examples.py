# SPDX-License-Identifier: Apache-2.0
"""The examples that have no test of their own elsewhere."""

from __future__ import annotations

import pytest


@pytest.mark.once
def test_a_dask_cluster_answers_calls(device, run_child):
    pytest.importorskip("distributed")
    env = {"PYREVOFF_DEVICE": device.kind}
    child = run_child("", 200, env=env, args=("examples/dask_executor.py",))
    assert child.returncode == 0, child.stderr
    each, some = child.stdout.splitlines()
    assert each.startswith("64 calls, each a task: largest error ")
    assert some.startswith("64 calls, some tasks: largest error ")
    assert all(float(line.split()[-1]) < 1e-15 for line in (each, some))
