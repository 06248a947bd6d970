# SPDX-License-Identifier: Apache-2.0
"""What MindSpore's CPU profiler writes as text: kernels, their inputs, the allocator's curve (docs/formats/mindspore.md 7.6)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl

from stepscope.formats.mindspore.losses import note
from stepscope.tables import ALL_TABLES, TEXT, Tables, issues

COMPONENT = "MindSpore"
TASK_TYPE = "HostCpuOps"
_KERNELS = "cpu_op_execute_timestamp_*.txt"
_INPUTS = "cpu_framework_*.txt"
_MEMORY = "cpu_ms_memory_record_*.txt"
_LAUNCHES = r"::(?:KernelLaunch|PyNativeDeviceTask|PyBoostDeviceTask|PyNativeLaunchTask)::"
_GRAPH_LAUNCH = "Kernel::KernelLaunch::"
_LATE_NS = 2000  # a kernel's own clock is read up to this much before its launch begins
_NO_SHAPE = "NoShape"


def read(folder: Path, ops: pl.DataFrame, *, device: int | None, pid: int | None, quality: list[pl.DataFrame]) -> Tables:
    """Kernels with their launches, and allocator totals.

    Args:
        folder: FRAMEWORK/.
        ops: table `ops` of the same capture; says which range launched a kernel.
        device: number of the device that stands for the processor; None beside an accelerator, whose kernels these are not.
        pid: the process.
    """
    rows = pl.concat([_kernel_rows(path, quality) for path in _files(folder, _KERNELS)] or [_empty_kernels()])
    if not rows.height and device is not None:
        rows = _from_launches(ops)
    rows = _with_inputs(rows.sort("start_ns", maintain_order=True), folder, quality)
    rows = _with_launches(rows, ops).with_columns(
        device=pl.lit(device, pl.Int32),
        pid=pl.lit(pid, pl.Int64),
        kind=pl.lit("compute" if device is not None else "other"),
        core=pl.lit("CPU"),
        op_type=_type(),
    )
    tables = {"kernels": ALL_TABLES["kernels"].conform(rows), "memory_events": _memory(folder, pid, quality)}
    return Tables({name: frame for name, frame in tables.items() if frame.height})


def _files(folder: Path, pattern: str) -> list[Path]:
    return [path for path in sorted(folder.glob(pattern)) if path.is_file() and not path.is_symlink()]


def _empty_kernels() -> pl.DataFrame:
    numbers = {"start_ns": pl.Int64, "end_ns": pl.Int64, "duration_ns": pl.Float64, "stream": pl.Int64}
    return pl.DataFrame(schema={"name": pl.String, "task_type": pl.String, **numbers})


def _kernel_rows(path: Path, quality: list[pl.DataFrame]) -> pl.DataFrame:
    """One line per name: `name;type;start ns,duration ms,worker start,duration,worker …`."""
    lines = pl.DataFrame({"line": _text(path, quality).split("\n")}).filter(pl.col("line").str.strip_chars() != "")
    cells = lines.with_row_index("at").select("at", pl.col("line").str.splitn(";", 3).struct.unnest())
    calls = cells.select("at", pl.col("field_0").alias("name"), pl.col("field_1").alias("task_type"), "field_2")
    calls = calls.with_columns(call=pl.col("field_2").fill_null("").str.strip_chars().str.split(" ")).explode("call")
    parts = calls.select("name", "task_type", pl.col("call").str.splitn(",", 3).struct.unnest())
    numbers = parts.select(
        "name",
        "task_type",
        start_ns=pl.col("field_0").cast(pl.Int64, strict=False),
        duration_ns=pl.col("field_1").cast(pl.Float64, strict=False) * 1e6,
        stream=pl.col("field_2").cast(pl.Int64, strict=False),
    )
    sane = pl.col("duration_ns").is_finite() & (pl.col("duration_ns") >= 0) & (pl.col("duration_ns") < 1e17)
    good = numbers.filter(pl.col("start_ns").is_not_null() & (pl.col("start_ns") < 1 << 62) & sane)
    note(quality, issues.UNREADABLE_LINE, path.name, numbers.height - good.height, "not `start,duration,worker`")
    length = pl.col("duration_ns").round().cast(pl.Int64)
    return good.with_columns(end_ns=pl.col("start_ns") + length).select(_empty_kernels().columns)


def _from_launches(ops: pl.DataFrame) -> pl.DataFrame:
    """Kernels of a graph where only the host was recorded: on a processor, launching one is running it."""
    named = ops.select("start_ns", "end_ns", "tid", name=pl.col("name").cast(pl.String).str.strip_prefix(_GRAPH_LAUNCH))
    launches = named.filter(ops["name"].cast(pl.String).str.starts_with(_GRAPH_LAUNCH))
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    return launches.with_columns(task_type=pl.lit(TASK_TYPE), duration_ns=length, stream=pl.col("tid")).select(
        _empty_kernels().columns
    )


def _type() -> pl.Expr:
    """`Default/network/MatMul-op3` is a MatMul."""
    return pl.col("name").str.extract(r"([^/]*)$").str.replace(r"-op\d+$", "").cast(TEXT)


def _with_inputs(rows: pl.DataFrame, folder: Path, quality: list[pl.DataFrame]) -> pl.DataFrame:
    """Shapes of the inputs: the n-th line belongs to the n-th launch, which holds when the names that are there agree."""
    files = _files(folder, _INPUTS)
    lines = [line.split(";") for path in files for line in _text(path, quality).splitlines() if line.count(";") >= 3]
    if not lines or not rows.height:
        return rows
    if len(lines) != rows.height:
        note(quality, issues.SHAPES_UNKNOWN, files[0].name, len(lines), f"{rows.height} kernels ran")
        return rows
    names = pl.Series([line[1] for line in lines])
    own = rows["name"].str.extract(r"([^/]*)$")
    wrong = int(((names != "") & (names != own)).sum())
    if wrong:
        note(quality, issues.SHAPES_UNKNOWN, files[0].name, wrong, "names differ from those of the kernels")
        return rows
    return rows.with_columns(pl.Series("input_shapes", [_shapes(line[3:]) for line in lines], dtype=pl.String))


def _shapes(inputs: list[str]) -> str | None:
    """`input_1:[8, 32]`, `input_2:NoShape` as `8,32;`."""
    found = [text.partition(":")[2] for text in inputs if text]
    return ";".join("" if text == _NO_SHAPE else re.sub(r"[\[\]\s]", "", text) for text in found) if found else None


def _with_launches(rows: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """When and on which thread each kernel was launched: by its name in a graph, else by the latest launch around its start."""
    launches = ops.select("start_ns", "end_ns", "tid", text=pl.col("name").cast(pl.String)).filter(
        pl.col("text").str.contains(_LAUNCHES)
    )
    if not launches.height or not rows.height:
        return rows.with_columns(launch_ns=pl.col("start_ns"), launch_tid=pl.lit(None, pl.Int64))
    row = _by_name(rows, launches).fill_null(_by_time(rows, launches))
    return rows.with_columns(
        launch_ns=launches["start_ns"].gather(row).fill_null(rows["start_ns"]), launch_tid=launches["tid"].gather(row)
    )


def _by_name(rows: pl.DataFrame, launches: pl.DataFrame) -> pl.Series:
    """The n-th kernel of a name belongs to the n-th launch of that name, where there are as many of both."""
    nth, many = pl.int_range(pl.len()).over("name").alias("nth"), pl.len().over("name").alias("many")
    named = launches.with_row_index("row").with_columns(name=pl.col("text").str.strip_prefix(_GRAPH_LAUNCH))
    graph_launches = named.filter(pl.col("name") != pl.col("text")).select(pl.col("row").cast(pl.Int64), "name", nth, many)
    keys = ["name", "nth", "many"]
    found: pl.Series = rows.select("name", nth, many).join(graph_launches, on=keys, how="left", maintain_order="left")["row"]
    return found


def _by_time(rows: pl.DataFrame, launches: pl.DataFrame) -> pl.Series:
    begin, start = launches["start_ns"].to_numpy() - _LATE_NS, rows["start_ns"].to_numpy()
    at = np.maximum(np.searchsorted(begin, start, side="right") - 1, 0)
    found = (begin[at] <= start) & (start <= launches["end_ns"].to_numpy()[at] + _LATE_NS)
    place = pl.Series(np.where(found, at, -1))
    return place.set(pl.Series(~found), None)


def _memory(folder: Path, pid: int | None, quality: list[pl.DataFrame]) -> pl.DataFrame:
    parts = [ALL_TABLES["memory_events"].empty()]
    for path in _files(folder, _MEMORY):
        lines = pl.DataFrame({"line": _text(path, quality).splitlines()[1:]}, schema={"line": pl.String})
        cells = lines.select(pl.col("line").str.splitn(",", 4).struct.unnest())
        rows = cells.select(
            time_ns=pl.col("field_0").cast(pl.Int64, strict=False),
            total_allocated=pl.col("field_1").cast(pl.Float64, strict=False),
            total_reserved=pl.col("field_2").cast(pl.Float64, strict=False),
            total_active=pl.col("field_3").cast(pl.Float64, strict=False),
        )
        good = rows.drop_nulls()
        note(quality, issues.UNREADABLE_LINE, path.name, rows.height - good.height, "not four numbers")
        parts.append(
            ALL_TABLES["memory_events"].conform(
                good.with_columns(pid=pl.lit(pid, pl.Int64), component=pl.lit(COMPONENT), device_type=pl.lit("cpu"))
            )
        )
    return ALL_TABLES["memory_events"].sort(pl.concat(parts))


def _text(path: Path, quality: list[pl.DataFrame]) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError as fault:
        note(quality, issues.UNREADABLE_FILE, path.name, 1, fault.strerror or str(fault))
        return ""
