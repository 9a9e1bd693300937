# SPDX-License-Identifier: Apache-2.0
"""Values and structs through a handler and back: exact, or refused by name."""

import struct

import numpy as np
import pytest

import pyrevoff as ro

SOURCE = r"""
#include <pyrevoff.h>
struct Pair { int a; short b; };
struct Big { double x; float v[3]; int id; };
REVOFF_STRUCT(Pair, a, b)
REVOFF_STRUCT(Big, x, v, id)
struct Raw { int a; float b; };
struct Inner { signed char c; double d; };
struct Outer { Inner in; int n; };
REVOFF_STRUCT(Inner, c, d)
REVOFF_STRUCT(Outer, in, n)
"""
ECHO = r"""
REVOFF_FUNCTION({name}, {type}({type}));
extern "C" __global__ void k_{name}(const {type} *in, {type} *out, int n) {{
    for (int i = 0; i < n; ++i) out[i] = {name}(in[i]);
}}"""
TYPES = {
    "e_b1": "bool",
    "e_i1": "signed char",
    "e_i2": "short",
    "e_i4": "int",
    "e_i8": "long long",
    "e_u1": "unsigned char",
    "e_u2": "unsigned short",
    "e_u4": "unsigned",
    "e_u8": "unsigned long long",
    "e_f4": "float",
    "e_f8": "double",
    "e_pair": "Pair",
    "e_big": "Big",
    "e_raw": "Raw",
    "e_outer": "Outer",
}
SOURCE += "".join(ECHO.format(name=n, type=t) for n, t in TYPES.items())


@pytest.fixture
def image(device):
    with ro.load_image(SOURCE, device=device, name="results.cu") as image:
        yield image


def run(image, kernel, *args, grid=1, block=1):
    return image.run(kernel, *args, grid=grid, block=block, timeout=60)


def echo(image, name, values, dtype):
    """Send values through a handler that returns what it got."""
    got = []
    image.handler(name, lambda v: (got.append(v), v)[1])
    a = np.array(values, dtype)
    b = np.zeros_like(a)
    run(image, f"k_{name}", ro.to(a), ro.from_(b), len(a))
    assert (a == b).all() if a.dtype.names else a.tobytes() == b.tobytes()
    return got


