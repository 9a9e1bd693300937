# SPDX-License-Identifier: Apache-2.0
"""The signature text of an image, and the dtypes it becomes."""

import numpy as np
import pytest

import pyrevoff as ro
from pyrevoff.signature import parse

SCALARS = {
    "b1": "?",
    "i1": "i1",
    "i2": "i2",
    "i4": "i4",
    "i8": "i8",
    "u1": "u1",
    "u2": "u2",
    "u4": "u4",
    "u8": "u8",
    "f4": "f4",
    "f8": "f8",
    "p8": "u8",
}


@pytest.mark.parametrize("code", SCALARS)
def test_scalars(code):
    s = parse(f"{code}({code})")
    assert s.result.dtype == np.dtype(SCALARS[code]) == s.arguments[0].dtype
    assert s.arguments[0].map == ""
    assert s.arguments[0].pointer is (code == "p8")
    assert s.text == f"{code}({code})"


def test_void_without_arguments():
    s = parse("v()")
    assert s.result is None and s.arguments == ()
    assert str(s) == "void()"


@pytest.mark.parametrize("kind", ["to", "from", "tofrom", "alloc"])
def test_maps(kind):
    (a,) = parse(f"v({kind}:f4)").arguments
    assert (a.map, a.dtype, a.name) == (kind, np.dtype("f4"), f"{kind}<float32>")


def test_the_example_of_the_protocol():
    s = parse("f8({Particle:24:8;x=f8@0;v=f4[3]@8;id=i4@20},to:f4,from:{:12:4},str,i4)")
    particle, to, from_, text, i = s.arguments
    assert particle.dtype == np.dtype(
        {
            "names": ["x", "v", "id"],
            "formats": ["f8", ("f4", (3,)), "i4"],
            "offsets": [0, 8, 20],
            "itemsize": 24,
        }
    )
    assert not particle.raw
    assert to.map == "to" and to.dtype == np.float32
    assert from_.raw and from_.dtype.itemsize == 12 and from_.map == "from"
    assert text.map == "str" and text.dtype is None
    assert i.dtype == np.int32
    assert str(s) == "float64(Particle, to<float32>, from<struct of 12 bytes>, str, int32)"


def test_struct_in_struct_with_arrays_of_two_dimensions():
    inner = "{In:16:8;c=i1@0;d=f8@8}"
    (a,) = parse("v({Out:56:8;a=" + inner + "[2]@0;m=i2[2][3]@32;last=b1@48})").arguments
    assert a.dtype.itemsize == 56
    assert a.dtype["a"].shape == (2,) and a.dtype["a"].base["d"] == np.float64
    assert a.dtype["a"].base.fields["d"][1] == 8
    assert a.dtype["m"].shape == (2, 3)
    assert a.dtype.fields["last"][1] == 48


@pytest.mark.parametrize("name", ["ns::T", "T<int, 3>", "T<ns::U>::V"])
def test_names_of_cxx(name):
    (a,) = parse(f"v({{{name}:8:4;x=i4@0;y=i4@4}})").arguments
    assert a.name == name and a.dtype.names == ("x", "y")


def test_parsed_once():
    assert parse("i4(i4,str)") is parse("i4(i4,str)")
    assert parse("i4(i4)") is not parse("i4(u4)")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "i4",
        "i4(",
        "i4()x",
        "i3()",
        "i4(,)",
        "i4(i4,)",
        "i4(i4 )",
        "to:i4()",
        "str()",
        "i4(v)",
        "v(to:str)",
        "v(strange)",
        "v(to:)",
        "v({A:8})",
        "v({A:8:4;x=i4@8})",
        "v({A:8:4;x=i4[3]@0})",
        "v({A:8:4;x=i4@0;x=i4@4})",
        "v({A:8:4;=i4@0})",
        "v({A:8:4;x=i4[@0})",
        "f16()",
    ],
)
def test_what_is_no_signature(text):
    with pytest.raises(ro.SignatureError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert isinstance(caught.value, (TypeError, ro.RevoffError))


# What the header writes, as compiled, is what the C++ compiler laid out.
SOURCE = r"""
#include <pyrevoff.h>
struct Odd { char c; double d; short s[3]; bool b; float m[2][2]; };
REVOFF_STRUCT(Odd, c, d, s, b, m)
struct Raw { int a; char b; };
enum class Color : unsigned char { red, green };
REVOFF_FUNCTION(every, double(bool, signed char, short, int, long long, unsigned char,
                unsigned short, unsigned, unsigned long long, float, double, void *));
REVOFF_FUNCTION(structs, Odd(Odd, Raw, Color));
REVOFF_FUNCTION(maps, void(revoff::to<float>, revoff::from<Odd>, revoff::tofrom<Raw>,
                revoff::alloc<short>, revoff::str));
extern "C" __global__ void sizes(int *out) {
    out[0] = sizeof(Odd);
    out[1] = (int)(size_t)&((Odd *)0)->d;
    out[2] = (int)(size_t)&((Odd *)0)->s;
    out[3] = (int)(size_t)&((Odd *)0)->b;
    out[4] = (int)(size_t)&((Odd *)0)->m;
}
"""


@pytest.mark.once
def test_what_the_header_writes(device):
    with ro.load_image(SOURCE, device=device) as image:
        assert list(image.functions) and set(image.functions) == {"every", "structs", "maps"}
        every = image.functions["every"]
        kinds = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "u8"]
        assert [a.dtype for a in every.arguments] == [np.dtype(k) for k in kinds]
        assert every.arguments[-1].pointer
        out = np.zeros(5, np.int32)
        image.run("sizes", ro.from_(out), grid=1, block=1, timeout=60)
        odd, raw, color = image.functions["structs"].arguments
        assert [odd.dtype.itemsize, *(odd.dtype.fields[n][1] for n in "dsbm")] == list(out)
        assert odd.dtype["m"].shape == (2, 2) and odd.dtype["s"].shape == (3,)
        assert raw.raw and raw.dtype.itemsize == 8
        assert color.dtype == np.uint8
        assert image.functions["structs"].result.dtype == odd.dtype
        maps = image.functions["maps"].arguments
        assert [a.map for a in maps] == ["to", "from", "tofrom", "alloc", "str"]
        assert maps[1].dtype == odd.dtype
