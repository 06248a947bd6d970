# SPDX-License-Identifier: Apache-2.0
"""What only exports of 2023 need: times of the monotonic clock, and steps in a file of their own."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from stepscope.formats.ascend.parsed import Parsed
from stepscope.tables import ALL_TABLES, Tables, issues, lost

_ITERATION = re.compile(r"Iteration (\d{1,9})")


def completed(parsed: Parsed, prof: Path, quality: list[pl.DataFrame]) -> Parsed:
    """The tables with the graph's iterations as steps, the device by the name of its folder, on the epoch clock."""
    tables = _on_device(parsed.tables, prof)
    steps = _steps(prof, quality)
    if steps.height and not tables.steps.height:
        tables = tables.replace(steps=steps)
    offset = _epoch_offset(prof)
    if offset is None:
        quality.append(lost(issues.INCOMPLETE_CLOCK, prof.name, 1, "no pair of monotonic and Unix time: times stay monotonic"))
        return parsed
    return Parsed(_moved(tables, offset), parsed.device_ids, parsed.generation)


def _on_device(tables: Tables, prof: Path) -> Tables:
    """A folder holds one device, and its timeline does not say which."""
    numbers = [int(path.name[7:]) for path in prof.glob("device_*") if path.name[7:].isdecimal()]
    if len(numbers) != 1:
        return tables
    placed = [name for name in ("kernels", "collectives", "transfers", "counters") if "device" in tables[name].columns]
    filled = pl.col("device").fill_null(pl.lit(numbers[0], pl.Int32))
    return tables.replace(**{name: tables[name].with_columns(filled) for name in placed if tables[name].height})


def _steps(prof: Path, quality: list[pl.DataFrame]) -> pl.DataFrame:
    rows = set()
    for path in sorted(prof.glob("device_*/timeline/step_trace_*.json")):
        events = _json(path)
        if not isinstance(events, list):
            quality.append(lost(issues.UNREADABLE_FILE, path.name, 1, "no list of events"))
            continue
        for event in events:
            named = _ITERATION.fullmatch(str(event.get("name"))) if isinstance(event, dict) and event.get("ph") == "X" else None
            start, length = (_ns(event.get(key)) for key in ("ts", "dur")) if named else (None, None)
            if named and start is not None and length is not None:
                rows.add((int(named[1]), start, start + length))
    frame = pl.DataFrame(sorted(rows), schema={"step": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    return ALL_TABLES["steps"].conform(frame)


def _ns(microseconds: object) -> int | None:
    """Nanoseconds, as far as a float of microseconds tells them."""
    if isinstance(microseconds, bool) or not isinstance(microseconds, (int, float)) or not abs(microseconds) < 1 << 50:
        return None
    return round(Decimal(repr(microseconds)) * 1000)


def _epoch_offset(prof: Path) -> int | None:
    """Unix minus monotonic time, from the start of the first device's session."""
    for path in sorted(prof.glob("device_*/start_info.*[0-9]")):
        begin = _json(path)
        if not isinstance(begin, dict):
            continue
        unix, monotonic = str(begin.get("collectionTimeBegin")), str(begin.get("clockMonotonicRaw"))
        if re.fullmatch(r"\d{1,18}", unix) and re.fullmatch(r"\d{1,18}", monotonic):
            return int(unix) * 1000 - int(monotonic)
    return None


def _moved(tables: Tables, by_ns: int) -> Tables:
    frames = {}
    for name in tables.filled():
        frame = tables[name]
        moments = [column for column, dtype in frame.schema.items() if column.endswith("_ns") and dtype == pl.Int64()]
        frames[name] = frame.with_columns(pl.col(moments) + by_ns)
    return Tables(frames)


def _json(path: Path) -> Any:
    try:
        return orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
