# SPDX-License-Identifier: Apache-2.0
"""Classes of sizes: 0 below 4 KiB, then one more for each factor of 4, up to 1 GiB."""

from __future__ import annotations

import polars as pl

SMALLEST = 4096
MOST = 10


def size_class(size: pl.Expr) -> pl.Expr:
    return ((size.clip(1, None) / SMALLEST).log(4).floor() + 1).clip(0, MOST).cast(pl.Int8)


def least_bytes(number: int) -> int:
    """Where a class begins."""
    return SMALLEST * 4 ** (number - 1) if number else 0
