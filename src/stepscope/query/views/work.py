# SPDX-License-Identifier: Apache-2.0
"""Kernels, operators, modules, collectives and memory, each row with what other tables say about it."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stepscope.analysis.communication.workers import matched_collectives
from stepscope.analysis.operators import operator_times
from stepscope.analysis.steps import step_of, steps_of_tasks
from stepscope.analysis.views import module_view
from stepscope.query.views.columns import V_COLLECTIVES, V_KERNELS, V_MEMORY_STEPS, V_MODULES, V_OPS
from stepscope.query.views.view import RankTables, View, per_rank


def _exclusive_by_row(rank: RankTables, table: int, rows: int) -> pl.Series:
    """Exclusive time of each row of `kernels` (0) or `collectives` (1); null for rows that the partition does not know."""
    tasks = rank.case.model.tasks.with_columns(ns=pl.Series(rank.case.exclusive_by_task, dtype=pl.Int64))
    known = tasks.filter(pl.col("table") == table)
    numbers = pl.DataFrame({"row": pl.int_range(rows, dtype=pl.Int64, eager=True)})
    return numbers.join(known.select("row", "ns"), on="row", how="left", maintain_order="left")["ns"]


def _has_partition(rank: RankTables) -> bool:
    return rank.case.model.device is not None


def _kernels(rank: RankTables) -> pl.DataFrame:
    kernels, ops = rank.tables.kernels, rank.tables.ops
    step = steps_of_tasks(rank.tables, kernels)
    exclusive = (
        _exclusive_by_row(rank, 0, kernels.height) if _has_partition(rank) else pl.Series([None] * kernels.height, dtype=pl.Int64)
    )
    return kernels.with_row_index("id").with_columns(
        step,
        exclusive.alias("exclusive_ns"),
        ns=pl.col("end_ns") - pl.col("start_ns"),
        op_name=ops["name"].gather(kernels["op"]),
        module=ops["modules"].gather(kernels["op"]),
        launch_delay_ns=pl.col("start_ns") - pl.col("launch_ns"),
    )


def _ops(rank: RankTables) -> pl.DataFrame:
    ops = rank.tables.ops
    step = rank.tables.steps["step"].gather(step_of(ops["start_ns"], rank.tables.steps)).alias("step")
    return ops.with_row_index("id").with_columns(step, module=pl.col("modules")).hstack(operator_times(rank.tables))


def _modules(rank: RankTables) -> pl.DataFrame:
    return module_view(rank.tables)


def _collectives(ranks: Sequence[RankTables]) -> list[pl.DataFrame]:
    workers = {str(number): rank.tables for number, rank in enumerate(ranks)}
    found = [_own_collectives(rank) for rank in ranks]
    if len(ranks) > 1 and any(frame.height for frame in found):
        matched = matched_collectives(workers)
        together = pl.concat(
            [
                frame.select("op_type", "group", pl.lit(number).alias("number"), pl.lit(ranks[number].rank, pl.Int64).alias("rank"))
                .with_columns(turn=pl.int_range(pl.len()).over("op_type", "group"))
                .hstack(matched[str(number)].select("length", "shortest"))
                for number, frame in enumerate(found)
                if frame.height
            ]
        )
        of_call = ["op_type", "group", "turn"]
        late = pl.col("rank").sort_by("length").first().over(of_call)
        others = pl.len().over(of_call) > 1
        together = together.with_columns(
            late_rank=pl.when(others).then(late),
            longer=pl.when(others).then(((pl.col("length") - pl.col("shortest")) * 1000).round()),
        )
        found = [
            frame.with_columns(
                together.filter(pl.col("number") == number)["late_rank"],
                wait_ns=pl.coalesce("wait_ns", together.filter(pl.col("number") == number)["longer"].cast(pl.Int64)),
            )
            if frame.height
            else frame
            for number, frame in enumerate(found)
        ]
    transit = pl.col("ns") - pl.col("wait_ns").fill_null(0)
    return [
        frame.with_columns(transit_ns=pl.when(pl.col("wait_ns").is_not_null()).then(transit)).with_columns(
            gb_s=pl.when(transit > 0).then(pl.col("bytes") / transit)
        )
        for frame in found
    ]


def _own_collectives(rank: RankTables) -> pl.DataFrame:
    rows = rank.tables.collectives
    times = rank.tables.collective_times.drop_nulls("collective").unique("collective", keep="first", maintain_order=True)
    wait = times.select("collective", wait_ns=(pl.col("wait_ms") * 1e6).round().cast(pl.Int64))
    exposed = pl.Series([None] * rows.height, dtype=pl.Int64)
    if _has_partition(rank) and rows.height:
        own = _exclusive_by_row(rank, 1, rows.height)
        kernels = _exclusive_by_row(rank, 0, rank.tables.kernels.height)
        exposed = own if own.count() else kernels.gather(rows["kernel"])
    return (
        rows.select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("id"), "start_ns", "end_ns", "bytes",
            pl.col("name", "op_type", "group").cast(pl.String), ns=pl.col("end_ns") - pl.col("start_ns"),
        )
        .with_columns(steps_of_tasks(rank.tables, rows), exposed_ns=exposed, late_rank=pl.lit(None, pl.Int64))
        .join(wait, left_on="id", right_on="collective", how="left", maintain_order="left")
    )  # fmt: skip


def _memory(rank: RankTables) -> pl.DataFrame:
    events = rank.tables.memory_events.select(
        "time_ns", "device_type", "device", "component", "total_allocated", "total_reserved", "total_active"
    )
    if not events.height:
        known = ("device_type", "device", "component")
        events = pl.concat(
            rank.tables.allocations.select(pl.col(time).alias("time_ns"), *known, *(
                pl.col(f"{side}_total_{what}").alias(f"total_{what}") for what in ("allocated", "reserved", "active")
            ))
            for time, side in (("start_ns", "alloc"), ("release_ns", "release"))
        ).drop_nulls("time_ns").sort("time_ns")  # fmt: skip
    step = rank.tables.steps["step"].gather(step_of(events["time_ns"], rank.tables.steps)).alias("step")
    by = ["step", "device_type", "device", "component"]
    return (
        events.with_columns(step, pl.col("device_type", "component").cast(pl.String))
        .group_by(by)
        .agg(
            *(pl.col(f"total_{what}").max().alias(f"peak_{what}") for what in ("allocated", "reserved", "active")), events=pl.len()
        )
        .sort(by, nulls_last=True)
    )


WORK_VIEWS = (
    View(
        V_KERNELS,
        per_rank(_kernels),
        "SELECT name, count(*) AS calls, sum(exclusive_ns) / 1e6 AS ms, max(launch_delay_ns) AS delay FROM v_kernels "
        "WHERE kind = 'compute' GROUP BY name ORDER BY ms DESC LIMIT 20",
    ),
    View(
        V_OPS,
        per_rank(_ops),
        "SELECT name, sum(host_self_ns) / 1e6 AS host_ms, sum(device_self_ns) / 1e6 AS device_ms FROM v_ops "
        "GROUP BY name ORDER BY host_ms DESC LIMIT 20",
    ),
    View(
        V_MODULES,
        per_rank(_modules),
        "SELECT path, calls, device_total_ns / 1e6 AS ms FROM v_modules WHERE depth <= 2 ORDER BY ms DESC",
    ),
    View(
        V_COLLECTIVES,
        _collectives,
        "SELECT rank, name, ns / 1e6 AS ms, wait_ns / 1e6 AS wait_ms, late_rank FROM v_collectives ORDER BY wait_ms DESC LIMIT 20",
    ),
    View(
        V_MEMORY_STEPS,
        per_rank(_memory),
        "SELECT rank, step, component, peak_allocated / 1048576 AS mib FROM v_memory_steps ORDER BY mib DESC",
    ),
)
