# SPDX-License-Identifier: Apache-2.0
"""The Kernel view of NPUs: what ran on the accelerator, each task or by name, type and shapes (docs/reference/viewer.md 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from stepscope.analysis.kernels.groups import histogram, kernel_groups, operators_of, time_by
from stepscope.export.chip_files import chip_file
from stepscope.export.kernel_details import has_steps, shown_rows
from stepscope.formats.ascend.columns import NS_PER_US, Column
from stepscope.formats.ascend.kernel_details import COMMUNICATION, TITLES, file_columns, is_short
from stepscope.formats.ascend.metric_names import counter_places, counter_titles, counter_values, is_whole
from stepscope.render.csv_file import NOT_KNOWN
from stepscope.render.microseconds import microseconds
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Late, Listing, Shown
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem, missing
from stepscope.web.views import gpu_kernels
from stepscope.web.views.operators import pie

NPU_GROUPS = ("statistic", "all", "type", "name_shape")
FIRST_SHOWN = 20
COUNTED = 25  # columns that a file without counters has at most
_NAME, _TYPE = Shown("name", "Operator", "Name of the kernel."), Shown("type", "Type", "Operator type.")
_TIMES = (
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
_GROUP_COLUMNS = {
    "statistic": (_NAME, *_TIMES),
    "type": (_TYPE, *_TIMES),
    "name_shape": (_NAME, Shown("shapes", "Input Shapes", "Shapes of the inputs."), *_TIMES),
}
_TYPES_NOTE = "the capture has no single kernels: types and times are those of op_statistic.csv"


@dataclass(frozen=True)
class KernelTable:
    """The rows of kernel_details.csv, by device and start, and the columns that such a file of the capture has."""

    rows: pl.DataFrame
    columns: tuple[Column, ...]
    counters: tuple[str, ...]  # titles of hardware counters

    def has(self, key: str) -> bool:
        return any(column.key == key for column in self.columns)


def kernel_table(capture: LoadedCapture) -> KernelTable:
    return capture.once("kernel table", lambda: _kernel_table(capture))


def _kernel_table(capture: LoadedCapture) -> KernelTable:
    rows = shown_rows(capture.tables) if capture.has_device else None
    if rows is None or not rows.height:
        raise missing("device", "no kernel in this capture")
    facts = capture.facts
    # The page has the titles of the user's own files; captures without such are shown as what we would write.
    generation = facts.generation if facts.source == "ascend_text" else ""
    # Where the capture does not say its level, its file was short when it types no kernel; names tell those of operators.
    short = is_short(rows.filter(pl.col("table") == "kernels"), facts.level)
    chip = chip_file(facts)
    columns = file_columns(
        rows,
        short=short,
        with_steps=has_steps(capture.tables, rows),
        mindspore=facts.framework == "mindspore",
        generation=generation,
        chip=chip,
    )
    counters: tuple[str, ...] = ()
    if not short:
        counters = counter_titles(capture.tables.kernel_metrics, facts.aic_metrics, as_recorded=chip.own_counters)
    else:  # the type of a communication operator, which its name tells, is left out with the others
        rows = rows.with_columns(op_type=pl.lit(None, rows.schema["op_type"]))
    if generation == "G1":
        latest, older = COMMUNICATION
        rows = rows.with_columns(pl.col("core").cast(pl.String).replace(latest, older).cast(rows.schema["core"]))
    rows = rows.with_columns(
        pl.col("name", "op_type", "core").fill_null(NOT_KNOWN),
        pl.col("block_num").fill_null(0),
        duration_us=microseconds(rows["duration_ns"]),
        wait_us=microseconds(rows["wait_ns"]),
    )
    return KernelTable(rows, columns, counters)


def _chosen(capture: LoadedCapture, query: Query) -> pl.DataFrame:
    rows = kernel_table(capture).rows
    step, cores = query.whole("step"), query.every("core")
    if step is not None:
        rows = rows.filter(pl.col("step") == step)
    if cores:
        rows = rows.filter(pl.col("core").is_in(cores))
    return rows if query.flag("comm", True) else rows.filter(~pl.col("core").is_in(COMMUNICATION))


def kernels(capture: LoadedCapture, query: Query) -> Listing:
    """The table, grouped as the query says."""
    if not capture.is_npu:
        return gpu_kernels.kernels(capture, query)
    group = query.choice("group", NPU_GROUPS)
    if _only_types(capture):
        return Listing(_types(capture, query), _GROUP_COLUMNS["type"], (("total", True),), (_TYPES_NOTE,), search="type")
    rows = _chosen(capture, query)
    if group == "all":
        return _every(capture, rows)
    default = not (query.optional("step") or query.every("core"))
    # Every visit of the view shows the groupings of the whole capture.
    key = f"kernels {group} {query.flag('comm', True)}"
    frame = capture.once(key, lambda: _grouped(capture, rows, group)) if default else _grouped(capture, rows, group)
    columns = _GROUP_COLUMNS[group]
    return Listing(frame, columns, (("total", True),), search=columns[0].key)


def _only_types(capture: LoadedCapture) -> bool:
    """Whether the kernels are gone and the vendor's figures by type are what is left of them."""
    return not capture.has_device and capture.tables.op_type_times.height > 0


