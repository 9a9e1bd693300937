# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the C regression programs of tests/c.

Everything goes to one folder outside of the tree, and everything is built and
run once in a session, however many tests ask for it. A program's opening
comment says what it needs and shows:

``Images:``
    Kernels (``tests/c/kernels``), or variants of them (`IMAGES`).
``Variants:``
    Sanitizers to build it with (`VARIANTS`); ``plain asan`` if not said.
``Covers:``
    Defects of the 2022 patch that it would fail on; see test_regress.py.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
C = ROOT / "tests" / "c"
INCLUDES = [f"-I{ROOT / 'csrc' / 'include'}", f"-I{ROOT / 'csrc' / 'host'}", f"-I{C}"]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
COMPILE_SECONDS = 100
RUN_SECONDS = 60
SANITIZER_EXIT = 66
SKIP = 77
SHARED_SOURCES = ("lab.c", "maps.c", "cycle.c", "faults.c", "by_hand.c", "ports_hand.c")

#: Name of a variant, and the compiler's flags that make it.
VARIANTS = {
    "plain": ("-O1",),
    "asan": ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "tsan": ("-O1", "-fsanitize=thread"),
}
_SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": f"exitcode={SANITIZER_EXIT}:detect_leaks=1:abort_on_error=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": f"exitcode={SANITIZER_EXIT}:halt_on_error=0",
}

#: Images that are not simply the source of their name: source and defines.
IMAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "zeros": ("gomp", ("TABLE_ENTRIES=0, 0, 0",)),
    "bad-abi": ("bad", ("LINK_ABI=99",)),
    "bad-link-size": ("bad", ("LINK_SIZE=48",)),
    "bad-link-short": ("bad", ("SHORT_LINK",)),
    "bad-variable": ("bad", ("SHORT_VAR",)),
    "bad-magic": ("bad", ("FN_MAGIC=4711",)),
    "bad-function-abi": ("bad", ("FN_ABI=7",)),
    "bad-name": ("bad", ("ENDLESS_NAME",)),
    "bad-signature": ("bad", ("ENDLESS_SIGNATURE",)),
    "odd-function": ("bad", ("SHORT_FN",)),
}


class BuildError(Exception):
    """A compiler refused; the text is its own."""


@dataclass(frozen=True)
class Program:
    """A C program: its path and what its opening comment says."""

    path: Path
    description: str
    images: tuple[str, ...]
    variants: tuple[str, ...]
    covers: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def must_fail(self) -> bool:
        """Whether a sanitizer has to find what the program does wrong."""
        return self.name.startswith("xfail_")


@dataclass(frozen=True)
class Outcome:
    """How a program ended; ``status`` is None when its time was up."""

    status: int | None
    output: str


def read_program(path: Path) -> Program:
    """Read the opening comment of a C program."""
    text = path.read_text(encoding="utf-8")
    comments = re.findall(r"/\*(.*?)\*/", text, re.DOTALL)
    opening = next((c for c in comments if "Description:" in c), "")
    lines = [line.strip().lstrip("*").strip() for line in opening.splitlines()]

    def words(key: str, otherwise: str = "") -> tuple[str, ...]:
        found = " ".join(line.partition(":")[2] for line in lines if line.startswith(f"{key}:"))
        return tuple((found or otherwise).split())

    return Program(
        path=path,
        description=" ".join(lines).strip(),
        images=words("Images"),
        variants=words("Variants", "plain asan"),
        covers=words("Covers"),
    )


def programs() -> list[Program]:
    """All programs of this suite; those of the CPU device have their own."""
    found = sorted([*C.glob("test_*.c"), *C.glob("xfail_*.c")])
    return [read_program(path) for path in found if not path.name.startswith("test_cpu_")]


def compilers() -> tuple[str, str] | None:
    """The C and the C++ compiler, or None."""
    cc = shutil.which(os.environ.get("CC", "gcc"))
    cxx = shutil.which(os.environ.get("CXX", "g++"))
    return (cc, cxx) if cc and cxx else None


def _cpu_source():  # type: ignore[no-untyped-def]
    # By its file: the package itself needs the compiled module.
    spec = importlib.util.spec_from_file_location(
        "pyrevoff_cpu_source", ROOT / "pyrevoff" / "_cpu_source.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(command: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=COMPILE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stdout.decode(errors='replace')}")


