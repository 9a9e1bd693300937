# SPDX-License-Identifier: Apache-2.0
"""Futures of Dask, which are of another kind than the standard library's, answer calls."""

import concurrent.futures
import time

import numpy as np
import pytest

import pyrevoff as ro

distributed = pytest.importorskip("distributed")

SOURCE = r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(f, double(double));
REVOFF_FUNCTION(fill, void(revoff::tofrom<int>));
REVOFF_FUNCTION(note, void(int));
extern "C" {
__global__ void k(double *x) { int i = blockIdx.x; x[i] = f(x[i]); }
__global__ void k_note(int n) { for (int i = 0; i < n; ++i) note.post(i); }
}
"""


@pytest.fixture(scope="module")
def client():
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None
    ) as client:
        yield client


@pytest.fixture
def image(device):
    with ro.load_image(SOURCE, device=device, name="dask.cu") as image:
        yield image


def run(image, kernel, *args, grid=1):
    return image.run(kernel, *args, grid=grid, block=1, timeout=60)


@pytest.mark.once
@pytest.mark.parametrize("batch", [False, True])
def test_futures_and_the_executor_of_dask_answer(image, client, batch):
    x = np.arange(6.0)
    image.handler("f", lambda x: client.submit(np.multiply, x, 2), batch=batch)
    assert run(image, "k", ro.tofrom(x), grid=6).calls == 6
    image.handler("f", np.negative, batch=batch, executor=client.get_executor())
    run(image, "k", ro.tofrom(x), grid=6)
    assert (x == np.arange(6.0) * -2).all()


@pytest.mark.once
def test_failed_and_cancelled_futures_of_dask_fail_the_call(image, client):
    image.handler("f", lambda x: client.submit(divmod, 1, 0, pure=False))
    with pytest.raises(ZeroDivisionError):
        run(image, "k", ro.tofrom(np.zeros(1)))

    def f(x):
        future = client.submit(pow, x, 2, pure=False)
        future.cancel()
        return future

    image.handler("f", f)
    with pytest.raises(concurrent.futures.CancelledError, match="future of f"):
        run(image, "k", ro.tofrom(np.zeros(1)))
    with pytest.raises(ro.SignatureError, match="tofrom"):
        image.handler("fill", print, executor=client.get_executor())


@pytest.mark.once
def test_run_waits_for_posts_that_dask_handles(image, client):
    futures = []

    @image.handler("note")
    def note(i):
        futures.append(client.submit(time.sleep, 0.01, pure=False))
        return futures[-1]

    run(image, "k_note", 20)
    assert [f.status for f in futures] == ["finished"] * 20
    image.handler("note", lambda i: client.submit(divmod, 1, i, pure=False))
    with pytest.raises(ZeroDivisionError):
        run(image, "k_note", 20)
