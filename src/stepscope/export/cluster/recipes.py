# SPDX-License-Identifier: Apache-2.0
"""Further tables of cluster_analysis.db by the rules of msprof-analyze's recipes, so that pages made for them show the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from stepscope.formats.cann.write.hash import text_hash
from stepscope.render.sqlite_table import DbColumn, DbTable

TOP_OPERATORS = 15
COMMON_MHZ, FREE_MHZ = 1800, 800
DIXON_MOST = 100  # more durations than this are judged by three standard deviations
# Critical values of Dixon's one-sided test at 99.5 %, for 3 to 100 values.
_DIXON = (
    0.994, 0.920, 0.823, 0.744, 0.680, 0.723, 0.676, 0.638, 0.707, 0.675, 0.649, 0.672, 0.649, 0.629, 0.611, 0.595, 0.580, 0.568,
    0.556, 0.545, 0.536, 0.526, 0.519, 0.510, 0.503, 0.496, 0.489, 0.484, 0.478, 0.473, 0.468, 0.463, 0.458, 0.454, 0.450, 0.446,
    0.442, 0.439, 0.435, 0.432, 0.429, 0.425, 0.423, 0.420, 0.417, 0.414, 0.412, 0.409, 0.407, 0.405, 0.402, 0.400, 0.398, 0.396,
    0.394, 0.392, 0.391, 0.388, 0.387, 0.385, 0.383, 0.382, 0.380, 0.379, 0.377, 0.376, 0.374, 0.372, 0.371, 0.370, 0.368, 0.368,
    0.366, 0.365, 0.364, 0.363, 0.361, 0.360, 0.359, 0.358, 0.356, 0.356, 0.355, 0.353, 0.352, 0.352, 0.351, 0.350, 0.349, 0.348,
    0.347, 0.346, 0.345, 0.344, 0.344, 0.343, 0.341, 0.341,
)  # fmt: skip
_STATISTICS = ("Count", "MeanNs", "StdNs", "MinNs", "Q1Ns", "MedianNs", "Q3Ns", "MaxNs", "SumNs")
_KINDS = {pl.String: "T", pl.Int64: "I", pl.Float64: "R"}

KERNEL_COLUMNS = {
    "Rank": pl.Int64, "OpName": pl.String, "OpType": pl.String, "TaskType": pl.String, "InputShapes": pl.String,
    "Duration": pl.Float64,
}  # fmt: skip
CALL_COLUMNS = {"Rank": pl.Int64, "OpName": pl.String, "OpType": pl.String, "Duration": pl.Float64, "GroupName": pl.String}
LAUNCHED_COLUMNS = {
    "row": pl.Int64, "rankId": pl.Int64, "groupName": pl.String, "opName": pl.String, "startNs": pl.Int64, "time": pl.Float64,
}  # fmt: skip
STEP_COLUMNS = {
    "rank": pl.Int64, "step": pl.Int64, "computation": pl.Float64, "communicationNotOverlapComputation": pl.Float64,
    "communicationOverlapComputation": pl.Float64, "communication": pl.Float64, "free": pl.Float64,
}  # fmt: skip
LENGTH_COLUMNS = {"rank": pl.Int64, "step": pl.Int64, "stepTime": pl.Float64}
STEP_CALL_COLUMNS = {"rank": pl.Int64, "group": pl.String, "name": pl.String, "time": pl.Float64, "step": pl.Int64}
TASK_COLUMNS = {"rank": pl.Int64, "start": pl.Int64, "end": pl.Int64, "memory": pl.Boolean, "step": pl.Int64}
EXPERT_COLUMNS = {"rank": pl.Int64, "epRanks": pl.String, "shapes": pl.String}
EXPERT_GROUP = "exp"
MOST_GROUPS = 20


@dataclass
class RecipeRows:
    """What the recipes are made of, all ranks.

    Attributes:
        kernels: compute tasks, columns of `KERNEL_COLUMNS`.
        calls: communication operators, columns of `CALL_COLUMNS`.
        launched: those whose launch is known, columns of `LAUNCHED_COLUMNS`; `row` counts from 0 for each rank, times are µs.
        frequencies: MHz of the cores by rank, rising.
        steps: times of steps as analysis.db has them, µs; columns of `STEP_COLUMNS`.
        lengths: of the steps on the host, µs; columns of `LENGTH_COLUMNS`.
        step_calls: calls whose launch is known, with the step of that; columns of `STEP_CALL_COLUMNS`.
        step_tasks: tasks and copies with their step, by start and end; columns of `TASK_COLUMNS`.
        experts: input shapes of grouped products; columns of `EXPERT_COLUMNS`.
    """

    kernels: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=KERNEL_COLUMNS))
    calls: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=CALL_COLUMNS))
    launched: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=LAUNCHED_COLUMNS))
    frequencies: dict[int, list[int]] = field(default_factory=dict)
    steps: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=STEP_COLUMNS))
    lengths: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=LENGTH_COLUMNS))
    step_calls: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=STEP_CALL_COLUMNS))
    step_tasks: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=TASK_COLUMNS))
    experts: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=EXPERT_COLUMNS))


def recipe_tables(rows: RecipeRows, names: Sequence[str]) -> dict[DbTable, pl.DataFrame]:
    """The tables of some recipes; those without rows are left out."""
    found: dict[str, pl.DataFrame] = {}
    for name in names:
        found |= RECIPES[name](rows)
    return {_declared(name, frame): frame for name, frame in found.items() if frame.height}


def _declared(name: str, frame: pl.DataFrame) -> DbTable:
    return DbTable(name, tuple(DbColumn(column, _KINDS[dtype.base_type()]) for column, dtype in frame.schema.items()))


def _described(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Statistics of durations by some columns; rows without a value there do not count."""
    value = pl.col("Duration")
    found = rows.drop_nulls(by).group_by(by, maintain_order=True).agg(
        value.count().cast(pl.Int64).alias("Count"),
        value.mean().alias("MeanNs"),
        value.std().alias("StdNs"),
        value.min().alias("MinNs"),
        *(
            value.quantile(share, interpolation="linear").alias(name)
            for name, share in (("Q1Ns", 0.25), ("MedianNs", 0.5), ("Q3Ns", 0.75))
        ),
        value.max().alias("MaxNs"),
        value.sum().alias("SumNs"),
    )  # fmt: skip
    return found.select(*by, *_STATISTICS).sort(by)


