# SPDX-License-Identifier: Apache-2.0
"""Handlers: binding, and the arrays and text that they get."""

import contextvars
import functools
import gc
import sys

import numpy as np
import pytest

import pyrevoff as ro

SOURCE = r"""
#include <pyrevoff.h>
struct Big { double x; float v[3]; int id; };
REVOFF_STRUCT(Big, x, v, id)
REVOFF_FUNCTION(nothing, void());
REVOFF_FUNCTION(three, void(int, double, bool));
REVOFF_FUNCTION(arrays, int(revoff::to<int>, revoff::from<int>, revoff::tofrom<int>,
                revoff::alloc<int>));
REVOFF_FUNCTION(one, void(revoff::to<double>));
REVOFF_FUNCTION(fill, void(revoff::from<double>));
REVOFF_FUNCTION(bigs, void(revoff::tofrom<Big>));
REVOFF_FUNCTION(text, void(revoff::str));
REVOFF_FUNCTION(where, int(int));
extern "C" {
__global__ void k_nothing() { nothing(); }
__global__ void k_three() { three(-7, 2.5, true); }
__global__ void k_arrays(int *a, int *b, int *c, int *d, int n, int *got) {
    *got = arrays(revoff::to(a, n), revoff::from(b, n), revoff::tofrom(c, n),
                  revoff::alloc(d, n));
}
__global__ void k_one(double *a, unsigned long long n, int times) {
    for (int i = 0; i < times; ++i) { one(revoff::to(a, n)); if (n) a[0] += 1; }
}
__global__ void k_fill(double *a, unsigned long long n) { fill(revoff::from(a, n)); }
__global__ void k_bigs(Big *a, int n) { bigs(revoff::tofrom(a, n)); }
__global__ void k_text(const char *s, int n) { text(revoff::str(s, n)); }
__global__ void k_literal() {
    text("from the kernel");
    text(revoff::str((const char *)0));
    text("");
}
__global__ void k_where(int *got) {
    if (blockIdx.x == 1 && blockIdx.y == 2 && threadIdx.x == 3 && threadIdx.y == 1)
        *got = where(5);
}
}
"""
SMALL, LARGE = 8, 5000  # in the packet, and as a block of host memory
BIG = np.dtype([("x", "f8"), ("v", "f4", 3), ("id", "i4")], align=True)


@pytest.fixture
def image(device):
    with ro.load_image(SOURCE, device=device, name="handlers.cu") as image:
        yield image


def run(image, kernel, *args, grid=1, block=1):
    return image.run(kernel, *args, grid=grid, block=block, timeout=60)


def test_several_arguments(image):
    got = []
    image.handler("three", lambda *a: got.append(a))
    run(image, "k_three")
    assert got == [(-7, 2.5, True)]


# ---- arrays and text ------------------------------------------------------------


