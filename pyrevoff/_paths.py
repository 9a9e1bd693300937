# SPDX-License-Identifier: Apache-2.0
"""Where the package's data files are.

An installed package has them inside; in the source tree (in-place builds and
editable installs) they stay where they are edited.
"""

from __future__ import annotations

import importlib.resources
from pathlib import Path


def _package() -> Path:
    # The compiled module keeps the package out of zip files, so this is a
    # folder.
    return Path(str(importlib.resources.files(__package__)))


def _find(installed: str, in_tree: str) -> Path:
    package = _package()
    for path in (package / installed, package.parent / in_tree):
        if path.exists():
            return path
    raise FileNotFoundError(
        f"pyrevoff is incompletely installed: neither {package / installed} nor "
        f"{package.parent / in_tree} exists. Install it again."
    )


def include_dir() -> Path:
    """Folder that holds ``pyrevoff.h`` and ``revoff/``.

    Raises
    ------
    FileNotFoundError
        The package was installed without its data files.
    """
    return _find("include", "csrc/include")


def ptx_path() -> Path:
    """Path of the device library ``pyrevoff.ptx``.

    Raises
    ------
    FileNotFoundError
        The package was installed without its data files.
    """
    return _find("ptx/pyrevoff.ptx", "ptx/pyrevoff.ptx")
