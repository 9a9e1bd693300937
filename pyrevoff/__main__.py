# SPDX-License-Identifier: Apache-2.0
"""``python -m pyrevoff``."""

import sys

from .cli import main

sys.exit(main())
