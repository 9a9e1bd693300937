# SPDX-License-Identifier: Apache-2.0
"""Batch handlers: all calls that wait now, as arrays; and posts to them."""

import time

import numpy as np
import pytest

import pyrevoff as ro

SOURCE = r"""
#include <pyrevoff.h>
struct P { double x; float v[2]; int id; };
REVOFF_STRUCT(P, x, v, id)
REVOFF_FUNCTION(f8, double(double));
REVOFF_FUNCTION(f4, float(float, int));
REVOFF_FUNCTION(i2, short(short));
REVOFF_FUNCTION(b1, bool(unsigned char));
REVOFF_FUNCTION(both, double(double, double));
REVOFF_FUNCTION(moved, P(P));
REVOFF_FUNCTION(quiet, void(int));
REVOFF_FUNCTION(array, void(revoff::to<int>));
REVOFF_FUNCTION(note, void(int, int));
REVOFF_FUNCTION(large, void(P));
extern "C" {
__global__ void k_f8(double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) for (int k = 0; k < 3; ++k) x[i] = f8(x[i]);
}
__global__ void k_f4(float *x) { x[threadIdx.x] = f4(x[threadIdx.x], threadIdx.x); }
__global__ void k_small(short *a, bool *b) {
    a[threadIdx.x] = i2(a[threadIdx.x]);
    b[threadIdx.x] = b1((unsigned char)threadIdx.x);
}
__global__ void k_both(double *x) { x[threadIdx.x] = both(x[threadIdx.x], threadIdx.x); }
__global__ void k_moved(P *p) { p[threadIdx.x] = moved(p[threadIdx.x]); }
__global__ void k_status(int *status) {
    double y;
    status[threadIdx.x] = f8.try_call(&y, threadIdx.x);
}
__global__ void k_quiet() { quiet(blockIdx.x * 100 + threadIdx.x); }
__global__ void k_note(int n) {
    for (int i = 0; i < n; ++i) note.post(blockIdx.x * blockDim.x + threadIdx.x, i);
}
__global__ void k_large(int n) {
    for (int i = 0; i < n; ++i) large.post(P{threadIdx.x * 1.0, {1, 2}, i});
}
}
"""
STRUCT = np.dtype([("x", "f8"), ("v", "f4", 2), ("id", "i4")], align=True)


@pytest.fixture
def image(device):
    with ro.load_image(SOURCE, device=device, name="batch.cu") as image:
        yield image


def run(image, kernel, *args, grid=1, block=1):
    return image.run(kernel, *args, grid=grid, block=block, timeout=60)


def numbers(n=32):
    return np.linspace(0.5, 9, n)


def test_a_function_of_arrays_answers_every_lane(image):
    sizes = []

    @image.handler("f8", batch=True)
    def f8(x):
        assert x.dtype == np.float64 and x.ndim == 1
        sizes.append(x.size)
        return x * 2

    x = numbers(1000)
    stats = run(image, "k_f8", ro.tofrom(x), x.size, grid=8, block=128)
    assert (x == numbers(1000) * 8).all()
    assert sum(sizes) == stats.calls == 3000
    assert stats.batches == len(sizes) and not stats.posts


def test_a_ufunc_as_it_stands(image):
    image.handler("f8", np.sqrt, batch=True)
    x = numbers()
    run(image, "k_f8", ro.tofrom(x), x.size, block=32)
    assert (x == np.sqrt(np.sqrt(np.sqrt(numbers())))).all()
    image.handler("both", np.hypot, batch=True)
    x = numbers()
    run(image, "k_both", ro.tofrom(x), block=32)
    assert (x == np.hypot(numbers(), np.arange(32.0))).all()


def test_a_function_of_scipy_as_it_stands(image):
    special = pytest.importorskip("scipy.special")
    image.handler("f8", special.j0, batch=True)
    x = numbers(200)
    run(image, "k_f8", ro.tofrom(x), x.size, grid=2, block=128)
    assert np.array_equal(x, special.j0(special.j0(special.j0(numbers(200)))))


def test_types_of_each_size(image):
    image.handler("f4", lambda x, i: x + i, batch=True)
    x = numbers().astype(np.float32)
    run(image, "k_f4", ro.tofrom(x), block=32)
    assert (x == (numbers().astype(np.float32) + np.arange(32)).astype(np.float32)).all()
    image.handler("i2", lambda a: -a, batch=True)
    image.handler("b1", lambda b: b % 2 == 1, batch=True)
    a, b = np.arange(32, dtype=np.int16), np.zeros(32, bool)
    run(image, "k_small", ro.tofrom(a), ro.from_(b), block=32)
    assert (a == -np.arange(32)).all() and (b == (np.arange(32) % 2 == 1)).all()


@pytest.mark.parametrize("how", ["array", "tuple", "dict"])
def test_structs_as_structured_arrays(image, how):
    @image.handler("moved", batch=True)
    def moved(p):
        assert p.dtype.names == ("x", "v", "id")
        if how == "array":
            out = p.copy()
            out["id"] += 1
            return out
        columns = {"x": p["x"], "v": p["v"], "id": p["id"] + 1}
        return columns if how == "dict" else tuple(columns.values())

    p = np.zeros(32, STRUCT)
    p["x"], p["id"], p["v"] = numbers(), np.arange(32), 3
    old = p.copy()
    run(image, "k_moved", ro.tofrom(p), block=32)
    old["id"] += 1
    assert (p == old).all()


