# SPDX-License-Identifier: Apache-2.0
"""The Kernel view of NPUs: what ran on the accelerator, each task or by name, type and shapes (viewer.md 4.3)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from stepscope.export import kernel_details
from stepscope.web.csv_source import read_csv, with_numbers
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, Shown
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem, missing
from stepscope.web.views import gpu_kernels
from stepscope.web.views.operators import pie

NPU_GROUPS = ("statistic", "all", "type", "name_shape")
COMMUNICATION = ("COMMUNICATION", "HCCL")  # the second until 2025 (outputs.md 4)
FIRST_SHOWN = 20
START, DURATION, WAIT, CORE = "Start Time(us)", "Duration(us)", "Wait Time(us)", "Accelerator Core"


def details(opened: LoadedCapture) -> pl.DataFrame:
    """kernel_details.csv with its own columns, numbers as numbers; what all views need is in columns that begin with `#`."""
    return opened.once("kernel details", lambda: _details(opened))


def _details(opened: LoadedCapture) -> pl.DataFrame:
    frame = _file(opened)
    if frame is None or "Name" not in frame.columns:
        raise missing("device", "no kernel in this capture")
    frame = with_numbers(frame)
    block = next((name for name in ("Block Dim", "Block Num") if name in frame.columns), None)

    def column(title: str | None, dtype: pl.DataType) -> pl.Expr:
        return pl.col(title).cast(dtype, strict=False) if title in frame.columns and title else pl.lit(None, dtype)

    # Epoch microseconds need more digits than a float has.
    start = _file_start_ns(opened) if START in frame.columns else None
    # Texts as categories: a million rows are sorted and searched by their few different values.
    few = [pl.col(name).cast(pl.Categorical) for name in frame.columns if frame.schema[name] == pl.String and name != START]
    return frame.with_columns(few).with_columns(
        (start if start is not None and len(start) == frame.height else pl.lit(None, pl.Int64)).alias("#start_ns"),
        column(DURATION, pl.Float64()).fill_null(0.0).alias("#duration"),
        column(WAIT, pl.Float64()).alias("#wait"),
        column("Step Id", pl.Int64()).alias("#step"),
        column(CORE, pl.String()).fill_null("N/A").alias("#core"),
        column(block, pl.String()).alias("#block"),
        column("Name", pl.String()).fill_null("").alias("#name"),
        column("Type", pl.String()).alias("#type"),
        column("Input Shapes", pl.String()).alias("#shapes"),
    )


def _file(opened: LoadedCapture) -> pl.DataFrame | None:
    """The file of the capture as text; without one, the file that our own exporter writes."""
    return opened.once("kernel file", lambda: _read_file(opened))


def _read_file(opened: LoadedCapture) -> pl.DataFrame | None:
    there = opened.output_file("kernel_details.csv")
    if there is not None:
        return read_csv(there)
    if not opened.has_device:
        return None
    with TemporaryDirectory(prefix="stepscope-") as folder:
        written = kernel_details.write(opened.tables, Path(folder))
        return read_csv(written[0]) if written else None


def _file_start_ns(opened: LoadedCapture) -> pl.Series:
    frame = _file(opened)
    assert frame is not None
    parts = frame[START].str.splitn(".", 2)
    whole = parts.struct.field("field_0").cast(pl.Int64, strict=False)
    fraction = parts.struct.field("field_1").fill_null("0").str.pad_end(3, "0").str.head(3).cast(pl.Int64, strict=False)
    return frame.select((pl.lit(whole) * 1000 + pl.lit(fraction)).alias("start_ns")).to_series()


def _chosen(opened: LoadedCapture, query: Query) -> pl.DataFrame:
    rows = details(opened)
    step, cores = query.whole("step"), query.every("core")
    if step is not None:
        rows = rows.filter(pl.col("#step") == step)
    if cores:
        rows = rows.filter(pl.col("#core").is_in(cores))
    return rows if query.flag("comm", True) else rows.filter(~pl.col("#core").is_in(COMMUNICATION))


def kernels(opened: LoadedCapture, query: Query) -> Listing:
    """The table in the grouping asked for."""
    if not opened.is_npu:
        return gpu_kernels.kernels(opened, query)
    group = query.choice("group", NPU_GROUPS)
    rows = _chosen(opened, query)
    if group == "all":
        return _every(opened, rows)
    by = {"statistic": ["name"], "type": ["type"], "name_shape": ["name", "shapes"]}[group]
    default = not (query.optional("step") or query.every("core"))
    # The groupings of the whole capture are asked for again and again.
    frame = opened.once(f"kernels {group} {query.flag('comm', True)}", lambda: _summed(rows, by)) if default else _summed(rows, by)
    first = {
        "statistic": [Shown("name", "Operator", "Name of the kernel.")],
        "type": [Shown("type", "Type", "Operator type.")],
    }.get(group, [Shown("name", "Operator", "Name of the kernel."), Shown("shapes", "Input Shapes", "Shapes of the inputs.")])
    columns = (
        *first,
        Shown("calls", "Calls", "Number of tasks.", summed=True),
        Shown("total", "Total Duration (us)", "Sum of Duration(us).", summed=True),
        Shown("max", "Max Duration (us)", "Longest task."),
        Shown("avg", "Avg Duration (us)", "Total by Calls."),
        Shown("min", "Min Duration (us)", "Shortest task."),
        Shown("core", "Accelerator Core", "Cores that the tasks ran on."),
        Shown("block", "Block Dim", "Distinct numbers of blocks."),
        Shown("p50", "p50 (us)", "Median duration.", shown=False),
        Shown("p95", "p95 (us)", "95th percentile of the durations.", shown=False),
        Shown("share", "Share (%)", "Of the time of all rows.", shown=False),
        Shown("cumulated", "Cumulative Share (%)", "Share of this row and those above.", shown=False),
    )
    return Listing(frame, columns, (("total", True),), search=first[0].key)


def _summed(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    total = float(rows["#duration"].sum())
    duration = pl.col("#duration")
    cells = [
        pl.len().cast(pl.Int64).alias("calls"), duration.sum().alias("total"), duration.max().alias("max"),
        duration.mean().alias("avg"),
        duration.min().alias("min"), pl.col("#core").unique(maintain_order=True).str.join(", ").alias("core"),
        pl.col("#block").drop_nulls().unique().sort().str.join(", ").alias("block"), duration.median().alias("p50"),
        duration.quantile(0.95, "linear").alias("p95"),
    ]  # fmt: skip
    keyed = rows.select("#duration", "#core", "#block", *(pl.col(f"#{key}").alias(key) for key in by))
    frame = keyed.group_by(by, maintain_order=True).agg(cells).sort("total", descending=True, maintain_order=True)
    return frame.with_columns(share=100 * pl.col("total") / total if total else pl.lit(0.0)).with_columns(
        cumulated=pl.col("share").cum_sum()
    )


def _every(opened: LoadedCapture, rows: pl.DataFrame) -> Listing:
    own = [name for name in rows.columns if not name.startswith("#")]
    base = opened.base_ns
    slices = opened.once("kernel slices", lambda: _slices(opened))
    frame = rows.with_columns(start_ms=(pl.col("#start_ns") - base) / 1e6)
    frame = frame.with_columns(slice=slices.gather(_positions(opened, rows)) if slices is not None else pl.lit(None, pl.Int64))
    columns = [Shown(name, name, shown=place < FIRST_SHOWN, summed=name in (DURATION, WAIT)) for place, name in enumerate(own)]
    columns.append(Shown("start_ms", "Start Time (ms since capture start)", "Start relative to the first event.", "ms"))
    columns.append(Shown("slice", "Slice", "Id in the timeline.", shown=False))
    notes = () if len(own) > 25 else ("no PMU columns: collect with aic_metrics=PipeUtilization and profiler level 1 or higher",)
    return Listing(frame, tuple(columns), ((START, False),), notes, search="Name")


def _positions(opened: LoadedCapture, rows: pl.DataFrame) -> pl.Series:
    whole = details(opened)
    if rows.height == whole.height:
        return pl.int_range(whole.height, eager=True, dtype=pl.UInt32)
    numbered = whole.with_row_index("#at")
    key = ["#start_ns", "#name", "#duration"]
    return rows.select(key).join(
        numbered.select(*key, "#at").unique(key, keep="first"), on=key, how="left", nulls_equal=True, maintain_order="left"
    )["#at"]


def _slices(opened: LoadedCapture) -> pl.Series | None:
    """Id in the timeline of each row of the file: the n-th of a name there is the n-th of that name in the tables.

    By turn, not by time: the file cuts or rounds what the timeline gives to parts of a nanosecond.
    """
    tables, index = opened.tables, opened.trace
    parts = []
    for name in ("kernels", "collectives"):
        place = index.places.get(name)
        if place is not None:
            rows = tables[name].select("start_ns", pl.col("name").cast(pl.String)).head(len(place))
            parts.append(rows.with_columns(slice=pl.Series(place[: rows.height].astype(np.int64))))
    if not parts:
        return None
    known = _with_turns(pl.concat(parts)).drop("start_ns")
    asked = _with_turns(details(opened).select(start_ns="#start_ns", name="#name"))
    return asked.join(known, on=["name", "turn"], how="left", maintain_order="left")["slice"]


def _with_turns(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(turn=pl.col("start_ns").rank("ordinal").over("name"))


def pies(opened: LoadedCapture, query: Query) -> dict[str, Any]:
    """Time by kernel and by accelerator core."""
    top = query.number("top", 10, most=1000)
    if not opened.is_npu:
        return gpu_kernels.pies(opened, query, top)
    rows = _chosen(opened, query)
    by_name = rows.group_by(name="#name").agg(value=pl.col("#duration").sum())
    by_core = rows.group_by(name="#core").agg(value=pl.col("#duration").sum())
    cores = by_core.sort("value", "name", descending=[True, False])["name"].to_list()
    by_core = by_core.with_columns(name="Using " + pl.col("name").str.replace_all("_", " ", literal=True))
    return {
        "pies": [
            {"key": "total_time", "title": "Total Time (us)", **pie(by_name, "value", top)},
            {"key": "core", "title": "Accelerator Core Utilization", **pie(by_core, "value", 0)},
        ],
        "cores": cores,
    }


def calls(opened: LoadedCapture, query: Query) -> dict[str, Any]:
    """Every task of one name, and how their durations are spread."""
    name = query.text("name")
    limit = query.number("limit", 1000, least=1, most=20_000)
    rows = _calls_npu(opened, name) if opened.is_npu else gpu_kernels.calls(opened, name)
    if not rows.height:
        raise Problem(404, "missing_data", f"no kernel {name!r}", hint="the capture may have changed; reload")
    durations = rows["duration_us"].to_numpy()
    counts, edges = np.histogram(durations, bins=min(40, max(1, len(np.unique(durations)))))
    return {
        "name": name,
        "calls": rows.height,
        "rows": rows.head(limit).to_dicts(),
        "histogram": {"edges_us": edges.tolist(), "counts": counts.tolist()},
    }


def _calls_npu(opened: LoadedCapture, name: str) -> pl.DataFrame:
    slices = opened.once("kernel slices", lambda: _slices(opened))
    frame = (
        details(opened).with_columns(slice=slices if slices is not None else pl.lit(None, pl.Int64)).filter(pl.col("#name") == name)
    )
    rows = frame.select(
        start_ns=pl.col("#start_ns") - opened.base_ns, duration_us="#duration", wait_us="#wait", step="#step", slice="slice"
    ).sort("start_ns")
    return rows.with_columns(op=_operators(opened, rows["slice"]))


def _operators(opened: LoadedCapture, slices: pl.Series) -> pl.Series:
    """Operator that launched the task of each slice."""
    index, tables = opened.trace, opened.tables
    found: list[str | None] = []
    for number in slices.to_list():
        owner = None
        if number is not None:
            source = "kernels" if index.id_of("kernels", int(index.slices["source_row"][number])) == number else "collectives"
            row = int(index.slices["source_row"][number])
            op = tables[source]["op"][row] if row < tables[source].height else None
            owner = tables.ops["name"][op] if op is not None else None
        found.append(owner)
    return pl.Series("op", found, dtype=pl.String)