def _of_ranks(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    return _described(rows, ["Rank", *by]).select(*by, *_STATISTICS, "Rank")


def _compute_op_sum(rows: RecipeRows) -> dict[str, pl.DataFrame]:
    by_type, by_name = ["OpType", "TaskType"], ["OpName", "OpType", "TaskType", "InputShapes"]
    frames = {
        "ComputeOpAllRankStats": _described(rows.kernels, by_type),
        "ComputeOpPerRankStatsByOpType": _of_ranks(rows.kernels, by_type),
        "ComputeOpPerRankStatsByOpName": _of_ranks(rows.kernels, by_name),
    }
    return {name: frame.sort("SumNs", descending=True, maintain_order=True) for name, frame in frames.items()}


def _hccl_sum(rows: RecipeRows) -> dict[str, pl.DataFrame]:
    calls = rows.calls
    if not calls.height:
        return {}
    top = _described(calls, ["OpName"]).sort("MeanNs", descending=True, maintain_order=True).head(TOP_OPERATORS)
    extremes = calls.drop_nulls("OpName").group_by("OpName").agg(
        MinRank=pl.col("Rank").gather(pl.col("Duration").arg_min()).first(),
        MaxRank=pl.col("Rank").gather(pl.col("Duration").arg_max()).first(),
    )  # fmt: skip
    groups = calls.drop_nulls("GroupName").group_by("GroupName").agg(Ranks=pl.col("Rank").unique(maintain_order=True))
    groups = groups.sort("GroupName").with_columns(
        GroupId=pl.Series([str(text_hash(name))[-3:] for name in groups.sort("GroupName")["GroupName"]], dtype=pl.String),
        Ranks=pl.col("Ranks").cast(pl.List(pl.String)).list.join(";"),
    )
    return {
        "HcclAllRankStats": _described(calls, ["OpType"]),
        "HcclPerRankStats": _of_ranks(calls, ["OpType"]).sort("Rank", maintain_order=True),
        "HcclTopOpStats": top.join(extremes, on="OpName", how="left", maintain_order="left"),
        "HcclGroupNameMap": groups.select("GroupName", "GroupId", "Ranks").sort("GroupId", maintain_order=True),
    }


def _freq_analysis(rows: RecipeRows) -> dict[str, pl.DataFrame]:
    free, abnormal = [], []
    for rank, seen in sorted(rows.frequencies.items()):
        if seen == [FREE_MHZ, COMMON_MHZ]:
            free.append((rank, str(seen)))
        elif seen != [COMMON_MHZ]:
            abnormal.append((rank, str(seen)))
    schema = {"rankId": pl.Int64, "aicoreFrequency": pl.String}
    return {
        "FreeFrequencyRanks": pl.DataFrame(free, schema=schema, orient="row"),
        "AbnormalFrequencyRanks": pl.DataFrame(abnormal, schema=schema, orient="row"),
    }


def _slow_rank(rows: RecipeRows) -> dict[str, pl.DataFrame]:
    """Votes: the rank whose call of a name is outlying short came last, and the others waited for it."""
    calls = _comparable(rows.launched)
    votes: dict[int, int] = {}
    listed = []
    grouped = calls.group_by("groupName", "opName", maintain_order=True).agg("rankId", "time", "startNs")
    for group, name, ranks, times, starts in grouped.iter_rows():
        slow = outliers(times)
        if not slow:
            continue
        for place in slow:
            votes[ranks[place]] = votes.get(ranks[place], 0) + 1
        values = np.array(times)
        quarters = np.quantile(values, [0.25, 0.5, 0.75])
        listed.append(
            (
                ",".join(str(ranks[place]) for place in slow), name, group, min(starts[place] for place in slow), len(times),
                float(values.mean()), float(values.std(ddof=1)), float(values.min()), *map(float, quarters), float(values.max()),
                float(values.sum()),
            )
        )  # fmt: skip
    names = ["SlowRank", "OpName", "GroupName", "Timestamp", *_STATISTICS]
    types = [pl.String, pl.String, pl.String, pl.Int64, pl.Int64, *[pl.Float64] * 8]
    stats = pl.DataFrame(listed, schema=dict(zip(names, types, strict=True)), orient="row").sort("Timestamp", maintain_order=True)
    ranks = pl.DataFrame(list(votes.items()), schema={"rankId": pl.Int64, "slowAffectCount": pl.Int64}, orient="row")
    return {"SlowRank": ranks, "SlowOpStats": stats}


def _comparable(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls of groups in which every operator was seen equally often.

    With such a group msprof-analyze also drops the rows of other groups that have the same place in the rows of their rank.
    """
    calls = calls.filter(
        ~pl.col("opName").str.contains("send", literal=True) & ~pl.col("opName").str.contains("receive", literal=True)
    )
    counts = calls.group_by("groupName", "opName").len().group_by("groupName").agg(pl.col("len").n_unique())
    for group in counts.filter(pl.col("len") > 1)["groupName"].sort():
        places = calls.filter(pl.col("groupName") == group)["row"].unique()
        calls = calls.filter(~pl.col("row").is_in(places.implode()))
    return calls


def outliers(times: Sequence[float]) -> list[int]:
    """Places of durations that are too short to be chance: by Dixon's test, with many values by three standard deviations."""
    count = len(times)
    if count > DIXON_MOST:
        mean, spread = float(np.mean(times)), 3 * float(np.std(times))
        short = [place for place, time in enumerate(times) if time < mean - spread]
        least = min(range(count), key=times.__getitem__)
        return [*short, least] if max(times) > mean + spread and least not in short else short
    if count < 3 or len(set(times)) <= 3:
        return []
    order = sorted(times)
    near = 2 if count > 10 else 1
    far = -1 if count <= 7 else -2 if count <= 13 else -3
    whole = order[far] - order[0]
    reach = (order[near] - order[0]) / whole if whole else 0.0
    return [list(times).index(order[0])] if reach > _DIXON[count - 3] else []


def _cluster_time_summary(rows: RecipeRows) -> dict[str, pl.DataFrame]:
    """Where the time of each step went; the shortest of a call's ranks is its transfer, what the others took longer is waiting."""
    if not rows.steps.height or not rows.lengths.height or not rows.step_calls.height:
        return {}
    calls = rows.step_calls.drop_nulls(["group", "name", "step"])
    moved = pl.col("time").min().over("group", "name", "step")
    waits = (
        calls.with_columns(moved=moved)
        .group_by("rank", "step")
        .agg(
            communicationWaitStageTime=(pl.col("time") - pl.col("moved")).sum(),
            communicationTransmitStageTime=pl.col("moved").sum(),
        )
    )
    by = ["rank", "step"]
    merged = rows.lengths
    for other in (rows.steps, waits, _copies(rows.step_tasks)):
        merged = merged.join(other, on=by, how="full", coalesce=True)
    whole = pl.col("computation") + pl.col("communicationNotOverlapComputation") + pl.col("free")
    merged = merged.with_columns(pl.col("stepTime").fill_null(whole)).fill_null(0.0)
    if calls["rank"].n_unique() == 1:
        merged = merged.with_columns(communicationWaitStageTime=pl.lit(0.0), communicationTransmitStageTime=pl.lit(0.0))
    alone = "memoryNotOverlapComputationCommunication"
    merged = merged.with_columns(free=pl.col("free") - pl.col(alone)).sort(by)
    order = ("stepTime", *list(STEP_COLUMNS)[2:], "communicationWaitStageTime", "communicationTransmitStageTime", "memory", alone)
    return {"ClusterTimeSummary": merged.select(*by, *order)}


def _copies(tasks: pl.DataFrame) -> pl.DataFrame:
    """Time of copies in each step, and the part of it in which nothing else ran, µs."""
    found = []
    for (rank, step), several in tasks.drop_nulls("step").group_by("rank", "step", maintain_order=True):
        copies = several.filter("memory")
        if copies.height:
            alone = _alone(several["start"].to_list(), several["end"].to_list(), several["memory"].to_list())
            found.append((rank, step, float((copies["end"] - copies["start"]).sum()) / 1000, alone / 1000))
    names = ("rank", "step", "memory", "memoryNotOverlapComputationCommunication")
    return pl.DataFrame(found, schema=dict(zip(names, (pl.Int64, pl.Int64, pl.Float64, pl.Float64), strict=True)), orient="row")


def _alone(starts: list[int], ends: list[int], memory: list[bool]) -> int:
    """Time in which only a copy ran, of tasks by start and end, as msprof-analyze counts it."""
    total, begin, reach, copying = 0, starts[0], starts[0], False
    for start, end, copy in zip(starts, ends, memory, strict=True):
        if copying:
            total += max(min(reach, start) - begin, 0)
        if start > reach:
            begin, reach, copying = start, end, copy
        else:
            begin = reach if end > reach else end
            copying = copy if end > reach else copying
            reach = max(reach, end)
    return total + (reach - begin if copying else 0)


def _ep_load_balance(rows: RecipeRows) -> dict[str, pl.DataFrame]:
    """Tokens: the sum of first dimensions of all inputs of grouped products but the last two."""
    tokens = [_tokens(shapes) for shapes in rows.experts["shapes"]]
    known = rows.experts.with_columns(pl.Series("tokens", tokens, dtype=pl.Int64)).drop_nulls()
    summary = known.group_by("rank", "epRanks").agg(inputShapesSummary=pl.col("tokens").sum()).sort("rank", "epRanks")
    spread = pl.col("inputShapesSummary").max() - pl.col("inputShapesSummary").min()
    top = (
        summary.group_by("epRanks").agg(tokensDiff=spread).sort("epRanks").sort("tokensDiff", descending=True, maintain_order=True)
    )
    return {"EPTokensSummary": summary, "TopEPTokensInfo": top.head(MOST_GROUPS)}


def _tokens(shapes: str | None) -> int | None:
    parts = [part for part in (shapes or "").strip('"').split(";") if part]
    if len(parts) < 2:
        return None
    try:
        return sum(int(part.strip().split(",")[0]) for part in parts[:-2])
    except ValueError:
        return None


RECIPES: Mapping[str, Callable[[RecipeRows], dict[str, pl.DataFrame]]] = {
    "cluster_time_summary": _cluster_time_summary,
    "compute_op_sum": _compute_op_sum,
    "ep_load_balance": _ep_load_balance,
    "freq_analysis": _freq_analysis,
    "hccl_sum": _hccl_sum,
    "slow_rank": _slow_rank,
}