def test_python_integers_beyond_64_bits_for_floats(image):
    image.handler("f8", lambda x: [2**70] * x.size, batch=True)
    x = numbers()
    run(image, "k_f8", ro.tofrom(x), x.size, block=32)
    assert (x == 2.0**70).all()


def test_one_value_for_all(image):
    image.handler("f8", lambda x: 7, batch=True)
    x = numbers()
    run(image, "k_f8", ro.tofrom(x), x.size, block=32)
    assert (x == 7).all()


@pytest.mark.parametrize(
    ("name", "kernel", "function", "error", "text"),
    [
        ("f8", "k_f8", lambda x: None, TypeError, "has a result"),
        ("f8", "k_f8", lambda x: x[:, None], ValueError, r"shape \(\d+, 1\)"),
        ("f8", "k_f8", lambda x: x + 0j, TypeError, "complex128"),
        ("f8", "k_f8", lambda x: ["a"] * x.size, TypeError, "float64"),
        ("f8", "k_f8", lambda x: 1 / 0, ZeroDivisionError, "zero"),
        ("f8", "k_f8", lambda x: np.ma.masked_less(x, 1), TypeError, r"masked.*filled"),
        ("f8", "k_f8", lambda x: 10**400, OverflowError, "float64"),
        ("f8", "k_f8", lambda x: 10**6000, OverflowError, "19932 bits"),
        ("i2", "k_small", lambda x: 2**64, OverflowError, "int16"),
        ("i2", "k_small", lambda x: x / 2, TypeError, "int16"),
        ("i2", "k_small", lambda x: x.astype(int) + 40000, OverflowError, "int16"),
        ("f4", "k_f4", lambda x, i: x.astype(float) + 1e300, OverflowError, "float32"),
    ],
)
def test_what_cannot_be_answered_is_named(image, name, kernel, function, error, text):
    image.handler(name, function, batch=True)
    image.handler("b1", lambda b: b > 0, batch=True)
    arrays = {
        "k_f8": (ro.tofrom(numbers()), 32),
        "k_small": (ro.tofrom(np.zeros(32, np.int16)), ro.from_(np.zeros(32, bool))),
        "k_f4": (ro.tofrom(np.zeros(32, np.float32)),),
    }
    with pytest.raises(error, match=text) as caught:
        run(image, kernel, *arrays[kernel], block=32)
    if error is not ZeroDivisionError:
        assert name in str(caught.value)


def test_lanes_of_a_failed_batch_are_told(image):
    image.handler("f8", lambda x: 1 / 0, batch=True)
    status = np.full(32, -1, np.int32)
    with pytest.raises(ZeroDivisionError):
        run(image, "k_status", ro.tofrom(status), block=32)
    # 1: its handler failed; 2: given up because another's did.
    assert set(status) <= {1, 2} and 1 in status
    image.handler("f8", lambda x: x, batch=True)
    run(image, "k_status", ro.tofrom(status), block=32)
    assert not status.any()


def test_current_batch_tells_the_callers(image):
    seen = set()

    @image.handler("quiet", batch=True)
    def quiet(number):
        info = ro.current_batch()
        assert (info.function, info.kernel, info.posted) == ("quiet", "k_quiet", False)
        assert info.image is image and info.count == number.size
        assert (info.blocks[:, 0] * 100 + info.threads[:, 0] == number).all()
        assert not info.blocks[:, 1:].any() and not info.threads[:, 1:].any()
        seen.update(number.tolist())
        with pytest.raises(ro.RevoffError, match="current_batch"):
            ro.current_call()

    run(image, "k_quiet", grid=3, block=40)
    assert seen == {b * 100 + t for b in range(3) for t in range(40)}
    with pytest.raises(ro.RevoffError, match="batch handler"):
        ro.current_batch()


def test_arrays_that_a_handler_keeps_stay_as_they_were(image):
    kept, copies = [], []

    @image.handler("f8", batch=True)
    def f8(x):
        kept.append(x[::2])
        copies.append(x[::2].copy())
        return x + 1

    x = numbers(500)
    for _ in range(5):
        run(image, "k_f8", ro.tofrom(x), x.size, grid=4, block=128)
    image.close()
    assert len(kept) > 4
    assert all((a == b).all() for a, b in zip(kept, copies))


@pytest.mark.once
def test_a_batch_has_at_most_so_many_calls(image):
    sizes = []
    image.handler("f8", lambda x: sizes.append(x.size) or x, batch=True, most=64)
    x = numbers(1000)
    run(image, "k_f8", ro.tofrom(x), x.size, grid=8, block=128)
    assert max(sizes) <= 64 and sum(sizes) == 3000


