# SPDX-License-Identifier: Apache-2.0
"""Measure the mailbox against the floor, in one process, and write a table.

    python benchmarks/bench.py [--device cuda|cpu] [--out FILE] [--quick]

Every product number is printed with its ratio to the floor of the same run: a
flag that goes to the host and back, in pinned memory, with no payload. Nothing
here asserts a time. Medians over rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import pyrevoff as ro  # noqa: E402
from pyrevoff import compiler  # noqa: E402
from pyrevoff._lib import ffi, lib  # noqa: E402
from pyrevoff.errors import check  # noqa: E402

SOURCE = r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(nothing, void());
REVOFF_FUNCTION(report, void(int, double));
REVOFF_FUNCTION(scale, double(double));
REVOFF_FUNCTION(block, void(revoff::tofrom<char>));
extern "C" {
__device__ char data[1 << 20];
__device__ void *addrs[1];
__device__ size_t sizes[1] = {8};
__device__ unsigned short kinds[1] = {REVOFF_MAP_FORCE_TOFROM | 3 << 8};
__global__ void k_gomp(void *fn, int n) {
    for (int i = 0; i < n; ++i) GOMP_target_ext(-2, fn, 0, 0, 0, 0, 0, 0, 0);
}
__global__ void k_gomp8(void *fn, int n) {
    addrs[0] = data;  // in global memory, as on libgomp's soft stack: the host copies it
    for (int i = 0; i < n; ++i) GOMP_target_ext(-2, fn, 1, addrs, sizes, kinds, 0, 0, 0);
}
__global__ void k_nothing(int n) { for (int i = 0; i < n; ++i) nothing(); }
__global__ void k_report(int n) { for (int i = 0; i < n; ++i) report(i, 1.5); }
__global__ void k_scale(int n) { for (int i = 0; i < n; ++i) scale(1.5); }
__global__ void k_block(int n, int bytes) {
    for (int i = 0; i < n; ++i) block(revoff::tofrom(data, bytes));
}
}
"""
EMPTY = 'extern "C" __global__ void empty() {}'

PLACES = {"pinned": 0, "managed": 1, "copy": 2}
LOCKS = {"device": 0, "mailbox": 1}
WAITS = {"adaptive": 0, "spin": 1, "patch": 2}


class Native:
    """The floor programs, compiled for this machine."""

    def __init__(self, cuda: bool, folder: str) -> None:
        out = os.path.join(folder, "floor.so")
        if cuda:
            nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
            cmd = [nvcc, "-std=c++17", "-arch=native", "-O2", "-Xcompiler", "-fPIC"]
            cmd += ["-shared", str(HERE / "floor.cu"), "-o", out]
        else:
            cmd = ["cc", "-O2", "-shared", "-fPIC", str(HERE / "floor_cpu.c"), "-o", out]
            cmd += ["-lpthread"]
        subprocess.run(cmd, check=True, timeout=300)
        self.dll = ctypes.CDLL(out)
        for name in ("floor_pingpong_us", "floor_usleep_us", "floor_copy_us"):
            if hasattr(self.dll, name):
                getattr(self.dll, name).restype = ctypes.c_double

    def pointer(self, name: str) -> int:
        return ctypes.cast(getattr(self.dll, name), ctypes.c_void_p).value or 0


