# SPDX-License-Identifier: Apache-2.0
"""Where communication time went: per operator, per step, per pair of ranks.

The three tables `collective_times`, `collective_packets` and `collective_links` come from the vendor's own
analysis where the capture has it and from `transfers` where not; everything here is a view of them.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analysis.communication.transfer_sums import LARGE_PACKET_MB, TRANSPORTS, bandwidth, links, packets, times
from stepscope.arrays import filled, with_nulls
from stepscope.tables import TEXT, Tables, issues, lost

__all__ = [
    "LARGE_PACKET_MB", "TRANSPORTS", "link_matrix", "links", "matrix_tags", "of_tables", "packets", "step_of_collectives",
    "stepped", "stepped_tables", "times", "totals",
]  # fmt: skip

_P2P = "^(?i)hcom_(send|receive|batchsendrecv)"
# docs/formats/outputs.md 9.3: the leftmost hit wins and then this order, so reduceScatter is `reduce` and alltoallv `alltoall`.
_OPERATOR_TYPES = (
    "send", "reduce", "invalid", "broadcast", "allreduce", "receive", "allgather", "reducescatter", "scatter", "alltoall",
    "alltoallv", "alltoallvc", "batchsendrecv",
)  # fmt: skip
_OPERATOR = ["collective", "name", "group"]
_CALL = ["step", "kind", "operator_type", "group"]
_TIMES = ["elapse_ms", "transit_ms", "wait_ms", "sync_ms", "idle_ms"]


def of_tables(tables: Tables) -> Tables:
    """The same tables with the three collective tables filled: kept where they have rows, else computed."""
    functions = {"collective_times": times, "collective_packets": packets, "collective_links": links}
    missing = [name for name in functions if not tables[name].height]
    if not missing or not tables["transfers"].height:
        return tables
    groups = [tables[name].select("collective", "group") for name in functions if name not in missing]
    collectives = _with_groups(tables["collectives"], pl.concat(groups)) if groups else tables["collectives"]
    return tables.replace(**{name: functions[name](collectives, tables["transfers"]) for name in missing})


def step_of_collectives(tables: Tables, *, by_time: bool = False) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Step and kind of every communication operator of the collective tables.

    With one step all operators belong to it, whenever they ran; with several an operator belongs to the
    first step whose device range holds its start, borders included, and to none outside (docs/formats/outputs.md 9).
    Steps that launched nothing do not count, unless none launched anything.

    Args:
        tables: linked tables.
        by_time: the start decides with one step too, as in analysis.db.

    Returns:
        Columns collective, name, group, start_ns, step (`step50`; `step` without steps), kind (`p2p` or
        `collective`), in the order of the operators; and what was dropped as frames of `quality`.
    """
    tables = of_tables(tables)
    parts = [
        _identified(tables[name], tables["collectives"]) for name in ("collective_times", "collective_packets", "collective_links")
    ]
    stamped = parts[0].lazy().select(*_OPERATOR, (pl.col("start_us") * 1000).cast(pl.Int64).alias("given_ns"))
    others = [part.lazy().select(_OPERATOR).with_columns(given_ns=pl.lit(None, dtype=pl.Int64)) for part in parts[1:]]
    known = tables["collectives"].lazy().select(pl.int_range(pl.len()).alias("collective"), "start_ns")
    text = pl.col("name").cast(pl.String)
    operators = (
        pl.concat([stamped, *others])
        .unique(_OPERATOR, keep="first", maintain_order=True)
        .filter(~text.str.to_lowercase().str.starts_with("total"))
        .join(known, on="collective", how="left", maintain_order="left")
        .with_columns(
            pl.coalesce("start_ns", "given_ns").alias("start_ns"),
            pl.when(text.str.contains(_P2P)).then(pl.lit("p2p")).otherwise(pl.lit("collective")).alias("kind"),
        )
        .drop("given_ns")
        .collect(engine="in-memory")
    )
    steps = tables["steps"]
    reached = steps.filter(pl.col("device_start_ns").is_not_null())
    steps = reached if reached.height else steps
    if not steps.height or (steps.height == 1 and not by_time):
        label = "step" if not steps.height or steps["step"][0] is None else f"step{steps['step'][0]}"
        return operators.with_columns(pl.lit(label).alias("step")), []
    placed = operators.with_columns(_step_labels(steps, operators["start_ns"]))
    outside = placed["step"].null_count()
    detail = "they start between the steps; communication files leave them out"
    return placed.drop_nulls("step"), [lost(issues.OUTSIDE_STEPS, "collectives", outside, detail)] if outside else []


def _with_groups(collectives: pl.DataFrame, given: pl.DataFrame) -> pl.DataFrame:
    """Name the groups as the given tables do, so that computed tables join them."""
    known = given.drop_nulls().unique("collective", keep="first").rename({"group": "known"})
    numbered = collectives.with_columns(pl.int_range(pl.len()).alias("collective"))
    joined = numbered.join(known, on="collective", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("known", "group").alias("group")).select(collectives.columns)


def _step_labels(steps: pl.DataFrame, start: pl.Series) -> pl.Series:
    ranges = steps.select(
        pl.coalesce("device_start_ns", "start_ns").alias("first"),
        pl.coalesce("device_end_ns", "end_ns").alias("last"),
        pl.format("step{}", pl.col("step").cast(pl.String).fill_null("")).alias("step"),
    ).sort("first", maintain_order=True)
    at = filled(start, -1)
    # The first range that reaches `at` is the first match or, when it starts later, there is none.
    place = np.searchsorted(np.maximum.accumulate(ranges["last"].to_numpy()), at, side="left")
    inside = place < ranges.height
    inside[inside] = ranges["first"].to_numpy()[place[inside]] <= at[inside]
    return ranges["step"].gather(with_nulls(pl.Series(place), ~inside)).alias("step")


