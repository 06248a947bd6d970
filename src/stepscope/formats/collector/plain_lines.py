# SPDX-License-Identifier: Apache-2.0
"""Comma-separated lines below one line of titles, as our collector writes them; damaged lines give nulls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl


def read_lines(path: Path, names: Sequence[str]) -> pl.DataFrame:
    """The lines as columns of text in the order of `names`; null where a line is too short; empty without a file."""
    if not path.is_file() or path.is_symlink():
        return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    lines = pl.Series("line", path.read_bytes().decode(errors="replace").splitlines()[1:], dtype=pl.String)
    fields = lines.str.split_exact(",", len(names) - 1).struct.rename_fields(list(names))
    return fields.struct.unnest()
