# SPDX-License-Identifier: Apache-2.0
"""Bytes on disk <-> tables: one module (or folder) per format."""

NONE32 = 0xFFFF_FFFF  # "not set" in unsigned numbers (model, context, rank, string, …) of records, files and databases of CANN
