# SPDX-License-Identifier: Apache-2.0
"""One call and its answer: the floor, ports by payload, the mailbox, silence."""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from typing import Any

import numpy as np

import pyrevoff as ro
from pyrevoff import compiler
from pyrevoff._lib import ffi, lib
from pyrevoff.errors import RevoffError, check

from .core import HERE, Run, Skip, size_name

ARRAYS = (64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)
QUICK_ARRAYS = (64, 4 << 10, 1 << 20)
STRUCTS = (16, 32, 64, 128)
PORTS, REQUEST = 8192, 2112  # as an H200 has; bytes of a request in its port


def pingpong(run: Run, ordered: bool = False, lanes: int = 1) -> float:
    """A flag to the host and back; us."""
    us = run.native.floor.floor_pingpong_us(int(ordered), lanes, run.calls, run.rounds)
    if us <= 0:
        raise RuntimeError("the floor's ping-pong failed: see floor_pingpong_us")
    return float(us)


def floor(run: Run) -> None:
    """A flag that goes to the host and back in pinned memory: nothing can be faster."""
    run.row("flag ping-pong, relaxed", pingpong(run), "us", lanes=1, order="relaxed")
    if run.kind == "cuda":
        us = pingpong(run, ordered=True)
        run.row("flag ping-pong, release and acquire", us, "us", lanes=1, order="ordered")
        us = pingpong(run, lanes=32)
        name = "flag ping-pong, relaxed, a flag of each of 32 lanes"
        run.row(name, us, "us", lanes=32, order="relaxed")
    slept = run.native.floor.floor_usleep_us(300 if not run.quick else 50)
    run.row("usleep(1)", slept, "us", what="usleep")


def _copies(run: Run, sizes: tuple[int, ...]) -> None:
    """The two plain copies that an array needs at least, pinned memory."""
    if run.kind != "cuda":
        run.skip("plain copies", "the CPU device has no bus to copy over")
        return
    copy = run.native.floor.floor_copy_us
    for size in sizes:
        n = 200 if size <= 1 << 20 else 40
        back, there = (float(copy(ctypes.c_size_t(size), way, n)) for way in (0, 1))
        if min(back, there) <= 0:
            raise RuntimeError(f"floor_copy_us failed for {size} bytes")
        name = f"two plain copies, {size_name(size)} each way"
        run.row(name, back + there, "us", what="copies", bytes=size, down=back, up=there)


