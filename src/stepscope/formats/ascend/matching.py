# SPDX-License-Identifier: Apache-2.0
"""Which row of a csv file tells of which event of a timeline, and both put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.formats.ascend.kernel_details import KernelRows
from stepscope.formats.ascend.task_time import COMPUTE_TASKS
from stepscope.tables import ALL_TABLES, TEXT

KERNELS, METRICS, COLLECTIVES = ALL_TABLES["kernels"], ALL_TABLES["kernel_metrics"], ALL_TABLES["collectives"]

_NEAR_NS = 100
_NONE = -1
Numbers = NDArray[np.int64]

# What the csv knows better than the timeline, and what it only fills in.
_FROM_CSV = (
    "op_type", "core", "op_state", "hf32", "block_num", "mix_block_num", "input_shapes", "input_dtypes", "input_formats",
    "output_shapes", "output_dtypes", "output_formats",
)  # fmt: skip
_FILLED_IN = ("device", "stream", "task_id", "context_id", "model_id", "duration_ns")


def join_compute(timeline: pl.DataFrame, rows: KernelRows) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables `kernels` and `kernel_metrics`: the tasks of the timeline with what the csv says about them.

    A csv row and a task are the same when start, name, device and, where several qualify, stream and task number
    agree. Rows without a task become kernels of their own; tasks without a row stay as they are.
    """
    place = match(timeline, rows.compute)
    known = rows.compute.select(pl.all().gather(place))
    tasks = timeline.with_columns(
        *[pl.coalesce(known[name], pl.col(name)).alias(name) for name in _FROM_CSV],
        *[pl.coalesce(pl.col(name), known[name]).alias(name) for name in _FILLED_IN],
        pl.coalesce(known["kind"], pl.col("kind")).alias("kind"),
        place.alias("row"),
    )
    left = _unmatched(rows.compute, place, timeline)
    kernels = KERNELS.sort(pl.concat([tasks, left], how="diagonal")) if left.height else KERNELS.sort(tasks)
    return KERNELS.conform(kernels), _metrics(kernels["row"], rows.metrics)


