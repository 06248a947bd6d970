# SPDX-License-Identifier: Apache-2.0
"""Where the time of each step went: the exact partition, its gaps, its tasks, and what the end of the run depended on."""

from __future__ import annotations

import polars as pl

from stepscope.analysis.partition.model import FROM
from stepscope.analysis.replay import critical_path
from stepscope.query.views.columns import (
    BUSY,
    HOST,
    IDLE,
    V_CRITICAL_PATH,
    V_EXCLUSIVE,
    V_GAPS,
    V_PARTS,
    V_STEPS,
    plain,
)
from stepscope.query.views.view import RankTables, View, name_of_rows, per_rank


def _steps(rank: RankTables) -> pl.DataFrame:
    windows, borders = rank.case.parts.windows, rank.case.model.windows
    parts = [(pl.col(name) / 1e6).alias(plain(name, "ms")) for name in ("total", *rank.case.parts.parts)]
    absent = [part for part in (*BUSY, *IDLE, *HOST) if part not in windows.columns]
    times = pl.Series("start_ns", borders[:-1]), pl.Series("end_ns", borders[1:])
    return windows.select("step", *times, *parts, *(pl.lit(0.0).alias(plain(part, "ms")) for part in absent))


def _parts(rank: RankTables) -> pl.DataFrame:
    windows = rank.case.parts.windows
    long = windows.unpivot(rank.case.parts.parts, index=["step", "total"], variable_name="part", value_name="ns")
    return long.filter(pl.col("ns") > 0).select("step", "part", "ns", share=pl.col("ns") / pl.col("total"))


def _step_of(rank: RankTables, window: pl.Series) -> pl.Series:
    steps = pl.Series("step", rank.case.model.steps, dtype=pl.Int64)
    return steps.gather(window.set(~window.is_between(0, steps.len() - 1), None)) if steps.len() else window.clear(window.len())


def _with_task(rank: RankTables, frame: pl.DataFrame) -> pl.DataFrame:
    """The columns table, row, name and op of the task that `task` numbers."""
    tasks = rank.case.model.tasks
    table, row, op = (tasks[name].gather(frame["task"]) for name in ("table", "row", "op"))
    words = table.replace_strict(dict(enumerate(FROM)), return_dtype=pl.String)
    return frame.with_columns(table=words, row=row, name=name_of_rows(rank.tables, table, row), op=op)


def _gaps(rank: RankTables) -> pl.DataFrame:
    gaps = _with_task(rank, rank.case.parts.gaps)
    idle = [pl.col(part).alias(plain(part, "ns")) if part in gaps.columns else pl.lit(0).alias(plain(part, "ns")) for part in IDLE]
    gaps = gaps.with_columns(
        _step_of(rank, gaps["window"]), op_name=rank.tables.ops["name"].gather(gaps["op"]), ns=pl.col("end_ns") - pl.col("start_ns")
    )
    return gaps.select("step", "start_ns", "end_ns", "ns", "table", "row", "name", "op", "op_name", "tid", *idle)


def _exclusive(rank: RankTables) -> pl.DataFrame:
    rows = _with_task(rank, rank.case.exclusive) if rank.case.model.device is not None else rank.case.exclusive.clear()
    if not rows.height:
        return V_EXCLUSIVE.empty()
    part = pl.col("part").replace_strict(dict(enumerate(BUSY)), return_dtype=pl.String)
    return rows.with_columns(_step_of(rank, rows["window"])).select("table", "row", "step", part, "ns")


def _path(rank: RankTables) -> pl.DataFrame:
    schedule = rank.case.schedule if rank.case.has_device else None
    if schedule is None:
        return V_CRITICAL_PATH.empty()
    pieces = _with_task(rank, critical_path(schedule))
    window = pl.Series(rank.case.model.window_of(pieces["start_ns"].to_numpy()))
    return pieces.with_columns(_step_of(rank, window), ns=pl.col("end_ns") - pl.col("start_ns")).rename({"where": "kind"})


STEP_VIEWS = (
    View(V_STEPS, per_rank(_steps), "SELECT rank, step, total_ms, computing_ms, idle_data_ms FROM v_steps ORDER BY total_ms DESC"),
    View(V_PARTS, per_rank(_parts), "SELECT part, sum(ns) / 1e6 AS ms FROM v_parts GROUP BY part ORDER BY ms DESC"),
    View(V_GAPS, per_rank(_gaps), "SELECT ns, op_name, name, start_ns FROM v_gaps ORDER BY ns DESC LIMIT 10"),
    View(
        V_EXCLUSIVE,
        per_rank(_exclusive),
        "SELECT k.op_type, sum(e.ns) / 1e6 AS ms FROM v_exclusive e JOIN kernels k ON e.row = k.id AND e.rank = k.rank "
        "WHERE e.table = 'kernels' GROUP BY k.op_type ORDER BY ms DESC",
    ),
    View(
        V_CRITICAL_PATH,
        per_rank(_path),
        "SELECT kind, name, sum(ns) / 1e6 AS ms FROM v_critical_path GROUP BY kind, name ORDER BY ms DESC",
    ),
)
