# SPDX-License-Identifier: Apache-2.0
"""What users of similar systems ran into (docs/reference.md), one by one.

R11 is in test_conformance.py, which runs in each placement; so are the long
forms of R10, R12 and R13. What needs a process of its own is in
test_reports_process.py.
"""

import contextlib
import ctypes
import functools
import gc
import io
import itertools
import logging
import resource
import sys
import threading
import time

import numpy as np
import pytest

import pyrevoff as ro

SOURCE = r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(ask, int(int));
REVOFF_FUNCTION(tell, void(revoff::str));
REVOFF_FUNCTION(view, void(revoff::to<int>));
extern "C" {
__global__ void many(int n) { for (int i = 0; i < n; ++i) ask(i); }
// The status of each call, and what it returned.
__global__ void statuses(int n, int *status, int *value) {
    for (int i = 0; i < n; ++i) {
        value[i] = -1;
        status[i] = ask.try_call(&value[i], i);
    }
}
__global__ void says() { tell("from kernel"); }
__global__ void all(int odd) {
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (!odd || threadIdx.x % 2) ask(id);
}
__global__ void views(int *a, int n, int times) {
    for (int i = 0; i < times; ++i) { view(revoff::to(a, n)); a[0] += 1; }
}
}
"""


@pytest.fixture
def image(device):
    with ro.load_image(SOURCE, device=device, name="reports.cu") as image:
        yield image


def run(image, kernel, *args, grid=1, block=1, timeout=60):
    return image.run(kernel, *args, grid=grid, block=block, timeout=timeout)


class Mine(Exception):
    """An exception of a user, with something in it."""

    def __init__(self, step, data):
        super().__init__(f"step {step}")
        self.step, self.data = step, data


@contextlib.contextmanager
def background(work):
    """Run `work(stop)` in a thread; its exceptions are the test's."""
    stop, problems = threading.Event(), []

    def body():
        try:
            work(stop)
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive() and not problems, problems


@pytest.mark.once
def test_r01_other_threads_run_and_copy_meanwhile(image, device):
    count = [0]

    def counting(stop):
        while not stop.is_set():
            count[0] += 1

    def copying(stop):
        a = ro.asarray(np.arange(1000.0), device=device)
        while not stop.is_set():
            assert a.copy_from_host(a.copy_to_host()).copy_to_host()[-1] == 999
            time.sleep(0.0005)

    values = []
    image.handler("ask", lambda i: (values.append(count[0]), i)[1])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with background(counting), background(copying):
            moved = 0
            for _ in range(50):
                values.clear()
                assert run(image, "many", 200).calls == 200
                moved += len(set(values)) - 1
            assert moved > 50, "the counter stood still between calls"
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("timeout", [None, 60], ids=["same thread", "own thread"])
def test_r02_the_handlers_exception_is_the_callers(image, capfd, timeout):
    def handler(i):
        if i == 3:
            raise Mine(i, [1, 2])
        return i * 10

    image.handler("ask", handler)
    for _ in range(2):
        status, value = np.zeros(10, np.int32), np.zeros(10, np.int32)
        with pytest.raises(Mine) as caught:
            run(image, "statuses", 10, ro.tofrom(status), ro.tofrom(value), timeout=timeout)
        assert (caught.value.step, caught.value.data) == (3, [1, 2])
        assert type(caught.value) is Mine and caught.value.__cause__ is None
        assert caught.traceback[-1].name == "handler"
        assert "raise Mine" in str(caught.traceback[-1].statement)
        # The kernel learns of it, and later calls are refused at once.
        assert list(status) == [0, 0, 0, 1] + [2] * 6
        assert list(value) == [0, 10, 20] + [-1] * 7
        image.handler("ask", lambda i: i + 1)
        run(image, "statuses", 10, ro.tofrom(status), ro.tofrom(value), timeout=timeout)
        assert list(value) == list(range(1, 11)) and not status.any()
        image.handler("ask", handler)
    assert capfd.readouterr() == ("", "")