class Builder:
    """Compiles into one folder, each thing once.

    Parameters
    ----------
    folder : Path
        Where everything goes.
    cc, cxx : str
        The compilers.
    """

    def __init__(self, folder: Path, cc: str, cxx: str) -> None:
        self.folder = folder
        self.cc, self.cxx = cc, cxx
        self._lock = threading.Lock()
        self._done: dict[Path, threading.Lock] = {}
        self._ready: set[Path] = set()

    def _once(self, target: Path) -> threading.Lock:
        with self._lock:
            return self._done.setdefault(target, threading.Lock())

    def _flags(self, variant: str) -> list[str]:
        return ["-g", "-fPIC", "-pthread", *VARIANTS[variant]]

    def objects(self, variant: str) -> list[Path]:
        """The host library, the CPU device and what the programs share."""
        folder = self.folder / variant / "objects"
        sources = [
            *sorted((ROOT / "csrc" / "host").glob("*.c")),
            *sorted((ROOT / "csrc" / "cpu").glob("*.[cS]")),
            *(C / name for name in SHARED_SOURCES),
        ]
        targets = [folder / f"{path.parent.name}-{path.stem}.o" for path in sources]
        with self._once(folder):
            if folder in self._ready:
                return targets
            folder.mkdir(parents=True, exist_ok=True)
            commands = [
                [
                    self.cc,
                    *self._flags(variant),
                    "-std=gnu11",
                    "-D_GNU_SOURCE",
                    "-fvisibility=hidden",
                    *WARNINGS,
                    *INCLUDES,
                    "-c",
                    str(source),
                    "-o",
                    str(target),
                ]
                for source, target in zip(sources, targets)
            ]
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                list(pool.map(_compile, commands))
            self._ready.add(folder)
        return targets

    def library(self, variant: str) -> Path:
        """The objects as an archive."""
        target = self.folder / variant / "liblab.a"
        with self._once(target):
            if target not in self._ready:
                _compile(["ar", "rcs", str(target), *map(str, self.objects(variant))])
                self._ready.add(target)
        return target

    def program(self, program: Program, variant: str) -> Path:
        """An executable."""
        library = self.library(variant)
        target = self.folder / variant / program.name
        with self._once(target):
            if target not in self._ready:
                _compile(
                    [
                        self.cc,
                        *self._flags(variant),
                        "-std=gnu11",
                        "-D_GNU_SOURCE",
                        *WARNINGS,
                        *INCLUDES,
                        str(program.path),
                        str(library),
                        "-ldl",
                        # Images need it. If it came and went with them,
                        # LeakSanitizer would miss its emergency pool.
                        "-Wl,--no-as-needed",
                        "-lstdc++",
                        "-o",
                        str(target),
                    ]
                )
                self._ready.add(target)
        return target

    def shared(self, variant: str, name: str, sources: Sequence[Path], *defines: str) -> Path:
        """A shared object of the library's own objects and more sources."""
        shared = {f"c-{Path(source).stem}.o" for source in SHARED_SOURCES}
        objects = [path for path in self.objects(variant) if path.name not in shared]
        target = self.folder / variant / "images" / f"{name}.so"
        with self._once(target):
            if target not in self._ready:
                target.parent.mkdir(parents=True, exist_ok=True)
                _compile(
                    [
                        self.cc,
                        *self._flags(variant),
                        "-std=gnu11",
                        "-D_GNU_SOURCE",
                        "-fvisibility=hidden",
                        *WARNINGS,
                        *INCLUDES,
                        *(f"-D{d}" for d in defines),
                        "-shared",
                        *map(str, sources),
                        *map(str, objects),
                        "-ldl",
                        "-o",
                        str(target),
                    ]
                )
                self._ready.add(target)
        return target

    def image(self, name: str, variant: str) -> Path:
        """An image for the CPU device; the folder is the same for all."""
        if name.startswith("fake-cuda"):
            missing = name.partition("-without-")[2]
            defines = [f"{missing}=absent"] if missing else []
            return self.shared(variant, name, [C / "fake_cuda.c"], *defines)
        source, defines_of = IMAGES.get(name, (name, ()))
        folder = self.folder / variant / "images"
        target = folder / f"{name}.so"
        with self._once(target):
            if target in self._ready:
                return target
            folder.mkdir(parents=True, exist_ok=True)
            cpu_source = _cpu_source()
            path = C / "kernels" / f"{source}.cu"
            text = cpu_source.translate(path.read_text(encoding="utf-8"), path.name)
            translated = folder / f"{name}.cc"
            translated.write_text(text, encoding="utf-8")
            _compile(
                [
                    self.cxx,
                    *cpu_source.compile_flags(),
                    *INCLUDES[:1],
                    "-g",
                    *VARIANTS[variant],
                    *(f"-D{d}" for d in defines_of),
                    str(translated),
                    "-o",
                    str(target),
                ]
            )
            self._ready.add(target)
        return target

    def images(self, program: Program, variant: str) -> Path:
        """Make the images of a program; returns their folder."""
        for name in program.images:
            self.image(name, variant)
        return self.folder / variant / "images"


def run(command: Sequence[str], seconds: float = RUN_SECONDS, **extra: str) -> Outcome:
    """Run a program in a process group of its own, for at most `seconds`."""
    env = {**os.environ, **_SANITIZER_OPTIONS, **extra}
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        start_new_session=True,
    )
    status: int | None
    try:
        output, _ = child.communicate(timeout=seconds)
        status = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        status = None
    return Outcome(status, output.decode(errors="replace"))


class Session:
    """A builder, and what the programs gave: each is run once."""

    def __init__(self, folder: Path, cc: str, cxx: str) -> None:
        self.builder = Builder(folder, cc, cxx)
        self._outcomes: dict[tuple[str, str], Outcome] = {}

    def outcome(self, program: Program, variant: str) -> Outcome:
        """How the program ends in a variant."""
        key = program.name, variant
        if key not in self._outcomes:
            executable = self.builder.program(program, variant)
            images = self.builder.images(program, variant)
            self._outcomes[key] = run([str(executable), str(images)])
        return self._outcomes[key]


@functools.lru_cache(maxsize=1)
def session() -> Session:
    """The session of this process; its folder goes with the process.

    Raises
    ------
    BuildError
        There are no compilers.
    """
    found = compilers()
    if not found:
        raise BuildError("no C and C++ compiler (CC, CXX, gcc, g++)")
    folder = Path(tempfile.mkdtemp(prefix="pyrevoff-c-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Session(folder, *found)
