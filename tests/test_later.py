# SPDX-License-Identifier: Apache-2.0
"""Answers that come later: handlers that return futures, and executors."""

import asyncio
import concurrent.futures
import gc
import math
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import pyrevoff as ro

SOURCE = r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(f, double(double));
REVOFF_FUNCTION(total, int(revoff::to<int>));
REVOFF_FUNCTION(fill, void(revoff::tofrom<int>));
REVOFF_FUNCTION(note, void(int));
extern "C" {
__global__ void k(double *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = f(x[i]);
}
__global__ void k_total(int *a, int n, int *out) { *out = total(revoff::to(a, n)); }
__global__ void k_fill(int *a, int n) { fill(revoff::tofrom(a, n)); }
__global__ void k_note(int n) { for (int i = 0; i < n; ++i) note.post(i); }
__global__ void k_status(int *status) {
    double y;
    status[blockIdx.x] = f.try_call(&y, blockIdx.x);
}
}
"""


@pytest.fixture
def image(device):
    with ro.load_image(SOURCE, device=device, name="later.cu") as image:
        yield image


def run(image, kernel, *args, grid=1, timeout=60):
    return image.run(kernel, *args, grid=grid, block=1, timeout=timeout)


@pytest.mark.parametrize("batch", [False, True])
def test_threads_answer(image, batch):
    with ThreadPoolExecutor(4) as pool:
        image.handler("f", lambda x: x * x, executor=pool, batch=batch)
        x = np.arange(20.0)
        stats = run(image, "k", ro.tofrom(x), grid=20)
    assert (x == np.arange(20.0) ** 2).all()
    assert stats.calls == 20 and not stats.failed


@pytest.mark.once
def test_calls_are_open_at_the_same_time_and_answered_in_any_order(image):
    futures = []

    @image.handler("f")
    def f(x):
        futures.append((x, Future()))
        if len(futures) == 4:
            # All four wait at once; the last one is answered first.
            threading.Thread(
                target=lambda: [f.set_result(x + 1) for x, f in reversed(futures)]
            ).start()
        return futures[-1][1]

    x = np.arange(4.0)
    image.run("k", ro.tofrom(x), grid=1, block=4, timeout=60)
    assert (x == np.arange(4.0) + 1).all()


def test_a_future_that_is_done_already(image):
    def f(x):
        done = Future()
        done.set_result(-x)
        return done

    image.handler("f", f)
    x = np.arange(5.0)
    run(image, "k", ro.tofrom(x), grid=5)
    assert (x == -np.arange(5.0)).all()


@pytest.mark.once
def test_processes_answer(image):
    with ProcessPoolExecutor(1) as pool:
        image.handler("f", math.sqrt, executor=pool)
        image.handler("total", sum, executor=pool)
        x, out = np.arange(4.0), np.zeros(1, np.int32)
        run(image, "k", ro.tofrom(x), grid=4)
        a = np.arange(5000, dtype=np.int32)
        run(image, "k_total", ro.to(a), a.size, ro.from_(out))
    assert (x == np.sqrt(np.arange(4.0))).all() and out[0] == a.sum()


@pytest.mark.parametrize("n", [8, 5000])
def test_arrays_stay_until_the_answer_and_come_back(image, n):
    def fill(a):
        time.sleep(0.05)
        a += 1

    with ThreadPoolExecutor(1) as pool:
        image.handler("fill", fill, executor=pool)
        a = np.arange(n, dtype=np.int32)
        run(image, "k_fill", ro.tofrom(a), n)
    assert (a == np.arange(n) + 1).all()


@pytest.mark.parametrize("batch", [False, True])
def test_an_exception_of_a_future_is_the_handlers(image, batch):
    with ThreadPoolExecutor(1) as pool:
        image.handler("f", lambda x: 1 / 0, executor=pool, batch=batch)
        status = np.full(4, -1, np.int32)
        with pytest.raises(ZeroDivisionError):
            run(image, "k_status", ro.tofrom(status), grid=4)
    assert set(status) <= {1, 2} and 1 in status


def test_a_cancelled_future_names_its_function(image):
    def f(x):
        future = Future()
        threading.Timer(0.05, future.cancel).start()
        return future

    image.handler("f", f)
    with pytest.raises(concurrent.futures.CancelledError, match="future of f"):
        run(image, "k", ro.tofrom(np.zeros(1)))


@pytest.mark.parametrize("batch", [False, True])
def test_a_future_that_never_comes_is_cancelled_at_the_time_limit(image, batch):
    futures = []
    image.handler("f", lambda x: futures.append(Future()) or futures[-1], batch=batch)
    with pytest.raises(ro.LaunchTimeout):
        run(image, "k", ro.tofrom(np.zeros(3)), grid=3, timeout=0.5)
    assert futures and all(f.cancelled() for f in futures)
    image.handler("f", lambda x: x)
    x = np.arange(2.0)
    run(image, "k", ro.tofrom(x), grid=2)


@pytest.mark.once
def test_a_thread_that_goes_on_after_the_launch_keeps_its_array(image):
    go, seen = threading.Event(), []

    def total(a):
        go.wait(30)
        seen.append(int(a.sum()))
        return 0

    a = np.ones(100_000, np.int32)
    with ThreadPoolExecutor(1) as pool:
        image.handler("total", total, executor=pool)
        with pytest.raises(ro.LaunchTimeout):
            run(image, "k_total", ro.to(a), a.size, ro.from_(np.zeros(1, np.int32)), timeout=0.5)
        image.close()
        go.set()
    assert seen == [100_000]


def test_run_waits_for_the_futures_of_posts(image):
    done = []
    with ThreadPoolExecutor(2) as pool:
        image.handler("note", lambda i: time.sleep(0.01) or done.append(i), executor=pool)
        run(image, "k_note", 10)
        assert sorted(done) == list(range(10))
        image.handler("note", lambda i: 1 // (i - 5), executor=pool)
        with pytest.raises(ZeroDivisionError):
            run(image, "k_note", 10)


@pytest.mark.once
def test_awaitables_are_refused(image):
    async def f(x):
        return x

    image.handler("f", f)
    with pytest.raises(TypeError, match="run_coroutine_threadsafe"):
        run(image, "k", ro.tofrom(np.zeros(1)))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        image.handler("f", lambda x: asyncio.run_coroutine_threadsafe(f(x + 1), loop))
        x = np.zeros(3)
        run(image, "k", ro.tofrom(x), grid=3)
        assert (x == 1).all()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


@pytest.mark.once
def test_arrays_that_would_be_lost_in_another_process_are_refused(image):
    with ProcessPoolExecutor(1) as pool, pytest.raises(ro.SignatureError, match="tofrom"):
        image.handler("fill", print, executor=pool)


def test_a_future_that_comes_after_its_launch_was_given_up(image):
    """The handler is out of the library's hands when it returns it."""
    entered, go, seen, futures = threading.Event(), threading.Event(), [], []

    def total(a):
        entered.set()
        go.wait(30)
        futures.append(pool.submit(work, a))
        return futures[0]

    def work(a):
        time.sleep(0.3)
        seen.append(int(a.sum()))
        return 0

    a = np.ones(100_000, np.int32)
    with ThreadPoolExecutor(1) as pool:
        image.handler("total", total)
        with pytest.raises(ro.LaunchTimeout):
            run(image, "k_total", ro.to(a), a.size, ro.from_(np.zeros(1, np.int32)), timeout=0.3)
        assert entered.is_set()
        # Nothing of the old handler is the image's any more.
        image.handler("total", lambda a: 5)
        gc.collect()
        go.set()
        out = np.zeros(1, np.int32)
        end = time.monotonic() + 30
        while not out[0]:
            try:
                run(image, "k_total", ro.to(a * 2), a.size, ro.tofrom(out))
            except ro.InUseError:
                assert time.monotonic() < end
                time.sleep(0.01)
    assert out[0] == 5
    # Cancelled before it began, or with its array to the end.
    assert futures[0].cancelled() or seen == [100_000]


