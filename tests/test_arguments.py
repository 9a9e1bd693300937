# SPDX-License-Identifier: Apache-2.0
"""Kernel arguments: numbers, mapped arrays, device arrays."""

import gc

import numpy as np
import pytest

import pyrevoff as ro
from pyrevoff.errors import shown

SOURCE = r"""
struct Mixed { char c; double d; };
extern "C" {
__global__ void twice(double *x, int n) {
    for (int i = 0; i < n; ++i) x[i] *= 2;
}
__global__ void copy(const int *a, int *b, int n) {
    for (int i = 0; i < n; ++i) b[i] = a[i];
}
__global__ void add(int *a, const int *b, int n) {
    for (int i = 0; i < n; ++i) a[i] += b[i];
}
__global__ void numbers(bool b, signed char c, unsigned short s, int i, unsigned long long u,
                        float f, double d, double *out) {
    out[0] = b; out[1] = c; out[2] = s; out[3] = i; out[4] = (double)u; out[5] = f; out[6] = d;
}
__global__ void mixed(Mixed m, double *out) { out[0] = m.c; out[1] = m.d; }
__global__ void structs(Mixed *m, int n) {
    for (int i = 0; i < n; ++i) { m[i].d += m[i].c; m[i].c = 7; }
}
__global__ void address(const void *p, unsigned long long *out) { *out = (unsigned long long)p; }
__global__ void ends(unsigned char *p, unsigned long long n) { p[0] += 1; p[n - 1] += 2; }
__global__ void none() {}
}
"""


@pytest.fixture
def image(device):
    with ro.load_image(SOURCE, device=device, name="arguments.cu") as image:
        yield image


pytestmark = pytest.mark.once


def run(image, kernel, *args):
    return image.run(kernel, *args, grid=1, block=1, timeout=60)


# ---- numbers -------------------------------------------------------------------

GOOD = [True, -3, 65535, -(1 << 31), 1 << 40, 0.5, -2.5]


def test_python_numbers(image):
    out = np.zeros(7)
    run(image, "numbers", *GOOD, ro.from_(out))
    assert list(out) == [float(v) for v in GOOD]


def test_numpy_numbers(image):
    out = np.zeros(7)
    types = [np.bool_, np.int8, np.uint16, np.int32, np.uint64, np.float32, np.float64]
    run(image, "numbers", *(t(v) for t, v in zip(types, GOOD)), ro.from_(out))
    assert list(out) == [float(v) for v in GOOD]
    zero_d = [np.array(v, t) for t, v in zip(types, GOOD)]
    out[:] = 0
    run(image, "numbers", *zero_d, ro.from_(out))
    assert list(out) == [float(v) for v in GOOD]


def test_int_for_a_float_parameter(image):
    out = np.zeros(7)
    run(image, "numbers", 1, 2, 3, 4, 5, 6, 7, ro.from_(out))
    assert list(out) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "index, value, error",
    [
        (1, 256, OverflowError),
        (1, -129, OverflowError),
        (2, 65536, OverflowError),
        (3, 1 << 32, OverflowError),
        (3, 1.0, TypeError),
        (3, np.int64(1), TypeError),
        (3, np.float32(1), TypeError),
        (3, "1", TypeError),
        (3, None, TypeError),
        (3, 1j, TypeError),
        (3, [1], TypeError),
        (4, 1 << 64, OverflowError),
        (4, 10**6000, OverflowError),
        (5, 1e300, OverflowError),
        (6, 10**400, OverflowError),
        (6, 10**6000, OverflowError),
        (5, np.float64(1), TypeError),
        (5, np.int32(1), TypeError),
        (6, None, TypeError),
        (6, np.float32(1), TypeError),
        (6, "x", TypeError),
    ],
    ids=shown,
)
def test_numbers_that_do_not_fit(image, index, value, error):
    args = list(GOOD)
    args[index] = value
    with pytest.raises(error, match=f"kernel numbers, argument {index}"):
        run(image, "numbers", *args, ro.from_(np.zeros(7)))


