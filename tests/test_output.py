# SPDX-License-Identifier: Apache-2.0
"""What kernels say without waiting: print, printf, log, progress, asserts, stop."""

import io
import logging
import threading

import numpy as np
import pytest
from conftest import ROOT

import pyrevoff as ro
from pyrevoff.output import Pointer, format_braces, format_percent

SOURCE = r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(ask, int(int));
REVOFF_FUNCTION(note, void(int));
extern "C" {
__global__ void hello() { revoff::print("hello from {} of {}", threadIdx.x, blockDim.x); }
__global__ void kinds(double *p) {
    char word[] = "array";
    const char *none = 0;
    revoff::print("{} {} {} {:.3f} {:.1e} {} {} {} {} {}", true, 'x', -5, 1.5f, 2.5, "text", word,
                  none, 18446744073709551615ull, (short)-2);
    revoff::print("{}", p);
    revoff::print("{1} {0:>4}|", 7, revoff::str("cut here", 3));
    revoff::print("no values");
    revoff::print("{{braces}}");
}
__global__ void percent(double *p) {
    revoff::printf("%d %5.2f|%-4s|%%|%x|%u|%c|%p\n", -3, 2.0, "ab", 255, -1, 'z', p);
    revoff::printf("%lld %lu %hhd %*d ", -9ll, 8ul, 300, 6, 42);
    revoff::printf("%.3s %e %g %i\n", "abcdef", 1.5, 0.5, 7);
    revoff::printf("no line end");
}
__global__ void wrong() {
    revoff::print("{} {}", 1);
    revoff::print("{0.__class__}", 2);
    revoff::print("{", 3);
    revoff::printf("%d %d", 4);
    revoff::printf("%n", 5);
    revoff::printf("%d and %d\n", 6);
    revoff::print("next");
}
__global__ void levels(int level) { revoff::log(level, "level {}", level); }
__global__ void below(int done, unsigned char total) { revoff::progress(done, total); }
__device__ char text[20000];
__global__ void lengthy(int *done) {
    for (int i = 0; i < 19999; ++i) text[i] = 'a';
    REVOFF_ASSERT(text[0] == 'b', text);
    *done = 1;
}
__global__ void prints_too_much() {
    for (int i = 0; i < 19999; ++i) text[i] = 'a';
    revoff::print("{}", (const char *)text);
}
__global__ void many(int n) {
    for (int i = 0; i < n; ++i)
        revoff::print("{} {}", blockIdx.x * blockDim.x + threadIdx.x, i);
}
__global__ void between() {
    note(1);
    revoff::print("one");
    ask(2);
    revoff::print("two");
    note(3);
}
__global__ void logs() {
    revoff::log(revoff::debug, "quiet {}", 1);
    revoff::log(revoff::warning, "loud {}", 2);
}
__global__ void count(int n) {
    for (int i = 1; i <= n; ++i) revoff::progress(i, n);
}
__global__ void holds(int *done, int limit) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    REVOFF_ASSERT(i < limit);
    done[i] = 1;
}
__global__ void tells(int x) { REVOFF_ASSERT(x > 0, "x is a length"); }
__global__ void until(int *turns, int most) {
    int i = 0;
    while (i < most && !revoff::stop_requested()) {
        ++i;
        if (i == 3) ask(i);
    }
    *turns = i;
}
}
"""


@pytest.fixture
def image(device):
    with ro.load_image(SOURCE, device=device, name="output.cu") as image:
        yield image


def run(image, kernel, *args, grid=1, block=1):
    return image.run(kernel, *args, grid=grid, block=block, timeout=60)


def said(image, kernel, *args, **shape):
    image.output = out = io.StringIO()
    run(image, kernel, *args, **shape)
    return out.getvalue()


def test_print_goes_to_sys_stdout_of_that_moment(image, capsys):
    run(image, "hello", block=3)
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == [f"hello from {i} of 3" for i in range(3)]


def test_print_formats_each_kind_of_value(image):
    lines = said(image, "kinds", 0x1234).splitlines()
    assert lines == [
        "True x -5 1.500 2.5e+00 text array (null) 18446744073709551615 -2",
        "0x1234",
        "cut    7|",
        "no values",
        "{braces}",
    ]


def test_printf_reads_formats_as_c_does(image):
    assert said(image, "percent", 0xAB) == (
        "-3  2.00|ab  |%|ff|4294967295|z|0xab\n-9 8 300     42 abc 1.500000e+00 0.5 7\nno line end"
    )


def test_a_wrong_format_loses_nothing(image):
    text = said(image, "wrong")
    first, second, rest = text.split("\n", 2)
    assert first.startswith("{} {} 1 [pyrevoff: ") and "too few values" in first
    # A kernel's format cannot look into Python's objects.
    assert second.startswith("{0.__class__} 2 [pyrevoff: ") and "by their place" in second
    assert rest.startswith("{ 3 [pyrevoff: ")
    assert "%d %d 4 [pyrevoff: " in rest and "%n 5 [pyrevoff: " in rest
    assert "%d and %d 6 [pyrevoff: " in rest and rest.endswith("]\nnext\n")


def test_lines_of_a_lane_keep_their_order_and_none_is_lost(image):
    blocks, threads, each = 8, 32, 20
    rows = [line.split() for line in said(image, "many", each, grid=8, block=32).splitlines()]
    assert len(rows) == blocks * threads * each
    for lane in range(blocks * threads):
        assert [int(i) for who, i in rows if int(who) == lane] == list(range(each))


def test_prints_and_calls_of_a_lane_keep_their_order(image):
    seen = []
    image.output = lambda text: seen.append(text.strip())
    image.handler("note", seen.append)
    image.handler("ask", lambda i: seen.append(i) or i)
    run(image, "between")
    assert seen == [1, "one", 2, "two", 3]


def test_output_may_be_a_callable_and_its_error_ends_the_run(image):
    image.output = lambda text: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run(image, "hello")


@pytest.mark.once
def test_output_and_progress_refuse_what_they_cannot_use(image):
    with pytest.raises(TypeError, match="text file or a callable"):
        image.output = 5
    with pytest.raises(TypeError, match="tqdm"):
        image.progress = 5


def test_log_reaches_logging_with_its_caller(image, caplog):
    with caplog.at_level(logging.INFO, "pyrevoff.kernel"):
        run(image, "logs")
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("pyrevoff.kernel", logging.WARNING)
    assert record.getMessage() == "loud 2"
    assert (record.kernel, record.cuda_block, record.cuda_thread) == ("logs", (0,) * 3, (0,) * 3)


def test_a_level_above_255_is_kept_and_one_below_0_is_0(image, caplog):
    with caplog.at_level(logging.DEBUG, "pyrevoff.kernel"):
        for level in (256, 1000, 70000):
            run(image, "levels", level)
        assert [r.levelno for r in caplog.records] == [256, 1000, 65535]
        run(image, "levels", -1)
    assert [r.levelno for r in caplog.records[3:]] in ([], [0])


def test_progress_below_zero_is_not_a_huge_number(image):
    seen = []
    image.progress = lambda done, total: seen.append((done, total))
    run(image, "below", -1, 200)
    assert seen == [(-1, 200)]


def test_an_assertion_with_too_long_a_message_is_still_one(image):
    done = np.zeros(1, np.int32)
    with pytest.raises(ro.KernelAssertionError, match=r"text\[0\] == 'b'.*too long a text"):
        run(image, "lengthy", ro.tofrom(done))
    assert done[0] == 0
    with pytest.raises(ro.CallError, match=r"revoff::print.*16384 bytes, and so must .* print"):
        run(image, "prints_too_much")


def test_a_warning_is_seen_in_a_program_without_logging(device, run_child):
    code = (
        "import pyrevoff as ro\n"
        f"image = ro.load_image({SOURCE!r}, device=ro.Device({device.kind!r}))\n"
        "image.run('logs', grid=1, block=1, timeout=60)\n"
    )
    child = run_child(code)
    assert child.returncode == 0, child.stderr
    assert child.stderr.strip() == "loud 2"


def test_progress_to_a_callable_and_to_a_bar(image):
    seen = []
    image.progress = lambda done, total: seen.append((done, total))
    run(image, "count", 5)
    assert seen == [(i, 5) for i in range(1, 6)]

    class Bar:
        n, total = 0, None

        def update(self, more):
            self.n += more

    image.progress = bar = Bar()
    run(image, "count", 7)
    assert (bar.n, bar.total) == (7, 7)
    image.progress = None
    run(image, "count", 3)


def test_an_assertion_names_its_place_and_the_session_goes_on(image):
    done = np.zeros(64, np.int32)
    with pytest.raises(ro.KernelAssertionError) as caught:
        run(image, "holds", ro.tofrom(done), 60, grid=2, block=32)
    error = caught.value
    line = next(i for i, t in enumerate(SOURCE.splitlines(), 1) if "i < limit" in t)
    assert error.file.endswith("output.cu") or "output" in error.file
    assert (error.line, error.condition, error.kernel) == (line, "i < limit", "holds")
    assert error.block == (1, 0, 0) and 28 <= error.thread[0] < 32
    assert error.more == 3 and "in 3 threads more" in str(error)
    assert isinstance(error, AssertionError) and isinstance(error, ro.RevoffError)
    # The others went on.
    assert done[:60].all() and not done[60:].any()
    assert said(image, "hello") == "hello from 0 of 1\n"


def test_an_assertion_with_a_message(image):
    run(image, "tells", 1)
    with pytest.raises(ro.KernelAssertionError, match="x > 0 does not hold: x is a length"):
        run(image, "tells", 0)


def test_a_kernel_is_asked_to_stop_from_a_handler(image):
    turns = np.zeros(1, np.int32)
    image.handler("ask", lambda i: image.request_stop() and 0)
    run(image, "until", ro.from_(turns), 1 << 30)
    assert 3 <= turns[0] < 1 << 30
    assert image.request_stop() is False
    # Asking ends with the launch.
    image.handler("ask", lambda i: 0)
    run(image, "until", ro.from_(turns), 5)
    assert turns[0] == 5


def test_a_kernel_that_asks_whether_to_stop_heeds_its_time_limit(image):
    image.handler("ask", lambda i: 0)
    turns = np.zeros(1, np.int32)
    with pytest.raises(ro.LaunchTimeout):
        image.run("until", ro.tofrom(turns), 2**31 - 1, grid=1, block=1, timeout=0.3)
    # It has ended, or this would say that the image is in use.
    run(image, "hello")

    @image.handler("ask")
    def ask(i):
        raise KeyError(i)

    with pytest.raises(KeyError):
        run(image, "until", ro.tofrom(turns), 2**31 - 1)


def test_a_kernel_is_asked_to_stop_from_another_thread(image):
    turns = np.zeros(1, np.int32)
    asked = []

    def stop():
        asked.append(image.request_stop())

    def ask(_):
        thread = threading.Thread(target=stop)
        thread.start()
        thread.join(30)
        return 0

    image.handler("ask", ask)
    run(image, "until", ro.from_(turns), 1 << 30)
    assert asked == [True] and turns[0] < 1 << 30


@pytest.mark.once
def test_the_ready_made_functions_are_not_the_users(image):
    assert set(image.functions) == {"ask", "note"}
    with pytest.raises(ro.NotFoundError, match="revoff::print"):
        image.handler("revoff::print", print)


@pytest.mark.once
def test_an_image_that_only_prints_is_served(device):
    source = '#include <pyrevoff.h>\nextern "C" __global__ void k() { revoff::print("alone"); }'
    with ro.load_image(source, device=device) as image:
        assert image.connected and not image.functions
        assert said(image, "k") == "alone\n"


@pytest.mark.once
def test_an_image_that_does_not_print_is_not_served(device):
    source = '#include <pyrevoff.h>\nextern "C" __global__ void k() {}'
    with ro.load_image(source, device=device) as image:
        assert not image.connected


@pytest.mark.parametrize(
    ("format", "values", "text"),
    [
        ("%5d|", [("i", 3)], "    3|"),
        ("%-5d|", [("i", 3)], "3    |"),
        ("%+.2e", [("d", 1.0)], "+1.00e+00"),
        ("%x", [("i", -1)], "ffffffff"),
        ("%lx", [("q", -1)], "f" * 16),
        ("%#o", [("i", 8)], "010"),
        ("%5o", [("i", 8)], "   10"),
        ("%d", [("I", 0xFFFFFFFF)], "-1"),
        ("%d", [("d", 2.9)], "2"),
        ("%f", [("i", 2)], "2.000000"),
        ("%c%c", [("i", 65), ("c", "b")], "Ab"),
        ("%s", [("i", 4)], "4"),
        ("%.*f", [("i", 1), ("d", 2.25)], "2.2"),
        ("%a", [("d", 1.0)], "0x1.0000000000000p+0"),
        ("100%%", [], "100%"),
        ("%hhu", [("B", 200)], "200"),
        ("%zu", [("Q", 2**63)], str(2**63)),
    ],
)
def test_percent_formats(format, values, text):
    assert format_percent(format, values) == text


@pytest.mark.parametrize("format", ["%", "%k", "50% off %d", "%n"])
def test_percent_formats_that_are_none(format):
    with pytest.raises((ValueError, IndexError)):
        format_percent(format, [("i", 1)])


def test_a_width_that_would_fill_the_memory_is_refused():
    with pytest.raises(ValueError, match="five digits"):
        format_braces("{:999999999}", [("i", 1)])
    for format, values in (("%999999999d", [1]), ("%*d", [99999999, 1]), ("%.999999f", [1])):
        with pytest.raises(ValueError, match="five digits"):
            format_percent(format, [("i", v) for v in values])


@pytest.mark.parametrize("format", ["{a}", "{0.real}", "{0[0]}", "{:{0.real}}", "{"])
def test_brace_formats_that_look_into_values(format):
    with pytest.raises(ValueError):
        format_braces(format, [("i", 1), ("i", 2)])


def test_brace_formats_with_a_width_from_a_value():
    assert format_braces("{:>{}}|{!r}", [("i", 1), ("i", 3), ("s", "x")]) == "  1|'x'"
    assert format_braces("{} {:x} {:>8}", [("P", Pointer(255))] * 3) == "0xff ff     0xff"


@pytest.mark.once
def test_the_solver_of_the_examples_stops_early(device, run_child):
    env = {"PYREVOFF_DEVICE": device.kind}
    child = run_child("", 100, env=env, args=("examples/progress.py",))
    assert child.returncode == 0, child.stderr
    stop, end = child.stdout.splitlines()
    assert stop.startswith("asked to stop at step ")
    assert end.startswith("early end, largest error ") and float(end.split()[-1]) < 1e-2
    assert "500 of at most 20000 steps" in child.stderr


@pytest.mark.once
def test_ctrl_c_asks_the_solver_to_stop(device, run_child):
    source = (ROOT / "examples" / "progress.py").read_text()
    # Without the test of the residual only the signal can end it early.
    code = source.replace("change < 1e-5", "False").replace("20_000", "1 << 30")
    code = code.replace("def show(done, total):", "def show(done, total):\n    ready()")
    code = (
        "import functools\n\n@functools.cache\ndef ready():\n    print('ready', flush=True)\n"
        + code
    )
    child = run_child(code, 100, env={"PYREVOFF_DEVICE": device.kind}, interrupt_after=0.5)
    assert child.returncode == 0, child.stderr
    assert "asked to stop at step" in child.stdout and "early end" not in child.stderr