@pytest.mark.once
def test_what_a_failed_launch_still_waits_for_is_cancelled(image):
    futures = []

    @image.handler("f")
    def f(x):
        if x == 3:
            raise KeyError("three")
        futures.append(Future())
        return futures[-1]

    with pytest.raises(KeyError, match="three"):
        image.run("k", ro.tofrom(np.arange(4.0)), grid=1, block=4, timeout=60)
    assert len(futures) == 3 and all(f.cancelled() for f in futures)


class Stubborn:
    """A future that cannot be cancelled, and tells of its end twice."""

    def __init__(self):
        self.callbacks = []

    def add_done_callback(self, function):
        self.callbacks.append(function)

    def cancel(self):
        raise RuntimeError("not this one")

    def finish(self):
        for function in self.callbacks * 2:
            function(self)

    def result(self):
        return 4.0


def test_a_future_may_be_done_after_its_launch(image):
    futures = []
    image.handler("f", lambda x: futures.append(Stubborn()) or futures[-1])
    with pytest.raises(ro.LaunchTimeout, match=r"futures of handlers|is open"):
        run(image, "k", ro.tofrom(np.zeros(2)), grid=2, timeout=0.3)
    for future in futures:
        future.finish()
    futures.clear()

    @image.handler("f")
    def f(x):
        future = Stubborn()
        threading.Timer(0.02, future.finish).start()
        return future

    x = np.zeros(2)
    run(image, "k", ro.tofrom(x), grid=2)
    assert (x == 4).all()


