# SPDX-License-Identifier: Apache-2.0
"""What only a GPU can show: its tools, its linker, its containers, its contexts."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT

pytestmark = pytest.mark.gpu

SOURCE = r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(twice, double(double));
extern "C" __global__ void scale(double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = twice(x[i]);
}
"""
# As a compiler for libgomp would make it: the entry is undefined here.
FOREIGN = r"""
extern "C" __device__ void GOMP_target_ext(int, void *, size_t, void **, size_t *,
                                           unsigned short *, unsigned, void **, void **);
extern "C" {
__device__ void region(void *) {}
__device__ void (*$offload_func_table[2])(void *) = {0, region};
__device__ int data[4] = {1, 2, 3, 4};
__device__ void *addrs[1];
__device__ size_t sizes[1] = {sizeof(data)};
__device__ unsigned short kinds[1] = {0x203};
__global__ void kernel(void *, void *, size_t) {
    if (threadIdx.x || threadIdx.y) return;  // libgomp launches a team of 8 warps
    addrs[0] = data;
    GOMP_target_ext(-2, (void *)region, 1, addrs, sizes, kinds, 0, 0, 0);
}
}
"""


def nvcc(tmp_path, source: str, *options: str, suffix: str) -> bytes:
    found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(found):
        pytest.skip("no nvcc")
    (tmp_path / "k.cu").write_text(source)
    out = tmp_path / f"k.{suffix}"
    command = [found, "-std=c++17", f"-I{ROOT / 'csrc' / 'include'}", *options]
    subprocess.run([*command, str(tmp_path / "k.cu"), "-o", str(out)], check=True, timeout=100)
    return out.read_bytes()


def check_scale(image) -> None:
    image.handler("twice", lambda x: 2 * x)
    x = np.arange(300.0)
    stats = image.run("scale", _map(x), x.size, grid=2, block=256, timeout=30)
    assert stats.calls == 300 and (x == 2 * np.arange(300.0)).all()


def _map(x):
    import pyrevoff as ro

    return ro.tofrom(x)


CONTAINERS = [
    (["-ptx", "-arch=compute_75"], "ptx"),
    (["-cubin", "-arch=native"], "cubin"),
    (["-fatbin", "-arch=native"], "fatbin"),
    (["-fatbin", "-arch=native", "-Xfatbin", "-compress-all"], "fatbin"),
]


@pytest.mark.parametrize("rdc", ["-rdc=true", "-rdc=false"])
@pytest.mark.parametrize("options, suffix", CONTAINERS)
def test_every_container_is_served(tmp_path, options, suffix, rdc):
    import pyrevoff as ro

    if rdc == "-rdc=true" and suffix != "ptx":
        pytest.skip("relocatable device code of a binary has to be linked first")
    data = nvcc(tmp_path, SOURCE, rdc, *options, suffix=suffix)
    with ro.load_image(data, device="cuda") as image:
        check_scale(image)


@pytest.mark.parametrize("rdc", ["-rdc=true", "-rdc=false"])
@pytest.mark.parametrize("options, suffix", CONTAINERS)
def test_every_container_prints(tmp_path, options, suffix, rdc):
    import pyrevoff as ro

    source = r"""
#include <pyrevoff.h>
extern "C" __global__ void say(int x) {
    revoff::print("x is {}", x);
    revoff::printf("%d\n", x);
    revoff::progress(x, 9);
    REVOFF_ASSERT(x < 9);
}"""
    lines, seen = [], []
    with ro.load_image(nvcc(tmp_path, source, rdc, *options, suffix=suffix)) as image:
        image.output, image.progress = lines.append, lambda *how_far: seen.append(how_far)
        image.run("say", np.int32(5), grid=1, block=1, timeout=30)
        assert lines == ["x is 5\n", "5\n"] and seen == [(5, 9)]
        with pytest.raises(ro.KernelAssertionError, match="x < 9"):
            image.run("say", np.int32(9), grid=1, block=1, timeout=30)


def test_code_made_for_libgomp_links_against_the_device_library(tmp_path):
    import pyrevoff as ro

    ptx = nvcc(tmp_path, FOREIGN, "-rdc=true", "-ptx", "-arch=compute_75", suffix="ptx")
    tables = ro.gomp.load_image("cuda", ptx, functions=["kernel", "region"], variables=["data"])
    with tables.image as image:
        assert tables.rev_fn is not None and tables.rev_fn[0] == 0 and tables.rev_fn[1]
        seen = []

        def region(items):
            values = items[0].as_array(np.int32)
            seen.append(values.tolist())
            values += 10

        ro.gomp.bind(tables, tables.rev_fn[1], region)
        ro.gomp.run("cuda", tables.target[0].start, 0, timeout=30)
        assert seen == [[1, 2, 3, 4]]
        assert image.read_symbol("data", np.int32).tolist() == [11, 12, 13, 14]


def test_memcheck_finds_nothing_in_the_demo():
    tool = shutil.which("compute-sanitizer")
    if not tool:
        pytest.skip("no compute-sanitizer")
    # The driver is asked for one kernel parameter too many, to learn how many
    # there are: the tool would count that answer as an error of the API.
    command = [tool, "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9"]
    done = subprocess.run(
        [*command, sys.executable, "examples/hello.py"],
        env={**os.environ, "PYREVOFF_DEVICE": "cuda", "PYTHONPATH": _path()},
        capture_output=True,
        text=True,
        timeout=100,
        start_new_session=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "ERROR SUMMARY: 0 errors" in done.stdout
    assert "1001 calls" in done.stdout


def _path() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def test_the_callers_context_is_left_alone():
    """R17: current before is current after, also when the call fails."""
    import pyrevoff as ro

    cuda = ctypes.CDLL("libcuda.so.1")
    device, own = ctypes.c_int(), ctypes.c_void_p()
    ro.Device("cuda")
    assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    create = cuda.cuCtxCreate_v2
    assert create(ctypes.byref(own), 0, device) == 0
    try:

        def current() -> int | None:
            now = ctypes.c_void_p()
            assert cuda.cuCtxGetCurrent(ctypes.byref(now)) == 0
            return now.value

        assert current() == own.value
        with ro.load_image(SOURCE, device="cuda") as image:
            assert current() == own.value
            check_scale(image)
            assert current() == own.value
            with pytest.raises(ro.NotFoundError):
                image.symbol("nothing")
            assert current() == own.value
        with pytest.raises(ro.ImageError):
            ro.load_image(".version 6.3\n.target sm_75\n.address_size 64\nnonsense;", device="cuda")
        assert current() == own.value
    finally:
        cuda.cuCtxDestroy_v2(own)


def test_a_kernel_that_faults_names_itself_and_loses_only_its_process():
    code = """
import numpy as np, pyrevoff as ro
src = '''
extern "C" __global__ void wild(int *p) { p[1 << 28] = 1; *(int *)8 = 1; }
'''
image = ro.load_image(src, device="cuda")
try:
    image.run("wild", ro.to(np.zeros(1, np.int32)), grid=1, block=1, timeout=30)
except ro.DriverError as error:
    print("first", error.code in (700, 716, 717, 719), "wild" in str(error))
try:
    image.run("wild", ro.to(np.zeros(1, np.int32)), grid=1, block=1, timeout=30)
except ro.ContextLostError as error:
    print("second", "new process" in str(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": _path()},
        capture_output=True,
        text=True,
        timeout=100,
        start_new_session=True,
    )
    assert done.stdout.splitlines() == ["first True True", "second True"], done.stderr
