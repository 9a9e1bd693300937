# SPDX-License-Identifier: Apache-2.0
"""A kernel tells Python what it sees, and asks Python for a value."""

import numpy as np

import pyrevoff as ro

image = ro.load_image(r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(report, void(int, double));     // host functions that kernels may call
REVOFF_FUNCTION(interp, double(double));

extern "C" __global__ void solve(double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = interp(x[i]);               // each thread calls Python, and waits
    if (i == 0) report(1, x[0]);
}""")

xs = np.linspace(0, 1, 11)
ys = xs**2


@image.handler("report")
def report(step, value):
    print(f"step {step}: {value:.3e}")


@image.handler("interp")
def interp(x):
    return np.interp(x, xs, ys)


x = np.linspace(0.05, 1, 1000)
stats = image.run("solve", ro.tofrom(x), x.size, grid=4, block=256)
print(f"{stats.calls} calls from the kernel on {image.device}, x[-1] = {x[-1]}")