def test_a_future_that_takes_no_callback_fails_the_call(image):
    class Broken(Future):
        def add_done_callback(self, function):
            raise RuntimeError("no callbacks here")

    futures = []
    image.handler("total", lambda a: futures.append(Broken()) or futures[-1])
    a = np.ones(5000, np.int32)
    with pytest.raises(RuntimeError, match="no callbacks"):
        run(image, "k_total", ro.to(a), a.size, ro.from_(np.zeros(1, np.int32)))
    assert futures[0].cancelled()


def test_futures_of_posts_keep_to_the_time_limit(image):
    futures = []
    image.handler("note", lambda i: futures.append(Future()) or futures[-1])
    with pytest.raises(ro.LaunchTimeout, match="note"):
        run(image, "k_note", 3, timeout=0.5)
    assert len(futures) == 3 and all(f.cancelled() for f in futures)


@pytest.mark.once
def test_a_failed_future_of_a_post_ends_a_long_run(image):
    def note(i):
        future = Future()
        future.set_exception(KeyError("first")) if i == 10 else future.set_result(None)
        return future

    image.handler("note", note)
    with pytest.raises(KeyError, match="first"):
        run(image, "k_note", 1_000_000)


@pytest.mark.once
def test_ctrl_c_cancels_what_is_owed(run_child, device):
    code = f"""
import concurrent.futures
import gc
import numpy as np
import pyrevoff as ro
image = ro.load_image(r'''{SOURCE}''', device="{device.kind}")
futures = []
def f(x):
    futures.append(concurrent.futures.Future())
    print("ready")
    return futures[-1]
image.handler("f", f)
try:
    image.run("k", ro.tofrom(np.zeros(1)), grid=1, block=1)
except KeyboardInterrupt:
    print("interrupted", futures[0].cancelled())
image.handler("f", lambda x: 2.0)
x = np.zeros(1)
image.run("k", ro.tofrom(x), grid=1, block=1)
print(x[0])
"""
    child = run_child(code, 60, interrupt_after=0.5)
    assert child.stdout.split() == ["ready", "interrupted", "True", "2.0"], child.stderr
