# SPDX-License-Identifier: Apache-2.0
"""The wire has one layout, whoever reads it.

The numbers below are written by hand once more. The C compiler, cffi and NumPy
must agree with them, and so must the header's own assertions and, where it has
been built, the extension module.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import cbuild
import numpy as np
import pytest

HEADER = cbuild.ROOT / "csrc" / "include" / "revoff" / "protocol.h"

REV_OFFLOAD = {
    "fn": (0, "<u8"),
    "mapnum": (8, "<u8"),
    "addrs": (16, "<u8"),
    "sizes": (24, "<u8"),
    "kinds": (32, "<u8"),
    "dev_num": (40, "<i4"),
    "lock": (44, "<u4"),
}
PACKET = {
    "payload_bytes": (0, "<u4"),
    "block": (4, ("<u4", 3)),
    "thread": (16, ("<u4", 3)),
    "reserved": (28, ("<u4", 9)),
    "addrs": (64, ("<u8", 32)),
    "sizes": (320, ("<u8", 32)),
    "kinds": (576, ("<u2", 32)),
    "payload": (640, ("u1", 16384)),
}
CONTROL = {
    "abort": (0, "<u4"),
    "leave": (4, "<u4"),
    "missed": (8, "<u4"),
    "missed_status": (12, "<i4"),
    "missed_fn": (16, "<u8"),
    "deserted": (24, "<u4"),
    "dropped": (28, "<u4"),
    "stop": (32, "<u4"),
    "reserved0": (36, "<u4"),
    "reserved": (40, ("<u8", 3)),
}
LINK = {
    "abi": (0, "<u4"),
    "size": (4, "<u4"),
    "lock": (8, "<u8"),
    "gates": (16, "<u8"),
    "control": (24, "<u8"),
    "flags": (32, "<u8"),
    "requests": (40, "<u8"),
    "replies": (48, "<u8"),
    "bells": (56, "<u8"),
    "states": (64, "<u8"),
    "slots": (72, "<u8"),
    "slot_states": (80, "<u8"),
    "nports": (88, "<u4"),
    "nslots": (92, "<u4"),
    "heads": (96, "<u8"),
    "records": (104, "<u8"),
    "done": (112, "<u8"),
    "tail": (120, "<u8"),
    "seen": (128, "<u8"),
    "nheads": (136, "<u4"),
    "nrecords": (140, "<u4"),
}
UNIT = {
    "lo": (0, "<u8"),
    "hi": (8, "<u8"),
}
POST = {
    "fn": (0, "<u8"),
    "mask": (8, "<u4"),
    "slots": (12, "<u4"),
    "block_x": (16, "<u4"),
    "block_yz": (20, "<u4"),
    "thread": (24, "<u4"),
    "lap": (28, "<u4"),
}
GATE = {
    "next": (0, "<u4"),
    "serving": (4, "<u4"),
    "reserved": (8, ("<u4", 14)),
}
DESCRIPTOR = {
    "magic": (0, "<u8"),
    "abi": (8, "<u4"),
    "reserved": (12, "<u4"),
    "name": (16, "S64"),
    "signature": (80, "S944"),
}
ICVS = {
    "device_num": (0, "<i4"),
    "default_device": (4, "<i4"),
    "nteams": (8, "<i4"),
    "teams_thread_limit": (12, "<i4"),
}
STRUCTS = {
    "rev_offload": (48, REV_OFFLOAD),
    "revoff_packet": (17024, PACKET),
    "revoff_control": (64, CONTROL),
    "revoff_link": (144, LINK),
    "revoff_unit": (16, UNIT),
    "revoff_post": (32, POST),
    "revoff_gate": (64, GATE),
    "revoff_descriptor": (1024, DESCRIPTOR),
    "revoff_icvs": (16, ICVS),
}
NUMBERS = {
    "REVOFF_ABI_VERSION": 2,
    "REVOFF_HOST_FALLBACK": -2,
    "REVOFF_PACKET_MAPS": 32,
    "REVOFF_PACKET_PAYLOAD": 16384,
    "REVOFF_NAME_MAX": 64,
    "REVOFF_SIGNATURE_MAX": 944,
    "REVOFF_GATES": 1024,
    "REVOFF_LINK_CONNECTED": 1,
    "REVOFF_LINK_PACKET": 2,
    "REVOFF_LINK_LOCK": 4,
    "REVOFF_LINK_PORTS": 8,
    "REVOFF_SEQ_LAST": 0x7FFF0000,
    "REVOFF_SEQ_FAILED": 0x80000000,
    "REVOFF_PORT_UNITS": 128,
    "REVOFF_PORT_WORDS": 16,
    "REVOFF_HEAD_UNITS": 4,
    "REVOFF_FORM_WORDS": 0,
    "REVOFF_FORM_FRAME": 1,
    "REVOFF_FORM_GOMP": 2,
    "REVOFF_FORM_SEND": 3,
    "REVOFF_FORM_FETCH": 4,
    "REVOFF_SLOT_BYTES": 17408,
    "REVOFF_RECORD": 32,
    "REVOFF_OK": 0,
    "REVOFF_HANDLER": 1,
    "REVOFF_ABORTED": 2,
    "REVOFF_UNBOUND": 3,
    "REVOFF_UNKNOWN": 4,
    "REVOFF_BADMAP": 5,
    "REVOFF_COPYFAILED": 6,
    "REVOFF_UNCONNECTED": 7,
    "REVOFF_TOOBIG": 8,
    "REVOFF_BADCALL": 9,
    "REVOFF_ABORT_NONE": 0,
    "REVOFF_ABORT_FAILED": 1,
    "REVOFF_ABORT_SIGNAL": 2,
    "REVOFF_ABORT_TIMEOUT": 3,
    "REVOFF_ABORT_CLOSING": 4,
}
# libgomp's numbers (include/gomp-constants.h of GCC), without its flags.
KINDS = {
    "ALLOC": 0x00,
    "TO": 0x01,
    "FROM": 0x02,
    "TOFROM": 0x03,
    "POINTER": 0x04,
    "TO_PSET": 0x05,
    "FORCE_PRESENT": 0x06,
    "DELETE": 0x07,
    "FIRSTPRIVATE": 0x0C,
    "FIRSTPRIVATE_INT": 0x0D,
    "ZERO_LEN_ARRAY": 0x0F,
    "ALWAYS_TO": 0x11,
    "ALWAYS_FROM": 0x12,
    "ALWAYS_TOFROM": 0x13,
    "RELEASE": 0x17,
    "STRUCT": 0x1C,
    "ALWAYS_POINTER": 0x1D,
    "POINTER_ZERO_LEN": 0x1E,
    "DELETE_ZERO_LEN": 0x1F,
    "ATTACH": 0x50,
    "DETACH": 0x51,
    "ATTACH_ZERO_LEN": 0x52,
    "STRUCT_UNORD": 0x5C,
    "IMPLICIT": 0x60,
    "FORCE_ALLOC": 0x80,
    "FORCE_TO": 0x81,
    "FORCE_FROM": 0x82,
    "FORCE_TOFROM": 0x83,
    "ALWAYS_PRESENT_TO": 0x95,
    "ALWAYS_PRESENT_FROM": 0x96,
    "ALWAYS_PRESENT_TOFROM": 0x97,
    "FORCE_DETACH": 0xD1,
}


def dtype(name: str) -> np.dtype:
    size, fields = STRUCTS[name]
    return np.dtype(
        {
            "names": list(fields),
            "formats": [form for _, form in fields.values()],
            "offsets": [offset for offset, _ in fields.values()],
            "itemsize": size,
        }
    )


def header_text() -> str:
    return re.sub(r"/\*.*?\*/", " ", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)


def header_numbers() -> dict[str, int]:
    pattern = r"#define\s+(REVOFF_\w+)\s+(?:\\\n)?\s*\(?(-?(?:0x[0-9a-fA-F]+|\d+))u?\)?\s*$"
    return {name: int(value, 0) for name, value in re.findall(pattern, header_text(), re.MULTILINE)}


@pytest.mark.parametrize("name", STRUCTS)
def test_numpy_has_every_byte(name: str) -> None:
    """A NumPy dtype of the numbers covers the struct without gap or overlap."""
    found = dtype(name)
    at = 0
    for field in found.names or ():
        form, offset = found.fields[field][:2]  # type: ignore[index]
        assert offset == at, f"{name}.{field}"
        at += form.itemsize
    assert at == found.itemsize == STRUCTS[name][0]


@pytest.mark.parametrize("name", STRUCTS)
def test_cffi_agrees(name: str) -> None:
    """cffi lays the header's own text out as the numbers say."""
    cffi = pytest.importorskip("cffi")
    lines = [line for line in header_text().splitlines() if not line.lstrip().startswith("#")]
    plain = "\n".join(lines)
    for macro in sorted(NUMBERS, key=len, reverse=True):
        plain = re.sub(rf"\b{macro}\b", str(NUMBERS[macro]), plain)
    structs = "".join(re.findall(r"(?:typedef [^;]+;|struct \w+ \{.*?\};)", plain, re.DOTALL))
    ffi = cffi.FFI()
    ffi.cdef(structs)
    size, fields = STRUCTS[name]
    assert ffi.sizeof(f"struct {name}") == size
    declared = dict(ffi.typeof(f"struct {name}").fields)
    assert list(declared) == list(fields)
    for field, (offset, form) in fields.items():
        assert declared[field].offset == offset
        assert ffi.sizeof(declared[field].type) == np.dtype(form).itemsize


