# SPDX-License-Identifier: Apache-2.0
"""The reports of docs/reference.md that need a process of their own.

Each child has a hard limit, and a hang is a failure.
"""

import time

import pytest

from pyrevoff import errors, loading

PRELUDE = r"""
import sys, time, threading
import numpy as np
import pyrevoff as ro
SOURCE = '''
#include <pyrevoff.h>
REVOFF_FUNCTION(ask, int(int));
extern "C" __global__ void loop() { int y; while (ask.try_call(&y, 0) == revoff::ok) { } }
extern "C" __global__ void quiet() { while (!revoff::aborted()) { } }
extern "C" __global__ void once(int *out) { *out = ask(20); }
'''
def small(image):
    image.handler("ask", lambda i: i + 1)
    out = np.zeros(1, np.int32)
    image.run("once", ro.tofrom(out), grid=1, block=1, timeout=30)
    return int(out[0])
"""

INTERRUPTED = (
    PRELUDE
    + r"""
image = ro.load_image(SOURCE)
assert small(image) == 21
image.handler("ask", HANDLER)
threading.Timer(1.0, lambda: None).start()
print("ready", flush=True)
try:
    image.run("KERNEL", grid=1, block=1, timeout=LIMIT)
    print("no interrupt")
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(small(image) if AGAIN else "no second run", flush=True)
"""
)


