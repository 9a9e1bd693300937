# SPDX-License-Identifier: Apache-2.0
"""The compiled module, made from csrc by pyrevoff/_build_ffi.py."""

from typing import Any

ffi: Any
lib: Any
