# SPDX-License-Identifier: Apache-2.0
"""The csv dialect of msprof: bare line feeds, statistics without trailing zeros."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from stepscope.render.csv_file import Cells, write_csv
from stepscope.render.lines import Numbers
from stepscope.render.number_forms import PLAIN


def write(path: Path, rows: pl.DataFrame, columns: Sequence[Cells]) -> list[Path]:
    return write_csv(path, rows, columns, line_end="\n")


def plain(title: str, thousandths: pl.Series) -> Cells:
    """Numbers of which these are the thousandths, halves rounded up: `13.32`, `100`."""
    return title, [Numbers((thousandths.cast(pl.Float64) + 0.5).floor().cast(pl.Int64), PLAIN)]