@pytest.mark.once
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
def test_r02_whatever_it_is(image, kind):
    def handler(i):
        raise kind("mine")

    image.handler("ask", handler)
    for timeout in (None, 60):
        with pytest.raises(kind, match="mine"):
            run(image, "many", 2, timeout=timeout)


@pytest.mark.once
def test_r03_reentry_is_an_error_at_once(image, device):
    other = ro.load_image(SOURCE, device=ro.Device(str(device), placement="copy"))
    uses = [
        lambda: run(image, "many", 1),
        lambda: run(other, "many", 1, timeout=None),
        lambda: ro.load_image(SOURCE, device=device),
        image.close,
    ]
    for use in uses:
        image.handler("ask", lambda i, use=use: use())
        start = time.monotonic()
        with pytest.raises(ro.ReentrancyError, match="handler"):
            run(image, "many", 1)
        assert time.monotonic() - start < 1
    assert not image.closed
    other.close()
    a = ro.asarray(np.arange(3), device=device)
    image.handler("ask", lambda i: int(a.copy_from_host(np.full(3, 7)).copy_to_host().sum()))
    value = np.zeros(1, np.int32)
    run(image, "statuses", 1, ro.tofrom(value.copy()), ro.tofrom(value))
    assert value[0] == 21


def settle(image):
    """Wait, bounded, until a launch that was given up is over."""
    image.handler("ask", lambda i: i)
    limit = time.monotonic() + 30
    while True:
        try:
            return run(image, "many", 1)
        except ro.InUseError:
            assert time.monotonic() < limit
            time.sleep(0.02)


@pytest.mark.once
def test_r05_a_handler_that_waits_for_ever(image):
    never = threading.Event()

    def ask(i):
        never.wait(60)
        return i

    image.handler("ask", ask)
    start = time.monotonic()
    with pytest.raises(ro.LaunchTimeout) as caught:
        run(image, "many", 5, timeout=2)
    assert time.monotonic() - start < 4
    text = str(caught.value)
    parts = ("kernel many", "2 s passed", "0 calls served", "1 warps wait")
    for part in (*parts, "handler of ask runs"):
        assert part in text
    assert "never.wait(60)" in text and "likely causes" in text
    never.set()
    settle(image)


@pytest.mark.once
def test_r05_a_handler_waits_for_a_thread_that_loads(image, device):
    loaded = []

    def load():
        with contextlib.suppress(ro.InUseError):
            loaded.append(ro.load_image(SOURCE, device=device))

    def ask(i):
        thread = threading.Thread(target=load)
        thread.start()
        thread.join(60)
        return i

    image.handler("ask", ask)
    start = time.monotonic()
    with contextlib.suppress(ro.LaunchTimeout):
        run(image, "many", 1, timeout=2)
    assert time.monotonic() - start < 15
    settle(image)
    for other in loaded:
        other.close()


def test_r10_both_sides_see_what_was_written(image, device):
    n = 200 if device.placement == "copy" else 2000
    seen = []
    image.handler("ask", lambda i: (seen.append(i), i ^ 0x5A5A)[1])
    for _ in range(2):  # a second time in one process: state is reset
        seen.clear()
        status, value = np.full(n, -1, np.int32), np.zeros(n, np.int32)
        run(image, "statuses", n, ro.tofrom(status), ro.tofrom(value))
        assert seen == list(range(n))
        assert (value == np.arange(n) ^ 0x5A5A).all() and not status.any()


@pytest.mark.once
@pytest.mark.parametrize("block, odd", [(32, 0), (1024, 0), (32, 1), (96, 1)])
def test_r12_all_lanes_of_a_warp(image, block, odd):
    seen = []
    image.handler("ask", lambda i: (seen.append(i), i)[1])
    stats = run(image, "all", odd, block=block)
    assert sorted(seen) == [i for i in range(block) if not odd or i % 2]
    assert stats.calls == len(seen)


