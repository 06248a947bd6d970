# SPDX-License-Identifier: Apache-2.0
"""An answer as text or bytes: table, csv, JSON lines, Parquet or Markdown.

Names in a capture come from anywhere: control characters are shown as escapes in everything that is read on a screen.
"""

from __future__ import annotations

import io
import math
import re
from typing import Any

import orjson
import polars as pl

FORMATS = ("table", "csv", "json", "parquet", "md")
WIDEST_CELL = 60
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MARKDOWN = re.compile(r"([\\|`*_\[\]<>])")


def rendered(frame: pl.DataFrame, form: str) -> bytes:
    """The rows in one of `FORMATS`."""
    if form == "parquet":
        out = io.BytesIO()
        frame.write_parquet(out)
        return out.getvalue()
    if form == "csv":
        return frame.write_csv().encode()
    if form == "json":
        return b"".join(orjson.dumps(_finite(row)) + b"\n" for row in frame.iter_rows(named=True))
    return (_markdown(frame) if form == "md" else _table(frame)).encode()


def visible(text: str) -> str:
    """Text without characters that would move the cursor, colour a terminal or turn its direction."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _table(frame: pl.DataFrame) -> str:
    right = [kind.is_numeric() for kind in frame.dtypes]
    rows = [[_short(cell(value)) for value in row] for row in frame.iter_rows()]
    wide = [max([len(name), *(len(row[place]) for row in rows)]) for place, name in enumerate(frame.columns)]
    lines = [frame.columns, ["-" * width for width in wide], *rows]
    text = ("  ".join(_padded(*one) for one in zip(line, wide, right, strict=True)).rstrip() for line in lines)
    return "\n".join(text) + "\n"


def _markdown(frame: pl.DataFrame) -> str:
    marks = ["---:" if kind.is_numeric() else "---" for kind in frame.dtypes]
    rows = ([_MARKDOWN.sub(r"\\\1", cell(value)) for value in row] for row in frame.iter_rows())
    lines = ([_MARKDOWN.sub(r"\\\1", name) for name in frame.columns], marks, *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(value: Any) -> str:
    """A value to be read: three decimals, more for what is smaller."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}" if not value or not math.isfinite(value) or abs(value) >= 0.001 else f"{value:.3g}"
    return visible(str(value))


def _short(text: str) -> str:
    return text if len(text) <= WIDEST_CELL else text[: WIDEST_CELL - 1] + "…"


def _padded(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
