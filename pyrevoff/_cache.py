# SPDX-License-Identifier: Apache-2.0
"""Compiled images on disk, found again by what they were made from.

An entry is used only if all that went into it is unchanged, and only from a
folder that nobody else can write to, since its content is executed. A cache
that cannot be used costs time, never a failure.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger("pyrevoff")

MAX_BYTES = 512 << 20
"""Oldest entries are dropped when the folder holds more than this."""

_MAGIC = b"pyrevoff-image-1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size
_LEFTOVER_SECONDS = 3600.0
_warned: set[str] = set()


class Entry(NamedTuple):
    """A compiled image: its code and what the compiler said."""

    data: bytes
    log: str


def make_key(parts: Iterable[bytes]) -> str:
    """Hash of a list of byte strings; each one's length counts too."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def file_hash(path: str) -> str:
    """Hash of a file's content, or "" if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def _wanted_folder() -> Path | None:
    if os.environ.get("PYREVOFF_CACHE", "").strip() == "0":
        return None
    named = os.environ.get("PYREVOFF_CACHE_DIR", "").strip()
    if named:
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    if base and os.path.isabs(base):
        return Path(base) / "pyrevoff"
    try:
        return Path.home() / ".cache" / "pyrevoff"
    except RuntimeError:  # no home
        return None


def folder() -> Path | None:
    """The cache folder, made if missing; None if there is none to use.

    Warns
    -----
    UserWarning
        Once per folder: another user owns it or may write to it.
    """
    path = _wanted_folder()
    if path is None:
        return None
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        logger.debug("no cache of compiled images: %s", error)
        return None
    if found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return path
    if str(path) not in _warned:
        _warned.add(str(path))
        warnings.warn(
            f"the cache folder {path} is not used: another user owns it or may write to it. "
            f"Remove it, or: chmod 700 {path}; or set PYREVOFF_CACHE_DIR.",
            stacklevel=2,
        )
    return None


def _read(path: Path) -> bytes:
    # Not through a link: the check of the folder says nothing of its target.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        return file.read()


def _unpack(content: bytes) -> tuple[Entry, list[list[str]]] | None:
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if not body.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
        return None
    header, _, data = body[len(_MAGIC) :].partition(b"\n")
    fields = json.loads(header)
    return Entry(data, fields["log"]), fields["files"]


def get(key: str) -> Entry | None:
    """Look an image up.

    Parameters
    ----------
    key : str
        From `make_key`.

    Returns
    -------
    Entry or None
        None also if the entry is damaged, or if a file that it was made from
        has changed; such an entry is removed.
    """
    home = folder()
    if home is None:
        return None
    path = home / f"{key}.image"
    try:
        content = _read(path)
    except OSError:
        return None
    unpacked = _unpack(content)
    if unpacked and all(file_hash(name) == digest for name, digest in unpacked[1]):
        with contextlib.suppress(OSError):
            os.utime(path)  # the time orders the clean-up: last used, last dropped
        return unpacked[0]
    if not unpacked:
        logger.debug("the cached image %s is damaged; it is made again", path)
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def put(key: str, entry: Entry, files: Sequence[tuple[str, str]]) -> None:
    """Keep an image.

    Parameters
    ----------
    key : str
        From `make_key`.
    entry : Entry
        The image.
    files : sequence of (str, str)
        Absolute path and `file_hash` of each file, beside what the key covers,
        that it was made from.
    """
    home = folder()
    if home is None:
        return
    header = json.dumps({"log": entry.log, "files": [list(file) for file in files]})
    body = _MAGIC + header.encode() + b"\n" + entry.data
    temporary = ""
    try:
        # A reader sees an entry whole or not at all.
        handle, temporary = tempfile.mkstemp(prefix=".new-", dir=home)
        with open(handle, "wb") as file:
            file.write(body + hashlib.sha256(body).digest())
        os.replace(temporary, home / f"{key}.image")
        _clean(home)
    except OSError as error:
        logger.debug("a compiled image could not be cached: %s", error)
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _clean(home: Path) -> None:
    entries = []
    for path in home.iterdir():
        with contextlib.suppress(OSError):  # another process may clean as well
            found = path.lstat()
            if path.name.startswith(".new-"):
                if time.time() - found.st_mtime > _LEFTOVER_SECONDS:
                    path.unlink()
            elif path.suffix == ".image":
                entries.append((found.st_mtime_ns, found.st_size, path))
    excess = sum(size for _, size, _ in entries) - MAX_BYTES
    for _, size, path in sorted(entries):
        if excess <= 0:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        excess -= size
