# SPDX-License-Identifier: Apache-2.0
"""Images and launches: forms of an image, life time, turns, streams, limits."""

import gc
import logging
import threading
import time
import weakref

import numpy as np
import pytest

import pyrevoff as ro
from pyrevoff import compiler

SOURCE = r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(tick, int(int));
extern "C" {
__device__ int counter = 5;
__device__ double table[4];
__global__ void one(int *out) { *out = tick(1); }
__global__ void many(int n) { for (int i = 0; i < n; ++i) tick(i); }
__global__ void forever() { int y; while (tick.try_call(&y, 0) == revoff::ok) { } }
__global__ void shape(int *out) {
    extern __shared__ int dynamic[];
    dynamic[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        int n = 0;
        for (unsigned i = 0; i < blockDim.x; ++i) n += dynamic[i];
        atomicAdd(out, n);
    }
}
__global__ void bump() { counter += 1; table[3] = counter; }
}
"""
PLAIN = 'extern "C" __global__ void fill(int *p, int v) { *p = v; }'

pytestmark = pytest.mark.once


@pytest.fixture
def image(device):
    with ro.load_image(SOURCE, device=device, name="image.cu") as image:
        yield image


def compiled(source, device):
    if device.kind == "cpu":
        return compiler.compile_cpu(source).data
    info = device.info()
    ptx = compiler.compile_cuda(source, arch=f"compute_{info['major']}{info['minor']}").data
    return compiler.lower_ptx_version(ptx, info["driver_version"])


def check_plain(image):
    a = np.zeros(1, np.int32)
    stats = image.run("fill", ro.from_(a), 41, grid=1, block=1, timeout=60)
    assert a[0] == 41 and stats.calls == 0
    assert not image.connected and image.functions == {}


# ---- forms ------------------------------------------------------------------------


def test_from_compiled_bytes(device):
    data = compiled(PLAIN, device)
    for form in (data, bytearray(data), memoryview(data)):
        with ro.load_image(form, device=device) as image:
            check_plain(image)


def test_from_an_object_with_code(device):
    class ObjectCode:
        code = compiled(PLAIN, device)
        name = "mine"

    with ro.load_image(ObjectCode(), device=device) as image:
        assert image.name == "mine"
        check_plain(image)


def test_from_a_path(device, tmp_path):
    source = tmp_path / "plain.cu"
    source.write_text(PLAIN)
    binary = tmp_path / ("plain.so" if device.kind == "cpu" else "plain.ptx")
    binary.write_bytes(compiled(PLAIN, device))
    for path in (source, str(source), binary, str(binary)):
        with ro.load_image(path, device=device) as image:
            assert image.name.startswith("plain.")
            check_plain(image)
    with pytest.raises(FileNotFoundError):
        ro.load_image(tmp_path / "other.cu", device=device)
    with pytest.raises(FileNotFoundError):
        ro.load_image(str(tmp_path / "other.cu"), device=device)


def test_options_reach_the_compiler(device):
    source = 'extern "C" __global__ void fill(int *p, int v) { *p = v + MORE; }'
    with ro.load_image(source, device=device, options=["-DMORE=2"]) as image:
        a = np.zeros(1, np.int32)
        image.run("fill", ro.from_(a), 40, grid=1, block=1, timeout=60)
        assert a[0] == 42


def test_what_is_no_image(device):
    with pytest.raises(TypeError, match="int"):
        ro.load_image(3, device=device)
    with pytest.raises(ro.ImageError, match="no PTX"):
        ro.load_image(b"some bytes", device=device)
    with pytest.raises(ro.CompileError, match=r"broken\.cu") as caught:
        ro.load_image("this is no C++", device=device, name="broken.cu")
    assert caught.value.log
    wrong = b"\x7fELF" + bytes(200) if device.kind == "cuda" else b".version 6.3\n.target sm_75\n"
    with pytest.raises(ro.ArchitectureError):
        ro.load_image(wrong, device=device)


def test_truncated_image(device):
    data = compiled(PLAIN, device)
    step = len(data) // 50 if device.kind == "cpu" else len(data) // 2
    for size in range(step, len(data) - 1, step):
        with pytest.raises(ro.ImageError):
            ro.load_image(data[:size], device=device)


@pytest.mark.parametrize("size", [4, 15, 16, 40, 63, 64, 100])
def test_binaries_of_which_little_is_there(device, size):
    elf = b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + (190).to_bytes(2, "little")
    fatbin = b"\x50\xed\x55\xba\x01\x00\x10\x00" + (4096).to_bytes(8, "little")
    if device.kind == "cpu":
        elf = compiled(PLAIN, device)
    for start in (elf, fatbin):
        with pytest.raises((ro.ImageError, ro.ArchitectureError)):
            ro.load_image(start[:size].ljust(size, b"\1"), device=device)


def test_image_of_another_abi(device):
    source = SOURCE.replace(
        "#include <pyrevoff.h>",
        "#include <revoff/protocol.h>\n#undef REVOFF_ABI_VERSION\n"
        "#define REVOFF_ABI_VERSION 99\n#include <pyrevoff.h>",
    )
    with pytest.raises(ro.AbiError, match="99"):
        ro.load_image(source, device=device)


# ---- names ---------------------------------------------------------------------------


def test_names(image, device):
    assert list(image.functions) == ["tick"]
    assert str(image.functions["tick"]) == "int32(int32)"
    assert image.connected and image.device is device
    assert "image.cu" in repr(image)
    with pytest.raises(ro.NotFoundError, match="'nokernel'"):
        image.run("nokernel", grid=1, block=1)
    with pytest.raises(ro.NotFoundError, match="nosymbol"):
        image.symbol("nosymbol")


def test_symbols(image):
    address, size = image.symbol("counter")
    assert address and size == 4
    assert list(image.read_symbol("counter", "i4")) == [5]
    image.write_symbol("counter", np.int32(9))
    image.write_symbol("table", np.arange(4.0))
    image.run("bump", grid=1, block=1, timeout=60)
    assert list(image.read_symbol("counter", "i4")) == [10]
    assert list(image.read_symbol("table", "f8")) == [0, 1, 2, 10]
    with pytest.raises(ValueError, match="4 bytes"):
        image.write_symbol("counter", np.zeros(2, "i4"))
    with pytest.raises(TypeError, match=r"counter.*>i4"):
        image.write_symbol("counter", np.array([9], ">i4"))


# ---- launches ----------------------------------------------------------------------


def test_grid_block_and_shared(image):
    for grid, block in ((3, 7), ((3,), (7,)), ((1, 3), (7, 1)), ((1, 1, 3), [7, 1, 1])):
        out = np.zeros(1, np.int32)
        image.run("shape", ro.tofrom(out), grid=grid, block=block, shared=28, timeout=60)
        assert out[0] == 21
    for grid, block in ((0, 1), (1, 0), (-1, 1), ((1, 1, 1, 1), 1), ((), 1)):
        with pytest.raises(ValueError):
            image.run("shape", None, grid=grid, block=block)
    with pytest.raises(ValueError, match="1048576 threads"):
        image.run("shape", None, grid=1, block=1 << 20)
    with pytest.raises(TypeError):
        image.run("shape", None, grid=1.5, block=1)
    for timeout in (-1, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            image.run("shape", None, grid=1, block=1, timeout=timeout)


def test_stats(image):
    image.handler("tick", lambda i: i)
    stats = image.run("many", 50, grid=1, block=1, timeout=60)
    assert (stats.calls, stats.failed) == (50, 0)
    assert stats.polls >= 50 and 0 < stats.elapsed < 60


def test_streams(image):
    class Stream:
        def __init__(self, **attributes):
            vars(self).update(attributes)

    out = np.zeros(1, np.int32)
    image.handler("tick", lambda i: 6)
    forms = [None, 0, Stream(ptr=0), Stream(cuda_stream=0), Stream(handle=0)]
    forms += [Stream(__cuda_stream__=lambda: (0, 0))]
    for stream in forms:
        out[0] = 0
        image.run("one", ro.from_(out), grid=1, block=1, stream=stream, timeout=60)
        assert out[0] == 6
    with pytest.raises(TypeError):
        image.run("one", ro.from_(out), grid=1, block=1, stream="main")


@pytest.mark.gpu
def test_stream_of_torch():
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    with ro.load_image(SOURCE, device="cuda") as image:
        image.handler("tick", lambda i: 6)
        out = np.zeros(1, np.int32)
        image.run("one", ro.from_(out), grid=1, block=1, stream=stream, timeout=60)
        assert out[0] == 6


def test_two_threads_take_turns_on_one_image(image):
    inside, most = [0], [0]

    def tick(i):
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.001)
        inside[0] -= 1
        return i

    image.handler("tick", tick)
    results = []
    threads = [
        threading.Thread(
            target=lambda: results.append(image.run("many", 20, grid=1, block=1, timeout=60))
        )
        for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert [r.calls for r in results] == [20] * 4 and most == [1]


def test_waiting_for_a_turn_counts_against_the_limit(image):
    running, end = threading.Event(), threading.Event()

    def tick(i):
        running.set()
        end.wait(30)
        return i

    image.handler("tick", tick)
    other = threading.Thread(target=lambda: image.run("many", 1, grid=1, block=1))
    other.start()
    assert running.wait(30)
    start = time.monotonic()
    with pytest.raises(ro.LaunchTimeout, match="another thread"):
        image.run("many", 1, grid=1, block=1, timeout=0.3)
    assert time.monotonic() - start < 5
    end.set()
    other.join(30)
    assert image.run("many", 1, grid=1, block=1, timeout=30).calls == 1


def test_two_images_side_by_side(image, device):
    """Each handler sees the calls of its own image only."""
    with ro.load_image(SOURCE, device=device) as second:
        seen = {image: [], second: []}
        for i in seen:
            i.handler("tick", lambda v, i=i: (seen[i].append(ro.current_call().image), v)[1])
        threads = [
            threading.Thread(target=lambda i=i: i.run("many", 300, grid=1, block=1, timeout=60))
            for i in seen
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        for i, images in seen.items():
            assert images == [i] * 300


# ---- limits ---------------------------------------------------------------------------


def test_timeout_of_a_kernel_that_never_ends(image):
    image.handler("tick", lambda i: i)
    start = time.monotonic()
    with pytest.raises(ro.LaunchTimeout) as caught:
        image.run("forever", grid=1, block=1, timeout=0.4)
    assert time.monotonic() - start < 3
    assert isinstance(caught.value, TimeoutError)
    text = str(caught.value)
    for part in ("kernel forever", "0.4 s", "calls served", "ports: ", "likely causes"):
        assert part in text
    assert image.run("many", 3, grid=1, block=1, timeout=30).calls == 3


def test_timeout_0(image):
    image.handler("tick", lambda i: i)
    with pytest.raises(ro.LaunchTimeout):
        image.run("forever", grid=1, block=1, timeout=0)
    assert image.run("many", 3, grid=1, block=1, timeout=30).calls == 3


def test_handler_that_outlives_its_launch(image, device):
    """Ports are each image's own; the mailbox is refused to others, by name."""
    end = threading.Event()

    def tick(i):
        end.wait(60)
        return i

    image.handler("tick", tick)
    x = np.zeros(1, np.int32)
    with ro.load_image(SOURCE, device=device) as other:
        other.handler("tick", lambda i: i)
        try:
            with pytest.raises(ro.LaunchTimeout, match=r"tick runs(.|\n)*end\.wait"):
                image.run("one", ro.tofrom(x), grid=1, block=1, timeout=0.3)
            if device.transport == "ports":
                assert other.run("many", 1, grid=1, block=1, timeout=10).calls == 1
            else:
                with pytest.raises(ro.InUseError, match="tick"):
                    other.run("many", 1, grid=1, block=1, timeout=10)
        finally:
            end.set()
        limit = time.monotonic() + 30
        while True:
            try:
                assert other.run("many", 4, grid=1, block=1, timeout=10).calls == 4
                break
            except ro.InUseError:
                assert time.monotonic() < limit
                time.sleep(0.02)
    image.handler("tick", lambda i: i + 1)
    image.run("one", ro.tofrom(x), grid=1, block=1, timeout=30)
    assert x[0] == 2, "a late answer does not reach the next launch"


