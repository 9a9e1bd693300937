# SPDX-License-Identifier: Apache-2.0
"""Options of compilers: what they name, and which a host compiler takes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from . import _cache

# Spellings of nvcc and NVRTC, and what g++ and clang++ call the same.
_TRANSLATED = {
    "--define-macro": "-D",
    "--undefine-macro": "-U",
    "--include-path": "-I",
    "--pre-include": "-include",
    "--std": "-std=",
    "--optimize": "-O",
}
_TAKES_WORD = {"-D", "-U", "-I", "-include", "-isystem", "-iquote", "-idirafter", "-imacros"}
# Known to compilers for GPUs only; True if the value may be a word of its own.
_GPU_ONLY = {
    "-arch": True,
    "--gpu-architecture": True,
    "-code": True,
    "--gpu-code": True,
    "-gencode": True,
    "--generate-code": True,
    "-maxrregcount": True,
    "--maxrregcount": True,
    "-ccbin": True,
    "--compiler-bindir": True,
    "-Xptxas": True,
    "--ptxas-options": True,
    "-Xcudafe": True,
    "-diag-suppress": True,
    "--diag-suppress": True,
    "-rdc": False,
    "--relocatable-device-code": False,
    "-dc": False,
    "--device-c": False,
    "-dlto": False,
    "--dlink-time-opt": False,
    "-ltoir": False,
    "-G": False,
    "--device-debug": False,
    "-lineinfo": False,
    "--generate-line-info": False,
    "-use_fast_math": False,
    "--use_fast_math": False,
    "-ftz": False,
    "--ftz": False,
    "-prec-div": False,
    "--prec-div": False,
    "-prec-sqrt": False,
    "--prec-sqrt": False,
    "-fmad": False,
    "--fmad": False,
    "--extra-device-vectorization": False,
    "-extra-device-vectorization": False,
    "-default-device": False,
    "--device-as-default-execution-space": False,
    "--expt-relaxed-constexpr": False,
    "-expt-relaxed-constexpr": False,
    "--extended-lambda": False,
    "-extended-lambda": False,
    "-restrict": False,
    "--restrict": False,
    "--split-compile": False,
    "-split-compile": False,
}


def has_option(options: Sequence[str], *names: str) -> bool:
    """Whether one of the options, alone or with ``=value``, is there."""
    return any(option.partition("=")[0] in names for option in options)


def cpu_options(options: Sequence[str]) -> list[str]:
    """Options for g++ or clang++ from options meant for nvcc or NVRTC.

    Parameters
    ----------
    options : sequence of str
        One word each.

    Returns
    -------
    list of str
        The same meaning where a host compiler has one; options that concern
        only GPUs are left out, and those of the host compiler stay.
    """
    words: list[str] = []
    todo = list(options)
    while todo:
        option = todo.pop(0)
        name, equals, value = option.partition("=")
        if name in _GPU_ONLY:
            if _GPU_ONLY[name] and not equals and todo:
                todo.pop(0)
        elif name in _TRANSLATED:
            if not equals and todo:
                value = todo.pop(0)
            short = _TRANSLATED[name]
            words += [short, value] if short == "-include" else [short + value]
        elif name == "-I" and equals:
            words.append("-I" + value)
        elif option in _TAKES_WORD and todo:
            words += [option, todo.pop(0)]
        elif option in ("-Xcompiler", "--compiler-options") and todo:
            words += todo.pop(0).split(",")
        else:
            words.append(option)
    return words


_COMMENT_OR_STRING = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(?P<mark>[^()\\\s]*)\(.*?\)(?P=mark)\""
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include(?:_next)?\b[ \t]*(.*)$", re.MULTILINE)
_NAMED = re.compile(r'"([^"]+)"|<([^>]+)>')


def _include_lines(text: str) -> list[str]:
    def blank(match: re.Match[str]) -> str:
        # An #include's own "name" is a string to this pattern: keep strings.
        token = match.group()
        return token if token[0] == '"' else " "

    return _INCLUDE.findall(_COMMENT_OR_STRING.sub(blank, text.replace("\\\n", "")))


def scan_includes(source: str, options: Sequence[str], own: Path) -> list[tuple[str, str]] | None:
    """Find the files that a source includes, for a compiler that does not say.

    Parameters
    ----------
    source : str
        CUDA C++.
    options : sequence of str
        Options of NVRTC; the folders of ``-I`` are searched.
    own : Path
        Folder of pyrevoff's headers, whose files are left out.

    Returns
    -------
    list of (str, str) or None
        Absolute path and content hash of each, whether its #include is active
        or not. None if that cannot be told, so that nothing may be cached.
    """
    words = cpu_options(options)
    folders = [Path(word[2:]).absolute() for word in words if word[:2] == "-I" and word[2:]]
    folders += [
        Path(value).absolute()
        for word, value in zip(words, words[1:])
        if word in ("-I", "-isystem")
    ]
    named = [value for word, value in zip(words, words[1:]) if word == "-include"]
    if any(word[:1] == "@" or word[:14] == "--options-file" for word in words):
        return None
    if "__has_include" in source:
        return None
    found: dict[str, str] = {}
    todo: list[tuple[str, Path | None]] = [(f'#include "{name}"', None) for name in named]
    todo.append((source, None))
    while todo:
        text, home = todo.pop()
        for line in _include_lines(text):
            name = _NAMED.match(line)
            if not name:
                return None  # a macro
            relative = name.group(1) or name.group(2)
            places = ([home] if home and name.group(1) else []) + folders
            path = next((p / relative for p in places if (p / relative).is_file()), None)
            if path is None:
                return None  # one that comes with the compiler, or a mistake
            full = os.path.normpath(path)
            if full in found or full.startswith(os.path.join(str(own), "")):
                continue
            found[full] = _cache.file_hash(full)
            content = Path(full).read_text(encoding="utf-8", errors="replace")
            if "__has_include" in content:
                return None
            todo.append((content, path.parent))
    return sorted(found.items())
