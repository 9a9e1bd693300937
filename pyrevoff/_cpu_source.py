# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ source for the CPU device's host compiler.

``revoff/cpu.h`` expresses almost all of CUDA C++ as plain C++.  This module
rewrites, in the text, the few things that no header can: dynamic shared
memory, and the list of a module's kernels.  It reads tokens, not C++: what a
macro of the source expands to is not seen.
"""

from __future__ import annotations

import bisect
import re
from typing import NamedTuple

__all__ = ["compile_flags", "translate"]


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


_SKIP = re.compile(
    r"""
      //(?:\\\r?\n|[^\n])*                              # line comment
    | /\*.*?(?:\*/|\Z)                                  # block comment
    | (?:u8|[uUL])?R"(?P<tag>[^\s()\\"]{0,16})\(.*?\)(?P=tag)"   # raw string
    | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*"                  # string
    | (?<![0-9a-zA-Z_])(?:u8|[uUL])?'(?:\\.|[^'\\\n])+' # character, not 1'000
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_EXTERN_SHARED = re.compile(r"\bextern\b(?P<before>[^;{}()=]*?)\b__shared__\b(?P<rest>[^;{}=]*);")
_ALIGN = re.compile(
    r"\b__align__\s*\([^()]*\)|\balignas\s*\((?:[^()]|\([^()]*\))*\)"
    r"|\b__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)"
)
_DECLARATOR = re.compile(
    r"^(?P<type>.*?)(?P<name>[A-Za-z_]\w*)\s*\[\s*\]\s*(?P<more>(?:\[[^\[\]]*\]\s*)*)$",
    re.DOTALL,
)
_ANNOTATIONS = frozenset(
    [
        "__launch_bounds__",
        "__attribute__",
        "__cluster_dims__",
        "__maxnreg__",
        "__align__",
        "alignas",
    ]
)
_MORE_NAMES = re.compile(r"\s*(?!noexcept\b|__attribute__\b|__launch_bounds__\b)[A-Za-z_]")


def compile_flags() -> list[str]:
    """Flags for ``g++`` and ``clang++`` that make a module of the CPU device.

    The caller adds ``-I`` with the package's include folder, the input (with
    ``-x c++``) and the output.

    Returns
    -------
    list of str
        A new list; options only.
    """
    return [
        "-std=c++17",
        "-O2",
        "-g1",
        "-fPIC",
        "-shared",
        # CUDA code reads one type as another, and nvcc lets it.
        "-fno-strict-aliasing",
        # A kernel named like a function of the process must stay itself.
        "-fno-semantic-interposition",
        "-Wl,-Bsymbolic",
        "-Wno-unknown-pragmas",
        "-include",
        "revoff/cpu.h",
    ]


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def _masked(source: str) -> str:
    """The source with comments, literals and directives blanked out.

    Offsets and line breaks stay, so that places found here are places there.
    """
    text = _SKIP.sub(_blank, source)
    return _DIRECTIVE.sub(_blank, text)


class _Scopes:
    """Which braces are open where, and whether one of them is a function's."""

    def __init__(self, text: str) -> None:
        self._at = [0]
        self._inside = [False]  # in a function's body, from self._at[i] on
        self.close: dict[int, int] = {}  # offset of "{" to that of its "}"
        stack: list[tuple[int, bool]] = []
        begin = 0  # of the statement that a brace may belong to
        for match in re.finditer(r"[{};]", text):
            place, what = match.start(), match.group()
            if what == "{":
                head = text[begin:place]
                outer = re.search(r"\bnamespace\b[^()]*$|\bextern\s*$", head)
                # A class at namespace scope holds functions, but is none.
                kind = re.search(r"\b(?:class|struct|union|enum)\b[^()=]*$", head)
                inside = bool(stack and stack[-1][1]) or not (outer or kind)
                stack.append((place, inside))
                self._note(place, inside)
            elif what == "}" and stack:
                opened, _ = stack.pop()
                self.close[opened] = place
                self._note(place + 1, bool(stack and stack[-1][1]))
            begin = place + 1

    def _note(self, place: int, inside: bool) -> None:
        self._at.append(place)
        self._inside.append(inside)

    def in_function(self, place: int) -> bool:
        return self._inside[bisect.bisect_right(self._at, place) - 1]


def _line(source: str, place: int) -> int:
    return source.count("\n", 0, place) + 1


def _same_lines(new: str, old: str) -> str:
    """Give new text as many line breaks as the text it stands for."""
    return new + "\n" * max(0, old.count("\n") - new.count("\n"))


def _dynamic_shared(source: str, text: str, scopes: _Scopes, name: str) -> list[_Edit]:
    edits = []
    for match in _EXTERN_SHARED.finditer(text):
        declared = _ALIGN.sub(" ", match.group("before") + " " + match.group("rest"))
        parts = _DECLARATOR.match(" ".join(declared.split()))
        if not parts or not parts.group("type").strip():
            raise ValueError(
                f"{name}:{_line(source, match.start())}: the CPU device cannot read this "
                f"declaration of dynamic shared memory: {' '.join(match.group().split())} "
                "(one array, as in: extern __shared__ float x[];)"
            )
        words = [w for w in parts.group("type").split() if w not in ("static", "extern")]
        kind, variable, more = " ".join(words), parts.group("name"), parts.group("more").strip()
        if scopes.in_function(match.start()):
            pointer = f"(*{variable}){more}" if more else f"*{variable}"
            element = f"{kind}{more}" if more else kind
            new = f"{kind} {pointer} = revoff_cpu_dynamic_shared<{element}>();"
        else:
            element = f"{kind}{more}" if more else kind
            new = f"static const revoff_cpu_dynamic_array<{element}> {variable}{{}};"
        edits.append(_Edit(match.start(), match.end(), _same_lines(new, match.group())))
    return edits


