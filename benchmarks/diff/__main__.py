# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of the diff of two captures of generated tables.

    python -m benchmarks.diff [OPERATORS ...]

The captures are those of `benchmarks.verdict`; in the second one every kernel of one name takes a tenth longer.
"""

from __future__ import annotations

import resource
import sys
import time

import polars as pl

from benchmarks.verdict import tables
from stepscope.diff import LEVELS
from stepscope.diff.engine import Side, compare_sides, record
from stepscope.tables import Tables

LIMIT = 8.0  # CPU s at a million operators, for both captures
MEMORY = 2e9


def changed(made: Tables) -> Tables:
    """The same capture with one kernel slower."""
    length = pl.col("end_ns") - pl.col("start_ns")
    slower = pl.when(pl.col("name").cast(pl.String) == "kernel7").then(length // 10).otherwise(0)
    kernels = made.kernels.with_columns(end_ns=pl.col("end_ns") + slower)
    return made.replace(kernels=kernels)


def main() -> None:
    for count in [int(word) for word in sys.argv[1:]] or [10_000, 100_000, 1_000_000]:
        base = tables(count)
        new = changed(base)
        began = time.process_time()
        sides = [Side([record(one)]) for one in (base, new)]
        entered = time.process_time() - began
        for by in LEVELS:
            began = time.process_time()
            found = compare_sides(sides[0], sides[1], by=by)
            spent = entered + time.process_time() - began
            first = found.rows[0]
            limit = f", limit {LIMIT:.1f}" if count == 1_000_000 else ""
            print(f"{count:>9,} operators by {by:<6} {spent:6.2f} CPU s{limit}; {len(found.rows)} rows, first {first.key}")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(f"{count:>9,} operators: peak memory of the process {peak / 1e9:.2f} GB, limit {MEMORY / 1e9:.1f}")


if __name__ == "__main__":
    main()