@pytest.mark.once
def test_bindings_that_cannot_work_are_refused(image):
    with pytest.raises(ro.SignatureError, match="values only"):
        image.handler("array", print, batch=True)
    with pytest.raises(ro.SignatureError, match="does not fit"):
        image.handler("both", np.sqrt, batch=True)
    with pytest.raises(ro.SignatureError, match="does not fit"):
        image.handler("f8", np.modf, batch=True)
    with pytest.raises(ValueError, match="at least 32"):
        image.handler("f8", np.sqrt, batch=True, most=8)
    with pytest.raises(TypeError, match="batch=True"):
        image.handler("f8", np.sqrt, most=64)
    with pytest.raises(TypeError, match="Python handlers"):
        image.handler("f8", 1 << 20, batch=True)
    with pytest.raises(TypeError, match="submit"):
        image.handler("f8", np.sqrt, executor=3)


@pytest.mark.parametrize("copy", [None, False, True])
def test_posts_to_a_batch_handler_in_order_and_none_lost(image, copy):
    lanes, each = 4 * 64, 300
    rows = []

    @image.handler("note", batch=True, copy=copy)
    def note(lane, i):
        assert ro.current_batch().posted
        rows.append(np.stack([lane, i]))

    stats = run(image, "k_note", each, grid=4, block=64)
    lane, i = np.concatenate(rows, axis=1)
    assert stats.posts == lane.size == lanes * each and stats.calls == stats.dropped == 0
    for k in range(lanes):
        assert (i[lane == k] == np.arange(each)).all()


def test_posts_of_structs_are_read_only_views_where_asked(image):
    total = []

    @image.handler("large", batch=True, copy=False)
    def large(p):
        with pytest.raises(ValueError, match="read-only"):
            p["id"][0] = 1
        total.append((p["x"].sum(), int(p["id"].sum()), p.size))

    run(image, "k_large", 100, block=32)
    x, ids, count = map(sum, zip(*total))
    assert (x, ids, count) == (100 * sum(range(32)), 32 * sum(range(100)), 3200)


def test_posts_to_a_handler_for_single_calls(image):
    rows = []

    @image.handler("note")
    def note(lane, i):
        assert ro.current_call().posted and ro.current_call().thread[0] == lane
        rows.append((lane, i))

    run(image, "k_note", 20, block=32)
    assert len(rows) == 640
    for k in range(32):
        assert [i for lane, i in rows if lane == k] == list(range(20))


def test_an_error_in_a_post_ends_the_run(image):
    image.handler("note", lambda lane, i: 1 / 0, batch=True)
    with pytest.raises(ZeroDivisionError):
        run(image, "k_note", 20, block=32)


def test_a_ufunc_that_computes_in_another_type_is_checked(image):
    image.handler("f4", np.multiply, batch=True)  # float32 times int32 is float64
    x = np.full(32, 1.5, np.float32)
    run(image, "k_f4", ro.tofrom(x), block=32)
    assert (x == 1.5 * np.arange(32)).all()
    x[:] = 3e38
    with pytest.raises(OverflowError, match="f4"):
        run(image, "k_f4", ro.tofrom(x), block=32)
    image.handler("i2", np.sqrt, batch=True)
    with pytest.raises(TypeError, match=r"i2.*int16"):
        run(image, "k_small", ro.tofrom(np.ones(32, np.int16)), ro.from_(np.zeros(32, bool)))
    image.handler("f8", np.frompyfunc(lambda v: v + 1, 1, 1), batch=True)
    with pytest.raises(TypeError, match=r"f8.*object"):
        run(image, "k_f8", ro.tofrom(numbers()), 32, block=32)


@pytest.mark.once
def test_what_was_kept_in_a_batch_that_failed_stays(image):
    kept = []

    @image.handler("f8", batch=True)
    def f8(x):
        kept.append(x)
        return x[:, None]

    for _ in range(5):
        with pytest.raises(ValueError, match="shape"):
            run(image, "k_f8", ro.tofrom(numbers(96)), 96, block=96)
    assert all(set(x) <= set(numbers(96)) for x in kept)


def test_many_lanes_with_a_checksum(image):
    total = np.zeros((), np.int64)

    @image.handler("quiet", batch=True)
    def quiet(number):
        total[...] += number.sum()

    stats = run(image, "k_quiet", grid=50, block=96)
    assert stats.calls == 4800
    assert total == sum(100 * b + t for b in range(50) for t in range(96))


@pytest.mark.once
def test_posts_that_do_not_fit_are_counted(device):
    source = r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(note, void(int, int));
extern "C" __global__ void k(int n, int *sent) {
    for (int i = 0; i < n; ++i) *sent += note.try_post(i, *sent);
}"""
    seen = []

    def note(i, before):
        # The first batch makes the ring run full.
        if not seen:
            time.sleep(1)
        seen.append((i, before))

    with ro.load_image(source, device=device) as image:
        image.handler("note", note, batch=True)
        sent = np.zeros(1, np.int32)
        stats = image.run("k", 300_000, ro.tofrom(sent), grid=1, block=1, timeout=60)
    i, before = np.concatenate(seen, axis=1)
    assert stats.posts == sent[0] == i.size and stats.dropped == 300_000 - sent[0] > 0
    assert (np.diff(i) > 0).all() and (before == np.arange(i.size)).all()
