# SPDX-License-Identifier: Apache-2.0
"""The Distributed view: computing and communication of all workers of a run (viewer.md 4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from stepscope.analysis.communication import stepped
from stepscope.analysis.steps import step_of
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, Shown
from stepscope.web.parameters import Query
from stepscope.web.problems import bad_parameter, missing
from stepscope.web.views.steps import npu_steps

COMPUTATION = ("Computation", "Overlapping", "Communication", "Other", "Bubble", "Preparing")
SYNCHRONIZING = ("Data Transfer Time", "Synchronizing Time", "Wait (other)", "Idle")


def overview(workers: Mapping[str, LoadedCapture], missing_workers: list[dict[str, Any]], query: Query) -> dict[str, Any]:
    """Both charts. `all` is the mean over the steps of a worker."""
    steps = sorted({step for opened in workers.values() for step in npu_steps(opened)["step"].drop_nulls().to_list()})
    step = query.text("step") or "all"
    if step != "all" and step not in map(str, steps):
        raise bad_parameter("step", f"all or one of {', '.join(map(str, steps[:50]))}")
    transfers = _gpu_transfers(workers) if any(not opened.is_npu for opened in workers.values()) else {}
    return {
        "steps": steps,
        "step": step,
        "workers": list(workers),
        "missing": missing_workers,
        "computation": {
            "title": "Computation/Communication Overview (us)",
            "series": list(COMPUTATION),
            "rows": [_computation(opened, step) for opened in workers.values()],
        },
        "synchronizing": {
            "title": "Synchronizing/Communication Overview (us)",
            "series": list(SYNCHRONIZING),
            "rows": [
                _synchronizing(opened, step) if opened.is_npu else _gpu_synchronizing(transfers.get(worker), step)
                for worker, opened in workers.items()
            ],
        },
    }


def _computation(opened: LoadedCapture, step: str) -> list[float] | None:
    frame = npu_steps(opened)
    if step != "all":
        frame = frame.filter(pl.col("step") == int(step))
    if not frame.height:
        return None
    values = frame.select(
        pl.col("Computing") - pl.col("Overlapped"), "Overlapped", "Communication(Not Overlapped)", "Free", "Bubble", "Preparing"
    )
    return [float(column.mean() or 0) for column in values.iter_columns()]  # type: ignore[arg-type]


def _synchronizing(opened: LoadedCapture, step: str) -> list[float] | None:
    """Sums over the operators of each step, in us; their sum is the elapse time."""
    times = opened.once("collective times", lambda: stepped(opened.tables, "collective_times"))
    if step != "all":
        times = times.filter(pl.col("step") == f"step{step}")
    if not times.height:
        return None
    sums = times.group_by("step").agg(pl.col("transit_ms", "sync_ms", "wait_ms", "idle_ms").fill_null(0.0).sum())
    values = sums.select("transit_ms", "sync_ms", pl.col("wait_ms") - pl.col("sync_ms"), "idle_ms")
    return [float(column.mean() or 0) * 1000 for column in values.iter_columns()]  # type: ignore[arg-type]


def _gpu_transfers(workers: Mapping[str, LoadedCapture]) -> dict[str, pl.DataFrame]:
    """Collectives of all workers: step, length, and the shortest among the workers, which is what moving the data took."""
    parts = []
    for worker, opened in workers.items():
        rows = opened.tables.collectives
        step = opened.tables.steps["step"].gather(step_of(rows["start_ns"], opened.tables.steps)).alias("step")
        key = [pl.col("op_type").cast(pl.String), pl.col("group").cast(pl.String)]
        length = pl.col("duration_ns").fill_null(pl.col("end_ns") - pl.col("start_ns")) / 1000.0
        listed = rows.select(*key, length.alias("length")).with_columns(step, worker=pl.lit(worker))
        parts.append(listed.with_columns(turn=pl.int_range(pl.len()).over("op_type", "group")))
    joined = pl.concat(parts)
    shortest = pl.col("length").min().over("op_type", "group", "turn")
    return {str(worker): part for (worker,), part in joined.with_columns(shortest=shortest).group_by("worker")}


def _gpu_synchronizing(rows: pl.DataFrame | None, step: str) -> list[float] | None:
    if rows is None or not rows.height:
        return None
    rows = rows.filter(pl.col("step") == int(step)) if step != "all" else rows
    if not rows.height:
        return None
    steps = max(1, rows["step"].drop_nulls().n_unique())
    moved, whole = float(rows["shortest"].sum()) / steps, float(rows["length"].sum()) / steps
    return [moved, whole - moved, 0.0, 0.0]


def operations(opened: LoadedCapture, query: Query) -> Listing:
    """Communication Operations Stats of one worker, by kind of operator."""
    step = query.optional("step")
    frame = _npu_operations(opened, step) if opened.is_npu else _gpu_operations(opened, step)
    if not frame.height and step is None:
        raise missing("communication", "no communication operators in this capture")
    frame = frame.with_columns((pl.col(key) / pl.col("calls")).alias(f"avg_{key}") for key in ("size", "elapse", "transit")).sort(
        "elapse", "name", descending=[True, False]
    )
    words = ("Transit Size (bytes)", "Elapse Time (us)", "Transit Time (us)")
    if not opened.is_npu:
        words = ("Size (bytes)", "Latency (us)", "Data Transfer Time (us)")
    total = ("Total ", "", "") if opened.is_npu else ("Total ", "Total ", "")
    columns = [Shown("name", "Name"), Shown("calls", "Calls", summed=True)]
    for key, word, first in zip(("size", "elapse", "transit"), words, total, strict=True):
        columns += [Shown(key, f"{first}{word}", summed=True), Shown(f"avg_{key}", f"Avg {word}")]
    return Listing(frame, tuple(columns), (("elapse", True),))


def _kind() -> pl.Expr:
    """Name of an operator without group, index and iteration: hcom_allReduce__271_0_1 is hcom_allReduce_."""
    text = pl.col("name").cast(pl.String)
    return text.str.replace(r"__[0-9_]+$", "_").alias("name")


def _npu_operations(opened: LoadedCapture, step: str | None) -> pl.DataFrame:
    tables = opened.tables
    times = stepped(tables, "collective_times")
    packets = stepped(tables, "collective_packets")
    if step is not None and step != "all":
        times, packets = (frame.filter(pl.col("step") == f"step{step}") for frame in (times, packets))
    # SDMA already holds HCCS, PCIE and SIO, and a MB is 10^6 bytes (outputs.md 9).
    moved = packets.filter(pl.col("transport").cast(pl.String).is_in(["RDMA", "SDMA"]))
    moved = moved.unique(["collective", "name", "group", "step", "transport"], keep="first")
    sizes = moved.group_by(_kind()).agg(size=(pl.col("transit_mb").sum() * 1e6).round())
    elapsed = times.group_by(_kind()).agg(
        pl.len().cast(pl.Int64).alias("calls"), elapse=pl.col("elapse_ms").sum() * 1000, transit=pl.col("transit_ms").sum() * 1000
    )
    return elapsed.join(sizes, on="name", how="left").with_columns(pl.col("size").fill_null(0.0))


def _gpu_operations(opened: LoadedCapture, step: str | None) -> pl.DataFrame:
    rows = opened.tables.collectives
    if step is not None and step != "all":
        numbers = opened.tables.steps["step"].gather(step_of(rows["start_ns"], opened.tables.steps))
        rows = rows.filter(numbers == int(step) if step.isdigit() else pl.lit(False))
    length = pl.col("duration_ns").fill_null(pl.col("end_ns") - pl.col("start_ns")).sum() / 1000.0
    return rows.group_by(pl.col("op_type").cast(pl.String).fill_null("?").alias("name")).agg(
        pl.len().cast(pl.Int64).alias("calls"), size=pl.col("bytes").sum().cast(pl.Float64), elapse=length, transit=length
    )


def slow(workers: Mapping[str, LoadedCapture]) -> dict[str, Any]:
    """Workers by how long they compute: the one that computes longest holds the others up."""
    means = {}
    for worker, opened in workers.items():
        values = _computation(opened, "all")
        if values is not None:
            means[worker] = (values, opened)
    if not means:
        return {"rows": []}
    fastest = min(means, key=lambda worker: means[worker][0][0] + means[worker][0][1])
    rows = []
    for worker, (values, opened) in means.items():
        behind = [value - other for value, other in zip(values, means[fastest][0], strict=True)]
        compute = behind[0] + behind[1]
        cause = (
            "long compute before communication"
            if compute > max(behind[2], behind[3], 0)
            else "slow link"
            if behind[2] > 0
            else "late start"
        )
        rows.append(
            {
                "worker": worker, "step_us": sum(values[:4]), "behind_us": compute, "cause": cause if compute > 0 else None,
                "operators": _differences(opened, means[fastest][1]) if worker != fastest else [],
            }
        )  # fmt: skip
    return {"rows": sorted(rows, key=lambda row: -float(row["behind_us"]))}


def _differences(opened: LoadedCapture, fastest: LoadedCapture) -> list[dict[str, Any]]:
    sides = [
        one.tables.kernels.filter(pl.col("kind") == "compute")
        .group_by(pl.coalesce("op_type", "name").cast(pl.String).alias("name"))
        .agg(us=(pl.col("end_ns") - pl.col("start_ns")).sum() / 1000.0)
        for one in (opened, fastest)
    ]
    joined = sides[0].join(sides[1], on="name", how="full", coalesce=True, suffix="_fastest").fill_null(0.0)
    ranked = joined.with_columns(difference_us=pl.col("us") - pl.col("us_fastest")).sort("difference_us", descending=True)
    return ranked.filter(pl.col("difference_us") > 0).head(5).select("name", "difference_us").to_dicts()