class Bench:
    """One device, opened anew for each combination of options."""

    def __init__(self, kind: str, native: Native, quick: bool) -> None:
        self.kind = kind
        self.platform = 0 if kind == "cuda" else 1
        self.native = native
        self.n = 500 if quick else 3000
        self.rounds = 3 if quick else 7
        self.image_data = self.compile(SOURCE)
        self.empty_data = self.compile(EMPTY)

    def compile(self, source: str, backend: str = "auto") -> bytes:
        if self.kind == "cpu":
            return compiler.compile_cpu(source, name="bench.cu").data
        data = compiler.compile_cuda(
            source, options=("-rdc=true",), name="bench.cu", backend=backend
        ).data
        return data.rstrip(b"\0") + b"\0"

    def open(self, place: str = "pinned", lock: str = "device", lists: bool = False):
        options = ffi.new("struct revoff_device_options *")
        options.placement, options.lock = PLACES[place], LOCKS[lock]
        options.no_packet = lists
        out = ffi.new("struct revoff_device **")
        check(lib.revoff_device_open(self.platform, 0, options, out))
        return out[0]

    def load(self, device, data: bytes, table: bool = False):
        inputs = ffi.new("struct revoff_input[1]")
        keep = ffi.from_buffer(data)
        inputs[0].data, inputs[0].size = keep, len(data)
        inputs[0].type = 0
        out = ffi.new("struct revoff_image **")
        check(lib.revoff_image_load(device, inputs, 1, ffi.NULL, out))
        return out[0]

    def bind(self, image, name: str, handler, user=ffi.NULL) -> None:
        index = lib.revoff_image_find(image, name.encode())
        check(index)
        check(lib.revoff_image_bind(image, index, handler, user))

    def kernel(self, image, name: str):
        out = ffi.new("struct revoff_kernel **")
        check(lib.revoff_kernel_get(image, name.encode(), out))
        return out[0]

    def config(self, args: list, grid: int = 1, block: int = 1):
        config = ffi.new("struct revoff_launch_config *")
        config.grid, config.block = [grid, 1, 1], [block, 1, 1]
        cells = [ffi.new(t, v) for t, v in args]
        params = ffi.new("void *[]", [ffi.cast("void *", c) for c in cells] or [ffi.NULL])
        config.params = params
        return config, (cells, params)

    def per_call(self, kernel, args: list, n: int, grid: int = 1, block: int = 1) -> float:
        config, keep = self.config(args, grid, block)
        stats = ffi.new("struct revoff_stats *")
        times = []
        for i in range(self.rounds + 1):
            check(lib.revoff_run(kernel, config, 60_000_000_000, stats))
            if i:
                times.append(stats.elapsed_ns * 1e-3 / n)
        del keep
        return statistics.median(times)

    def symbol(self, image, name: str) -> int:
        address, size = ffi.new("uint64_t *"), ffi.new("size_t *")
        check(lib.revoff_image_symbol(image, name.encode(), address, size))
        return int(address[0])

    def gomp_image(self, device):
        """The same kernels, with `nothing` served as a function of libgomp's table."""
        return self.load(device, self.image_data)


def mailbox_rows(b: Bench, handler) -> list[dict]:
    rows = []
    for place in PLACES:
        for lock in LOCKS:
            if place == "managed" and lock == "mailbox" and b.kind == "cuda":
                n = 50  # atomics of the device move the page: about 1 ms a call
            else:
                n = b.n // 4 if place == "copy" else b.n
            for wait in WAITS:
                if wait == "patch":
                    m = min(n, 400)
                else:
                    m = n
                device = b.open(place, lock)
                image = b.load(device, b.image_data)
                for name in ("nothing", "report", "scale"):
                    b.bind(image, name, handler)
                check(lib.revoff_device_set_wait(device, WAITS[wait], 0, 0))
                row = {"placement": place, "lock": lock, "wait": wait, "calls": m}
                for what, args in (("k_nothing", []), ("k_report", []), ("k_scale", [])):
                    k = b.kernel(image, what)
                    row[what[2:] + "_us"] = b.per_call(k, [("int *", m), *args], m)
                rows.append(row)
                check(lib.revoff_image_unload(image))
                check(lib.revoff_device_close(device))
    return rows