def _types(capture: LoadedCapture, query: Query) -> pl.DataFrame:
    """Rows as of `kernel_groups` by type, without what single kernels would tell."""
    cores = query.every("core")
    types = capture.tables.op_type_times.with_columns(pl.col("op_type", "core").cast(pl.String).fill_null(NOT_KNOWN))
    rows = (types.filter(pl.col("core").is_in(cores)) if cores else types).sort("total_ns", descending=True, maintain_order=True)
    unknown = pl.lit(None, pl.Float64)
    return rows.select(
        pl.col("op_type").alias("type"),
        pl.col("count").alias("calls"),
        *(microseconds(rows[f"{word}_ns"]).alias(word) for word in ("total", "max", "avg", "min")),
        "core",
        pl.lit(None, pl.String).alias("block"),
        unknown.alias("p50"),
        unknown.alias("p95"),
        share=100 * pl.col("total_ns") / pl.col("total_ns").sum(),
        cumulated=100 * pl.col("total_ns").cum_sum() / pl.col("total_ns").sum(),
    )


def _grouped(capture: LoadedCapture, rows: pl.DataFrame, group: str) -> pl.DataFrame:
    by = {"statistic": ["name"], "type": ["op_type"], "name_shape": ["name", "input_shapes"]}[group]
    frame = kernel_groups(rows, by)
    if group == "name_shape":
        known = _in_quotes(frame["input_shapes"]) if kernel_table(capture).has("input_shapes") else pl.lit(None, pl.String)
        frame = frame.with_columns(known.alias("shapes"))
    return frame.rename({"op_type": "type"}, strict=False)


def _every(capture: LoadedCapture, rows: pl.DataFrame) -> Listing:
    table = kernel_table(capture)
    shapes = {column.title: column.key for column in table.columns if column.kind == "shapes"}
    whole = table.rows
    cells = capture.once(
        "kernel cells", lambda: whole.with_columns(_cells(whole, column) for column in table.columns if column.kind != "shapes")
    )
    frame = cells if rows is whole else cells[rows["at"]]
    late = {title: Late(partial(_shapes, key)) for title, key in shapes.items()}
    late |= {title: Late(partial(_counter, capture, title)) for title in table.counters}
    late["start_ms"] = Late(partial(_milliseconds, capture.base_ns), "start_ns")
    late["slice"] = Late(partial(_slices, capture))
    titles = [*(column.title for column in table.columns), *table.counters]
    summed = (TITLES["duration_ns"], TITLES["wait_ns"])
    shown = [Shown(title, title, shown=place < FIRST_SHOWN, summed=title in summed) for place, title in enumerate(titles)]
    shown.append(Shown("start_ms", "Start Time (ms since capture start)", "Start relative to the first event.", "ms"))
    shown.append(Shown("slice", "Slice", "Id in the timeline.", shown=False))
    without = "no PMU columns: collect with aic_metrics=PipeUtilization and profiler level 1 or higher"
    notes = () if len(titles) > COUNTED else (without,)
    return Listing(frame, tuple(shown), ((TITLES["start_ns"], False),), notes, search=TITLES["name"], late=late)