def with_operator_names(tasks: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Tasks of task_time.csv, which names functions, under the names that the kernel csv gives to their operators."""
    keys = ["start_ns", "stream", "task_id"]
    operators = rows.select(*keys, operator=pl.col("name").cast(pl.String)).drop_nulls().unique(keys, keep="first")
    found = tasks.join(operators, on=keys, how="left", maintain_order="left")
    name, operator = pl.col("name").cast(pl.String), pl.col("operator")
    is_function = (operator != name) & (name != pl.col("task_type").cast(pl.String)).fill_null(True)
    return found.with_columns(
        pl.when(is_function).then("name").otherwise("kernel_name").alias("kernel_name"),
        pl.coalesce(operator, name).cast(TEXT).alias("name"),
    ).drop("operator")


def guess_compute(timeline: pl.DataFrame) -> pl.DataFrame:
    """The tasks of a timeline that has no kernel csv: those on a core, under a name of their own, are compute."""
    kind = pl.col("task_type").cast(pl.String)
    named = pl.col("name").cast(pl.String) != kind
    computing = (pl.col("kind") == "other") & kind.is_in(COMPUTE_TASKS) & named
    return timeline.with_columns(
        pl.when(computing.fill_null(False)).then(pl.lit("compute", TEXT)).otherwise(pl.col("kind")).alias("kind")
    )


def join_collectives(timeline: pl.DataFrame, transfers: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables `collectives` and `transfers`: operators of the timeline, with those that only the csv has added."""
    place = match(timeline, rows)
    known = rows.select(pl.all().gather(place))
    filled = ("op_type", "stream", "model_id", "device", "duration_ns")
    operators = timeline.with_columns(
        *[pl.coalesce(pl.col(name), known[name]).alias(name) for name in filled],
        pl.int_range(pl.len(), dtype=pl.Int64).alias("old"),
    )
    left = _unmatched(rows, place, timeline).drop("row")
    both = COLLECTIVES.sort(pl.concat([operators, left], how="diagonal"))
    moved = both.select("old", pl.int_range(pl.len(), dtype=pl.Int64).alias("collective")).drop_nulls("old").sort("old")
    renumbered = transfers.with_columns(moved["collective"].gather(transfers["collective"]).alias("collective"))
    return COLLECTIVES.conform(both), renumbered


def _unmatched(rows: pl.DataFrame, place: pl.Series, timeline: pl.DataFrame) -> pl.DataFrame:
    """Rows of a csv that tell of no event, with their number; they are on the device that the timeline names."""
    unused = np.ones(rows.height, bool)
    unused[place.drop_nulls().to_numpy()] = False
    return rows.with_row_index("row").filter(unused).with_columns(pl.col("device").fill_null(pl.lit(_only(timeline["device"]))))


def _metrics(row: pl.Series, values: pl.DataFrame) -> pl.DataFrame:
    """Counters by final row of `kernels`; tasks without any (DSA, AI CPU) have no row (docs/formats/outputs.md 4)."""
    if not values.width:
        return METRICS.empty()
    counted = values.select(pl.any_horizontal(pl.all().is_not_null())).to_series()
    where = row.to_frame("row").with_row_index("kernel").filter(counted.gather(row).fill_null(False))
    return METRICS.conform(values.select(pl.all().gather(where["row"])).with_columns(where["kernel"].cast(pl.Int64)))


def _only(devices: pl.Series) -> int | None:
    """The device, when the events name exactly one."""
    named = devices.drop_nulls().unique()
    return int(named[0]) if named.len() == 1 else None


def match(timeline: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """For each event of the timeline the row of the csv that tells of it, or null; each row is used once."""
    keys = ["start_ns", "name"]
    if not timeline["device"].null_count() and not rows["device"].null_count():
        keys.append("device")
    exact = [name for name in ("stream", "task_id") if name in timeline.columns and name in rows.columns]
    place, used = np.full(timeline.height, _NONE, np.int64), np.zeros(rows.height, bool)
    events = timeline.select(*keys, *exact).with_row_index("event")
    rows = rows.select(*keys, *exact).with_row_index("row")
    for pair, chosen in ((_alone, keys), (_equal, [*keys, *exact]), (_equal, keys), (_near, keys[1:])):
        if not events.height or not rows.height:
            break
        pairs = pair(events, rows, chosen)
        place[pairs["event"].to_numpy()] = pairs["row"].to_numpy()
        used[pairs["row"].to_numpy()] = True
        events = events.filter(place[events["event"].to_numpy()] == _NONE)
        rows = rows.filter(~used[rows["row"].to_numpy()])
    found = pl.Series("row", place)
    rows_or_null: pl.Series = found.set(found == _NONE, None).cast(pl.UInt32)
    return rows_or_null


def _alone(events: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Pairs of equal keys among those that share their start with no other: almost all, found by one whole number."""
    (starts, event), (row_starts, row) = _single(events), _single(rows)
    if not row.size:
        return pl.DataFrame(schema={"event": pl.UInt32, "row": pl.UInt32})
    at = np.searchsorted(row_starts, starts).clip(max=row.size - 1)
    hit = row_starts[at] == starts
    of_row = rows[row[at[hit]]].rename(lambda name: name if name == "row" else f"{name} of row")
    together = pl.concat([events[event[hit]], of_row], how="horizontal")
    pairs: pl.DataFrame = together.filter([pl.col(key) == pl.col(f"{key} of row") for key in keys]).select("event", "row")
    return pairs


def _single(frame: pl.DataFrame) -> tuple[Numbers, Numbers]:
    """Starts that occur once, in order, and their rows."""
    starts = frame["start_ns"]
    order = np.arange(frame.height) if starts.is_sorted() else starts.arg_sort().to_numpy()
    ordered = starts.to_numpy()[order]
    changes = np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])
    single = changes[1:] & changes[:-1]
    return ordered[single], order[single]


def _equal(events: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Pairs of equal keys; the first of each side goes with the first of the other."""
    turn = pl.int_range(pl.len()).over(keys).alias("turn")
    numbered = [frame.with_columns(turn) for frame in (events, rows)]
    return numbered[0].join(numbered[1], on=[*keys, "turn"], how="inner").select("event", "row")


def _near(events: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Pairs of equal keys that start almost together: the timeline rounds what the csv cuts off (communication, G1)."""
    nearest = rows.sort("start_ns").join_asof(
        events.sort("start_ns"), on="start_ns", by=list(keys), strategy="nearest", tolerance=_NEAR_NS, check_sortedness=False
    )
    return nearest.drop_nulls("event").unique("event", keep="first", maintain_order=True).select("event", "row")