def gomp_rows(kind: str, b: Bench, handler) -> list[dict]:
    """Calls through GOMP_target_ext, the patch's own entry."""
    rows = []
    source = SOURCE.replace(
        "__device__ char data",
        "__device__ void region(void *) {}\n"
        + (
            '__device__ void (*rev_table[1])(void *) asm("$offload_func_table") = {region};\n'
            if kind == "cpu"
            else "__device__ void (*$offload_func_table[1])(void *) = {region};\n"
        )
        + "__device__ char data",
    )
    # NVRTC takes no $ in names.
    data = b.compile(source, "nvcc")
    for place in PLACES:
        for lists in (False, True):
            for wait in ("adaptive", "patch"):
                n = min(b.n, 400) if wait == "patch" or place == "copy" else b.n
                device = b.open(place, "device", lists)
                inputs = ffi.new("struct revoff_input[1]")
                keep = ffi.from_buffer(data)
                inputs[0].data, inputs[0].size = keep, len(data)
                name = ffi.new("char[]", b"region")
                names = ffi.new("char *[]", [name])
                options = ffi.new("struct revoff_image_options *")
                options.function_names = names
                options.nfunction_names = 1
                options.device_number = -1
                out = ffi.new("struct revoff_image **")
                check(lib.revoff_image_load(device, inputs, 1, options, out))
                image = out[0]
                b.bind(image, "region", handler)
                fn = ffi.new("struct revoff_function *")
                check(lib.revoff_image_function(image, lib.revoff_image_find(image, b"region"), fn))
                check(lib.revoff_device_set_wait(device, WAITS[wait], 0, 0))
                row = {
                    "placement": place,
                    "lists": "copied" if lists else "in the packet",
                    "wait": wait,
                    "calls": n,
                }
                for what in ("k_gomp", "k_gomp8"):
                    row[what[2:] + "_us"] = b.per_call(
                        b.kernel(image, what), [("uint64_t *", fn.fn), ("int *", n)], n
                    )
                rows.append(row)
                check(lib.revoff_image_unload(image))
                check(lib.revoff_device_close(device))
    return rows