def test_watchdog(image, monkeypatch, caplog):
    monkeypatch.setenv("PYREVOFF_WATCHDOG", "0.3")

    def tick(i):
        time.sleep(1.2)
        return i

    image.handler("tick", tick)
    with caplog.at_level(logging.WARNING, "pyrevoff"):
        image.run("many", 1, grid=1, block=1)
    (record,) = [r for r in caplog.records if r.name == "pyrevoff"]
    assert "no progress for 0.3 s" in record.message
    assert "time.sleep(1.2)" in record.message and "kernel many" in record.message
    caplog.clear()
    monkeypatch.setenv("PYREVOFF_WATCHDOG", "0")
    image.run("many", 1, grid=1, block=1)
    assert not caplog.records


def test_progress_keeps_the_watchdog_silent(image, monkeypatch, caplog):
    monkeypatch.setenv("PYREVOFF_WATCHDOG", "0.4")
    image.handler("tick", lambda i: (time.sleep(0.05), i)[1])
    image.run("many", 20, grid=1, block=1)
    assert not [r for r in caplog.records if r.name == "pyrevoff"]


# ---- life time -----------------------------------------------------------------------


def test_closed(device):
    image = ro.load_image(SOURCE, device=device)
    image.handler("tick", lambda i: i)
    with image as entered:
        assert entered is image and not image.closed
    assert image.closed
    image.close()
    for use in (
        lambda: image.run("many", 1, grid=1, block=1),
        lambda: image.handler("tick", lambda i: i),
        lambda: image.unhandle("tick"),
        lambda: image.symbol("counter"),
        lambda: image.connected,
    ):
        with pytest.raises(ro.ClosedError, match="closed"):
            use()
    assert "closed" in repr(image)


