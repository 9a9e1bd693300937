# SPDX-License-Identifier: Apache-2.0
"""A kernel that goes on calling after a failed call does not keep `run`.

In children: what is left behind runs on, and keeps its device from loading.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.once

PRELUDE = r'''
import os, sys, time
import numpy as np
import pyrevoff as ro
SOURCE = r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(tick, void(int));
REVOFF_FUNCTION(unbound, void());
extern "C" __global__ void heedless(int n) { for (int i = 0; i < n; ++i) tick(i); }
extern "C" __global__ void nobody(int n) { for (int i = 0; i < n; ++i) unbound(); }
extern "C" __global__ void computes(long n, double *x) {
    double y = 1;
    tick(0);
    for (long i = 0; i < n; ++i) y = y * 0.999999 + 1e-6 * i;
    *x = y;
}
"""
image = ro.load_image(SOURCE, device=sys.argv[1])
ENDLESS = 2_000_000_000
def tick(i):
    raise LookupError("at once")
image.handler("tick", tick)
def leave():
    sys.stdout.flush()
    os._exit(0)  # the kernel would run on for hours
'''


@pytest.mark.parametrize("timeout", [None, 1, 60])
def test_what_a_handler_raised_comes_out_soon(run_child, device, timeout):
    code = f"""
start = time.monotonic()
try:
    image.run("heedless", ENDLESS, grid=1, block=1, timeout={timeout})
except LookupError as error:
    print(error, time.monotonic() - start < 20)
try:
    image.run("heedless", 1, grid=1, block=1)
except ro.InUseError as error:
    print("given up" in str(error))
leave()
"""
    done = run_child(PRELUDE + code, 60, args=(str(device),))
    assert done.stdout.split("\n") == ["at once True", "True", ""], done.stderr


def test_so_does_a_call_that_nobody_answers(run_child, device):
    code = """
try:
    image.run("nobody", ENDLESS, grid=1, block=1)
except ro.CallError as error:
    print("unbound" in str(error))
leave()
"""
    done = run_child(PRELUDE + code, 60, args=(str(device),))
    assert done.stdout == "True\n", done.stderr


def test_one_interrupt_is_enough(run_child, device):
    code = """
image.handler("tick", lambda i: None)
print("ready")
try:
    image.run("heedless", ENDLESS, grid=1, block=1)
except KeyboardInterrupt:
    print("interrupted")
leave()
"""
    done = run_child(PRELUDE + code, 60, args=(str(device),), interrupt_after=1)
    assert done.stdout == "ready\ninterrupted\n", done.stderr


def test_a_kernel_that_only_computes_is_waited_for(run_child, device):
    code = """
x = np.zeros(1)
start = time.monotonic()
try:
    image.run("computes", 1_500_000_000, ro.tofrom(x), grid=1, block=1)
except LookupError as error:
    print(error, x[0] != 0)
"""
    done = run_child(PRELUDE + code, 100, args=(str(device),))
    assert done.stdout == "at once True\n", done.stderr
