# SPDX-License-Identifier: Apache-2.0
"""The hooks of libgomp's plugin, at their own level."""

import numpy as np
import pytest

import pyrevoff as ro
from pyrevoff import compiler, gomp

SOURCE = r"""
#include <pyrevoff.h>
struct vars { int *data; long long n; unsigned *count; };
extern "C" {
__device__ void region(void *) {}
__device__ void other(void *) {}
@TABLE@
__device__ int variable[6] = {1, 2, 3, 4, 5, 6};
__device__ inline void call(void *fn, vars *v) {
    void *addrs[2] = {v->data, (void *)42};
    size_t sizes[2] = {v->n * sizeof(int), 4};
    unsigned short kinds[2] = {REVOFF_MAP_TOFROM | 2 << 8, REVOFF_MAP_FIRSTPRIVATE_INT};
    GOMP_target_ext(-2, fn, 2, addrs, sizes, kinds, 0, 0, 0);
}
__global__ void entry(vars *v, char *stacks, unsigned long long size) {
    if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) call((void *)region, v);
}
__global__ void both(vars *v, char *stacks, unsigned long long size) {
    if (blockIdx.x || threadIdx.x || threadIdx.y) return;
    call((void *)other, v);
    call((void *)region, v);
}
__global__ void count(vars *v, char *stacks, unsigned long long size) {
    if (threadIdx.x == 0) {
        stacks[(blockIdx.x * blockDim.y + threadIdx.y) * size] = 1;
        atomicAdd(v->count, 1u);
        if (threadIdx.y == 0) atomicAdd(v->count + 1, 1u);
    }
}
__global__ void loop(vars *v, char *stacks, unsigned long long size) {
    if (threadIdx.x == 0 && threadIdx.y == 0)
        while (!revoff::aborted()) call((void *)region, v);
}
}
"""
FUNCTIONS = ["entry", "region", "both", "other", "count", "loop"]
ENTRIES = "0, region, 0, other, 0, 0"

pytestmark = pytest.mark.once


def source(device, entries=ENTRIES):
    """What `load_image` takes: C++ for the CPU device, PTX for a GPU."""
    if device.kind == "cpu":
        table = (
            'extern void (*table[])(void *) __asm__("$offload_func_table");'
            f"__attribute__((used)) void (*table[])(void *) = {{{entries}}};"
        )
        return SOURCE.replace("@TABLE@", table)
    # NVRTC takes neither a name with "$" nor an asm label.
    table = f"__device__ void (*table_of_libgomp[])(void *) = {{{entries}}};"
    made = compiler.compile_cuda(SOURCE.replace("@TABLE@", table), options=["-rdc=true"])
    ptx = compiler.lower_ptx_version(made.data, device.info()["driver_version"])
    assert b"table_of_libgomp" in ptx
    return ptx.replace(b"table_of_libgomp", b"$offload_func_table")


class Case:
    """A loaded image, and a kernel's variables in device memory."""

    def __init__(self, device):
        self.device = device
        self.tables = gomp.load_image(
            device, source(device), functions=FUNCTIONS, variables=["variable"]
        )
        self.data = ro.asarray(np.arange(5, dtype=np.int32), device=device)
        self.count = ro.asarray(np.zeros(2, np.uint32), device=device)
        words = [self.data.address, 5, self.count.address]
        self.vars = ro.asarray(np.array(words, np.uint64), device=device)

    def run(self, name, args=(), **more):
        fn = self.tables.target[FUNCTIONS.index(name)].start
        more.setdefault("timeout", 60)
        gomp.run(self.device, fn, self.vars.address, args, **more)

    def rev(self, name):
        return self.tables.rev_fn[FUNCTIONS.index(name)]


@pytest.fixture
def case(device):
    case = Case(device)
    yield case
    gomp.set_target_rev(None, device)
    case.tables.image.close()


def test_tables(case):
    rev, target = case.tables.rev_fn, case.tables.target
    assert [bool(fn) for fn in rev] == [n in ("region", "other") for n in FUNCTIONS]
    assert len(target) == len(FUNCTIONS) + 2
    for fn, pair in zip(rev, target):
        assert pair.end == pair.start + 1
        assert bool(pair.start) != bool(fn), "a pair is a kernel or a reverse function"
    variable, icvs = target[-2:]
    assert variable.end - variable.start == 24
    assert case.tables.image.symbol("variable") == (variable.start, 24)
    assert icvs.end - icvs.start == 16
    number = case.tables.image.read_symbol("__gomp_additional_icvs", "i4")[0]
    assert number == case.device.ordinal


def test_a_table_of_zeros_is_dropped(device):
    kernels = ["entry", "entry", "both", "both", "count", "loop"]
    tables = gomp.load_image(device, source(device, "0, 0, 0, 0, 0, 0"), functions=kernels)
    assert tables.rev_fn is None
    assert all(pair.start for pair in tables.target[:6])
    tables.image.close()


def test_names_that_are_not_there(device):
    with pytest.raises(ro.NotFoundError, match="missing"):
        gomp.load_image(device, source(device), functions=[*FUNCTIONS[:-1], "missing"])
    with pytest.raises(ro.NotFoundError, match="novar"):
        gomp.load_image(device, source(device), functions=FUNCTIONS, variables=["novar"])
    with pytest.raises(ro.RevoffError):
        gomp.load_image(device, source(device), functions=FUNCTIONS[:-1])


