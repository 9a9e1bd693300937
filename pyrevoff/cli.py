# SPDX-License-Identifier: Apache-2.0
"""``python -m pyrevoff``: info, selftest, bench, --includes."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cffi
import numpy as np

import pyrevoff as ro

from . import _nvrtc, _paths, _toolchain
from ._lib import lib
from .device import default_device, watchdog_seconds


def _short(path: Any) -> str:
    """A path without the name of whose home it is in."""
    text, home = str(path), str(Path.home())
    return "~" + text[len(home) :] if text.startswith(home + os.sep) else text


def _ptx_version() -> str:
    for line in _paths.ptx_path().read_text().splitlines():
        if line.startswith(".version"):
            return line.split()[1]
    return "?"


def collect() -> dict[str, Any]:
    """Everything that ``info`` says, as plain data."""
    nvrtc, _ = _nvrtc.load()
    nvcc, cxx = _toolchain.find_nvcc(), _toolchain.find_cxx()
    found: dict[str, Any] = {
        "pyrevoff": ro.__version__,
        "wire_abi": int(lib.revoff_abi_version()),
        "python": platform.python_version(),
        "cffi": cffi.__version__,
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "headers": _short(_paths.include_dir()),
        "ptx": _short(_paths.ptx_path()),
        "ptx_version": _ptx_version(),
        "nvrtc": _short(nvrtc.path) if nvrtc else None,
        "nvcc": " ".join(_short(c) for c in nvcc.command or ()) or None,
        "host_compiler": " ".join(_short(c) for c in cxx.command or ()) or None,
        "devices": {},
        "cuda": ro.why_not("cuda") or "available",
        "watchdog_seconds": None,
        "environment": {
            k: _short(v) for k, v in sorted(os.environ.items()) if k.startswith("PYREVOFF_")
        },
    }
    for name in ro.devices():
        try:
            info = ro.device._query(*ro.device._parse(name))
        except ro.RevoffError as error:
            found["devices"][name] = {"error": str(error)}
            continue
        info["usable"] = ro.is_available(name)
        found["devices"][name] = info
    try:
        device = ro.Device()
        found["default"] = {
            "device": str(device),
            "transport": device.transport,
            "placement": device.placement,
            "lock": device.lock,
            "wait": device.wait,
        }
        found["watchdog_seconds"] = watchdog_seconds()
    except (ro.RevoffError, ValueError) as error:
        kind, ordinal = _safe_default()
        found["default"] = {"device": f"{kind}:{ordinal}", "error": str(error)}
    return found


def _safe_default() -> tuple[str, int]:
    try:
        return default_device()
    except ValueError:
        return os.environ.get("PYREVOFF_DEVICE", "?"), 0


def _print_info(found: dict[str, Any]) -> None:
    for key in ("pyrevoff", "wire_abi", "python", "cffi", "numpy", "system", "headers", "ptx"):
        print(f"{key:16} {found[key]}")
    for key in ("ptx_version", "nvrtc", "nvcc", "host_compiler", "cuda"):
        print(f"{key:16} {found[key] or 'not found'}")
    for name, info in found["devices"].items():
        if "error" in info:
            print(f"{name:16} {info['error']}")
            continue
        version = info["driver_version"]
        print(
            f"{name:16} {info['name']}, compute capability {info['major']}.{info['minor']}, "
            f"driver for CUDA {version // 1000}.{version % 1000 // 10}, "
            f"{info['multiprocessors']} multiprocessors, {info['total_memory'] >> 20} MiB, "
            f"mapped host memory {'yes' if info['can_map_host_memory'] else 'no'}, "
            f"concurrent managed access {'yes' if info['concurrent_managed_access'] else 'no'}, "
            f"{'usable' if info['usable'] else 'not usable'}"
        )
    default = found["default"]
    if "error" in default:
        print(f"{'default':16} {default['device']}: {default['error']}")
    else:
        print(
            f"{'default':16} {default['device']}, transport {default['transport']}, placement "
            f"{default['placement']}, lock {default['lock']}, wait {default['wait']}"
        )
    for key, value in found["environment"].items():
        print(f"{key}={value}")


def info(as_json: bool) -> int:
    """Print what is there and what would be used; 1 if nothing can be."""
    found = collect()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print_info(found)
    return 1 if "error" in found["default"] else 0


_SOURCE = r"""
#include <pyrevoff.h>
REVOFF_FUNCTION(twice, double(double));
REVOFF_FUNCTION(fill, int(revoff::to<int>, revoff::from<int>, revoff::str));
extern "C" __global__ void scalars(double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = twice(x[i]);
}
extern "C" __global__ void arrays(int *a, int *b, int n) {
    if (fill(revoff::to(a, n), revoff::from(b, n), "text") != n) b[0] = -1;
}
extern "C" __global__ void loop() {
    double y;
    while (twice.try_call(&y, 1.0) == revoff::ok) { }
}
"""


def selftest(device: str | None) -> int:
    """Compile, load, call, fail and time out on a device; 1 if any step fails."""
    image: Any = None

    def load() -> str:
        nonlocal image
        image = ro.load_image(_SOURCE, device=device, name="selftest.cu")
        return f"{image!r}"

    def scalars() -> str:
        image.handler("twice", lambda x: 2 * x)
        x = np.arange(1000.0)
        stats = image.run("scalars", ro.tofrom(x), x.size, grid=4, block=256, timeout=60)
        assert stats.calls == 1000 and (x == 2 * np.arange(1000.0)).all()
        return f"{stats.calls} calls, {stats.elapsed * 1e6 / stats.calls:.1f} us each"

    def arrays() -> str:
        def fill(a: Any, b: Any, text: str) -> int:
            b[:] = a + len(text)
            return len(a)

        image.handler("fill", fill)
        a, b = np.arange(5000, dtype=np.int32), np.zeros(5000, np.int32)
        image.run("arrays", ro.to(a), ro.from_(b), a.size, grid=1, block=1, timeout=60)
        assert (b == a + 4).all()
        return "5000 elements each way"

    def exceptions() -> str:
        error = LookupError("on purpose")

        def fail(x: float) -> float:
            raise error

        image.handler("twice", fail)
        try:
            image.run("loop", grid=1, block=1, timeout=60)
        except LookupError as raised:
            assert raised is error
            return "the handler's own exception came back"
        raise AssertionError("nothing was raised")

    def limit() -> str:
        image.handler("twice", lambda x: x)
        try:
            image.run("loop", grid=1, block=1, timeout=0.3)
        except ro.LaunchTimeout:
            return "an endless kernel was ended"
        raise AssertionError("no timeout")

    steps: list[tuple[str, Callable[[], str]]] = [
        ("compile and load", load),
        ("scalars", scalars),
        ("arrays", arrays),
        ("exceptions", exceptions),
        ("time limit", limit),
    ]
    failed = 0
    for name, step in steps:
        start = time.monotonic()
        try:
            text = step()
        except Exception as error:
            failed = 1
            print(f"{name:18} FAILED  {type(error).__name__}: {error}")
            if image is None:
                break
        else:
            print(f"{name:18} ok      {text} ({time.monotonic() - start:.2f} s)")
    return failed


def bench(arguments: list[str]) -> int:
    """Run benchmarks/bench.py of the source tree; 1 if one of its checks failed.

    It comes with the sources and not with an installed package: it compiles
    programs of its own beside them, to have something to compare with.
    """
    script = Path(ro.__file__).resolve().parent.parent / "benchmarks" / "bench.py"
    if not script.is_file():
        print(
            "pyrevoff bench: the benchmark comes with the sources, not with an installed "
            "package. Unpack or clone them, and there: make bench",
            file=sys.stderr,
        )
        return 1
    return subprocess.call([sys.executable, str(script), *arguments])


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pyrevoff", description="pyrevoff")
    parser.add_argument("--includes", action="store_true", help="print the compiler's -I option")
    parser.add_argument("--version", action="version", version=ro.__version__)
    commands = parser.add_subparsers(dest="command")
    p_info = commands.add_parser("info", help="say what is there and what would be used")
    p_info.add_argument("--json", action="store_true")
    p_test = commands.add_parser("selftest", help="try everything once")
    p_test.add_argument("--device", help="cpu, cuda, cuda:1 ...")
    p_bench = commands.add_parser(
        "bench", help="measure this machine (in the source tree)", add_help=False
    )
    p_bench.add_argument("arguments", nargs=argparse.REMAINDER, help="as benchmarks/bench.py")
    args, more = parser.parse_known_args(argv)
    if args.command == "bench":
        # Its own options are bench.py's to understand.
        return bench([*more, *args.arguments])
    if more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if args.includes:
        print(f"-I{ro.get_include()}")
        return 0
    if args.command == "info":
        return info(args.json)
    if args.command == "selftest":
        return selftest(args.device)
    parser.print_help(sys.stderr)
    return 2
