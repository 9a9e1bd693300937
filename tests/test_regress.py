# SPDX-License-Identifier: Apache-2.0
"""The defects of the 2022 patch, one test each; it would fail on the defect.

The patch is the second version of "libgomp: reverse offload for nvptx", as it
was posted for review. Its defects were numbered once, V1 to V23. C programs of
tests/c show that most of them are not here (see test_c.py, which runs all of
them); where a defect cannot exist by construction, the construction is tested.

=====  =====================================================  =============================
no.    defect of the patch                                     shown by
=====  =====================================================  =============================
V1     a table of zeros is never dropped                       test_image_unused, test_gomp_load
V2     an image without reverse functions gets a mailbox       test_image_unused
V3     device struct used before it is set                     test_dirty_memory
V4     mailbox memory not zeroed                               test_dirty_memory
V5     missing ``__gomp_rev_offload_var`` is fatal             test_image_unused
V6     host reads and clears ``fn`` without order              test_order_by_hand, test_order_calls
V7     device accesses not at system scope                     the generated PTX, here
V8     the whole struct polled by one copy                     test_torn_copy
V9     a sleep after every look                                test_wait_policies
V10    a stream per launch                                     test_call_cost
V11    a wait per list and per item                            test_call_cost
V12    only the first image is connected                       test_image_many
V13    calls that cannot be sent vanish                        test_launch_missed
V14    a lock and the NULL stream held over kernels            test_launch_nested, and here
V15    callers spin for the lock, unfairly                     test_launch_threads
V16    ``gomp_target_rev`` is unreachable code                 test_map_kinds, test_gomp_hooks
V17    the struct is declared twice                            source tree, here
V18    helpers are exported                                    symbols of the library, here
V19    mailbox never freed; reload not connected               test_driver_balance, test_image_many
V20    no requirement stated or checked                        test_libcuda, and here
V21    errors name the wrong driver call, or none              test_driver_faults
V22    names in the text are not those of the code             docs/memory-order.md, here
V23    no wait has an end                                      test_launch_timeout
=====  =====================================================  =============================

The defects G1 to G12 that are still in GCC 13 to 16: G1 test_map_firstprivate,
G2 and G3 test_image_many, G4 test_map_declare_target, G5 test_map_limits (an
error, not a hang), G6 and G7 test_map_pointer, G8 test_launch_failure, G9
test_dirty_memory, G10 test_map_partly, G11 test_call_cost, G12 as V7.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import cbuild
import pytest
import test_c

ROOT = cbuild.ROOT
CSRC = ROOT / "csrc"
PTX = ROOT / "ptx" / "pyrevoff.ptx"
PROGRAMS = {program.name: program for program in cbuild.programs()}

SHOWN_BY = {
    1: ("test_image_unused", "test_gomp_load"),
    2: ("test_image_unused",),
    3: ("test_dirty_memory",),
    4: ("test_dirty_memory",),
    5: ("test_image_unused",),
    6: ("test_order_by_hand", "test_order_calls"),
    8: ("test_torn_copy",),
    9: ("test_wait_policies",),
    10: ("test_call_cost",),
    11: ("test_call_cost",),
    12: ("test_image_many",),
    13: ("test_launch_missed",),
    14: ("test_launch_nested",),
    15: ("test_launch_threads",),
    16: ("test_map_kinds", "test_gomp_hooks"),
    19: ("test_driver_balance", "test_image_many"),
    20: ("test_libcuda",),
    21: ("test_driver_faults",),
    23: ("test_launch_timeout",),
}
BY_CONSTRUCTION = {7, 14, 17, 18, 20, 22}


def code(path: Path) -> str:
    """Text of a C file without its comments."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)


def sources(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in CSRC.glob(pattern))


def test_every_defect_is_covered() -> None:
    assert set(SHOWN_BY) | BY_CONSTRUCTION == set(range(1, 24))
    for number, names in SHOWN_BY.items():
        for name in names:
            assert f"V{number}" in PROGRAMS[name].covers, f"{name} does not say V{number}"
    said = {(p.name, v) for p in PROGRAMS.values() for v in p.covers if int(v[1:]) in SHOWN_BY}
    listed = {(name, f"V{number}") for number, names in SHOWN_BY.items() for name in names}
    # A program may help with a defect that is shown by construction.
    assert said - listed <= {("test_gomp_hooks", "V18")}


@pytest.mark.skipif(not cbuild.compilers(), reason="no C and C++ compiler")
@pytest.mark.timeout(test_c.LIMIT)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, id=f"V{number}-{name}")
        for number, names in SHOWN_BY.items()
        for name in names
    ],
)
def test_defect_is_not_here(name: str) -> None:
    program = PROGRAMS[name]
    for variant in program.variants:
        test_c.check(program, variant)


