# SPDX-License-Identifier: Apache-2.0
"""How texts and numbers look inside JSON."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import orjson
import polars as pl


def escaped(text: str) -> str:
    """The text as it stands between the quotes of a JSON string; non-ASCII is kept."""
    return orjson.dumps(text).decode()[1:-1]


def several_lines(text: str) -> str:
    """Items separated by `;` as the timeline and the operator table show them (docs/formats/outputs.md 3.1)."""
    return text.replace(";", ";\r\n")


def number(column: pl.Expr) -> pl.Expr:
    """A float as JSON: the shortest form that reads back the same, the word null for what JSON cannot express (inf)."""
    return pl.when(column.is_finite()).then(column.cast(pl.String)).when(column.is_not_null()).then(pl.lit("null"))


def indent(paths: Iterable[Path]) -> None:
    """Write JSON files again over several lines, for people who read them with a text editor."""
    for path in paths:
        path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()), option=orjson.OPT_INDENT_2))