def test_number_of_arguments(image):
    with pytest.raises(TypeError, match="twice takes 2 arguments, 1 given"):
        run(image, "twice", 1)
    with pytest.raises(TypeError, match="none takes 0 arguments, 1 given"):
        run(image, "none", 1)
    run(image, "none")


def test_struct_by_value(image):
    out = np.zeros(2)
    dtype = np.dtype([("c", "i1"), ("d", "f8")], align=True)
    run(image, "mixed", np.array((3, 0.5), dtype)[()], ro.from_(out))
    assert list(out) == [3, 0.5]
    packed = np.dtype([("c", "i1"), ("d", "f8")])
    with pytest.raises(TypeError, match="16 bytes"):
        run(image, "mixed", np.array((3, 0.5), packed)[()], ro.from_(out))


# ---- mapped arrays ----------------------------------------------------------------


def test_meaning_of_each_map(image):
    a, b = np.arange(5, dtype=np.int32), np.full(5, -1, np.int32)
    run(image, "copy", ro.to(a), ro.from_(b), 5)
    assert (b == a).all()
    run(image, "add", ro.to(a), ro.to(b), 5)
    assert (a == np.arange(5)).all(), "to is not copied back"
    run(image, "add", ro.tofrom(a), ro.to(b), 5)
    assert (a == 2 * np.arange(5)).all()
    kept = b.copy()
    run(image, "copy", ro.to(a), ro.alloc(b), 5)
    assert (b == kept).all(), "alloc is not copied back"


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2],
        lambda a: a[::-1],
        lambda a: a.T,
        lambda a: a[1:, ::3],
        lambda a: np.asfortranarray(a),
        lambda a: a[:, None, :],
        lambda a: a[0, 0],
    ],
    ids=["step", "reversed", "transposed", "inner", "fortran", "new axis", "scalar"],
)
def test_any_strides(image, view):
    whole = np.arange(60.0).reshape(6, 10)
    a = view(whole)
    if not isinstance(a, np.ndarray):
        a = whole[0:1, 0].reshape(())
    before, expect = whole.copy(), np.array(a) * 2
    run(image, "twice", ro.tofrom(a), a.size)
    assert (np.asarray(a) == expect).all()
    if np.shares_memory(a, whole):
        changed = whole != before
        assert changed.sum() == np.count_nonzero(expect), "nothing but the view was written"


def test_kernels_see_c_order(image):
    a = np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3))
    b = np.zeros(6, np.int32)
    run(image, "copy", ro.to(a), ro.from_(b), 6)
    assert list(b) == [0, 1, 2, 3, 4, 5]


def test_empty_array(image):
    run(image, "twice", ro.tofrom(np.zeros(0)), 0)
    run(image, "twice", ro.tofrom(np.zeros((3, 0))), 0)


@pytest.mark.parametrize("map_", [ro.to, ro.from_, ro.tofrom, ro.alloc])
def test_what_cannot_be_mapped(map_):
    with pytest.raises(TypeError, match="list"):
        map_([1, 2])
    with pytest.raises(TypeError, match="object"):
        map_(np.array([None]))
    with pytest.raises(TypeError, match="objects"):
        map_(np.zeros(2, [("a", "O")]))
    with pytest.raises(TypeError, match="masked"):
        map_(np.ma.masked_array([1, 2], [True, False]))
    for swapped in (">f4", ">i8"):
        with pytest.raises(TypeError, match=f"{swapped}.*byte order.*newbyteorder"):
            map_(np.zeros(3, swapped))
    with pytest.raises(TypeError, match="byte order"):
        map_(np.zeros(3, [("x", "i4"), ("y", ">f8")]))