def test_the_default_target_rev(case):
    seen = []

    def region(items):
        data, value = items
        array = data.as_array(np.int32)
        seen.append((array.copy(), data.size, data.kind, data.device, value.value, value.kind))
        array *= 10
        seen.append(ro.current_call())
        with pytest.raises(ValueError, match="0x0d"):
            value.as_array()

    gomp.bind(case.tables, "region", region)
    case.run("entry")
    array, size, kind, address, value, value_kind = seen[0]
    assert (array == np.arange(5)).all()
    assert (size, kind, address) == (20, 0x03, case.data.address)
    assert (value & 0xFFFFFFFF, value_kind) == (42, gomp.FIRSTPRIVATE_INT)
    assert (case.data.copy_to_host() == 10 * np.arange(5)).all()
    assert (seen[1].function, seen[1].kernel) == ("region", "entry")
    assert seen[1].device is case.device and seen[1].image is case.tables.image


def test_bound_by_address(case):
    order = []
    gomp.bind(case.tables, case.rev("region"), lambda items: order.append("region"))
    gomp.bind(case.tables.image, case.rev("other"), lambda items: order.append("other"))
    case.run("both")
    assert order == ["other", "region"]
    with pytest.raises(ro.NotFoundError, match="0x7b"):
        gomp.bind(case.tables, 123, lambda items: None)


def test_not_bound(case):
    with pytest.raises(ro.CallError, match="region"):
        case.run("entry")


def test_errors_of_a_region_are_its_own(case):
    class Mine(Exception):
        pass

    def region(items):
        raise Mine(len(items))

    gomp.bind(case.tables, "region", region)
    with pytest.raises(Mine) as caught:
        case.run("entry")
    assert caught.value.args == (2,)
    assert caught.traceback[-1].name == "region"
    gomp.bind(case.tables, "region", lambda items: None)
    case.run("entry")


def test_launch_arguments(case):
    for args, teams, threads in (
        ([(gomp.NUM_TEAMS, 3), (gomp.THREAD_LIMIT, 4)], 3, 4),
        ([(gomp.NUM_TEAMS, 2), (gomp.THREAD_LIMIT, 1)], 2, 1),
    ):
        case.count.copy_from_host(0)
        case.run("count", args)
        assert list(case.count.copy_to_host()) == [teams * threads, teams]


def test_the_time_limit(case):
    gomp.bind(case.tables, "region", lambda items: None)
    with pytest.raises(ro.LaunchTimeout, match="loop"):
        case.run("loop", timeout=0.3)
    case.run("entry")


def test_what_is_no_kernel(case):
    for fn in (0, 1, 12345, case.rev("region")):
        with pytest.raises(ValueError, match="target table"):
            gomp.run(case.device, fn, 0)
    fn = case.tables.target[0].start
    case.tables.image.close()
    with pytest.raises(ValueError, match="target table"):
        gomp.run(case.device, fn, 0)


# ---- set_target_rev -------------------------------------------------------------


def test_raw_callback(case):
    seen, late = [], []

    def target_rev(fn, mapnum, devaddrs, sizes, kinds, dev_num, dev_to_host, host_to_dev):
        a = np.frombuffer(dev_to_host(devaddrs, 8 * mapnum), np.uint64)
        s = np.frombuffer(dev_to_host(sizes, 8 * mapnum), np.uint64)
        k = np.frombuffer(dev_to_host(kinds, 2 * mapnum), np.uint16)
        data = np.frombuffer(dev_to_host(int(a[0]), int(s[0])), np.int32)
        seen.append((fn, mapnum, list(a), list(s), list(k), dev_num, data.copy()))
        host_to_dev(int(a[0]), data + 100)
        assert dev_to_host(int(a[0]), 0) == b""
        late.append(dev_to_host)

    gomp.set_target_rev(target_rev, case.device)
    case.run("both")
    assert [s[0] for s in seen] == [case.rev("other"), case.rev("region")]
    for _, mapnum, addresses, sizes, kinds, dev_num, _ in seen:
        assert mapnum == 2 and dev_num == case.device.ordinal
        assert addresses == [case.data.address, 42] and sizes == [20, 4]
        assert kinds == [0x03 | 2 << 8, 0x0D]
    assert (seen[0][-1] == np.arange(5)).all() and (seen[1][-1] == np.arange(5) + 100).all()
    assert (case.data.copy_to_host() == np.arange(5) + 200).all()
    with pytest.raises(ValueError):
        late[0](case.data.address, 4)


def test_raw_callback_that_raises(case):
    error = LookupError("raw")

    def target_rev(*args):
        raise error

    gomp.set_target_rev(target_rev, case.device)
    with pytest.raises(LookupError) as caught:
        case.run("both")
    assert caught.value is error
    gomp.set_target_rev(None, case.device)
    calls = []
    gomp.bind(case.tables, "region", calls.append)
    gomp.bind(case.tables, "other", calls.append)
    case.run("both")
    assert len(calls) == 2


def test_what_is_no_callback(device):
    with pytest.raises(TypeError, match="not callable"):
        gomp.set_target_rev("target_rev", device)
