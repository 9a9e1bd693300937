# SPDX-License-Identifier: Apache-2.0
"""Build description of the compiled module ``pyrevoff._revoff``.

cffi's declarations are the public C header itself and the integers of the
wire; nothing is declared twice. setup.py loads this file before anything of
the package is built, so it imports nothing of it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parent.parent
HOST_HEADER = ROOT / "csrc" / "host" / "revoff.h"
WIRE_HEADER = ROOT / "csrc" / "include" / "revoff" / "protocol.h"

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
_INTEGER = re.compile(
    r"#[ \t]*define[ \t]+(\w+)[ \t]+\(?[ \t]*(-?(?:0[xX][0-9a-fA-F]+|\d+))[uUlL]*[ \t]*\)?[ \t]*"
)


def declarations(header: str, *, only_integers: bool = False) -> str:
    """Turn a C header into what ``FFI.cdef`` accepts.

    Parameters
    ----------
    header : str
        Text of the header: plain declarations and preprocessor lines.
    only_integers : bool
        Keep nothing but the integer macros.

    Returns
    -------
    str
        The declarations. Of the preprocessor lines only
        ``#define NAME integer`` is left, with the integer in plain form.
    """
    text = _COMMENT.sub(" ", header.replace("\\\n", " "))
    macros: list[str] = []

    def directive(match: re.Match[str]) -> str:
        integer = _INTEGER.fullmatch(match.group().strip())
        if integer:
            # cffi compares this with the C compiler's value at first use.
            macros.append(f"#define {integer.group(1)} {int(integer.group(2), 0)}")
        return ""

    text = _DIRECTIVE.sub(directive, text)
    if only_integers:
        text = ""
    lines = macros + [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines) + "\n"


# What only the Python side needs. The copy functions work in the thread in
# which revoff_py_target_rev runs, while it runs; they return 0, or
# REVOFF_EINVAL outside of it.
_PYTHON_SIDE = """
extern "Python" int revoff_py_handler(struct revoff_call *, void *);
extern "Python" int revoff_py_batch_handler(struct revoff_batch *, void *);
extern "Python" void revoff_py_target_rev(uint64_t fn_ptr, uint64_t mapnum,
        uint64_t devaddrs_ptr, uint64_t sizes_ptr, uint64_t kinds_ptr,
        int dev_num, void *token);
int revoff_py_set_target_rev(struct revoff_device *device, int on);
int revoff_py_dev_to_host(void *token, void *to, uint64_t from, size_t size);
int revoff_py_host_to_dev(void *token, uint64_t to, const void *from,
        size_t size);
"""

_PREAMBLE = """
#include <revoff/protocol.h>
#include "revoff.h"

static void revoff_py_target_rev(uint64_t, uint64_t, uint64_t, uint64_t,
                                 uint64_t, int, void *);

/* The copy callbacks of the target_rev calls that run in this thread. */
struct copies {
        void *token;
        revoff_copy_fn *dev_to_host, *host_to_dev;
        struct copies *outer;
};
static _Thread_local struct copies *running;

static void target_rev(uint64_t fn_ptr, uint64_t mapnum, uint64_t devaddrs_ptr,
                       uint64_t sizes_ptr, uint64_t kinds_ptr, int dev_num,
                       revoff_copy_fn *dev_to_host,
                       revoff_copy_fn *host_to_dev, void *token)
{
        struct copies mine = { token, dev_to_host, host_to_dev, running };

        running = &mine;
        revoff_py_target_rev(fn_ptr, mapnum, devaddrs_ptr, sizes_ptr,
                             kinds_ptr, dev_num, token);
        running = mine.outer;
}

static int revoff_py_set_target_rev(struct revoff_device *device, int on)
{
        return revoff_set_target_rev(device, on ? target_rev : 0);
}

static const struct copies *find_copies(const void *token)
{
        const struct copies *found = running;

        while (found && found->token != token)
                found = found->outer;
        return found;
}

static int revoff_py_dev_to_host(void *token, void *to, uint64_t from,
                                 size_t size)
{
        const struct copies *copies = find_copies(token);

        if (!copies)
                return REVOFF_EINVAL;
        copies->dev_to_host(to, (const void *)(uintptr_t)from, size, token);
        return 0;
}

static int revoff_py_host_to_dev(void *token, uint64_t to, const void *from,
                                 size_t size)
{
        const struct copies *copies = find_copies(token);

        if (!copies)
                return REVOFF_EINVAL;
        copies->host_to_dev((void *)(uintptr_t)to, from, size, token);
        return 0;
}
"""


def _relative(*patterns: str) -> list[str]:
    # setuptools refuses absolute paths, and takes relative ones from the
    # folder of setup.py, which is where a build runs.
    found = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
    return [os.path.relpath(path, ROOT) for path in found]


def make_ffibuilder() -> FFI:
    """Describe the extension; reads the headers, compiles nothing."""
    builder = FFI()
    builder.cdef(declarations(HOST_HEADER.read_text(encoding="utf-8")))
    builder.cdef(declarations(WIRE_HEADER.read_text(encoding="utf-8"), only_integers=True))
    builder.cdef(_PYTHON_SIDE)
    builder.set_source(
        "pyrevoff._revoff",
        _PREAMBLE,
        sources=_relative("csrc/host/*.c", "csrc/cpu/*.c"),
        depends=_relative(
            "csrc/include/**/*.h",
            "csrc/host/*.h",
            "csrc/host/*.def",
            "csrc/cpu/*.h",
            "csrc/cpu/*.S",
            "pyrevoff/_build_ffi.py",
        ),
        include_dirs=["csrc/include", "csrc/host"],
        # Empty, as a source that defines it itself would: no redefinition.
        define_macros=[("_GNU_SOURCE", "")],
        extra_compile_args=[
            "-std=gnu11",
            "-O2",
            "-fvisibility=hidden",
            "-pthread",
            "-Wall",
            # Such a call would cut a returned pointer to 32 bits.
            "-Werror=implicit-function-declaration",
        ],
        extra_link_args=["-pthread"],
        libraries=["dl", "pthread"],
    )
    return builder


ffibuilder = make_ffibuilder()