def test_forgotten_images_are_unloaded(device):
    function = lambda i: i  # noqa: E731
    dead = weakref.ref(function)
    image = ro.load_image(SOURCE, device=device)
    image.handler("tick", function)
    image.run("many", 1, grid=1, block=1, timeout=60)
    del image, function
    gc.collect()
    assert dead() is None


def test_one_device_object_for_each_combination(device):
    assert ro.Device(str(device)) is ro.Device(device) is device
    other = ro.Device(str(device), placement="copy")
    assert other is not device and other.placement == "copy"
    assert str(other) == str(device)
    for bad in ({"placement": "nowhere"}, {"lock": "none"}, {"wait": "never"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            ro.Device(str(device), **bad)
    for spec in ("gpu", "cuda:x", "cpu:-1", ""):
        with pytest.raises(ValueError, match="'cpu:N'"):
            ro.Device(spec)


def test_waits(device):
    for wait in ("spin", "patch", "adaptive"):
        for lock in ("device", "mailbox"):
            other = ro.Device(str(device), wait=wait, lock=lock)
            with ro.load_image(SOURCE, device=other) as image:
                image.handler("tick", lambda i: i)
                assert image.run("many", 20, grid=1, block=1, timeout=60).calls == 20


def test_an_image_that_its_handler_refers_to_is_unloaded_when_dropped(device):
    def make():
        image = ro.load_image(SOURCE, device=device)
        # Both ways round: collected only by the garbage collector.
        image.handler("tick", lambda *a: image)
        return weakref.ref(image), weakref.ref(image._bound[0][-1])

    for image, bound in [make() for _ in range(5)]:
        gc.collect()
        assert image() is None and bound() is None


def test_shapes_that_no_gpu_has_are_value_errors(image):
    for grid, block in (((1, 65536), 1), ((1, 1, 65536), 1), (1, (1, 1, 65))):
        with pytest.raises(ValueError, match=r"at most \(2147483647, 65535, 65535\)"):
            image.run("bump", grid=grid, block=block)