def interrupted(device, run_child, handler, kernel="loop", limit="None", again=True):
    code = INTERRUPTED.replace("HANDLER", handler).replace("KERNEL", kernel)
    code = code.replace("LIMIT", limit).replace("AGAIN", str(again))
    start = time.monotonic()
    done = run_child(code, 40, env={"PYREVOFF_DEVICE": str(device)}, interrupt_after=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split("\n")[:2] == ["ready", "interrupted"]
    # Import, compilation and the second before the signal are in it.
    assert time.monotonic() - start < 15
    return done.stdout.split("\n")[2]


CASES = {
    "calls": ("lambda i: i", "loop"),
    "in the handler": ("lambda i: (time.sleep(60), i)[1]", "loop"),
    "no calls": ("lambda i: i", "quiet"),
}


@pytest.mark.once
@pytest.mark.parametrize("limit", ["None", "100"], ids=["no limit", "limit"])
@pytest.mark.parametrize("case", ["calls", "no calls"])
def test_r04_interrupt(device, run_child, case, limit):
    handler, kernel = CASES[case]
    assert interrupted(device, run_child, handler, kernel, limit) == "21"


@pytest.mark.once
def test_r04_interrupt_in_the_handler(device, run_child):
    assert interrupted(device, run_child, *CASES["in the handler"]) == "21"


@pytest.mark.once
def test_r04_interrupt_beside_a_handler_that_sleeps(device, run_child):
    """With a limit the handler has its own thread, which no signal reaches."""
    handler, kernel = CASES["in the handler"]
    interrupted(device, run_child, handler, kernel, "100", again=False)


@pytest.mark.once
def test_r05_the_end_of_the_process_waits_for_nothing(device, run_child):
    """A launch given up in a handler does not keep the interpreter alive."""
    code = PRELUDE + (
        "image = ro.load_image(SOURCE)\n"
        "image.handler('ask', lambda i: (time.sleep(100), i)[1])\n"
        "try: image.run('loop', grid=1, block=1, timeout=0.2)\n"
        "except ro.LaunchTimeout: print('late')\n"
    )
    done = run_child(code, 30, env={"PYREVOFF_DEVICE": str(device)})
    assert (done.returncode, done.stdout) == (0, "late\n"), done.stderr


@pytest.mark.once
def test_r16_order_in_a_pipe(device, run_child):
    code = PRELUDE + (
        "image = ro.load_image(SOURCE)\n"
        "image.handler('ask', lambda i: (print('from kernel'), i)[1])\n"
        "print('before')\n"
        "image.run('once', ro.tofrom(np.zeros(1, 'i4')), grid=1, block=1)\n"
        "print('after')\n"
    )
    env = {"PYREVOFF_DEVICE": str(device), "PYTHONUNBUFFERED": ""}
    done = run_child(code, 60, env=env)
    assert done.stdout == "before\nfrom kernel\nafter\n", done.stderr


def test_r17_each_handler_has_its_own_device(run_child):
    code = (
        PRELUDE
        + r"""
images = [ro.load_image(SOURCE, device=f"cpu:{i}") for i in range(2)]
seen = [[], []]
def bind(k):
    def ask(i):
        call = ro.current_call()
        seen[k].append((call.device.ordinal, call.image is images[k]))
        return int(len(seen[k]) >= 500)
    images[k].handler("ask", ask)
for k in range(2):
    bind(k)
def loop(k):
    for _ in range(500):
        images[k].run("once", ro.tofrom(np.zeros(1, "i4")), grid=1, block=1, timeout=60)
threads = [threading.Thread(target=loop, args=(k,)) for k in range(2)]
for t in threads: t.start()
for t in threads: t.join(60)
assert [set(s) for s in seen] == [{(0, True)}, {(1, True)}], [set(s) for s in seen]
assert [len(s) for s in seen] == [500, 500]
# A handler may use another device.
images[0].handler("ask", lambda i: small(images[1]) + i)
out = np.zeros(1, "i4")
images[0].run("once", ro.tofrom(out), grid=1, block=1, timeout=60)
print(out[0])
"""
    )
    done = run_child(code, 100, env={"PYREVOFF_CPU_DEVICES": "2"})
    assert (done.returncode, done.stdout) == (0, "41\n"), done.stderr


def test_r21_import_touches_nothing(run_child):
    code = r"""
import os, sys, threading
import numpy, cffi, ctypes, logging, inspect, importlib.resources
def tasks(): return len(os.listdir("/proc/self/task"))
before = tasks()
import pyrevoff as ro
assert tasks() == before and threading.active_count() == 1
assert "libcuda" not in open("/proc/self/maps").read()
print("ok")
"""
    done = run_child(code, 60)
    assert done.stdout == "ok\n", done.stderr


def test_r21_without_a_driver(run_child):
    code = PRELUDE + (
        "print(ro.is_available(), ro.is_available('cpu'))\n"
        "print(ro.why_not())\n"
        "try: ro.load_image(SOURCE, device='cuda')\n"
        "except ro.NoDriverError as e: print(e)\n"
        "print(ro.devices())\n"
        "print(ro.load_image(SOURCE).device)\n"
    )
    done = run_child(code, 60, env={"PYREVOFF_LIBCUDA": "/nowhere/libcuda.so.1"})
    lines = done.stdout.splitlines()
    assert lines[0] == "False True", done.stderr
    assert "/nowhere/libcuda.so.1" in lines[1] and "/nowhere/libcuda.so.1" in lines[2]
    assert lines[3:] == ["['cpu:0']", "cpu:0"]


@pytest.mark.once
def test_r21_fork(device, run_child):
    code = (
        PRELUDE
        + r"""
import os, signal
image = ro.load_image(SOURCE)
assert small(image) == 21
array = ro.empty(3)
pid = os.fork()
if pid == 0:
    signal.alarm(5)
    uses = [lambda: small(image), lambda: ro.load_image(SOURCE), lambda: array.copy_to_host(),
            lambda: ro.empty(3)]
    bad = 0
    for use in uses:
        try:
            use()
            bad = 1
        except ro.ForkError as error:
            if "spawn" not in str(error): bad = 2
        except BaseException as error:
            sys.stderr.write(repr(error)); bad = 3
    os._exit(bad)
start = time.monotonic()
status = os.waitpid(pid, 0)[1]
print(os.WEXITSTATUS(status), os.WIFEXITED(status), time.monotonic() - start < 3)
print(small(image))
"""
    )
    done = run_child(code, 60, env={"PYREVOFF_DEVICE": str(device)})
    assert done.stdout == "0 True True\n21\n", done.stdout + done.stderr


@pytest.mark.once
def test_r21_spawn(device, run_child, tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(
        PRELUDE
        + r"""
import multiprocessing
def work(): return small(ro.load_image(SOURCE))
if __name__ == "__main__":
    assert work() == 21
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply_async(work).get(60))
"""
    )
    done = run_child("", 100, args=(str(script),), env={"PYREVOFF_DEVICE": str(device)})
    assert done.stdout == "21\n", done.stderr


# ---- R29: an image that the driver refuses ---------------------------------------

PTX = """
//
.version {version}
.target {target}
.address_size 64
.visible .entry k() {{ {body} }}
"""


class Hopper:
    """What `_explain` asks a device."""

    def info(self):
        return {"name": "some GPU", "driver_version": 12040, "major": 9, "minor": 0}


@pytest.mark.parametrize(
    "version, target, code, log, kind, parts",
    [
        ("9.9", "sm_75", 222, "", errors.PtxVersionError, ["9.9", "12.4", "update the driver"]),
        ("9.9", "sm_75", 218, "Unsupported .version 9.9", errors.PtxVersionError, ["9.9"]),
        ("8.0", "sm_120", 218, "", errors.ArchitectureError, ["sm_120", "9.0", "compute_90"]),
        ("8.0", "sm_75", 209, "", errors.ArchitectureError, ["sm_75", "9.0", "some GPU"]),
        ("8.0", "sm_75", 218, "line 6; syntax", errors.ImageError, ["line 6; syntax", "8.0"]),
    ],
)
def test_r29_what_does_not_fit(version, target, code, log, kind, parts):
    data = PTX.format(version=version, target=target, body="ret;").encode()
    refused = errors.ImageError(f"the driver refused it: {log}", log=log, code=code)
    error = loading._explain(refused, [loading.Input(data, "ptx", "my.ptx")], Hopper())
    assert type(error) is kind
    for part in ("my.ptx", *parts):
        assert part in str(error)
    assert error.log == log and error.code == code


@pytest.mark.gpu
@pytest.mark.parametrize(
    "version, target, body, kind, part",
    [
        ("99.9", "sm_75", "ret;", errors.PtxVersionError, "99.9"),
        ("6.3", "sm_999", "ret;", errors.ArchitectureError, "sm_999"),
        ("6.3", "sm_75", "no such thing;", errors.ImageError, "syntax"),
    ],
)
def test_r29_on_a_gpu(version, target, body, kind, part):
    import pyrevoff as ro

    ptx = PTX.format(version=version, target=target, body=body)
    with pytest.raises(kind) as caught:
        ro.load_image(ptx, device="cuda")
    assert part in str(caught.value)
    info = ro.Device("cuda").info()
    assert f"{info['major']}.{info['minor']}" in str(caught.value)
