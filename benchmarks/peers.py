# SPDX-License-Identifier: Apache-2.0
"""What else lets a GPU and the host talk, on the same machine in the same run.

Each peer runs in a process of its own, so that a library that takes the GPU's
memory, or fails, leaves the rest alone. One that is not installed is skipped by
name. Each checks what it computed.

    python -m benchmarks.peers NAME [FOLDER]      one peer; JSON in the last line
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from .core import ROOT, Run, Skip

SECONDS = 40


def _median_us(once: Callable[[], Any], n: int, rounds: int = 3) -> float:
    """Microseconds of one of n steps; the first round warms up."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        once()
        times.append((time.perf_counter() - start) * 1e6 / n)
    return statistics.median(times[1:])


def _right(ok: bool, what: str) -> None:
    if not ok:
        raise RuntimeError(f"{what}: the result is wrong")


def host_function(folder: str) -> dict[str, float]:
    dll = ctypes.CDLL(os.path.join(folder, "peers.so"))
    dll.peer_host_function_us.restype = ctypes.c_double
    us = [float(dll.peer_host_function_us(2000)) for _ in range(3)]
    _right(min(us) > 0, f"cudaLaunchHostFunc ({min(us):g})")
    return {"split kernel + cudaLaunchHostFunc, a step": statistics.median(us)}


def printf(folder: str) -> dict[str, float]:
    dll = ctypes.CDLL(os.path.join(folder, "peers.so"))
    dll.peer_printf_us.restype = ctypes.c_double
    found = {}
    for blocks, threads, n in ((1, 1, 2000), (64, 32, 16)):
        with tempfile.TemporaryFile() as file:
            sys.stdout.flush()
            keep = os.dup(1)
            os.dup2(file.fileno(), 1)
            try:
                us = [float(dll.peer_printf_us(blocks, threads, n)) for _ in range(3)]
                ctypes.CDLL(None).fflush(None)
            finally:
                os.dup2(keep, 1)
                os.close(keep)
            file.seek(0)
            lines = sum(1 for _ in file)
        _right(min(us) > 0 and lines == 3 * blocks * threads * n, f"printf, {lines} lines")
        found[f"device printf, {blocks} x {threads} lanes, a line of all"] = statistics.median(us)
    return found


def cupy(folder: str) -> dict[str, float]:
    import cupy as cp

    n, found = 500, {}
    step = cp.RawKernel(
        'extern "C" __global__ void step(double *x) { *x = *x * 0.5 + 1.0; }', "step"
    )
    x = cp.zeros(1)
    seen = [0]

    def answer(_: Any) -> None:
        seen[0] += 1

    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()

    def with_host_function() -> None:
        with stream:
            for _ in range(n):
                step((1,), (1,), (x,))
                stream.launch_host_func(answer, None)
            stream.synchronize()

    found["CuPy kernel + launch_host_func, a step"] = _median_us(with_host_function, n)
    _right(seen[0] == 4 * n, f"launch_host_func, {seen[0]} calls")

    def with_copies() -> None:
        x.set(x.get() * 0)
        for _ in range(n):
            step((1,), (1,), (x,))
            x.set(x.get() * 2)

    found["CuPy kernel + get + set, a step"] = _median_us(with_copies, n)
    _right(abs(float(x.get()[0]) - 2.0 * n) < 1e-6, "get and set")
    return found


def torch(folder: str) -> dict[str, float]:
    import torch as t

    if not t.cuda.is_available():
        raise Skip("PyTorch sees no CUDA device")
    n, found = 500, {}
    x = t.zeros(1, dtype=t.float64, device="cuda")
    got = [0.0]

    def item() -> None:
        x.zero_()
        for _ in range(n):
            x.add_(1.0)
            got[0] = x.item()

    found["PyTorch kernel + .item(), a step"] = _median_us(item, n)
    _right(got[0] == n, ".item()")

    def item_and_fill() -> None:
        x.zero_()
        for _ in range(n):
            x.add_(1.0)
            x.fill_(x.item() + 1.0)

    found["PyTorch kernel + .item() + fill_, a step"] = _median_us(item_and_fill, n)
    _right(x.item() == 2 * n, ".item() and fill_")
    return found


def jax(folder: str) -> dict[str, float]:
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax as j
    import numpy as np
    from jax.experimental import io_callback

    if j.default_backend() not in ("gpu", "cuda"):
        raise Skip(f"JAX runs on {j.default_backend()} here")
    n, found = 200, {}
    like = j.ShapeDtypeStruct((), np.float32)

    def up(x: Any) -> Any:
        return np.float32(x) + np.float32(1)

    for name, call in (
        ("pure_callback", lambda x: j.pure_callback(up, like, x)),
        ("io_callback", lambda x: io_callback(up, like, x, ordered=False)),
    ):
        loop = j.jit(lambda x, call=call: j.lax.fori_loop(0, n, lambda i, v: call(v), x))
        last = [0.0]

        def once(loop: Any = loop, last: Any = last) -> None:
            last[0] = float(loop(np.float32(0)).block_until_ready())

        found[f"JAX {name} in a loop, a call"] = _median_us(once, n)
        _right(last[0] == n, f"{name} ({last[0]:g})")
    return found


PEERS: dict[str, tuple[Callable[[str], dict[str, float]], str]] = {
    "host_function": (host_function, ""),
    "printf": (printf, ""),
    "cupy": (cupy, "cupy"),
    "torch": (torch, "torch"),
    "jax": (jax, "jax"),
}


def peers(run: Run) -> None:
    """What else there is: CUDA's own means, CuPy, PyTorch, JAX."""
    if run.kind != "cuda":
        raise Skip("they need a CUDA device")
    folder = os.path.dirname(run.native.paths["peers"])
    for name, (_, module) in PEERS.items():
        if module and importlib.util.find_spec(module) is None:
            run.skip(name, f"{module} is not installed")
            continue
        command = [sys.executable, "-m", "benchmarks.peers", name, folder]
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            run.skip(name, f"did not end within {SECONDS} s")
            continue
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            run.skip(name, f"failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
            continue
        found = json.loads(lines[-1])
        if "skip" in found:
            run.skip(name, found["skip"])
            continue
        for label, us in found.items():
            run.row(label, us, "us", peer=name)
    run.skip("numba-cuda", "it has no way for a running kernel to call the host")


def main() -> int:
    name, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    try:
        found: dict[str, Any] = dict(PEERS[name][0](folder))
    except Skip as reason:
        found = {"skip": str(reason)}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