def _array_rows(run: Run, image: ro.Image, handler: str, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        calls = max(8, min(run.calls, (64 << 20 if run.kind == "cuda" else 16 << 20) // size))
        if handler == "C":
            run.bind_c(image, "array", "c_nothing")
        else:
            image.handler("array", lambda a: None)
        us, detail = run.per_call(image, "k_array", size // 4, calls=calls)
        name = f"array tofrom, {size_name(size)}, {handler} handler"
        run.row(name, us, "us", what="tofrom", handler=handler, bytes=size, **detail)


def _array_checks(run: Run, image: ro.Image, handler: str, sizes: tuple[int, ...]) -> None:
    """Separate, so that the handler's own work is not in the times."""
    if handler == "C":
        run.bind_c(image, "array", "c_up_array")
    else:
        image.handler("array", lambda a: np.add(a, 1, out=a))
    total = 1 << 22
    for size in sizes:
        start = np.arange(total, dtype=np.uint32)
        image.write_symbol("data", start)
        image.run("k_array", 3, size // 4, grid=1, block=1)
        start[: size // 4] += 3
        same = bool((image.read_symbol("data", np.uint32) == start).all())
        run.check(f"array of {size_name(size)} through a {handler} handler, three times", same)


def ports(run: Run) -> None:
    """Ports, one calling lane, by what goes with the call."""
    sizes = QUICK_ARRAYS if run.quick else ARRAYS
    with run.image(transport="ports") as image:
        n = run.calls
        run.bind_c(image, "nothing", "c_nothing")
        us, detail = run.per_call(image, "k_nothing", calls=n)
        run.row("void(), C handler", us, "us", what="nothing", handler="C", bytes=0, **detail)
        run.bind_c(image, "up", "c_up")
        us, detail = run.per_call(image, "k_up", calls=n)
        run.row(
            "double(double), C handler", us, "us", what="scalar", handler="C", bytes=8, **detail
        )
        for size in STRUCTS:
            run.bind_c(image, f"up{size}", "c_up_words")
            us, detail = run.per_call(image, f"k_up{size}", calls=n)
            name = f"struct of {size} B each way, C handler"
            run.row(name, us, "us", what="struct", handler="C", bytes=size, **detail)
        run.wrong(image, "values through C handlers")
        _array_rows(run, image, "C", sizes)
        image.handler("nothing", lambda: None)
        us, detail = run.per_call(image, "k_nothing", calls=n)
        run.row("void(), Python handler", us, "us", what="nothing", handler="Python", **detail)
        image.handler("up", lambda x: x + 1)
        us, detail = run.per_call(image, "k_up", calls=n)
        name = "double(double), Python handler"
        run.row(name, us, "us", what="scalar", handler="Python", bytes=8, **detail)
        got: list[str] = []
        image.handler("text", lambda text: None)
        us, detail = run.per_call(image, "k_text", calls=n)
        run.row("string, Python handler", us, "us", what="string", handler="Python", **detail)
        image.handler("text", got.append)
        image.run("k_text", 2, grid=1, block=1)
        run.check("strings", got == ["a line of text from a kernel"] * 2, repr(got)[:80])
        run.wrong(image, "values through Python handlers")
        _array_rows(run, image, "Python", sizes)
        for handler in ("C", "Python"):
            _array_checks(run, image, handler, sizes)
        run.wrong(image, "array calls")
    _copies(run, tuple(s for s in sizes if s >= 64 << 10))


# ---- the mailbox ---------------------------------------------------------------

WAYS: dict[str, dict[str, str]] = {
    "pinned": {"placement": "pinned"},
    "managed": {"placement": "managed"},
    "copy": {"placement": "copy"},
    "pinned, lock in the mailbox": {"placement": "pinned", "lock": "mailbox"},
    "pinned, the patch's loop": {"placement": "pinned", "wait": "patch"},
    "managed, the patch's loop": {"placement": "managed", "wait": "patch"},
    "copy, the patch's loop": {"placement": "copy", "wait": "patch"},
}


def _mailbox_way(run: Run, way: str, options: dict[str, str]) -> None:
    n = run.calls if len(options) == 1 or "lock" in options else 300
    n = min(n, 750) if options["placement"] == "copy" else n
    rounds = run.rounds if run.quick or n > 500 else 3
    with run.image(transport="mailbox", **options) as image:
        run.bind_c(image, "nothing", "c_nothing")
        run.bind_c(image, "up", "c_up")
        run.bind_c(image, "up64", "c_up_words")
        for kernel, what, size, text in (
            ("k_nothing", "nothing", 0, "void(), C handler"),
            ("k_up", "scalar", 8, "double(double), C handler"),
            ("k_up64", "struct", 64, "struct of 64 B each way, C handler"),
        ):
            us, detail = run.per_call(image, kernel, calls=n, rounds=rounds)
            kept = {"way": way, "what": what, "bytes": size, "handler": "C", **options, **detail}
            run.row(f"mailbox {way}: {text}", us, "us", **kept)
        image.handler("up", lambda x: x + 1)
        us, detail = run.per_call(image, "k_up", calls=n, rounds=rounds)
        kept = {"way": way, "what": "scalar", "bytes": 8, "handler": "Python", **options, **detail}
        run.row(f"mailbox {way}: double(double), Python handler", us, "us", **kept)
        run.wrong(image, f"values through the mailbox, {way}")


def mailbox(run: Run) -> None:
    """The mailbox in each placement, with pyrevoff's wait and with the patch's."""
    for way, options in WAYS.items():
        try:
            _mailbox_way(run, way, options)
        except ro.UnsupportedError as error:
            run.skip(f"mailbox {way}", error)
    _gomp(run)


def _gomp_data(run: Run) -> bytes:
    source = (HERE / "gomp.cu").read_text()
    if run.kind == "cpu":
        return compiler.compile_cpu(source, name="gomp.cu").data
    options = ("-rdc=true",)
    data = compiler.compile_cuda(source, options=options, name="gomp.cu", backend="nvcc").data
    return data.rstrip(b"\0") + b"\0"


def _gomp_open(run: Run, transport: int, lists: bool, wait: int) -> Any:
    """A device as no user opens one: callers leave the lists where they are."""
    options = ffi.new("struct revoff_device_options *")
    options.transport, options.placement = transport, lib.REVOFF_PLACE_PINNED
    options.no_packet, options.wait = lists, wait
    out = ffi.new("struct revoff_device **")
    check(lib.revoff_device_open(0 if run.kind == "cuda" else 1, 0, options, out))
    return out[0]


def _gomp_rows(run: Run, device: Any, data: bytes, label: str, n: int) -> None:
    inputs = ffi.new("struct revoff_input[1]")
    keep = ffi.from_buffer(data)
    inputs[0].data, inputs[0].size = keep, len(data)
    name = ffi.new("char[]", b"region")
    names = ffi.new("char *[]", [name])
    options = ffi.new("struct revoff_image_options *")
    options.function_names, options.nfunction_names, options.device_number = names, 1, -1
    out = ffi.new("struct revoff_image **")
    check(lib.revoff_image_load(device, inputs, 1, options, out))
    image = out[0]
    try:
        index = check(lib.revoff_image_find(image, b"region"))
        handler = ffi.cast("revoff_handler *", run.native.address("c_nothing"))
        check(lib.revoff_image_bind(image, index, handler, ffi.NULL))
        function = ffi.new("struct revoff_function *")
        check(lib.revoff_image_function(image, index, function))
        for kernel, text in (("k_gomp", "nothing mapped"), ("k_gomp8", "tofrom 8 B")):
            found = ffi.new("struct revoff_kernel **")
            check(lib.revoff_kernel_get(image, kernel.encode(), found))
            cells = [ffi.new("uint64_t *", function.fn), ffi.new("int *", n)]
            params = ffi.new("void *[]", [ffi.cast("void *", c) for c in cells])
            config = ffi.new("struct revoff_launch_config *")
            config.grid, config.block, config.params = [1, 1, 1], [1, 1, 1], params
            stats, times = ffi.new("struct revoff_stats *"), []
            for i in range(run.rounds + 1):
                check(lib.revoff_run(found[0], config, 60_000_000_000, stats))
                if i:
                    times.append(stats.elapsed_ns * 1e-3 / n)
            us = statistics.median(times)
            detail = {"what": f"gomp, {text}", "calls": n, "min": min(times), "max": max(times)}
            run.row(f"GOMP_target_ext, {label}: {text}", us, "us", **detail)
            answered = int(stats.calls)
            run.check(f"calls of GOMP_target_ext, {label}", answered == n, f"{answered} of {n}")
    finally:
        check(lib.revoff_image_unload(image))
        del keep


def _gomp(run: Run) -> None:
    """libgomp's own entry: what code made by GCC would see."""
    try:
        data = _gomp_data(run)
    except RevoffError as error:
        run.skip("GOMP_target_ext", error)
        return
    box, adaptive = lib.REVOFF_TRANSPORT_MAILBOX, lib.REVOFF_WAIT_ADAPTIVE
    for label, transport, lists, wait, most in (
        ("ports", lib.REVOFF_TRANSPORT_PORTS, False, adaptive, run.calls),
        ("mailbox pinned", box, False, adaptive, run.calls),
        ("mailbox pinned, lists copied", box, True, adaptive, 1000),
        ("mailbox pinned, lists copied, patch's loop", box, True, lib.REVOFF_WAIT_PATCH, 300),
    ):
        device = _gomp_open(run, transport, lists, wait)
        try:
            _gomp_rows(run, device, data, label, min(run.calls, most))
        finally:
            check(lib.revoff_device_close(device))


# ---- silence -------------------------------------------------------------------


def _share(run: Run, image: ro.Image, seconds: float) -> float:
    """Share of one core, in percent, from 10 ms after the launch to just before its end."""
    marks: list[tuple[float, float]] = []
    clock = time.pthread_getcpuclockid(threading.get_ident())

    def spent() -> float:
        # The CPU device computes in this process: there only the server counts.
        return time.process_time() if run.kind == "cuda" else time.clock_gettime(clock)

    def sample() -> None:
        for at in (0.010, seconds - 0.002):
            time.sleep(max(0.0, start + at - time.perf_counter()))
            marks.append((time.perf_counter(), spent()))

    thread = threading.Thread(target=sample)
    start = time.perf_counter()
    thread.start()
    image.run("k_quiet", np.uint64(seconds * 1e9), grid=1, block=1)
    thread.join(seconds + 30)
    if len(marks) < 2:
        raise RuntimeError("the sampling thread did not end")
    (t0, c0), (t1, c1) = marks
    return 100 * (c1 - c0) / (t1 - t0)


def _scans(run: Run) -> None:
    """Bells, 8 in a word, against the heads of requests, of which each has lines of its own."""
    for what, stride in (("bells", 8), ("heads of their requests", REQUEST)):
        nports = PORTS // 8 if what == "bells" else PORTS
        size = ctypes.c_uint64(nports * stride)
        ns = run.native.handlers.scan_ns(size, ctypes.c_uint64(stride), 50)
        run.row(
            f"a look at {PORTS} ports by the {what}", ns * 1e-3, "us", what="scan", stride=stride
        )


def silence(run: Run) -> None:
    """A kernel that computes and does not call: what that costs, and the next call."""
    _scans(run)
    bare = run.native.handlers.nap_share(ctypes.c_uint64(50_000), 50 if run.quick else 500)
    run.row("CPU of a thread that only sleeps, 50 us a time", bare, "%", what="nap")
    with run.image(transport="ports") as image:
        run.bind_c(image, "nothing", "c_nothing")
        whose = "process" if run.kind == "cuda" else "serving thread"
        for ms in (30,) if run.quick else (30, 100, 300, 1000):
            shares = [_share(run, image, ms * 1e-3) for _ in range(1 if ms > 300 else 3)]
            name = f"CPU of the {whose}, silence of {ms} ms, after 10 ms"
            run.row(name, statistics.median(shares), "%", what="cpu", ms=ms, all=shares)
        step = np.zeros(1, np.uint64)
        image.run("k_tick", ro.from_(step), grid=1, block=1)
        for ms, n in ((2, 5),) if run.quick else ((20, 100), (200, 15), (1000, 5)):
            if run.kind == "cpu" and not run.quick:
                n = max(3, n // 5)
            took = np.zeros(n, np.uint64)
            image.run("k_first", np.uint64(ms * 1e6), n, ro.from_(took), grid=1, block=1)
            us = took * 1e-3
            detail = {"ms": ms, "calls": n, "clock_step_ns": int(step[0])}
            _first_rows(run, f"first call after {ms} ms of silence", us, detail)
        # Each from another port: how far they are from each other must not matter.
        ms, n, block = (20, 100, 1024) if run.kind == "cuda" else (20, 5, 32)
        took = np.zeros(n, np.uint64)
        image.run("k_first_of_each", np.uint64(ms * 1e6), ro.from_(took), grid=n, block=block)
        detail = {"ms": ms, "calls": n, "clock_step_ns": int(step[0])}
        name = f"first call of another warp after {ms} ms of silence"
        _first_rows(run, name, took * 1e-3, detail)


def _first_rows(run: Run, name: str, us: Any, detail: dict[str, int]) -> None:
    run.row(f"{name}, median", np.median(us), "us", what="first", of="median", **detail)
    run.row(f"{name}, longest", us.max(), "us", what="first", of="max", **detail)
    run.check(f"{name}: calls", bool((us > 0).all()))


# ---- an image without reverse functions ------------------------------------------

PLAIN = 'extern "C" __global__ void plain(int n) { (void)n; }'


def unused(run: Run) -> None:
    """`run` of an image without reverse functions against launch and synchronise."""
    if run.kind != "cuda":
        raise Skip("plain launches go through libcuda, which the CPU device does not use")
    cuda = ctypes.CDLL("libcuda.so.1")
    data = compiler.compile_cuda(PLAIN, name="plain.cu").data.rstrip(b"\0") + b"\0"
    device = ro.Device("cuda", transport="ports")
    with ro.load_image(PLAIN, device=device, name="plain.cu") as image:
        kernel = image._kernel("plain")[0]
        cell = ffi.new("int *", 1)
        params = ffi.new("void *[]", [ffi.cast("void *", cell)])
        config = ffi.new("struct revoff_launch_config *")
        config.grid, config.block, config.params = [1, 1, 1], [1, 1, 1], params
        module, function, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        before = ctypes.c_void_p()
        each = 200 if run.quick else 3000

        def must(result: int, entry: str) -> None:
            if result:
                raise RuntimeError(f"{entry} gave {result}")

        def pointer(value: Any) -> ctypes.c_void_p:
            return ctypes.c_void_p(int(ffi.cast("uintptr_t", value)))

        must(cuda.cuCtxPushCurrent_v2(ctypes.c_void_p(device.context)), "cuCtxPushCurrent")
        try:
            must(cuda.cuModuleLoadData(ctypes.byref(module), data), "cuModuleLoadData")
            got = cuda.cuModuleGetFunction(ctypes.byref(function), module, b"plain")
            must(got, "cuModuleGetFunction")
            must(cuda.cuStreamCreate(ctypes.byref(stream), 1), "cuStreamCreate")
            ours = (pointer(ffi.addressof(lib, "revoff_run")), pointer(kernel), pointer(config))
            pairs = []
            for _ in range(2 if run.quick else 5):
                plain, product = ctypes.c_double(), ctypes.c_double()
                got = run.native.floor.compare_launch(
                    cuda.cuLaunchKernel,
                    cuda.cuStreamSynchronize,
                    function,
                    stream,
                    pointer(params),
                    *ours,
                    each,
                    ctypes.byref(plain),
                    ctypes.byref(product),
                )
                must(got, "compare_launch")
                pairs.append((plain.value, product.value))
            must(cuda.cuStreamDestroy_v2(stream), "cuStreamDestroy")
            must(cuda.cuModuleUnload(module), "cuModuleUnload")
        finally:
            cuda.cuCtxPopCurrent_v2(ctypes.byref(before))
        ratios = [b / a for a, b in pairs]
        detail = {"each": each, "rounds": len(pairs)}
        plain_us = statistics.median(a for a, _ in pairs)
        run.row("plain launch and synchronise", plain_us, "us", what="plain", **detail)
        product_us = statistics.median(b for _, b in pairs)
        run.row("revoff_run, no reverse functions", product_us, "us", what="run", **detail)
        ratio = statistics.median(ratios)
        run.row("the second to the first", ratio, "ratio", what="ratio", all=ratios, **detail)
        times = []
        for _ in range(each):
            start = time.perf_counter()
            image.run("plain", 1, grid=1, block=1)
            times.append((time.perf_counter() - start) * 1e6)
        us = statistics.median(times)
        run.row("Image.run from Python, no reverse functions", us, "us", what="python", each=each)
