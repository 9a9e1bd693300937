# SPDX-License-Identifier: Apache-2.0
"""The benchmark of pyrevoff, in sections; see bench.py."""