@pytest.mark.once
def test_r13_more_blocks_than_fit(image):
    seen = []
    image.handler("ask", lambda i: (seen.append(i), i)[1])
    stats = run(image, "all", 0, grid=2000, block=5, timeout=100)
    assert stats.calls == 10000 and sorted(seen) == list(range(10000))


@pytest.mark.once
def test_r15_nothing_is_collected_while_c_holds_it(image):
    calls = []

    class Temporary:
        def method(self, i):
            calls.append(i)
            return i

        __call__ = method

    def two(scale, i):
        calls.append(i)
        return i

    for make in (
        lambda: lambda i: (calls.append(i), i)[1],
        lambda: Temporary().method,
        lambda: functools.partial(two, 3),
        Temporary,
    ):
        calls.clear()
        image.handler("ask", make())
        gc.collect()
        run(image, "many", 1000)
        assert calls == list(range(1000))


def test_r15_binding_during_a_run_is_for_later_runs(image):
    seen = []

    def first(i):
        seen.append("first")
        if i == 0:
            image.unhandle("ask")
        elif i == 1:
            image.handler("ask", second)
        gc.collect()
        return i

    def second(i):
        seen.append("second")
        return i

    image.handler("ask", first)
    del first
    run(image, "many", 4)
    run(image, "many", 2)
    assert seen == ["first"] * 4 + ["second"] * 2


@pytest.mark.once
def test_r16_text_is_where_the_user_looks(image, capsys, caplog):
    def tell(text):
        print(text)
        logging.getLogger("mine").warning("%s %s", text, ro.current_call().thread)

    image.handler("tell", tell)
    run(image, "says")
    assert capsys.readouterr().out == "from kernel\n"
    assert "from kernel (0, 0, 0)" in caplog.text
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print("before")
        run(image, "says", timeout=None)
        print("after")
    assert out.getvalue() == "before\nfrom kernel\nafter\n"
    assert capsys.readouterr().out == ""


@pytest.mark.gpu
def test_r17_the_callers_context_stays():
    driver = ctypes.CDLL("libcuda.so.1")

    def current():
        context = ctypes.c_void_p()
        assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
        return context.value

    image = ro.load_image(SOURCE, device="cuda")
    mine = ctypes.c_void_p()
    create = getattr(driver, "cuCtxCreate_v2", driver.cuCtxCreate)
    assert create(ctypes.byref(mine), 0, 0) == 0
    try:
        before = current()
        assert before == mine.value
        image.handler("ask", lambda i: i)
        uses = [
            lambda: run(image, "many", 3),
            lambda: run(image, "many", 3, timeout=None),
            lambda: run(image, "nokernel"),
            lambda: run(image, "many", "x"),
            lambda: image.symbol("nothing"),
            lambda: ro.load_image("error", device="cuda"),
            lambda: ro.load_image(SOURCE, device="cuda").close(),
            lambda: ro.asarray(np.arange(3), device="cuda").copy_to_host(),
            lambda: ro.devices(),
            image.close,
        ]
        for use in uses:
            with contextlib.suppress(ro.RevoffError, TypeError):
                use()
            assert current() == before
    finally:
        driver.cuCtxDestroy_v2(mine)


@pytest.mark.gpu
def test_r17_a_device_that_is_not_there():
    with pytest.raises(ro.NoDeviceError, match=r"cuda:99.*Devices here: cuda:0"):
        ro.Device("cuda:99")


@pytest.mark.parametrize("n", [4, 4000])
def test_r19_read_only_and_kept(image, n):
    kept = []
    image.handler("view", kept.append)
    run(image, "views", ro.tofrom(np.full(n, 5, np.int32)), n, 3)
    for i, a in enumerate(kept):
        assert type(a) is np.ndarray and a[0] == 5 + i and (a[1:] == 5).all()
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 1


TYPES = {
    "bool": (np.bool_, True),
    "signed char": (np.int8, -100),
    "unsigned short": (np.uint16, 65000),
    "int": (np.int32, -(1 << 30)),
    "unsigned long long": (np.uint64, (1 << 64) - 3),
    "float": (np.float32, 0.25),
    "double": (np.float64, -1e300),
}
ORDERS = [list(o) for i, o in enumerate(itertools.permutations(TYPES)) if i % 420 == 7]


