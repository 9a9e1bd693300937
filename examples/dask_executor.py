# SPDX-License-Identifier: Apache-2.0
"""Kernels whose calls are answered by a Dask cluster.

Dask's client is an executor, so other processes, and with them other machines,
answer calls of kernels. Here the cluster is one process more on this machine:
give `Client` the address of a scheduler for a larger one.
"""

import math

import numpy as np
from dask.distributed import Client, LocalCluster

import pyrevoff as ro

SOURCE = r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(slow, double(double));

extern "C" __global__ void ask(double *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = slow(x[i]);
}
"""


def slow(x: float) -> float:
    """Something that a kernel cannot do: a sum to the last bit, by Python."""
    return math.fsum(x**k / math.factorial(k) for k in range(100))


def slow_all(x: np.ndarray) -> np.ndarray:
    """The same for all calls that wait, sent as one task."""
    return np.array([slow(v) for v in x])


def main() -> None:
    x = np.linspace(0, 1, 64)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        ro.load_image(SOURCE, name="ask.cu") as image,
    ):
        pool = client.get_executor()
        y = x.copy()
        image.handler("slow", slow, executor=pool)
        stats = image.run("ask", ro.tofrom(y), grid=2, block=32, timeout=120)
        error = abs(y - np.exp(x)).max()
        print(f"{stats.calls} calls, each a task: largest error {error:.0e}")
        y = x.copy()
        image.handler("slow", slow_all, batch=True, executor=pool)
        stats = image.run("ask", ro.tofrom(y), grid=2, block=32, timeout=120)
        error = abs(y - np.exp(x)).max()
        print(f"{stats.calls} calls, some tasks: largest error {error:.0e}")


if __name__ == "__main__":
    main()
