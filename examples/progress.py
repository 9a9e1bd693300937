# SPDX-License-Identifier: Apache-2.0
"""A long solver: progress, a log, and an early end that keeps what was computed.

Ctrl-C asks the kernel to stop; so does the residual when it is small enough.
"""

import signal
import sys

import numpy as np

import pyrevoff as ro

image = ro.load_image(
    r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(residual, void(int, double));

// Jacobi's method for u'' = -2 with u = 0 at both ends; one block.
extern "C" __global__ void solve(double *u, int n, int most, int *steps) {
    __shared__ double change[256];
    __shared__ bool stop;
    double h2 = 1.0 / ((n - 1.0) * (n - 1.0));
    for (int step = 1; step <= most; ++step) {
        double mine = 0;
        for (int i = threadIdx.x + 1; i < n - 1; i += blockDim.x) {
            double v = (u[i - 1] + u[i + 1]) / 2 + h2;
            mine = fmax(mine, fabs(v - u[i]));
            u[n + i] = v;
        }
        change[threadIdx.x] = mine;
        __syncthreads();
        for (int i = threadIdx.x + 1; i < n - 1; i += blockDim.x) u[i] = u[n + i];
        if (threadIdx.x == 0) {
            for (unsigned i = 1; i < blockDim.x; ++i) change[0] = fmax(change[0], change[i]);
            REVOFF_ASSERT(change[0] < 1e6, "diverges");
            if (step % 50 == 0) {
                residual.post(step, change[0]);
                revoff::progress(step, most);
            }
            stop = revoff::stop_requested();
            *steps = step;
        }
        __syncthreads();
        if (stop) {
            if (threadIdx.x == 0) revoff::print("asked to stop at step {}", step);
            return;
        }
    }
}""",
    name="solver.cu",
)


@image.handler("residual")
def residual(step, change):
    if change < 1e-5:
        image.request_stop()


def show(done, total):
    if done % 500 == 0:
        print(f"{done} of at most {total} steps", file=sys.stderr)


image.progress = show
signal.signal(signal.SIGINT, lambda *_: image.request_stop())

n = 33
u, steps = np.zeros((2, n)), np.zeros(1, np.int32)
image.run("solve", ro.tofrom(u), n, 20_000, ro.from_(steps), grid=1, block=32)
x = np.linspace(0, 1, n)
error = np.abs(u[0] - x * (1 - x)).max()
print(f"{'early' if steps[0] < 20_000 else 'late'} end, largest error {error:.1e}")