@pytest.mark.parametrize("n", [1, SMALL, LARGE])
def test_arrays_of_each_kind(image, n):
    seen = {}

    @image.handler("arrays")
    def arrays(a, b, c, d):
        for name, x in zip("abcd", (a, b, c, d)):
            seen[name] = (type(x), x.dtype, x.shape, x.flags.writeable, x.copy())
        b[: n // 2] = a[: n // 2] * 2  # the rest comes back as it was
        c += 1
        d[:] = 9
        return len(a)

    a, b, c, d = (np.arange(n, dtype=np.int32) + i for i in range(4))
    got = np.zeros(1, np.int32)
    run(image, "k_arrays", ro.to(a), ro.tofrom(b), ro.tofrom(c), ro.tofrom(d), n, ro.tofrom(got))
    assert [s[:4] for s in seen.values()] == [
        (np.ndarray, np.dtype("i4"), (n,), w) for w in (False, True, True, True)
    ]
    start = np.arange(n, dtype=np.int32)
    assert (seen["a"][4] == start).all() and (seen["c"][4] == start + 2).all()
    assert (seen["b"][4] == start + 1).all(), "from shows what the device holds"
    assert not seen["d"][4].any(), "alloc is zeros"
    assert (a == start).all()
    assert (b[: n // 2] == 2 * start[: n // 2]).all() and (b[n // 2 :] == start[n // 2 :] + 1).all()
    assert (c == start + 3).all() and (d == start + 3).all()
    assert got[0] == n


@pytest.mark.parametrize("n", [SMALL, LARGE])
def test_writing_to_a_read_only_array_is_the_handlers_error(image, n):
    @image.handler("one")
    def one(a):
        with pytest.raises(ValueError):
            a.flags.writeable = True  # no way around it
        a[0] = 1

    with pytest.raises(ValueError, match="read-only"):
        run(image, "k_one", ro.to(np.ones(n)), n, 1)


def test_empty_and_null(image):
    got = []
    image.handler("one", lambda a: got.append(a))
    run(image, "k_one", ro.to(np.ones(3)), np.uint64(0), 1)
    run(image, "k_one", None, np.uint64(0), 1)
    assert got[0].dtype == np.float64 and got[0].shape == (0,)
    assert got[1] is None


def test_null_with_a_size_is_refused(image):
    image.handler("fill", lambda a: None)
    with pytest.raises(ro.CallError, match=r"fill.*NULL"):
        run(image, "k_fill", None, np.uint64(16))
    image.handler("nothing", lambda: None)
    assert run(image, "k_nothing").calls == 1  # the device stays usable


@pytest.mark.parametrize("n", [3, 200])
def test_arrays_of_structs(image, n):
    @image.handler("bigs")
    def bigs(a):
        assert a.dtype["v"].shape == (3,)
        a["x"] *= 2
        a["v"][:, 1] = a["id"]

    a = np.zeros(n, BIG)
    a["x"], a["id"] = np.arange(n), np.arange(n) + 10
    run(image, "k_bigs", ro.tofrom(a), n)
    assert (a["x"] == 2.0 * np.arange(n)).all() and (a["v"][:, 1] == a["id"]).all()


@pytest.mark.parametrize("text", ["", "plain", "gr\u00fc\u00dfe \U0001f600", "long " * 3000])
def test_text(image, text):
    got = []
    image.handler("text", got.append)
    raw = np.frombuffer(text.encode() or b"\0", np.uint8)
    run(image, "k_text", ro.to(raw), len(text.encode()))
    assert got == [text]


def test_text_that_is_not_utf8(image):
    got = []
    image.handler("text", got.append)
    run(image, "k_text", ro.to(np.frombuffer(b"a\xffb\0c", np.uint8)), 5)
    assert got == ["a\\xffb\0c"]


def test_literals(image):
    got = []
    image.handler("text", got.append)
    run(image, "k_literal")
    assert got == ["from the kernel", None, ""]


# ---- keeping arrays ------------------------------------------------------------


@pytest.mark.parametrize("n", [SMALL, LARGE])
@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[2:], lambda a: a.reshape(2, -1).T])
def test_kept_arrays_keep_their_values(image, n, view):
    kept = []
    image.handler("one", lambda a: kept.append(view(a)))
    run(image, "k_one", ro.to(np.full(n, 5.0)), n, 20)
    image.close()
    gc.collect()
    for i, a in enumerate(kept):
        whole = np.full(n, 5.0)
        whole[0] += i
        assert (a == view(whole)).all()
        assert not a.flags.writeable


@pytest.mark.parametrize("n", [SMALL, LARGE])
def test_a_kept_from_array_does_not_reach_the_device_later(image, n):
    kept = []

    @image.handler("fill")
    def fill(a):
        a[:] = 7
        kept.append(a)

    x = np.zeros(n)
    run(image, "k_fill", ro.tofrom(x), n)
    kept[0][:] = 8
    run(image, "k_fill", ro.tofrom(x), n)
    assert (x == 7).all() and (kept[0] == 8).all() and (kept[1] == 7).all()


def test_kept_by_an_exception(image):
    def fail(a):
        raise KeyError(a)

    image.handler("one", fail)
    with pytest.raises(KeyError) as caught:
        run(image, "k_one", ro.to(np.full(LARGE, 3.0)), LARGE, 1)
    image.close()
    assert (caught.value.args[0] == 3).all()


# ---- binding ----------------------------------------------------------------------


@pytest.mark.once
def test_forms_of_binding(image):
    calls = []

    @image.handler("three")
    def decorated(i, x, b):
        calls.append("decorated")

    assert callable(decorated)
    run(image, "k_three")

    class Callable:
        def __call__(self, *args):
            calls.append("instance")

        def method(self, i, x, b=None):
            calls.append("method")

    for handler in (Callable(), Callable().method, functools.partial(Callable().method, b=1)):
        if isinstance(handler, functools.partial):
            with pytest.raises(ro.SignatureError, match="three"):
                image.handler("three", handler)
            continue
        assert image.handler("three", handler) is handler
        del handler
        gc.collect()
        run(image, "k_three")
    assert calls == ["decorated", "instance", "method"]


@pytest.mark.once
def test_what_cannot_be_bound(image):
    with pytest.raises(TypeError, match="not callable"):
        image.handler("three", "three")
    with pytest.raises(ro.SignatureError, match=r"three void\(int32, float64, bool\)"):
        image.handler("three", lambda i: None)
    with pytest.raises(ro.NotFoundError, match=r"'threee'.*three void"):
        image.handler("threee", lambda: None)
    with pytest.raises(TypeError, match="user"):
        image.handler("nothing", lambda: None, user=1)
    with pytest.raises(ro.NotFoundError):
        image.unhandle("threee")
    with pytest.raises(TypeError, match="named by a str, not 3"):
        image.handler(3, print)
    for address in (1, 4095, -1, 1 << 64):
        with pytest.raises(TypeError, match="no address of a C function"):
            image.handler("three", address)
    with pytest.raises(ro.SignatureError):
        image.handler("text", lambda v: v, dtypes={0: "f8"})
    image.handler("three", print)  # a builtin that says little
    image.unhandle("three")
    image.unhandle("three")


@pytest.mark.parametrize("block", [1, 2, 96])
@pytest.mark.parametrize("how", ["ask", "post", "try_post"])
def test_not_bound_and_wanted_by_many_lanes(device, how, block):
    source = r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(note, void(int));
REVOFF_FUNCTION(array, void(revoff::to<int>));
extern "C" {
__global__ void ask(int *a) { note(threadIdx.x); array(revoff::to<int>(a, 1)); }
__global__ void post(int *a) { note.post(threadIdx.x); array.post(revoff::to<int>(a, 1)); }
__global__ void try_post(int *a) { note.try_post(1); array.try_post(revoff::to<int>(a, 1)); }
}"""
    with ro.load_image(source, device=device) as image:
        a = np.zeros(1, np.int32)
        for _ in range(2):
            with pytest.raises(ro.CallError, match="note, which has no handler"):
                image.run(how, ro.to(a), grid=2, block=block, timeout=60)
        got = []
        image.handler("note", got.append)
        with pytest.raises(ro.CallError, match="array, which has no handler"):
            image.run(how, ro.to(a), grid=2, block=block, timeout=60)
        image.handler("array", lambda a: None)
        got.clear()
        image.run(how, ro.to(a), grid=2, block=block, timeout=60)
        assert len(got) == 2 * block


@pytest.mark.once
@pytest.mark.parametrize("timeout", [None, 60])
def test_the_context_of_run_holds_in_handlers(image, timeout):
    where = contextvars.ContextVar("where", default="nowhere")
    seen = []
    image.handler("nothing", lambda: seen.append(where.get()))
    where.set("here")
    image.run("k_nothing", grid=1, block=1, timeout=timeout)
    assert seen == ["here"]


@pytest.mark.once
@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ("text, revoff::str()", "returns a value or nothing"),
        ("text, revoff::from<int>(int)", "returns a value or nothing"),
        ("gr\u00f6\u00dfe, int()", "ASCII letters only"),
    ],
)
def test_declarations_that_cannot_be(device, declared, text):
    with pytest.raises(ro.CompileError, match=text):
        ro.load_image(f"#include <pyrevoff.h>\nREVOFF_FUNCTION({declared});", device=device)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="add_note is of Python 3.11")
@pytest.mark.parametrize("batch", [False, True])
def test_an_exception_notes_whose_call_it_was(image, batch):
    error = ValueError("bad i")

    def three(*values):
        raise error

    image.handler("three", three, batch=batch)
    for _ in range(2):
        with pytest.raises(ValueError, match="bad i") as caught:
            image.run("k_three", grid=1, block=1, timeout=60)
        assert caught.value is error
    (note,) = error.__notes__
    assert "three" in note and "kernel k_three" in note
    assert ("1 calls of" in note) == batch and ("block (0, 0, 0)" in note) != batch


@pytest.mark.once
def test_not_bound(image):
    with pytest.raises(ro.CallError, match=r"k_nothing called nothing.*bind"):
        run(image, "k_nothing")
    image.handler("nothing", lambda: None)
    assert run(image, "k_nothing").calls == 1
    image.unhandle("nothing")
    with pytest.raises(ro.CallError):
        run(image, "k_nothing")


@pytest.mark.once
def test_c_handler(image):
    from pyrevoff._lib import ffi, lib

    # A C function of that type which is there: the trampoline, with our handle.
    got = []

    def bound(call):
        got.append((call.nargs, call.words[0] & 0xFFFFFFFF))

    bound.name = "three"
    handle = ffi.new_handle(bound)
    image.handler("three", lib.revoff_py_handler, user=handle)
    run(image, "k_three")
    address = int(ffi.cast("uintptr_t", lib.revoff_py_handler))
    image.handler("three", address, user=int(ffi.cast("uintptr_t", handle)))
    run(image, "k_three")
    assert got == [(3, (-7) & 0xFFFFFFFF)] * 2
    with pytest.raises(TypeError, match="dtypes"):
        image.handler("three", address, dtypes={})
    with pytest.raises((ValueError, TypeError)):
        image.handler("three", 0)


def test_current_call(image, device):
    seen = []

    @image.handler("where")
    def where(i):
        seen.append(ro.current_call())
        return i + 1

    got = np.zeros(1, np.int32)
    run(image, "k_where", ro.tofrom(got), grid=(2, 3), block=(4, 2))
    (c,) = seen
    assert got[0] == 6
    assert (c.function, c.kernel, c.image) == ("where", "k_where", image)
    assert c.device is device
    assert (c.block, c.thread) == ((1, 2, 0), (3, 1, 0))
    with pytest.raises(ro.RevoffError, match="handler"):
        ro.current_call()


@pytest.mark.once
def test_the_result_of_a_void_function_is_ignored(image):
    image.handler("nothing", lambda: "what is this")
    assert run(image, "k_nothing").calls == 1