def test_numbers_of_the_header() -> None:
    found = header_numbers()
    assert {name: found.get(name) for name in NUMBERS} == NUMBERS


def test_kinds_are_libgomps() -> None:
    found = header_numbers()
    named = {name[len("REVOFF_MAP_") :]: v for name, v in found.items() if "_MAP_" in name}
    assert named == KINDS


def test_header_asserts_its_layout() -> None:
    """Every compiler that sees the header checks the same numbers."""
    text = header_text()
    for struct, field, offset in re.findall(r"REVOFF_AT\((\w+), (\w+), (\d+)\);", text):
        if struct in STRUCTS:
            assert STRUCTS[struct][1][field][0] == int(offset)
    sizes = dict(re.findall(r"REVOFF_SIZE\((\w+), (\d+)\);", text))
    assert {name: int(sizes[name]) for name in STRUCTS} == {n: s for n, (s, _) in STRUCTS.items()}
    asserted = set(re.findall(r"REVOFF_AT\(rev_offload, (\w+),", text))
    assert asserted == set(REV_OFFLOAD)


@pytest.mark.skipif(not cbuild.compilers(), reason="no C compiler")
@pytest.mark.timeout(cbuild.RUN_SECONDS + 3 * cbuild.COMPILE_SECONDS)
def test_numpy_reads_what_c_wrote(tmp_path: Path) -> None:
    """A mailbox that C filled is understood by the NumPy dtypes."""
    program = cbuild.read_program(cbuild.C / "test_wire_layout.c")
    executable = cbuild.session().builder.program(program, "plain")
    done = subprocess.run(
        [str(executable), str(tmp_path), "dump"], capture_output=True, timeout=60, check=True
    )
    assert len(done.stdout) == 17088
    call = np.frombuffer(done.stdout, dtype("rev_offload"), 1)[0]
    packet = np.frombuffer(done.stdout, dtype("revoff_packet"), 1, offset=64)[0]
    assert call["fn"] == 0x1111111111111111
    assert call["mapnum"] == 0x22
    assert call["addrs"] == 0x3333
    assert call["sizes"] == 0x444444
    assert call["kinds"] == 0x55555555
    assert call["dev_num"] == -6
    assert call["lock"] == 7
    assert packet["payload_bytes"] == 8
    assert packet["block"].tolist() == [9, 10, 11]
    assert packet["thread"].tolist() == [12, 13, 14]
    assert packet["addrs"].tolist() == list(range(1000, 1032))
    assert packet["sizes"].tolist() == list(range(2000, 2032))
    assert packet["kinds"].tolist() == list(range(3000, 3032))
    assert packet["payload"][0] == 15
    assert packet["payload"][-1] == 16
    assert not packet["reserved"].any()


def test_extension_agrees() -> None:
    """The built module has the same numbers (cffi compares them with C's)."""
    extension = pytest.importorskip("pyrevoff._revoff", reason="the extension is not built")
    lib = extension.lib
    for name, value in NUMBERS.items():
        if hasattr(lib, name):
            assert getattr(lib, name) == value, name
    for name, value in KINDS.items():
        assert getattr(lib, f"REVOFF_MAP_{name}") == value, name
    assert lib.revoff_abi_version() == NUMBERS["REVOFF_ABI_VERSION"]
