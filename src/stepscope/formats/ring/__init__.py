# SPDX-License-Identifier: Apache-2.0
"""Rings: the last steps of a process that `stepscope.watch` follows (docs/formats/ring.md)."""