def python_rows(kind: str, b: Bench) -> dict:
    """The public API: handlers in Python, images through load_image."""
    device = ro.Device(kind)
    image = ro.load_image(SOURCE, device=device)
    image.handler("nothing", lambda: None)
    image.handler("report", lambda i, x: None)
    image.handler("scale", lambda x: x)
    image.handler("block", lambda a: None)
    n = b.n
    out = {}

    def timed(kernel: str, *args: int, calls: int) -> float:
        times = []
        for i in range(b.rounds + 1):
            stats = image.run(kernel, *args, grid=1, block=1)
            if i:
                times.append(stats.elapsed * 1e6 / calls)
        return statistics.median(times)

    out["nothing_us"] = timed("k_nothing", n, calls=n)
    out["report_us"] = timed("k_report", n, calls=n)
    out["scale_us"] = timed("k_scale", n, calls=n)
    for bytes_ in (64, 4096, 65536, 1 << 20):
        m = max(20, min(n, (1 << 24) // bytes_))
        out[f"tofrom_{bytes_}_us"] = timed("k_block", m, bytes_, calls=m)
    image.close()
    return out


def unused_row(b: Bench) -> dict | None:
    """`run` of an image without reverse functions against launch and synchronise."""
    if b.kind != "cuda":
        return None
    cuda = ctypes.CDLL("libcuda.so.1")
    device = b.open()
    image = b.load(device, b.empty_data)
    kernel = b.kernel(image, "empty")
    config, keep = b.config([])
    dll = b.native.dll
    module, function, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    context = ctypes.c_void_p(int(ffi.cast("uintptr_t", lib.revoff_device_context(device))))
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    assert cuda.cuModuleLoadData(ctypes.byref(module), b.empty_data) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"empty") == 0
    assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
    plain, product = ctypes.c_double(), ctypes.c_double()
    rc = dll.compare_launch(
        cuda.cuLaunchKernel,
        cuda.cuStreamSynchronize,
        function,
        stream,
        ctypes.c_void_p(int(ffi.cast("uintptr_t", ffi.addressof(lib, "revoff_run")))),
        ctypes.c_void_p(int(ffi.cast("uintptr_t", kernel))),
        ctypes.c_void_p(int(ffi.cast("uintptr_t", config))),
        2000,
        ctypes.byref(plain),
        ctypes.byref(product),
    )
    cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    del keep
    check(lib.revoff_image_unload(image))
    if rc:
        raise RuntimeError(f"compare_launch: {rc}")
    return {
        "plain_us": plain.value,
        "run_us": product.value,
        "ratio": product.value / plain.value,
    }


def commit() -> str:
    """The commit that is measured; said by the caller where there is no history."""
    said = os.environ.get("PYREVOFF_COMMIT")
    if said:
        return said
    command = ["git", "-C", str(HERE), "rev-parse", "--verify", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except OSError:
        return "unknown"
    return done.stdout.strip() if not done.returncode else "unknown"


def machine(b: Bench) -> dict:
    info = ffi.new("struct revoff_device_info *")
    check(lib.revoff_device_query(b.platform, 0, info))
    result = {
        "device": ffi.string(info.name).decode(),
        "compute_capability": f"{info.major}.{info.minor}",
        "driver_api": info.driver_version,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release().split("-")[0],
    }
    smi = shutil.which("nvidia-smi")
    if b.kind == "cuda" and smi:
        query = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
        out = subprocess.run(query, capture_output=True, text=True, timeout=30)
        result["driver"] = out.stdout.split("\n")[0].strip()
    return result


def show(results: dict) -> None:
    floor = results["floor"]["relaxed_us"]
    print(f"floor (relaxed flag ping-pong): {floor:.2f} us")
    for name, value in results["floor"].items():
        print(f"  {name:28} {value:9.2f} us")

    def line(label: str, us: float) -> None:
        print(f"  {label:58} {us:9.2f} us {us / floor:7.2f} x floor")

    print("GOMP_target_ext, C handler, one calling thread")
    for r in results["gomp"]:
        label = f"{r['placement']}, lists {r['lists']}, wait {r['wait']}"
        line(label + ", nothing mapped", r["gomp_us"])
        line(label + ", tofrom 8 B", r["gomp8_us"])
    print("typed calls, C handler")
    for r in results["mailbox"]:
        label = f"{r['placement']}, lock {r['lock']}, wait {r['wait']}"
        line(label + ", void()", r["nothing_us"])
        line(label + ", double(double)", r["scale_us"])
    print("typed calls, Python handler, default placement")
    for name, us in results["python"].items():
        line(name[:-3], us)
    if results["unused"]:
        u = results["unused"]
        print(
            f"run without reverse functions: {u['run_us']:.2f} us, plain launch and "
            f"synchronise {u['plain_us']:.2f} us, ratio {u['ratio']:.3f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    kind = args.device or ("cuda" if ro.is_available("cuda") else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        native = Native(kind == "cuda", folder)
        b = Bench(kind, native, args.quick)
        handler = ffi.cast("revoff_handler *", native.pointer("null_handler"))
        dll = native.dll
        floor = {
            "relaxed_us": dll.floor_pingpong_us(0, b.n, b.rounds),
            "ordered_us": dll.floor_pingpong_us(1, b.n, b.rounds),
            "usleep_1_us": dll.floor_usleep_us(300),
        }
        if kind == "cuda":
            for size in (8, 4096, 1 << 20):
                for way, name in ((0, "from"), (1, "to")):
                    floor[f"copy_{name}_device_{size}_us"] = dll.floor_copy_us(
                        ctypes.c_size_t(size), way, 200
                    )
        results = {
            "date": datetime.date.today().isoformat(),
            "commit": commit(),
            "machine": machine(b),
            "floor": floor,
            "gomp": gomp_rows(kind, b, handler),
            "mailbox": mailbox_rows(b, handler),
            "python": python_rows(kind, b),
            "unused": unused_row(b),
        }
    show(results)
    if args.out:
        Path(args.out).write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
