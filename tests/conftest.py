# SPDX-License-Identifier: Apache-2.0
"""Fixtures by capability, and children that cannot outlive their limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PLACEMENTS = ("pinned", "managed", "copy")
WAYS = ("ports", *(f"mailbox-{p}" for p in PLACEMENTS))


def why_no_gpu() -> str | None:
    """None if the tests can use a CUDA device."""
    import pyrevoff as ro

    return ro.why_not("cuda")


def variants() -> list[tuple[str, str]]:
    """Each kind of device that is here, with each transport that it can have."""
    found = [("cpu", way) for way in WAYS]
    if why_no_gpu() is None:
        import pyrevoff as ro

        managed = ro.Device("cuda").info()["concurrent_managed_access"]
        found += [("cuda", w) for w in WAYS if managed or w != "mailbox-managed"]
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # Asked only for tests that want a device: collecting others needs no build.
    if "device" in metafunc.fixturenames:
        values = variants()
        if metafunc.definition.get_closest_marker("once"):
            values = [v for v in values if v[1] == "ports"]
        if metafunc.definition.get_closest_marker("mailbox"):
            values = [v for v in values if v[1] != "ports"]
        metafunc.parametrize("device", values, indirect=True, ids=["-".join(v) for v in values])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "once: on each kind of device with its default transport only"
    )
    config.addinivalue_line("markers", "mailbox: about the mailbox, in each of its placements")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    why = why_no_gpu() if wanting else None
    if why:
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {why:.60}"))


@pytest.fixture
def device(request: pytest.FixtureRequest):
    """A device with each transport; marked `once`, with the default one only."""
    import pyrevoff as ro

    kind, way = request.param
    transport, _, placement = way.partition("-")
    return ro.Device(kind, transport=transport, placement=placement or None)


@pytest.fixture
def placement(device) -> str:
    """Where the mailbox of `device` lies."""
    return device.placement


def run_child(
    code: str,
    timeout: float = 60,
    *,
    env: dict[str, str] | None = None,
    interrupt_after: float | None = None,
    args: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process group of its own, within a hard limit.

    Parameters
    ----------
    code : str
        Given to ``python -c``; empty: `args` are given to ``python`` instead.
    timeout : float
        Seconds; then the whole group is killed and the test fails.
    env : dict, optional
        Added to the environment.
    interrupt_after : float, optional
        Seconds after the child has printed a line "ready" on stdout when it
        gets SIGINT.
    """
    command = [sys.executable, *(("-c", code) if code else ()), *args]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **(env or {})}
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
        start_new_session=True,
        cwd=ROOT,
    )
    first = ""
    try:
        if interrupt_after is not None:
            # Bounded by the alarm of pytest-timeout: the child prints it at once.
            assert child.stdout is not None
            first = child.stdout.readline()
            if first.strip() == "ready":
                try:
                    child.wait(interrupt_after)
                except subprocess.TimeoutExpired:
                    child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        pytest.fail(f"the child did not end within {timeout} s:\n{first}{out}\n{err}")
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise
    return subprocess.CompletedProcess(command, child.returncode, first + out, err)


@pytest.fixture(name="run_child")
def _run_child():
    """The function of that name, for tests."""
    return run_child
