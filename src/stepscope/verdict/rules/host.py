# SPDX-License-Identifier: Apache-2.0
"""Rules about the host: the device idles because of what issues its work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from stepscope.analysis.link.op_tree import child_sums, parents
from stepscope.analysis.partition import names
from stepscope.analysis.partition.spans import spans_of
from stepscope.analysis.source_lines import LIBRARY
from stepscope.verdict.case import Case, Draft
from stepscope.verdict.finding import CannotTell, Place

PROFILER = r"profiler|stepscope"  # frames of the recording itself


def sync_stall(case: Case) -> Iterator[Draft]:
    schedule = case.need_replay()
    case.need_api()
    effective = (schedule.target >= 0) & ~schedule.waits["full"].to_numpy()
    per_step = int(effective.sum()) / case.count
    if per_step <= case.limit("sync-stall", "waits_per_step"):
        return
    blocking = per_step * case.count >= case.limit("launch-blocking", "waits_per_launch") * schedule.tasks.height
    # However early the host issues, the device has to compute: only what else fills the step can go.
    replayed = schedule.saved(without_waits=effective)
    saved = min(replayed, case.parts.total_ns - case.parts.sum_ns("computing"))
    waits = case.named_waits.filter(pl.Series(effective)).with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    whole = int(waits["ns"].sum())
    shares = waits["ns"].to_numpy() * (saved / whole if whole else 0.0)
    calls = waits.sort("ns", descending=True)
    yield Draft(
        "launch-blocking" if blocking else "sync-stall",
        saved,
        _replay_confidence(case),
        evidence=case.rows_of("api_calls", calls["call"].drop_nulls()) or case.rows_of("ops", calls["op"].drop_nulls()),
        where=case.places(waits["op"], shares),
        params={"waits": round(per_step), "ratio": per_step * case.count / schedule.tasks.height, **_after(case, calls)},
        variant="empty-cache" if _clears_cache(case, calls) else "",
        explains=("sync-stall",) if blocking else (),
        without_waits=effective,
        replayed_ns=replayed,
    )


def _after(case: Case, waits: pl.DataFrame) -> dict[str, str]:
    """What makes most of the waits: the name of the operator, else of the call."""
    named = case.tables.ops["name"].cast(pl.String)[waits["op"].drop_nulls()] if waits["op"].count() else None
    if named is None:
        named = case.tables.api_calls["name"].cast(pl.String)[waits["call"].drop_nulls()]
    common = named.value_counts(sort=True)
    return {"caller": str(common[named.name][0]) if common.height else ""}


def _clears_cache(case: Case, waits: pl.DataFrame) -> bool:
    """Whether most waits are followed by a release of device memory: `empty_cache` waits for the device first."""
    rows = waits["call"].drop_nulls()
    if not rows.len():
        return False
    calls = case.tables.api_calls
    following = calls["name"].cast(pl.String)[(rows + 1).clip(0, calls.height - 1)]
    return bool((following.str.contains("(?i)Free").mean() or 0.0) >= 0.5)


def _replay_confidence(case: Case) -> str:
    schedule = case.schedule
    return "high" if schedule is not None and schedule.error <= case.limit("general", "replay_error") else "medium"


def _layer(case: Case, rule: str, *layers: str, confidence: str = "high", **params: object) -> Draft:
    """A finding about layers of the host: saved by replay without them."""
    return Draft(
        rule,
        case.saved_without_layers(*layers, over_idle=case.limit("data-wait", "over_idle")),
        confidence,
        evidence=case.longest_gaps(*layers),
        where=case.gap_places(*layers),
        params={"idle_ms": case.idle_ns(*layers) / case.count / 1e6, **params},
        host_layers=layers,
    )


def data_wait(case: Case) -> Iterator[Draft]:
    case.need_replay()
    yield _layer(case, "data-wait", "data")


def gc_pause(case: Case) -> Iterator[Draft]:
    case.need_replay()
    if not case.tables.gc_pauses.height and case.facts.gc_threshold is None:
        raise CannotTell("gc")
    if case.tables.gc_pauses.height:
        yield _layer(case, "gc-pause", "gc", pauses=case.tables.gc_pauses.height, steps=case.count)


def conjectured_gc(case: Case) -> Iterator[Draft]:
    case.need_replay()
    case.need_api()
    if case.tables.gc_pauses.height or case.facts.gc_threshold is not None:
        return
    gaps = case.parts.gaps.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    layers = [f"idle.{layer}" for layer in ("python", "data", "checkpoint", "operator") if f"idle.{layer}" in gaps.columns]
    gaps = gaps.with_columns(named=pl.sum_horizontal(layers) if layers else pl.lit(0))
    gaps = gaps.filter(
        (pl.col("ns") >= case.limit("conjectured-gc", "gap_ms") * 1e6) & pl.col("tid").is_not_null() & pl.col("task").is_not_null()
    )
    for start, end, tid, task, named in gaps.select("start_ns", "end_ns", "tid", "task", "named").iter_rows():
        calls = case.tables.api_calls.filter((pl.col("tid") == tid) & (pl.col("start_ns") < end) & (pl.col("end_ns") > start))
        busy = spans_of(calls).within(np.array([start]), np.array([end]))[0]
        few = calls.height / ((end - start) / 1000) < case.limit("conjectured-gc", "calls_per_us")
        if few and busy < case.limit("conjectured-gc", "call_share") * (end - start) and named < 0.1 * (end - start):
            yield Draft(
                "conjectured-gc",
                end - start,
                "low",
                "parts",
                params={"gap_ms": (end - start) / 1e6},
                evidence=(case.gap_evidence(start, end, task),),
            )
            return


def host_dispatch(case: Case) -> Iterator[Draft]:
    schedule = case.need_replay()
    layers = ("operator", "api")
    queue = case.idle_ns("queue")
    alone = queue > case.idle_ns(*layers)  # then the queue's own thread is the cause
    idle = case.idle_ns(*layers) + (0 if alone else queue)
    if idle:
        saved = schedule.saved(host=schedule.without_layers(*layers)) + (0 if alone else queue)
        yield Draft(
            "host-dispatch",
            min(saved, idle),
            "medium",
            evidence=case.longest_gaps(*layers, "queue"),
            where=case.gap_places(*layers, "queue"),
            params={"idle_ms": idle / case.count / 1e6, "tasks": round(schedule.tasks.height / case.count)},
            host_layers=layers,
        )
    if alone and queue >= case.limit("queue-thread", "share") * case.total_ns:
        yield Draft(
            "queue-thread",
            queue,
            "medium",
            "parts",
            evidence=case.longest_gaps("queue"),
            params={"idle_ms": queue / case.count / 1e6},
        )


def host_python(case: Case) -> Iterator[Draft]:
    case.need_replay()
    if not case.tables.ops.height:
        raise CannotTell("ops")  # what passes between runtime calls may be anything
    draft = _layer(case, "host-python", "python", "other", confidence="medium" if case.tables.python_calls.height else "low")
    frames = _frames_in_gaps(case)
    if not frames.height:
        yield draft
        return
    rate = draft.saved_ns / max(int(frames["ns"].sum()), 1)
    named = frames.group_by("name").agg(pl.col("ns").sum()).sort("ns", "name", descending=[True, False])
    places = tuple(
        Place(stack=name, saved_ns=ns * rate / case.count)
        for name, ns in named.head(int(case.limit("general", "places"))).select("name", "ns").iter_rows()
    )
    rows = frames.sort("ns", "row", descending=[True, False])["row"]
    evidence = (*draft.evidence, *case.rows_of("python_calls", rows, "longest frames"))
    params = {**draft.params, "frame": str(named["name"][0])}
    yield replace(draft, where=places, evidence=evidence, params=params, variant="frame")


def _issuing_tids(case: Case) -> list[int]:
    """Threads that issue tasks, that of the loop first; backward has one of its own."""
    tids = case.parts.gaps["tid"].drop_nulls().unique().sort().to_list()
    main = case.model.main_tid
    return [main, *(tid for tid in tids if tid != main)] if main is not None else tids


def _frames_in_gaps(case: Case) -> pl.DataFrame:
    """Frames of the threads that issue with their own time in gaps of the device in which they ran Python: row, name, ns."""
    calls = case.tables.python_calls.with_row_index("row").filter(pl.col("tid").is_in(_issuing_tids(case)))
    columns = [name for name in ("idle.python", "idle.other") if name in case.parts.gaps.columns]
    if not calls.height or not columns:
        return pl.DataFrame(schema={"row": pl.UInt32, "name": pl.String, "ns": pl.Int64})
    gaps = case.parts.gaps.filter(pl.sum_horizontal(columns) > 0)
    calls = calls.filter(~pl.Series(names.matches(calls["name"], PROFILER)))
    own_lines = calls.filter(~pl.Series(names.matches(calls["name"], LIBRARY)) & (calls["kind"] != "module").fill_null(True))
    calls = own_lines if own_lines.height else calls  # time in a library counts for the line that called it
    calls = calls.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    inside = np.zeros(calls.height, dtype=np.int64)
    for tid in calls["tid"].unique().to_list():
        rows = np.flatnonzero((calls["tid"] == tid).to_numpy())
        own_gaps = spans_of(gaps.filter(pl.col("tid") == tid))
        inside[rows] = own_gaps.within(calls["start_ns"].to_numpy()[rows], calls["end_ns"].to_numpy()[rows])
    own = inside - child_sums(parents(calls.select("pid", "tid", "start_ns", "end_ns")), inside)
    return calls.select("row", pl.col("name").cast(pl.String), ns=pl.Series(own, dtype=pl.Int64)).filter(pl.col("ns") > 0)


def allocator(case: Case) -> Iterator[Draft]:
    case.need_replay()
    draft = _layer(case, "allocator", "alloc", falls=_falls(case))
    if draft.saved_ns:
        yield draft
    falls = int(draft.params["falls"])
    least = max(case.limit("allocator", "least_falls"), case.limit("allocator", "falls_per_step") * case.count)
    if falls >= least and draft.saved_ns < case.limit("severity", "low") * case.total_ns:
        yield Draft("allocator", 0, "medium", "parts", severity="info", params=draft.params, variant="falls")


def _falls(case: Case) -> int:
    """How often the framework gave memory back to the device inside the windows; one component, whose totals belong together."""
    events = case.tables.memory_events
    events = events.filter(
        (pl.col("device_type") != "cpu")
        & (pl.col("component") == "PTA")
        & pl.col("total_reserved").is_not_null()
        & pl.col("time_ns").is_between(case.model.start_ns, case.model.end_ns)
    ).sort("time_ns", maintain_order=True)
    return int((events["total_reserved"].diff() < -case.limit("allocator", "fall_bytes")).sum())


def checkpoint(case: Case) -> Iterator[Draft]:
    case.need_replay()
    yield _layer(case, "checkpoint", "checkpoint")


def compiling(case: Case) -> Iterator[Draft]:
    case.need_replay()
    case.need_api()
    calls = case.tables.api_calls
    inside = pl.col("start_ns").is_between(case.model.start_ns, case.model.end_ns)
    mask = pl.Series(names.matches(calls["name"], names.COMPILE))
    count = calls.filter(mask & calls.select(inside).to_series()).height
    draft = _layer(case, "compile", "compile", calls=count)
    if draft.saved_ns or count > case.limit("compile", "calls"):
        yield draft


def host_contention(case: Case) -> Iterator[Draft]:
    case.need_device()
    busy = case.tables.counters.filter(pl.col("source").cast(pl.String).str.contains("(?i)cpu usage"))["value"]
    if not busy.len():
        raise CannotTell("host-cpu")
    ops = case.tables.ops.filter(pl.col("start_ns").is_between(case.model.start_ns, case.model.end_ns))
    lengths = ops.select(
        "name", ns=pl.col("end_ns") - pl.col("start_ns"), window=pl.Series(case.model.window_of(ops["start_ns"].to_numpy()))
    )
    lengths = lengths.with_columns(low=pl.col("ns").quantile(0.1).over("name")).filter(pl.col("low") > 0)
    steps = lengths.group_by("window").agg(ratio=pl.col("ns").sum() / pl.col("low").sum())
    slow = steps.filter(pl.col("ratio") >= case.limit("host-contention", "slower"))
    loaded = float(busy.mean() or 0.0)  # type: ignore[arg-type]
    if not steps.height or slow.height < case.limit("host-contention", "steps_share") * steps.height:
        return
    if loaded >= case.limit("host-contention", "cpu_busy"):
        factor = float(slow["ratio"].median())  # type: ignore[arg-type]
        saved = case.idle_ns("operator", "api", "python") * (1 - 1 / factor)
        yield Draft(
            "host-contention",
            saved,
            "low",
            "model",
            bound="upper",
            params={"slower": factor, "cpu": loaded},
            steps=case.window_numbers(slow["window"].to_list()),
        )


def profiler_cost(case: Case) -> Iterator[Draft]:
    case.need_replay()
    main = case.model.main_tid
    if main is None:
        return
    inside = (pl.col("tid") == main) & pl.col("start_ns").is_between(case.model.start_ns, case.model.end_ns)
    ops, frames = (case.tables[name].filter(inside).height for name in ("ops", "python_calls"))
    cost = ops * case.limit("profiler-cost", "op_ns") + frames * case.limit("profiler-cost", "frame_ns")
    if cost >= case.limit("profiler-cost", "share") * case.parts.total_ns:
        share = cost / case.parts.total_ns
        yield Draft(
            "profiler-cost",
            0,
            "low",
            "model",
            severity="info",
            params={"share": share, "ops": round(ops / case.count), "frames": round(frames / case.count)},
        )


def logging(case: Case) -> Iterator[Draft]:
    case.need_replay()
    if not case.tables.python_calls.height:
        raise CannotTell("stack")
    frames = case.tables.python_calls.with_row_index("row").filter(pl.col("tid").is_in(_issuing_tids(case)))
    frames = frames.filter(pl.Series(names.matches(frames["name"], names.LOGGING)))
    gaps = case.parts.gaps.drop_nulls("tid")
    # Forward hands over to backward's thread: while one logs, the other has nothing to issue.
    spent = int(spans_of(frames).within(gaps["start_ns"].to_numpy(), gaps["end_ns"].to_numpy()).sum())
    if spent:
        rows = frames.sort(pl.col("end_ns") - pl.col("start_ns"), descending=True)
        name = str(rows["name"][0])
        yield Draft(
            "logging",
            spent,
            "medium",
            "parts",
            evidence=case.rows_of("python_calls", rows["row"]),
            params={"frame": name},
            explains=("host-python",),
        )
