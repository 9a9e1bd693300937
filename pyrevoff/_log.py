# SPDX-License-Identifier: Apache-2.0
"""The package's logger: silent until an application listens."""

import logging

log = logging.getLogger("pyrevoff")
log.addHandler(logging.NullHandler())