def test_v7_what_the_host_sees_has_system_scope() -> None:
    """Flag, look, counts and the mailbox's own lock: scope in the instruction.

    Device memory that only the device touches (the lock, the gates) may do
    with the device's scope.
    """
    text = re.sub(r"//[^\n]*", "", PTX.read_text(encoding="utf-8"))
    assert re.search(r"\bst\.release\.sys\.[ub]64\b", text), "publishing fn"
    assert re.search(r"\bld\.acquire\.sys\.v2\.[ub]64\b", text), "looking at fn"
    assert re.search(r"\batom\.exch\.\w+\.sys\.b32\b", text), "the mailbox's lock"
    assert re.search(r"\batom\.(sys\.add|add\.\w+\.sys)\.u32\b", text), "counting for the host"
    assert ".volatile" not in text
    # 64-bit words are the host's too, but for a port's state in device memory, and
    # units of a reply, which vouch for themselves and are then asked for again.
    smaller = r"^.*\.(?:acquire|release|acq_rel|relaxed)\.(?:gpu|cta)\.[^\s]*64\b.*$"
    found = {line.split()[0] for line in re.findall(smaller, text, re.MULTILINE)}
    assert found <= {"st.relaxed.gpu.u64", "ld.relaxed.cta.v2.u64"}


def test_v7_no_volatile_in_the_device_half() -> None:
    for path in sources("include/pyrevoff.h", "include/revoff/device.h", "device/*"):
        # asm volatile is another thing: the compiler must not drop it.
        assert not re.search(r"(?<!asm )\bvolatile\b", code(path)), path.name


def test_v14_nothing_uses_the_null_stream() -> None:
    """Copies and kernels have streams of their own, made non-blocking."""
    for path in sources("host/*.c"):
        text = code(path)
        for call in re.findall(r"cuStreamCreate\(([^;]*)\)", text):
            assert "CU_STREAM_NON_BLOCKING" in call, path.name
        for name in ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemsetD8Async"):
            for call in re.findall(rf"->{name}\(([^;]*?)\);", text, re.DOTALL):
                assert re.search(r"_stream\s*$", call), f"{path.name}: {name}({call})"
    names = {line.split(",")[0] for line in code(CSRC / "host" / "driver.def").split("(")}
    # Calls that work on the NULL stream, or wait for the whole device.
    unwanted = ("cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpy", "cuMemsetD8", "cuCtxSynchronize")
    assert not names & set(unwanted)


def test_v17_each_wire_struct_is_declared_once() -> None:
    wire = code(CSRC / "include" / "revoff" / "protocol.h")
    structs = re.findall(r"^struct (\w+) \{", wire, re.MULTILINE)
    assert "rev_offload" in structs
    assert "revoff_mailbox" in structs
    for path in sources("**/*.[ch]", "**/*.cu", "**/*.def"):
        found = re.findall(r"\bstruct (\w+)\s*\{", code(path))
        for name in structs:
            assert found.count(name) == (path.name == "protocol.h"), f"{name} in {path.name}"
    # Both sides include that header.
    assert "<revoff/protocol.h>" in code(CSRC / "include" / "revoff" / "image.h")
    assert "<revoff/protocol.h>" in code(CSRC / "host" / "internal.h")


@pytest.mark.skipif(not cbuild.compilers(), reason="no C and C++ compiler")
@pytest.mark.timeout(test_c.LIMIT)
def test_v18_only_the_interface_is_exported() -> None:
    nm = shutil.which("nm")
    if not nm:
        pytest.skip("no nm")
    library = cbuild.session().builder.shared("plain", "library", [])
    done = subprocess.run(
        [nm, "-D", "--defined-only", str(library)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    exported = {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}
    text = code(CSRC / "host" / "revoff.h")
    declared = set(re.findall(r"\b(revoff_\w+)\([^*]", text))
    declared -= set(re.findall(r"typedef \w+ (\w+)\(", text))
    assert exported == declared


def test_v20_requirements_are_stated_and_checked() -> None:
    """Device code refuses to be compiled below sm_70; the PTX says sm_75."""
    device = code(CSRC / "include" / "revoff" / "atomic.h")
    assert re.search(r"__CUDA_ARCH__ < 700\s*\n\s*#error", device)
    target = re.search(r"^\.target (sm_\d+)", PTX.read_text(encoding="utf-8"), re.MULTILINE)
    assert target
    assert target.group(1) == "sm_75"
    assert "7.0" in (CSRC / "host" / "device.c").read_text(encoding="utf-8")


def test_v22_the_protocol_pages_name_what_is_there() -> None:
    """Files and functions of the memory-order table, and the symbols."""
    page = (ROOT / "docs" / "memory-order.md").read_text(encoding="utf-8")
    files = {path.name: path for path in sources("**/*.[ch]")}
    found = re.findall(r"\[`([\w.]+):\d+`\]\(\.\./csrc/(\S+)#L\d+ [^|]*\| `(\w+)` \|", page)
    for name, path, word in found:
        assert files[name] == CSRC / path, f"docs/memory-order.md names {path}"
        assert re.search(rf"\b{word}\(", code(files[name])), f"{word} is not in {name}"
    assert len(found) >= 100
    wire = (CSRC / "include" / "revoff" / "protocol.h").read_text(encoding="utf-8")
    device = "".join(code(path) for path in sources("include/**/*.h"))
    symbols = dict(re.findall(r'#define (REVOFF_SYM_\w+)\s+"([^"]+)"', wire))
    assert len(symbols) == 4
    for macro, symbol in symbols.items():
        if symbol != "$offload_func_table":  # that one the compiler makes
            assert re.search(rf"\b{symbol} = ", device), f"{macro}: {symbol}"
