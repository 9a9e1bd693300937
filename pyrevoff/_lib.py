# SPDX-License-Identifier: Apache-2.0
"""The one door to the compiled module."""

from __future__ import annotations

from typing import Any

from . import _revoff

ffi: Any = _revoff.ffi
lib: Any = _revoff.lib