@pytest.mark.parametrize("map_", [ro.from_, ro.tofrom])
def test_what_cannot_be_written_back(map_):
    locked = np.zeros(3)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        map_(locked)
    ro.to(locked)
    as_strided = np.lib.stride_tricks.as_strided
    for shape, strides in ([(3, 4), (0, 8)], [(5, 3), (8, 8)], [(3, 3), (8, 16)], [(9,), (4,)]):
        shared = as_strided(np.zeros(20), shape, strides, writeable=True)
        with pytest.raises(ValueError, match="one and the same"):
            map_(shared)
        ro.to(shared)
    for shape, strides in ([(1, 4), (0, 8)], [(3, 2), (8, 24)], [(0, 3), (0, 0)]):
        map_(as_strided(np.zeros(20), shape, strides, writeable=True))


def test_one_array_twice_is_one_mapping(image):
    a = np.arange(4, dtype=np.int32)
    run(image, "add", ro.tofrom(a), ro.to(a), 4)
    assert (a == 2 * np.arange(4)).all()
    run(image, "add", ro.to(a), ro.from_(a), 4)
    assert (a == 4 * np.arange(4)).all()
    out = np.zeros(2, np.uint64)
    run(image, "address", ro.to(a), ro.from_(out[:1]))
    run(image, "address", ro.to(a[:]), ro.from_(out[1:]))


def test_overlap_in_part_is_refused(image):
    a = np.arange(10, dtype=np.int32)
    with pytest.raises(ValueError, match=r"arguments 0 to\(.* and 1 tofrom\(.*overlap"):
        run(image, "copy", ro.to(a[:6]), ro.tofrom(a[4:]), 6)
    with pytest.raises(ValueError, match="overlap"):
        run(image, "copy", ro.to(a), ro.tofrom(a[::-1]), 6)
    with pytest.raises(ValueError, match="overlap"):
        run(image, "copy", ro.to(a), ro.tofrom(a.view(np.int16)), 6)
    # Side by side, and interleaved: nothing is shared.
    run(image, "copy", ro.to(a[:5]), ro.tofrom(a[5:]), 5)
    assert (a[5:] == a[:5]).all()
    run(image, "copy", ro.to(a[::2]), ro.from_(a[1::2]), 5)
    assert (a[1::2] == a[::2]).all()


def test_two_launches_map_one_array(device, image):
    """Presence is counted: each run gets the array's present content."""
    a = np.ones(3)
    for _ in range(3):
        run(image, "twice", ro.tofrom(a), 3)
        a += 1
    assert (a == 15).all()


def test_packed_structs_are_not_aligned_ones(image):
    aligned = np.dtype([("c", "i1"), ("d", "f8")], align=True)
    a = np.zeros(3, aligned)
    a["c"], a["d"] = [1, 2, 3], 10
    run(image, "structs", ro.tofrom(a), 3)
    assert list(a["d"]) == [11, 12, 13] and (a["c"] == 7).all()


def test_numpy_array_without_a_map(image):
    with pytest.raises(TypeError, match=r"argument 0.*ro\.to\(a\)"):
        run(image, "twice", np.zeros(3), 3)
    with pytest.raises(TypeError, match="4 bytes"):
        run(image, "twice", ro.to(np.zeros(3)), ro.to(np.zeros(3)))


def test_nothing_is_left_mapped_after_a_refusal(image):
    a = np.zeros(4)
    for _ in range(50):
        with pytest.raises(TypeError):
            run(image, "twice", ro.tofrom(a), "no")
        with pytest.raises(ValueError):
            image.run("twice", ro.tofrom(a), 4, grid=1, block=1 << 20)
    # Mapped in another extent: an old mapping would overlap it in part.
    run(image, "twice", ro.tofrom(a[1:3]), 2)


# ---- sizes beyond 32 bits ---------------------------------------------------------


@pytest.mark.parametrize("size", [np.int32(3), np.uint64(3), np.int8(3), 3], ids=repr)
def test_sizes_as_numpy_integers(device, size):
    a = ro.empty(size, "f8", device=device)
    assert a.shape == (3,) and a.nbytes == 24
    with pytest.raises(ValueError, match="negative"):
        ro.empty(-1, device=device)
    with pytest.raises(TypeError):
        ro.empty(1.5, device=device)