@pytest.mark.parametrize("code", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_integers_are_exact(image, code):
    info = np.iinfo(code)
    values = [info.min, info.max, 0, 1, info.max // 3]
    got = echo(image, f"e_{code}", values, code)
    assert got == values and {type(v) for v in got} == {int}


@pytest.mark.parametrize("code", ["f4", "f8"])
def test_floats_are_exact(image, code):
    tiny = np.finfo(code).smallest_subnormal
    values = [0.0, -0.0, 1 / 3, -np.inf, np.nan, float(tiny), float(np.finfo(code).max)]
    got = echo(image, f"e_{code}", values, code)
    assert {type(v) for v in got} == {float}
    assert np.array(got, code).tobytes() == np.array(values, code).tobytes()


def test_bool(image):
    got = echo(image, "e_b1", [True, False], "?")
    assert got == [True, False] and {type(v) for v in got} == {bool}


PAIR = np.dtype([("a", "i4"), ("b", "i2")], align=True)
BIG = np.dtype([("x", "f8"), ("v", "f4", 3), ("id", "i4")], align=True)


@pytest.mark.parametrize("name, dtype", [("e_pair", PAIR), ("e_big", BIG)])
def test_structs_by_value(image, name, dtype):
    a = np.zeros(2, dtype)
    a["a" if dtype is PAIR else "id"] = [-1, 70000]
    got = echo(image, name, a, dtype)
    assert all(isinstance(v, np.void) and v.dtype.names == dtype.names for v in got)
    # A copy: it stays as it was when the packet is used again.
    assert [int(v["a" if dtype is PAIR else "id"]) for v in got] == [-1, 70000]


@pytest.mark.parametrize(
    "make",
    [
        lambda v: (2.5, (1, 2, 3), 9),
        lambda v: {"id": 9, "v": [1, 2, 3], "x": 2.5},
        lambda v: np.array((2.5, [1, 2, 3], 9), v.dtype)[()],
        lambda v: np.array((2.5, [1, 2, 3], 9), v.dtype),
    ],
    ids=["tuple", "dict", "void", "0-d array"],
)
def test_structs_may_be_returned_as(image, make):
    image.handler("e_big", make)
    a, b = np.zeros(1, BIG), np.zeros(1, BIG)
    run(image, "k_e_big", ro.to(a), ro.from_(b), 1)
    assert b[0]["x"] == 2.5 and list(b[0]["v"]) == [1, 2, 3] and b[0]["id"] == 9


def test_nested_struct(image):
    dtype = image.functions["e_outer"].result.dtype
    image.handler("e_outer", lambda o: {"in": (o["in"]["c"] + 1, 0.5), "n": int(o["n"]) * 2})
    a, b = np.zeros(1, dtype), np.zeros(1, dtype)
    a[0] = ((-5, 9.0), 21)
    run(image, "k_e_outer", ro.to(a), ro.from_(b), 1)
    assert b[0].item() == ((-4, 0.5), 42)


@pytest.mark.parametrize(
    "value",
    [
        None,
        (1.0, (1, 2, 3)),
        (1.0, (1, 2), 3),
        {"x": 1.0, "v": (1, 2, 3)},
        {"x": 1.0, "v": (1, 2, 3), "id": 4, "more": 5},
        np.zeros((), PAIR)[()],
        np.zeros(2, BIG),
        (1.0, (1, 2, 3), 1.5),
        (1.0, (1, 2, 3), None),
        ("x", (1, 2, 3), 4),
        (1.0, "abc", 4),
        3.0,
    ],
    ids=repr,
)
@pytest.mark.once
def test_structs_that_do_not_fit(image, value):
    image.handler("e_big", lambda v: value)
    a = np.zeros(1, BIG)
    with pytest.raises(TypeError, match=r"e_big Big\(Big\)"):
        run(image, "k_e_big", ro.tofrom(a), ro.tofrom(a), 1)


@pytest.mark.once
def test_struct_field_that_overflows(image):
    image.handler("e_pair", lambda v: (1, 1 << 15))
    a = np.zeros(1, PAIR)
    with pytest.raises(OverflowError, match=r"e_pair Pair\(Pair\).*'b'"):
        run(image, "k_e_pair", ro.tofrom(a), ro.tofrom(a), 1)
    image.handler("e_big", lambda v: (1, (1, 1e300, 1), 1))
    a = np.zeros(1, BIG)
    with pytest.raises(OverflowError, match=r"e_big Big\(Big\).*'v'"):
        run(image, "k_e_big", ro.tofrom(a), ro.tofrom(a), 1)


@pytest.mark.parametrize("value", [True, 1, np.int8(1), np.uint64(1), np.bool_(True)], ids=repr)
@pytest.mark.once
def test_one_is_true_of_whatever_integer_type(image, value):
    image.handler("e_b1", lambda v: value)
    a = np.zeros(1, bool)
    run(image, "k_e_b1", ro.tofrom(a), ro.tofrom(a), 1)
    assert a[0]
    image.handler("e_b1", lambda v: value + 1 if value is not np.True_ else 2)
    with pytest.raises(TypeError, match=r"e_b1 bool\(bool\).*bool is wanted"):
        run(image, "k_e_b1", ro.tofrom(a), ro.tofrom(a), 1)


@pytest.mark.once
def test_an_integer_of_thousands_of_digits_is_an_overflow(image):
    image.handler("e_i4", lambda v: 10**6000)
    a = np.zeros(1, np.int32)
    with pytest.raises(OverflowError, match="an integer of 19932 bits"):
        run(image, "k_e_i4", ro.tofrom(a), ro.tofrom(a), 1)


def test_raw_struct_and_dtypes(image):
    raw = struct.pack("<if", -3, 1.5)
    a, b = np.frombuffer(raw, "V8").copy(), np.zeros(1, "V8")
    got = []
    image.handler("e_raw", lambda v: (got.append(v.tobytes()), got[0])[1])
    run(image, "k_e_raw", ro.to(a), ro.from_(b), 1)
    assert got == [raw] and b.tobytes() == raw
    seen = []
    dtype = np.dtype([("a", "i4"), ("b", "f4")])
    image.handler("e_raw", lambda v: (seen.append(v.item()), v.tobytes())[1], dtypes={0: dtype})
    run(image, "k_e_raw", ro.to(a), ro.from_(b), 1)
    assert seen == [(-3, 1.5)]


@pytest.mark.once
def test_dtypes_are_checked(image):
    with pytest.raises(ro.SignatureError, match="8 bytes"):
        image.handler("e_raw", lambda v: v, dtypes={0: "f4"})
    with pytest.raises(ro.SignatureError, match="no argument 1"):
        image.handler("e_raw", lambda v: v, dtypes={1: "f8"})
    with pytest.raises(TypeError, match="dict"):
        image.handler("e_raw", lambda v: v, dtypes=["f8"])


# ---- returned values ---------------------------------------------------------


def returned(image, name, value, dtype):
    image.handler(name, lambda v: value)
    a, b = np.zeros(1, dtype), np.zeros(1, dtype)
    run(image, f"k_{name}", ro.to(a), ro.from_(b), 1)
    return b[0]


@pytest.mark.parametrize(
    "name, dtype, value",
    [
        ("e_f8", "f8", 3),
        ("e_f8", "f8", np.float32(3)),
        ("e_f8", "f8", np.int16(3)),
        ("e_f8", "f8", np.array(3.0)),
        ("e_f4", "f4", 3.0),
        ("e_i4", "i4", np.int64(3)),
        ("e_i4", "i4", np.array(3)),
        ("e_u1", "u1", True),
        ("e_b1", "?", np.True_),
        ("e_b1", "?", 1),
    ],
    ids=repr,
)
@pytest.mark.once
def test_results_that_fit(image, name, dtype, value):
    assert returned(image, name, value, dtype) == value


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("e_f8", None, TypeError),
        ("e_f8", "3", TypeError),
        ("e_f8", 3j, TypeError),
        ("e_f8", [3.0], TypeError),
        ("e_f8", np.array([3.0]), TypeError),
        ("e_f8", 10**400, OverflowError),
        ("e_f4", 1e300, OverflowError),
        ("e_i4", None, TypeError),
        ("e_i4", 3.0, TypeError),
        ("e_i4", np.float64(3), TypeError),
        ("e_i4", 1 << 31, OverflowError),
        ("e_i4", -(1 << 31) - 1, OverflowError),
        ("e_u4", -1, OverflowError),
        ("e_i1", 128, OverflowError),
        ("e_u8", 1 << 64, OverflowError),
        ("e_b1", 2, TypeError),
        ("e_b1", None, TypeError),
        ("e_raw", b"1234567", TypeError),
        ("e_raw", None, TypeError),
    ],
    ids=repr,
)
@pytest.mark.once
def test_results_that_do_not_fit(image, name, value, error):
    with pytest.raises(error) as caught:
        returned(image, name, value, "V8" if name == "e_raw" else name[-2:].replace("b1", "?"))
    text = str(caught.value)
    assert f"{name} {image.functions[name]}" in text and type(value).__name__ in text


