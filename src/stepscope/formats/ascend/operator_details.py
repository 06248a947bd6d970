# SPDX-License-Identifier: Apache-2.0
"""operator_details.csv: what each operator call took on host and device (docs/formats/outputs.md 5)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from stepscope.formats.ascend.cells import Quality, header, to_duration_ns
from stepscope.formats.ascend.columns import NS_PER_US, cells, column, select, titles
from stepscope.formats.ascend.stack_frames import frame_lines
from stepscope.render.csv_file import NOT_KNOWN, quoted, write_csv
from stepscope.render.json_text import several_lines
from stepscope.render.lines import Text
from stepscope.tables import ALL_TABLES, issues, lost

OP_TIMES = ALL_TABLES["op_times"]
FILE = "operator_details.csv"
TEXTS = (
    column("name", "text", "Name"),
    column("shapes", "text", "Input Shapes"),
    column("stack", "text", "Call Stack"),
)
TIMES = (
    column("host_self_ns", "number", "Host Self Duration(us)", unit=NS_PER_US),
    column("host_total_ns", "number", "Host Total Duration(us)", unit=NS_PER_US),
    column("device_self_ns", "number", "Device Self Duration(us)", unit=NS_PER_US, plain_zero=True),
    column("device_total_ns", "number", "Device Total Duration(us)", unit=NS_PER_US, plain_zero=True),
    column("aicore_self_ns", "number", "Device Self Duration With AICore(us)", unit=NS_PER_US, plain_zero=True),
    column("aicore_total_ns", "number", "Device Total Duration With AICore(us)", unit=NS_PER_US, plain_zero=True),
)
COLUMNS = (*TEXTS, *TIMES)
TITLES = titles(COLUMNS)


def read(paths: Iterable[Path], *, quality: Quality) -> pl.DataFrame:
    """Table `op_times`."""
    return pl.concat([OP_TIMES.empty(), *(_read_file(path, quality) for path in paths)])


def _read_file(path: Path, quality: Quality) -> pl.DataFrame:
    there = header(path)
    if TITLES["name"] not in there:
        quality.append(lost(issues.MISSING_COLUMNS, path.name, 1, f"it has no {TITLES['name']}"))
        return OP_TIMES.empty()
    schema = dict.fromkeys(_distinct(there), pl.String())
    try:
        # Cells hold line ends (one per frame of a stack), so lines cannot be counted and mended one by one.
        rows = pl.read_csv(path, schema=schema, truncate_ragged_lines=True, encoding="utf8-lossy", raise_if_empty=False, glob=False)
    except (OSError, pl.exceptions.PolarsError) as problem:
        quality.append(lost(issues.UNREADABLE_FILE, path.name, 1, str(problem).partition("\n")[0]))
        return OP_TIMES.empty()
    times = [item for item in TIMES if item.title in there]
    known = [_text(item.key, item.title) for item in TEXTS if item.title in there]
    frame = OP_TIMES.conform(rows.select(*known, *(_time(item.title).alias(item.key) for item in times)))
    unread = sum(_filled(rows[item.title]) - frame[item.key].count() for item in times)
    quality.append(lost(issues.UNREADABLE_VALUE, path.name, unread, "times that are not numbers"))
    return frame.with_columns(pl.col("name").fill_null(""), pl.col(*(item.key for item in TIMES)).fill_null(0.0))


def _distinct(names: list[str]) -> list[str]:
    """The titles, a repeated one with its place: columns of a frame have names of their own."""
    return [name if names.index(name) == place else f"{name}#{place}" for place, name in enumerate(names)]


def _text(key: str, title: str) -> pl.Expr:
    """A text; lists of shapes and frames without the line ends that the file puts behind every `;`."""
    text = pl.col(title).str.strip_chars()
    if key != "name":
        text = text.str.replace_all(r";\s*", ";").str.strip_chars('"').replace("", None)
    return text.alias(key)


def _time(title: str) -> pl.Expr:
    return to_duration_ns(pl.col(title).str.strip_chars().cast(pl.Float64, strict=False).fill_nan(None))


def _filled(values: pl.Series) -> int:
    return int((~values.str.strip_chars().is_in(["", NOT_KNOWN])).sum())


def write(path: Path, rows: pl.DataFrame) -> list[Path]:
    """Write the file; none without rows. `rows` has a column for each of `COLUMNS`."""
    shapes, stack = [Text("shapes", _listed)], [Text("stack", lambda text: quoted(frame_lines(text)))]
    return write_csv(path, rows, cells(COLUMNS, rows, shapes=shapes, stack=stack))


def write_shapes(path: Path, rows: pl.DataFrame) -> list[Path]:
    """Write MindSpore's file, which has names and shapes only; none without rows."""
    return write_csv(path, rows, cells(select(COLUMNS, ("name", "shapes")), rows))


def _listed(value: str) -> str:
    return quoted(several_lines(value))
