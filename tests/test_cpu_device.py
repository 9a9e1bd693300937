# SPDX-License-Identifier: Apache-2.0
"""The CPU device below the host library: its C tests, its source translator
and its shim, with the compilers and sanitizers that this machine has."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "csrc" / "include"
C_TESTS = sorted((ROOT / "tests" / "c").glob("test_cpu_*.c"))
KERNELS = ROOT / "tests" / "cpu_kernels"
LIMIT = 90  # seconds for anything that runs; usual is one

# The translator handles text only: it is tested without the built package.
_spec = importlib.util.spec_from_file_location(
    "_cpu_source_under_test", ROOT / "pyrevoff" / "_cpu_source.py"
)
assert _spec and _spec.loader
cpu_source = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = cpu_source
_spec.loader.exec_module(cpu_source)

# Name: C compiler, C++ compiler, flags of the runtime, flags of the modules.
VARIANTS = {
    "gcc": ("gcc", "g++", "", ""),
    "clang": ("clang", "clang++", "", ""),
    "ucontext": ("gcc", "g++", "-DREVOFF_CPU_UCONTEXT", ""),
    "asan": ("gcc", "g++", "-fsanitize=address,undefined", "-fsanitize=address,undefined"),
    "tsan": ("gcc", "g++", "-fsanitize=thread", "-fsanitize=thread"),
}


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=LIMIT,
        check=False,
    )


def cxx_or_skip() -> str:
    for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return name
    pytest.skip("no C++ compiler")


class Runtime:
    """csrc/cpu as objects, made once for a variant."""

    def __init__(self, variant: str, folder: Path) -> None:
        self.cc, self.cxx, flags, self.module_flags = VARIANTS[variant]
        if not shutil.which(self.cc) or not shutil.which(self.cxx):
            pytest.skip(f"no {self.cc} or no {self.cxx}")
        self.folder = folder
        self.flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
        self.flags += flags.split()
        probe = folder / "probe.c"
        probe.write_text("int main(void) { return 0; }\n")
        made = run([self.cc, *self.flags, str(probe), "-o", str(folder / "probe")])
        if made.returncode or run([str(folder / "probe")]).returncode:
            pytest.skip(f"no {variant} here: {made.stdout[:200]}")
        self.objects = []
        for source in sorted((ROOT / "csrc" / "cpu").glob("*.c")):
            out = folder / (source.stem + ".o")
            self.make(["-c", str(source), "-o", str(out)])
            self.objects.append(str(out))

    def make(self, arguments: list[str]) -> None:
        made = run([self.cc, *self.flags, *arguments])
        assert made.returncode == 0, made.stdout

    def program(self, source: Path) -> str:
        out = self.folder / source.stem
        self.make([str(source), *self.objects, "-ldl", "-o", str(out)])
        return str(out)

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run([program, *arguments], CXX=self.cxx, T_CPU_FLAGS=self.module_flags)


@pytest.fixture(scope="module")
def runtimes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Runtime]:
    made: dict[str, Runtime] = {}

    def get(variant: str) -> Runtime:
        if variant not in made:
            made[variant] = Runtime(variant, tmp_path_factory.mktemp(variant))
        return made[variant]

    return get


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("test", C_TESTS, ids=lambda p: p.stem)
def test_program(runtimes: Callable[[str], Runtime], test: Path, variant: str) -> None:
    runtime = runtimes(variant)
    done = runtime.run(runtime.program(test))
    if done.returncode == 77:
        pytest.skip(done.stdout or "the program says that it cannot run here")
    assert done.returncode == 0, done.stdout


# A test that sanitizers understand fibers is worth something only if they
# still find what is wrong in one.
BUGS = {
    "asan": (
        "__device__ __attribute__((noinline)) void fill(volatile int *p, int n)"
        " { for (int i = 0; i <= n; ++i) p[i] = i; }\n"
        'extern "C" __global__ void bug(int *x) '
        "{ int a[8]; __syncthreads(); fill(a, 8); *x = a[1]; }\n"
        "REVOFF_CPU_KERNEL(bug)\n",
        "stack-buffer-overflow",
    ),
    "tsan": (
        'extern "C" __global__ void bug(int *x) { __nanosleep(0); *x += 1; }\n'
        "REVOFF_CPU_KERNEL(bug)\n",
        "data race",
    ),
}


@pytest.mark.parametrize("variant", BUGS)
def test_sanitizer_finds_bug_in_kernel(
    runtimes: Callable[[str], Runtime], tmp_path: Path, variant: str
) -> None:
    runtime = runtimes(variant)
    source, report = BUGS[variant]
    text = "\\n".join(source.replace("\\", "\\\\").replace('"', '\\"').splitlines())
    program = tmp_path / f"bug_{variant}.c"
    program.write_text(
        f'#include "{ROOT}/tests/c/cpu_module.h"\n'
        "int main(void)\n{\n\tint *x;\n\tvoid *p[] = { &x };\n\tt_cpu_open();\n"
        f'\tCUfunction k = t_cpu_kernel(t_cpu_load("{text}\\n"), "bug");\n'
        "\tx = t_cpu_pinned(64);\n\tt_ok(t_cpu_run(k, 2, 2, p));\n"
        "\tt_cpu_close();\n\treturn 0;\n}\n"
    )
    done = runtime.run(runtime.program(program))
    assert done.returncode != 0
    assert report in done.stdout


# ---- translated kernels, compiled and run ------------------------------------


@pytest.fixture(scope="module")
def launcher(runtimes: Callable[[str], Runtime]) -> tuple[Runtime, str]:
    runtime = runtimes("gcc")
    return runtime, runtime.program(KERNELS / "launcher.c")


def compile_module(source: str, folder: Path, name: str, cxx: str) -> Path:
    text = folder / "kernel.cpp"
    text.write_text(cpu_source.translate(source, name))
    out = folder / "kernel.so"
    flags = [*cpu_source.compile_flags(), "-Wall", "-Wextra", "-Werror"]
    made = run([cxx, *flags, f"-I{INCLUDE}", "-x", "c++", str(text), "-o", str(out)])
    assert made.returncode == 0, made.stdout
    return out


@pytest.mark.parametrize("cxx", ["g++", "clang++"])
@pytest.mark.parametrize("kernel", sorted(KERNELS.glob("*.cu")), ids=lambda p: p.stem)
def test_kernel(launcher: tuple[Runtime, str], tmp_path: Path, kernel: Path, cxx: str) -> None:
    """Each file says in its first lines how its kernels are launched.

    ``// launch NAME GRID BLOCK SHARED``: NAME gets a counter of errors, which
    must stay 0, and a counter of threads, which must reach GRID * BLOCK.
    """
    if not shutil.which(cxx):
        pytest.skip(f"no {cxx}")
    runtime, program = launcher
    source = kernel.read_text()
    module = compile_module(source, tmp_path, kernel.name, cxx)
    launches = [line.split()[2:] for line in source.splitlines() if line.startswith("// launch ")]
    assert launches
    for name, *shape in launches:
        done = runtime.run(program, str(module), name.replace("%", " "), *shape)
        assert done.returncode == 0, f"{name}: {done.stdout}"


def test_header_goes_with_the_c_library(tmp_path: Path) -> None:
    """No macro or function of the shim breaks a header included after it."""
    cxx = cxx_or_skip()
    names = "algorithm array atomic bit cctype charconv chrono cmath complex cstdint cstdio cstdlib"
    names += " cstring deque functional iostream limits map memory mutex numeric optional random"
    names += " regex set sstream string thread tuple type_traits utility variant vector"
    names += " unistd.h pthread.h math.h stdlib.h string.h time.h assert.h stdint.h sys/mman.h"
    source = "".join(f"#include <{n}>\n" for n in names.split() if n != "bit")
    source += "using namespace std;\n__device__ int f(int a) { return min(a, 3) + max(1u, 2u); }\n"
    for first in ("", "#include <pyrevoff.h>\n"):
        compile_module(first + source, tmp_path, "headers.cu", cxx)


# ---- the translator ------------------------------------------------------------


def kernels_of(source: str) -> list[str]:
    text = cpu_source.translate(source)
    parts = text.split("REVOFF_CPU_KERNEL(")[1:]
    return [part[: part.index(")")] for part in parts]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('extern "C" __global__ void a(int *x) { }', ["a"]),
        ("static __global__ void a() {}\ninline void __global__ b(int) {}", ["a", "b"]),
        ("__global__ void __launch_bounds__(256, 2) a() {}", ["a"]),
        ("__global__ __launch_bounds__(N * (2)) void a() {}", ["a"]),
        ("__global__ BOUNDS(256) void a(int) {}", ["a"]),
        ('extern "C" {\n__global__ void a() { if (1) { } }\n__global__ void b() {} }', ["a", "b"]),
        ("namespace n { __global__ void a(std::pair<int, int> p) {} }", ["a"]),
        ("__global__ void a(int);", []),
        ("__global__ void a(int); __global__ void a(int) {}", ["a"]),
        ("// __global__ void a() {}\n/* __global__ void b() {} */", []),
        ('const char *s = "__global__ void a() {}";', []),
        ('const char *s = R"x(__global__ void a() {} )" )x";', []),
        ("int n = 1'000'000; __global__ void a() { char c = '\"'; } // '", ["a"]),
        ("#define K __global__ void a() { \\\n }\n__global__ void b() {}", ["b"]),
        ("template <class T> __global__ void a(T *x) {}", []),
        (
            "template <class T, int N> __global__ void a(T *x) {}\n"
            "template __global__ void a<float, 3>(float *x);\n"
            "template <> __global__ void a<int, 1>(int *x) {}",
            ["a<float, 3>", "a<int, 1>"],
        ),
    ],
)
def test_kernels_are_found(source: str, names: list[str]) -> None:
    assert kernels_of(source) == names


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (
            "__global__ void k() { extern __shared__ float x[]; }",
            "float *x = revoff_cpu_dynamic_shared<float>();",
        ),
        (
            "__global__ void k() { extern __shared__ __align__(16) unsigned char x[]; }",
            "unsigned char *x = revoff_cpu_dynamic_shared<unsigned char>();",
        ),
        (
            "__device__ void f() { extern volatile __shared__ std::pair<int, int> x[]; }",
            "volatile std::pair<int, int> *x =",
        ),
        ("__device__ void f() { extern __shared__ int x[][8]; }", "int (*x)[8] ="),
        (
            "namespace n {\nextern __shared__ alignas(alignof(double)) char x[];\n}",
            "static const revoff_cpu_dynamic_array<char> x{};",
        ),
        ("struct s { __device__ int f() { extern __shared__ int x[]; } };", "int *x ="),
        ("// extern __shared__ int x[];", "// extern __shared__ int x[];"),
        ("__device__ void f() { static __shared__ int x; }", "{  __shared__ int x; }"),
        ("__noinline__ __device__ void f();", "__attribute__((noinline)) __device__ void f();"),
    ],
)
def test_rewrites(source: str, part: str) -> None:
    assert part in cpu_source.translate(source)


def test_lines_stay() -> None:
    source = "\n".join(
        [
            "extern __shared__",
            "  float",
            "  x[];",
            "/* <<< */ __global__ void k(",
            "    int n)",
            "{ extern __shared__ int",
            "   y[]; }",
            "error here;",
        ]
    )
    text = cpu_source.translate(source, 'a "b".cu').split("\n")
    assert text[0] == '#line 1 "a \\"b\\".cu"'
    assert text[1 + 7] == "error here;"


def test_compiler_names_the_users_line(tmp_path: Path) -> None:
    cxx = cxx_or_skip()
    source = "extern __shared__\n int x[];\n__global__ void k() { }\nint y = nothing;\n"
    text = tmp_path / "k.cpp"
    text.write_text(cpu_source.translate(source, "user.cu"))
    flags = cpu_source.compile_flags()
    made = run([cxx, *flags, f"-I{INCLUDE}", "-x", "c++", str(text), "-o", str(tmp_path / "k.so")])
    assert made.returncode != 0
    assert "user.cu:4:" in made.stdout


def test_launch_syntax_is_refused() -> None:
    with pytest.raises(ValueError, match=r"k\.cu:3: .*Image\.run"):
        cpu_source.translate("\nvoid f() {\n k<<<1, 2>>>(); }", "k.cu")
    cpu_source.translate('// k<<<1, 2>>>();\nconst char *s = "<<<";')


def test_strange_dynamic_shared_is_refused() -> None:
    with pytest.raises(ValueError, match=r"k\.cu:2: .*dynamic shared memory"):
        cpu_source.translate("__device__ void f() {\n extern __shared__ int x; }", "k.cu")


def test_flags_are_a_new_list() -> None:
    cpu_source.compile_flags().append("-O0")
    assert "-O0" not in cpu_source.compile_flags()


def test_running_past_an_array_faults_and_spares_the_process(run_child):
    """It used to write over the process's memory and crash it later."""
    code = """
import numpy as np, pyrevoff as ro
source = 'extern "C" __global__ void f(double *x, int n) { for (int i = 0; i < n; ++i) x[i] = i; }'
image = ro.load_image(source, device="cpu")
x = np.zeros(4)
image.run("f", ro.tofrom(x), 4, grid=1, block=1)
print(x.tolist())
try:
    image.run("f", ro.tofrom(x), 512, grid=1, block=1)
except ro.DriverError as error:
    print(error.code, "block (0,0,0)" in str(error))
"""
    done = run_child(code, 60)
    assert done.stdout.splitlines() == ["[0.0, 1.0, 2.0, 3.0]", "700 True"], done.stderr


def test_a_sanitizer_that_would_end_the_process_is_refused():
    import pyrevoff as ro

    for option in ("-fsanitize=address", "-fsanitize=undefined,thread"):
        with pytest.raises(ValueError, match=f"{option}.*LD_PRELOAD"):
            ro.load_image("", device="cpu", options=[option])
