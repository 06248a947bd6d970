# SPDX-License-Identifier: Apache-2.0
"""Tasks on device streams, and which host call launched each (docs/formats/outputs.md 2.4, 3.3)."""

from __future__ import annotations

import polars as pl

from stepscope.formats.ascend.trace import args
from stepscope.formats.ascend.trace.events import category, number, rewritten, span
from stepscope.formats.ascend.trace.lanes import Lanes
from stepscope.tables import ALL_TABLES
from stepscope.tables.npu_kinds import task_kind

# The stream is the thread that the event stands on, and the rate follows from size and duration.
TASK_ARGS = (*args.without(args.TASKS, "stream"), *args.without(args.COPIES, "rate"), *args.GRIDS)

PLACE = ("pid", "tid", "start_ns")  # what a flow arrow points at

# docs/formats/enums.md 2. G1 timelines write AI_CORE for vector kernels too, so there the task type does not tell the core.
_CORES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU", "DSA_SQE", "DVPP", "FFTS_PLUS", "WRITE_BACK")


def task_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select(
        "pid",
        "tid",
        *span(),
        pl.col("dur_ns").alias("duration_ns"),
        category("name"),
        *args.columns(TASK_ARGS, context_id=number, model_id=number, connection_id=number),
    )


def cpu_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select(
        pl.col("tid").alias("stream"),
        *span(),
        pl.col("dur_ns").alias("duration_ns"),
        category("name"),
        *args.columns(args.CPU_KERNELS),
    )


def cpu_kernels(rows: pl.DataFrame, *, beside_device: bool) -> pl.DataFrame:
    """Kernels that ran on the processor; beside those of a device they are none of its work."""
    kind = rows["name"].cast(pl.String).str.extract(r"([^/]*)$").str.replace(r"-op\d+$", "")
    return ALL_TABLES["kernels"].conform(
        rows.with_columns(
            device=pl.lit(None if beside_device else 0, pl.Int32),
            kind=pl.lit("other" if beside_device else "compute"),
            core=pl.lit("CPU"),
            op_type=kind,
            launch_ns=pl.col("start_ns"),
        )
    )


def without_step_lanes(tasks: pl.DataFrame, lanes: Lanes) -> pl.DataFrame:
    """Leave out the lanes that show iterations: they are derived, not tasks."""
    steps = lanes.threads.filter(pl.col("lane").str.starts_with("Step Trace")).select("pid", "tid")
    return tasks.join(steps, on=["pid", "tid"], how="anti", maintain_order="left") if steps.height else tasks


def kernels(tasks: pl.DataFrame, launches: pl.DataFrame, lanes: Lanes) -> pl.DataFrame:
    rows = rewritten(tasks.with_columns(pl.col("name").alias("kind")), "kind", task_kind(pl.col("text")))
    for column in ("grid", "block"):
        rows = rewritten(rows, column, pl.col("text").str.replace_all(r"[\[\]() ]", ""))
    rows = lanes.place(with_launch(rows, launches))
    core = pl.col("task_type") if lanes.generation != "G1" else pl.lit(None)
    return ALL_TABLES["kernels"].conform(
        rows.with_columns(
            pl.col("tid").alias("stream"),
            pl.col("os_pid").alias("pid"),
            pl.when(pl.col("task_type").cast(pl.String).is_in(_CORES)).then(core).alias("core"),
        )
    )


def flow_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    # Ids come as numbers or strings and may exceed 64 bits (docs/formats/outputs.md 3.3). Kept as text they would hold the
    # whole file in memory, so text that is not a number becomes a negative hash.
    ident = pl.coalesce(pl.col("id").cast(pl.Int128, strict=False), -1 - pl.col("id").hash().cast(pl.Int128))
    return events.select(
        (pl.col("ph") == "s").alias("is_start"), ident.alias("id"), "pid", "tid", pl.col("ts_ns").alias("start_ns")
    )


def arrows(flows: pl.DataFrame) -> pl.DataFrame:
    """One row per end of an arrow: its place, its start (from_*), and whether its id already had an end.

    The first start of an id counts, and all its ends belong to it; `extra` marks the further ends (docs/formats/outputs.md 2.4).
    """
    whole = flows["id"].cast(pl.Int64, strict=False)
    if not whole.null_count():  # most captures; such ids are found far faster
        flows = flows.with_columns(id=whole)
    starts = flows.filter("is_start").unique("id", keep="first")
    ends = flows.filter(~pl.col("is_start")).with_columns((~pl.col("id").is_first_distinct()).alias("extra"))
    origin = starts.select("id", *(pl.col(column).alias(f"from_{column}") for column in PLACE))
    return ends.drop("is_start").join(origin, on="id", how="inner", maintain_order="left")


def with_launch(rows: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Add launch_ns, launch_tid and extra to the rows that an arrow points at."""
    if launches.height and launches["start_ns"].n_unique() == launches.height:
        return _with_only_launch(rows, launches)
    ordered = launches.sort("extra", maintain_order=True) if launches["extra"].any() else launches
    first = ordered.unique(PLACE, keep="first")
    found = first.select(*PLACE, "extra", pl.col("from_start_ns").alias("launch_ns"), pl.col("from_tid").alias("launch_tid"))
    return rows.join(found, on=PLACE, how="left", maintain_order="left").with_columns(pl.col("extra").fill_null(False))


def _with_only_launch(rows: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """The same where no two arrows end at one moment: one whole number finds them, several times faster than three columns."""
    at = launches.select("start_ns", arrow=pl.int_range(pl.len(), dtype=pl.UInt32))
    arrow = rows.select("start_ns").join(at, on="start_ns", how="left", maintain_order="left")["arrow"]
    found = launches.select(pl.col("pid", "tid", "extra", "from_start_ns", "from_tid").gather(arrow))
    here = (found["pid"] == rows["pid"]) & (found["tid"] == rows["tid"])
    return rows.with_columns(
        pl.lit(found["extra"] & here).fill_null(False).alias("extra"),
        pl.when(here).then(found["from_start_ns"]).alias("launch_ns"),
        pl.when(here).then(found["from_tid"]).alias("launch_tid"),
    )
