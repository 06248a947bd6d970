# SPDX-License-Identifier: Apache-2.0
"""The layout of a ring file (docs/formats/ring.md), for the job that writes it and for whoever reads it.

Imported inside training jobs, so it needs nothing but the standard library. Behind the identity the head has cells: the number of
rows written so far, and totals since the ring began, so that whoever reads them needs to keep nothing between two readings.
"""

from __future__ import annotations

import struct

SUFFIX = ".ring"
MAGIC, VERSION = b"SSRING\r\n", 1
HEAD = struct.Struct("<8sIIIIqq")  # magic, version, rows, bytes of a row, bytes of the JSON behind, monotonic and epoch anchor
HEAD_BYTES, CELLS_AT = 4096, 2048
ROWS = 4096

# Upper bounds of the histogram of step durations; one more bucket holds what is longer.
BOUNDS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
REASONS = ("step", "data_wait", "gc")  # why a capture was requested
PHASES = ("data_wait", "other_loader", "gc", "checkpoint")

CELLS = (
    "count",  # of rows; written after the row
    "edition",  # of the totals; differs from the last cell while they are being written
    "steps",  # that the totals hold
    "total_step", *(f"total_{phase}" for phase in PHASES),  # ns
    "total_collections", "total_outliers", *(f"total_captures_{reason}" for reason in REASONS),
    "device_bytes",  # -1: unknown
    *(f"bucket_{number}" for number in range(len(BOUNDS_SECONDS) + 1)),
    "edition_again",
)  # fmt: skip
FIELDS = ("step", "start", "end", *PHASES, "flags")  # of a row; times are monotonic ns
ROW_BYTES = 8 * len(FIELDS)
FILE_BYTES = HEAD_BYTES + ROWS * ROW_BYTES

# Flags: why a step is not judged, and whether it was an outlier; above them stands the limit of that time in ns.
CHECKPOINT, EVALUATION, RECORDING, OUTLIER = 1, 2, 4, 8
LIMIT_SHIFT = 8
