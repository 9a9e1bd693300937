# SPDX-License-Identifier: Apache-2.0
"""``python -m pyrevoff``."""

import json
import os
import re

import pytest

import pyrevoff as ro
from pyrevoff import cli

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def test_info(run_child):
    done = run_child("", args=("-m", "pyrevoff", "info"))
    assert done.returncode == 0, done.stderr
    lines = dict(re.split(r"\s+", line, maxsplit=1) for line in done.stdout.splitlines())
    assert lines["pyrevoff"] == ro.__version__
    assert "transport ports, placement" in lines["default"]
    assert "usable" in lines["cpu:0"]
    assert {"python", "cffi", "numpy", "wire_abi", "ptx_version", "nvrtc", "nvcc"} <= set(lines)


def test_info_as_json(run_child):
    env = {"PYREVOFF_DEVICE": "cpu", "PYREVOFF_PLACEMENT": "copy", "PYREVOFF_WAIT": "spin"}
    done = run_child("", args=("-m", "pyrevoff", "info", "--json"), env=env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["default"] == {
        "device": "cpu:0",
        "transport": "mailbox",
        "placement": "copy",
        "lock": "device",
        "wait": "spin",
    }
    assert env.items() <= found["environment"].items()
    assert "cpu:0" in found["devices"]
    for name in ("major", "minor", "managed_memory", "can_map_host_memory", "driver_version"):
        assert name in found["devices"]["cpu:0"]


def test_info_holds_no_personal_data(run_child):
    home = os.path.expanduser("~")
    env = {"PYREVOFF_CACHE_DIR": os.path.join(home, "kernels")}
    done = run_child("", args=("-m", "pyrevoff", "info", "--json"), env=env)
    assert home + os.sep not in done.stdout
    assert json.loads(done.stdout)["environment"]["PYREVOFF_CACHE_DIR"] == "~/kernels"


@pytest.mark.parametrize(
    "env, reason",
    [
        ({"PYREVOFF_DEVICE": "cpu:9"}, "cpu:9"),
        ({"PYREVOFF_DEVICE": "toaster"}, "toaster"),
        ({"PYREVOFF_DEVICE": "cpu", "PYREVOFF_PLACEMENT": "attic"}, "attic"),
        ({"PYREVOFF_TRANSPORT": "pigeon"}, "pigeon"),
        ({"PYREVOFF_WATCHDOG": "often"}, "PYREVOFF_WATCHDOG"),
        ({"PYREVOFF_WATCHDOG": "nan"}, "PYREVOFF_WATCHDOG"),
        ({"PYREVOFF_CPU_DEVICES": "99"}, "PYREVOFF_CPU_DEVICES is a number from 1 to 16"),
        ({"PYREVOFF_CPU_WORKERS": "0"}, "PYREVOFF_CPU_WORKERS is a number from 1 to 64"),
        ({"PYREVOFF_CPU_STACK": "10"}, "PYREVOFF_CPU_STACK"),
        ({"PYREVOFF_CPU_FAULTS": "no"}, "PYREVOFF_CPU_FAULTS"),
        ({"PYREVOFF_DEVICE": "cuda", "PYREVOFF_LIBCUDA": "/nowhere/libcuda.so.1"}, "nowhere"),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_info_fails_where_nothing_is_usable(run_child, env, reason):
    done = run_child("", args=("-m", "pyrevoff", "info"), env=env)
    assert done.returncode == 1
    (line,) = [x for x in done.stdout.splitlines() if x.startswith("default")]
    assert reason in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", DEVICES)
def test_selftest(run_child, kind):
    done = run_child("", args=("-m", "pyrevoff", "selftest", "--device", kind), timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 5 and all(re.search(r"\bok\b", line) for line in lines)


def test_selftest_that_fails(run_child):
    done = run_child("", args=("-m", "pyrevoff", "selftest", "--device", "cpu:9"))
    assert done.returncode == 1
    assert "FAILED" in done.stdout and "NoDeviceError" in done.stdout
    assert "Traceback" not in done.stderr


def test_includes(capsys):
    assert cli.main(["--includes"]) == 0
    out = capsys.readouterr().out.strip()
    assert out == f"-I{ro.get_include()}"
    assert os.path.isfile(os.path.join(out[2:], "pyrevoff.h"))
    assert os.path.isfile(os.path.join(out[2:], "revoff", "protocol.h"))


def test_without_a_command(capsys):
    assert cli.main([]) == 2
    assert "selftest" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.strip() == ro.__version__
