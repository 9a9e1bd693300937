# SPDX-License-Identifier: Apache-2.0
"""The one door to the compiled module."""

from __future__ import annotations

from typing import Any

try:
    from . import _revoff
except ImportError as error:
    if "_revoff" not in str(error) or "cannot import name" not in str(error):
        raise
    raise ImportError(
        "pyrevoff is not built in this folder: run 'make demo' or 'pip install .', or import it "
        "from another folder to use an installed one"
    ) from None

ffi: Any = _revoff.ffi
lib: Any = _revoff.lib
