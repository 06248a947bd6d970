# SPDX-License-Identifier: Apache-2.0
"""Marks and ranges as our collector leaves them in FRAMEWORK: one line of JSON per flush, with a list per column."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from stepscope.formats.framework.clock import FrameworkClock
from stepscope.tables import ALL_TABLES, Tables, issues, lost

FILE = "x.mstx.jsonl"
DEFAULT_DOMAIN = "default"
STEP = "step"
_STEP_NAME = "ProfilerStep#"
_COLUMNS: dict[str, pl.DataType] = {
    "id": pl.Int64(), "kind": pl.String(), "tid": pl.Int64(), "end_tid": pl.Int64(), "start": pl.Int64(), "end": pl.Int64(),
    "domain": pl.String(), "message": pl.String(), "device": pl.Int32(), "stream": pl.Int64(),
}  # fmt: skip
_SCHEMA = {"mark_id": pl.Int64(), "pid": pl.Int64(), **{name: kind for name, kind in _COLUMNS.items() if name != "id"}}


def read(framework: Path, clock: FrameworkClock) -> Tables:
    """Tables `marks` and, where no operator was recorded, `steps`."""
    rows, losses = _rows(framework)
    if not rows.height:
        return Tables().with_quality(*losses)
    rows = rows.with_columns(start_ns=clock.to_epoch_ns(rows["start"]), end_ns=clock.to_epoch_ns(rows["end"])).sort(
        "start_ns", "end_ns", descending=[False, True], maintain_order=True
    )
    shown = rows.filter(pl.col("kind") != STEP).with_columns(
        pl.when(pl.col("domain") != DEFAULT_DOMAIN).then("domain").alias("domain"),
        pl.when(pl.col("kind") != "marker").then("mark_id").alias("range_id"),
    )
    tables = {"marks": ALL_TABLES["marks"].conform(shown.drop("device", "stream")), "steps": _steps(rows)}
    return Tables({name: frame for name, frame in tables.items() if frame.height}).with_quality(*losses)


def read_raw(framework: Path) -> pl.DataFrame:
    """Marks and ranges in the order in which they ended, with times of the raw clock: mark_id, pid, kind, tid, end_tid, start, end,
    domain, message, device, stream (the last two only where a device part was requested)."""
    rows, _ = _rows(framework)
    return rows.filter(pl.col("kind") != STEP)


def _rows(framework: Path) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    path = framework / FILE
    if not path.is_file() or path.is_symlink():
        return pl.DataFrame(schema=_SCHEMA), []
    parts, torn, dropped = [], 0, 0
    for line in path.read_bytes().splitlines():
        content = _parse(line)
        if content is None:
            torn += 1
        elif "dropped" in content:
            dropped += int(content["dropped"]) if isinstance(content["dropped"], int) else 0
        else:
            part = _part(content)
            torn += part is None
            parts += [] if part is None else [part]
    losses = [
        lost(issues.UNREADABLE_LINE, FILE, torn),
        lost(issues.DROPPED_WHILE_RECORDING, FILE, dropped, "marks"),
    ]
    return pl.concat(parts) if parts else pl.DataFrame(schema=_SCHEMA), losses


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        content = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return content if isinstance(content, dict) and isinstance(content.get("pid"), int) else None


def _part(content: dict[str, Any]) -> pl.DataFrame | None:
    """One flush as a frame; None when it is not what our collector writes."""
    if not all(isinstance(content.get(name), list) for name in _COLUMNS):
        return None
    try:
        frame = pl.DataFrame({name: content[name] for name in _COLUMNS}, schema=_COLUMNS, strict=True)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
        return None
    whole = frame.select(pl.all_horizontal(pl.exclude("device", "stream").is_not_null().all())).item()
    if not whole:
        return None
    return frame.select(
        pl.col("id").alias("mark_id"),
        pl.lit(content["pid"], pl.Int64).alias("pid"),
        *_all_but("id"),
    )


def _all_but(name: str) -> Iterable[str]:
    return [column for column in _COLUMNS if column != name]


def _steps(rows: pl.DataFrame) -> pl.DataFrame:
    number = pl.col("message").str.strip_prefix(_STEP_NAME).cast(pl.Int64, strict=False)
    steps = rows.filter(pl.col("kind") == STEP).with_columns(number.alias("step")).drop_nulls("step")
    return ALL_TABLES["steps"].conform(steps)