def _cells(rows: pl.DataFrame, column: Column) -> pl.Series:
    """A column with its values as the file has them; missing numbers are null."""
    values = rows[column.key]
    if column.kind == "time":  # more digits than a float of nanoseconds has
        values = values // 1000 + (values % 1000) / 1000.0
    elif column.unit == NS_PER_US:
        values = microseconds(values)
    elif column.missing.isdigit():
        values = values.fill_null(int(column.missing))
    elif column.kind == "text" or (column.missing and not values.count()):
        values = (values if column.kind == "text" else values.cast(pl.String)).fill_null(column.missing)
    return values.alias(column.title)


def _shapes(key: str, part: pl.DataFrame) -> pl.Series:
    return _in_quotes(part[key])


def _in_quotes(shapes: pl.Series) -> pl.Series:
    """Lists of shapes with the quotes that their cells have in the file."""
    return shapes.to_frame("shapes").select(pl.format('"{}"', "shapes").fill_null(NOT_KNOWN)).to_series()


def _counter(capture: LoadedCapture, title: str, part: pl.DataFrame) -> pl.Series:
    metrics = capture.tables.kernel_metrics
    places = capture.once("kernel counters", lambda: counter_places(metrics, kernel_table(capture).rows))
    values = counter_values(title, metrics, places.gather(part["at"]))
    if not is_whole(title):
        values = microseconds(values)  # whole thousandths
    return values if values.count() or not part.height else values.cast(pl.String).fill_null(NOT_KNOWN)


def _milliseconds(base_ns: int, part: pl.DataFrame) -> pl.Series:
    since: pl.Series = (part["start_ns"] - base_ns) / 1e6
    return since


def _slices(capture: LoadedCapture, part: pl.DataFrame) -> pl.Series:
    """Id in the timeline of each row."""
    ids = np.full(part.height, -1, dtype=np.int64)
    row, table = part["row"].to_numpy(), part["table"]
    for name in ("kernels", "collectives"):
        place = capture.trace.places.get(name)
        if place is not None:
            own = np.flatnonzero((table == name).to_numpy() & (row < len(place)))
            ids[own] = place[row[own]]
    numbers = pl.Series("slice", ids)
    return numbers.set(numbers < 0, None)


def pies(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """Time by kernel and by accelerator core."""
    top = query.number("top", 10, most=1000)
    if not capture.is_npu:
        return gpu_kernels.pies(capture, query, top)
    if _only_types(capture):
        types = _types(capture, query).rename({"total": "value"})
        by_name = types.select(name="type", calls="calls", value="value")
        by_core = types.group_by(pl.col("core").alias("name"), maintain_order=True).agg(pl.col("calls", "value").sum())
    else:
        rows = _chosen(capture, query)
        by_name, by_core = (time_by(rows, key) for key in ("name", "core"))
    cores = by_core.sort("value", "name", descending=[True, False])["name"].to_list()
    by_core = by_core.with_columns(name="Using " + pl.col("name").str.replace_all("_", " ", literal=True))
    return {
        "pies": [
            {"key": "total_time", "title": "Total Time (us)", **pie(by_name, "value", top)},
            {"key": "core", "title": "Accelerator Core Utilization", **pie(by_core, "value", 0)},
        ],
        "cores": cores,
    }


def calls(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """Every task of one name, and how their durations are spread."""
    name = query.text("name")
    limit = query.number("limit", 1000, least=1, most=20_000)
    rows = _calls_npu(capture, name) if capture.is_npu else gpu_kernels.calls(capture, name)
    if not rows.height:
        raise Problem(404, "missing_data", f"no kernel {name!r}", hint="the capture may have changed; reload")
    edges, counts = histogram(rows["duration_us"])
    return {
        "name": name,
        "calls": rows.height,
        "rows": rows.head(limit).to_dicts(),
        "histogram": {"edges_us": edges, "counts": counts},
    }


def _calls_npu(capture: LoadedCapture, name: str) -> pl.DataFrame:
    rows = kernel_table(capture).rows.filter(pl.col("name") == name)
    listed = rows.select(
        start_ns=pl.col("start_ns") - capture.base_ns, duration_us="duration_us", wait_us="wait_us", step="step",
        slice=_slices(capture, rows), op=operators_of(rows, capture.tables),
    )  # fmt: skip
    return listed.sort("start_ns")