def _identified(frame: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """Fill `collective` where the source did not know it: by name and group, else by a name that is unique."""
    if not frame["collective"].null_count() or not collectives.height:
        return frame
    rows = collectives.lazy().select("name", "group", pl.int_range(pl.len()).alias("row"))
    by_both = rows.unique(["name", "group"], keep="first").rename({"row": "by_both"})
    by_name = rows.unique("name", keep="none").select("name", pl.col("row").alias("by_name"))
    return (
        frame.lazy()
        .join(by_both, on=["name", "group"], how="left", maintain_order="left")
        .join(by_name, on="name", how="left", maintain_order="left")
        .with_columns(pl.coalesce("collective", "by_both", "by_name").alias("collective"))
        .drop("by_both", "by_name")
        .collect(engine="in-memory")
    )


def stepped(tables: Tables, name: str, *, by_time: bool = False) -> pl.DataFrame:
    """One of the collective tables with columns step and kind; rows outside all steps are left out."""
    return stepped_tables(tables, name, by_time=by_time)[0]


def stepped_tables(tables: Tables, *names: str, by_time: bool = False) -> list[pl.DataFrame]:
    """Several of the collective tables as `stepped` gives them; the operators are placed once."""
    tables = of_tables(tables)
    operators = step_of_collectives(tables, by_time=by_time)[0].select(
        *_OPERATOR, "step", "kind", pl.int_range(pl.len()).alias("place")
    )
    return [
        _identified(tables[name], tables["collectives"])
        .lazy()
        .join(operators.lazy(), on=_OPERATOR, how="inner", nulls_equal=True, maintain_order="left")
        .sort("place", maintain_order=True)
        .drop("place")
        .collect(engine="in-memory")
        for name in names
    ]


def totals(operators: pl.DataFrame) -> pl.DataFrame:
    """Sums of the times per step and kind (`Total Op Info`); `operators` is `stepped(…, "collective_times")`."""
    return operators.group_by("step", "kind", maintain_order=True).agg(pl.col(_TIMES).sum())


def matrix_tags(pairs: pl.DataFrame) -> pl.DataFrame:
    """The fastest, middle and slowest operators and the sum, per step, operator type, group and pair of ranks.

    Args:
        pairs: table `collective_links` with step and kind, as `stepped` gives it.

    Returns:
        Columns step, kind, operator_type, tag, group, src_rank, dst_rank, transport, transit_mb, transit_ms,
        bandwidth, op_name (null for tag `total`); ordered as communication_matrix.json (docs/formats/outputs.md 9.3).
    """
    name = pl.col("name").cast(pl.String)
    typed = pairs.lazy().with_columns(
        pl.coalesce(
            name.str.to_lowercase().str.extract(f"({'|'.join(_OPERATOR_TYPES)})"),
            name.str.extract("^(.*?)(?:__|$)"),
        ).alias("operator_type"),
        pl.int_range(pl.len()).alias("place"),
    )
    line = [*_CALL, "src_rank", "dst_rank"]
    ranked = (
        typed.with_columns(pl.col("place").min().over(_CALL).alias("call"), pl.col("place").min().over(line).alias("line"))
        .sort("line", pl.col("bandwidth").neg(), maintain_order=True)
        .with_columns(pl.int_range(pl.len()).over("line").alias("rank"), pl.len().cast(pl.Int64).over("line").alias("count"))
    )
    rank, count = pl.col("rank"), pl.col("count")
    members = (
        ("top1", rank == 0), ("middle", rank == count // 2), ("bottom1", rank == count - 1),
        ("bottom2", rank == count - 2), ("bottom3", rank == count - 3),
    )  # fmt: skip
    summed = (
        ranked.group_by([*line, "call", "line"], maintain_order=True)
        .agg(pl.col("transport").first(), pl.col("transit_mb", "transit_ms").sum())
        .with_columns(
            bandwidth(),
            pl.lit(None, dtype=TEXT).alias("op_name"),
            pl.lit("total").alias("tag"),
        )
    )  # fmt: skip
    chosen = [ranked.filter(test).with_columns(pl.lit(tag).alias("tag"), pl.col("name").alias("op_name")) for tag, test in members]
    shown = [
        "step", "kind", "operator_type", "tag", "group", "src_rank", "dst_rank", "transport", "transit_mb", "transit_ms",
        "bandwidth", "op_name",
    ]  # fmt: skip
    order = {tag: place for place, tag in enumerate(("top1", "middle", "bottom1", "total", "bottom2", "bottom3"))}
    return (
        pl.concat([part.select(*shown, "call", "line") for part in (*chosen, summed)])
        .sort("call", pl.col("tag").replace_strict(order, return_dtype=pl.Int8), "line", maintain_order=True)
        .select(shown)
        .collect(engine="in-memory")
    )


def link_matrix(tables: Tables) -> pl.DataFrame:
    """`matrix_tags` of the capture's own operators; without their links the rows of communication_matrix.json."""
    tables = of_tables(tables)
    if tables.collective_links.height or not tables.link_extremes.height:
        return matrix_tags(stepped(tables, "collective_links"))
    return tables.link_extremes