@pytest.mark.once
def test_r24_values_in_all_orders_beside_odd_sizes(device):
    """Each order of the types, with structs of 3 and 12 bytes between them."""
    source = "#include <pyrevoff.h>\nstruct Three { char c[3]; }; struct Twelve { int i[3]; };\n"
    for k, order in enumerate(ORDERS):
        mixed = ", ".join([*order[:2], "Three", *order[2:5], "Twelve", *order[5:]])
        values = [f"({t})v{list(TYPES).index(t)}" for t in order]
        passed = ", ".join([*values[:2], "three", *values[2:5], "twelve", *values[5:]])
        params = ", ".join(f"{t} v{i}" for i, t in enumerate(TYPES))
        source += (
            f"REVOFF_FUNCTION(f{k}, int({mixed}));\n"
            f'extern "C" __global__ void k{k}({params}, int *out) {{\n'
            "    Three three = {{1, 2, 3}}; Twelve twelve = {{4, 5, 6}};\n"
            f"    *out = f{k}({passed});\n}}\n"
        )
    with ro.load_image(source, device=device) as image:
        for k, order in enumerate(ORDERS):
            got = []
            image.handler(f"f{k}", lambda *a, got=got: (got.extend(a), 5)[1])
            out = np.zeros(1, np.int32)
            args = [dtype(value) for dtype, value in TYPES.values()]
            run(image, f"k{k}", *args, ro.tofrom(out))
            assert out[0] == 5
            assert got.pop(6).tobytes() == np.array([4, 5, 6], np.int32).tobytes()
            assert got.pop(2).tobytes() == b"\1\2\3"
            assert got == [TYPES[t][1] for t in order]


@pytest.mark.once
def test_r25_aligned_is_not_packed(device):
    source = r"""
#include <pyrevoff.h>
struct Mixed { char c; double d; short s[3]; };
REVOFF_STRUCT(Mixed, c, d, s)
REVOFF_FUNCTION(take, void(revoff::tofrom<Mixed>));
extern "C" __global__ void k(Mixed *m, int n) { take(revoff::tofrom(m, n)); }
"""
    fields = [("c", "i1"), ("d", "f8"), ("s", "i2", 3)]
    aligned, packed = np.dtype(fields, align=True), np.dtype(fields)
    with ro.load_image(source, device=device) as image:
        described = image.functions["take"].arguments[0].dtype
        assert described == aligned and described != packed
        a = np.zeros(2, aligned)
        a["c"], a["d"], a["s"] = [1, 2], [0.5, 1.5], [[1, 2, 3], [4, 5, 6]]
        got = []
        image.handler("take", lambda m: got.append(m.copy()))
        run(image, "k", ro.tofrom(a), 2)
        assert (got[0] == a).all()
        with pytest.raises(ro.SignatureError, match="bytes"):
            image.handler("take", lambda m: None, dtypes={0: packed})


@pytest.mark.once
def test_r28_unload_while_in_use(image):
    problems = []

    def ask(i):
        def close():
            try:
                image.close()
            except ro.RevoffError as error:
                problems.append(error)

        thread = threading.Thread(target=close)
        thread.start()
        thread.join(30)
        return i

    image.handler("ask", ask)
    assert run(image, "many", 2).calls == 2
    assert [type(p) for p in problems] == [ro.InUseError] * 2
    assert not image.closed
    image.close()
    image.close()
    with pytest.raises(ro.ClosedError):
        run(image, "many", 1)


@pytest.mark.once
def test_r28_many_rounds_keep_memory(device):
    x = np.zeros(1000, np.int32)

    def rounds(n):
        for _ in range(n):
            with ro.load_image(SOURCE, device=device) as image:
                image.handler("view", lambda a: None)
                image.run("views", ro.tofrom(x), 1000, 2, grid=1, block=1)
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = rounds(60)
    assert rounds(440) - before < 20 << 10  # KiB