@pytest.mark.parametrize("v", [[1, 2, 255], (1, 2, 255), np.array([1, 2, 255])], ids=repr)
@pytest.mark.once
def test_integers_for_a_field_of_small_ones(device, v):
    source = r"""
#include <pyrevoff.h>
struct Rgb { unsigned char v[3]; };
REVOFF_STRUCT(Rgb, v)
REVOFF_FUNCTION(colour, Rgb());
extern "C" __global__ void k(Rgb *out) { *out = colour(); }"""
    with ro.load_image(source, device=device) as image:
        out = np.zeros(3, np.uint8)
        image.handler("colour", lambda: (v,))
        run(image, "k", ro.from_(out))
        assert list(out) == [1, 2, 255]
        image.handler("colour", lambda: ([1, 2, 256],))
        with pytest.raises(OverflowError, match="'v'"):
            run(image, "k", ro.from_(out))
        image.handler("colour", lambda: ([1, 2, 2.5],))
        with pytest.raises(TypeError, match="'v'"):
            run(image, "k", ro.from_(out))


@pytest.mark.once
def test_what_dtypes_names_may_be_returned_as_it_came(image):
    dtype = np.dtype([("a", "i4"), ("b", "f4")])
    a, b = np.array([(-3, 1.5)], dtype), np.zeros(1, dtype)
    image.handler("e_raw", lambda v: v, dtypes={0: dtype})
    run(image, "k_e_raw", ro.to(a), ro.from_(b), 1)
    assert b[0].item() == (-3, 1.5)
    image.handler("e_raw", lambda v: np.zeros((), [("a", "i4")])[()])
    with pytest.raises(TypeError, match="e_raw"):
        run(image, "k_e_raw", ro.to(a), ro.from_(b), 1)