def _matching(text: str, place: int) -> int:
    """Offset after the bracket that closes the one at place, or -1."""
    pairs = {"(": ")", "[": "]", "<": ">"}
    opening, closing = text[place], pairs[text[place]]
    depth = 0
    for i in range(place, len(text)):
        if text[i] == opening:
            depth += 1
        elif text[i] == closing:
            depth -= 1
            if not depth:
                return i + 1
        elif opening == "<" and text[i] in ";{}":
            return -1
    return -1


def _kernel_at(text: str, place: int) -> tuple[str, str, int] | None:
    """Name, template arguments and the offset after the parameter list."""
    while True:
        found = _IDENTIFIER.search(text, place)
        if not found or re.search(r"[;{}=]", text[place : found.start()]):
            return None
        place = found.end()
        after = place
        while after < len(text) and text[after].isspace():
            after += 1
        arguments = ""
        if after < len(text) and text[after] == "<":
            end = _matching(text, after)
            if end < 0:
                return None
            arguments = text[after:end]
            after = end
            while after < len(text) and text[after].isspace():
                after += 1
        if after >= len(text) or text[after] != "(":
            # A template argument list before anything but "(": a type.
            place = after if arguments else place
            continue
        end = _matching(text, after)
        if end < 0:
            return None
        # "__global__ BOUNDS(256) void k(int) {": what follows parameters is
        # never another name.
        if found.group() in _ANNOTATIONS or _MORE_NAMES.match(text, end):
            place = end
            continue
        return found.group(), arguments, end


def _kernels(source: str, text: str, scopes: _Scopes) -> list[_Edit]:
    """Name each kernel right after its body, where its name is in scope.

    There, and not at the end of the file: a kernel may sit in a namespace or
    between #if and #endif.
    """
    edits = []
    for match in re.finditer(r"\b__global__\b", text):
        begin = max(text.rfind(c, 0, match.start()) for c in ";{}") + 1
        head = text[begin : match.start()]
        template = re.search(r"\btemplate\b(\s*<)?", head)
        kernel = _kernel_at(text, match.end())
        if not kernel:
            continue
        name, arguments, end = kernel
        following = re.search(r"[;{]", text[end:])
        if not following:
            continue
        place = end + following.start()
        if text[place] == ";":
            # A declaration, unless it makes an instance of a template.
            if not (template and not template.group(1) and arguments):
                continue
        elif template and template.group(1):
            # The template itself is no kernel yet; a full specialisation is.
            if not arguments or not re.search(r"\btemplate\s*<\s*>", head):
                continue
            place = scopes.close.get(place, -1)
        else:
            place = scopes.close.get(place, -1)
        if place < 0:
            continue
        full = name + "".join(arguments.split("\n"))
        edits.append(_Edit(place + 1, place + 1, f" REVOFF_CPU_KERNEL({' '.join(full.split())})"))
    return edits


def _spellings(text: str) -> list[_Edit]:
    edits = []
    # C++ allows one storage class, and __shared__ stands for one.
    for match in re.finditer(r"\bstatic(\s+)(?=__shared__\b)|(?<=\b__shared__)(\s+)static\b", text):
        edits.append(_Edit(match.start(), match.end(), _same_lines(" ", match.group())))
    # A macro of this name would break libstdc++, which spells the attribute so.
    for match in re.finditer(r"\b__noinline__\b", text):
        if not re.search(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*$", text[: match.start()]):
            edits.append(_Edit(match.start(), match.end(), "__attribute__((noinline))"))
    return edits


def translate(source: str, name: str = "<source>") -> str:
    """Turn CUDA C++ into what a host compiler makes a CPU-device module of.

    Parameters
    ----------
    source : str
        The CUDA C++ source, not preprocessed.
    name : str
        The name that the compiler's messages give the source.

    Returns
    -------
    str
        C++ with the same line numbers, to be compiled with
        :func:`compile_flags`.

    Raises
    ------
    ValueError
        If the source launches kernels itself, or declares dynamic shared
        memory in a way that is not understood.  The text names the line.
    """
    text = _masked(source)
    launch = text.find("<<<")
    if launch >= 0:
        raise ValueError(
            f"{name}:{_line(source, launch)}: the source launches a kernel with <<< >>>; "
            "kernels are launched from Python, with Image.run"
        )
    scopes = _Scopes(text)
    edits = _dynamic_shared(source, text, scopes, name)
    edits += _kernels(source, text, scopes)
    edits += _spellings(text)
    out, place = [], 0
    for edit in sorted(edits):
        if edit.start < place:
            continue
        out += [source[place : edit.start], edit.text]
        place = edit.end
    out.append(source[place:])
    quoted = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'#line 1 "{quoted}"\n' + "".join(out) + "\n"