def test_map_over_4_gib(device, image):
    n = (4 << 30) + 16
    with open("/proc/meminfo") as f:
        free = next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable"))
    if free < 3 * n:
        pytest.skip(f"{free >> 30} GiB of memory are free, {3 * n >> 30} are needed")
    a = np.zeros(n, np.uint8)
    run(image, "ends", ro.tofrom(a), n)
    assert a[0] == 1 and a[-1] == 2 and not a[1 : 1 << 20].any()


# ---- device arrays -----------------------------------------------------------------


def test_own_device_array(image, device):
    a = ro.asarray(np.arange(5.0), device=device)
    assert a.shape == (5,) and a.dtype == np.float64 and a.nbytes == 40
    run(image, "twice", a, 5)
    assert (a.copy_to_host() == 2 * np.arange(5.0)).all()
    a.copy_from_host(7.0)
    run(image, "twice", a, 2)
    assert list(a.copy_to_host()) == [14, 14, 7, 7, 7]
    with pytest.raises(TypeError):
        a.copy_from_host(np.zeros(5, complex))
    with pytest.raises(TypeError, match="cannot lie in device memory"):
        ro.empty(3, object, device=device)
    empty = ro.empty((0, 4), device=device)
    run(image, "twice", empty, 0)
    assert empty.copy_to_host().shape == (0, 4)
    for convert in (np.asarray, ro.asarray):
        with pytest.raises(TypeError, match="copy_to_host"):
            convert(a)


def test_device_memory_is_given_back(device):
    size = 64 << 20
    for _ in range(200):  # 12.5 GiB in all
        ro.empty(size, np.uint8, device=device)
    gc.collect()


def test_out_of_memory(device):
    with pytest.raises(ro.OutOfMemoryError):
        ro.empty(1 << 50, np.uint8, device=device)
    assert ro.empty(10, device=device).nbytes == 80


class Interface:
    def __init__(self, address, **more):
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (3,),
            "typestr": "<f8",
            "version": 3,
            **more,
        }


def test_cuda_array_interface(image, device):
    out = np.zeros(1, np.uint64)
    if device.kind == "cpu":
        with pytest.raises(TypeError, match="reach"):
            run(image, "address", Interface(0x1000), ro.from_(out))
        assert not hasattr(ro.empty(1, device=device), "__cuda_array_interface__")
        return
    a = ro.asarray(np.arange(3.0), device=device)
    run(image, "twice", Interface(a.address, strides=None, version=2), 3)
    run(image, "twice", Interface(**{"address": a.address}), 3)
    assert (a.copy_to_host() == 4 * np.arange(3.0)).all()
    assert a.__cuda_array_interface__["data"][0] == a.address
    broken = Interface(0)
    broken.__cuda_array_interface__ = {"shape": (3,)}
    with pytest.raises(TypeError, match="data pointer"):
        run(image, "twice", broken, 3)


class Tensor:
    """DLPack by way of NumPy's own, with any device."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.place = array, device

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__()


def test_dlpack(image, device):
    x = np.arange(4.0)
    if device.kind == "cpu":
        run(image, "twice", Tensor(x[1:]), 3)
        assert list(x) == [0, 2, 4, 6]
        with pytest.raises(TypeError, match="device type 2"):
            run(image, "twice", Tensor(x, (2, 0)), 4)
        return
    with pytest.raises(TypeError, match="device type 1"):
        run(image, "twice", Tensor(x), 4)
    with pytest.raises(ValueError, match="CUDA device 5"):
        run(image, "twice", Tensor(x, (2, 5)), 4)


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_arrays_of_other_libraries(library):
    module = pytest.importorskip(library)
    with ro.load_image(SOURCE, device="cuda") as image:
        if library == "cupy":
            a = module.arange(5, dtype="f8")
            module.cuda.Device().synchronize()
        else:
            a = module.arange(5, dtype=module.float64, device="cuda")
            module.cuda.synchronize()
        run(image, "twice", a, 5)
        assert [float(v) for v in a] == [0, 2, 4, 6, 8]
