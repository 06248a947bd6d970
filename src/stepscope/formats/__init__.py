# SPDX-License-Identifier: Apache-2.0
"""Bytes on disk <-> tables: one module (or folder) per format."""

NONE32 = 0xFFFF_FFFF  # "none" of an unsigned number (model, context, rank, string, …) in records, files and databases of CANN
