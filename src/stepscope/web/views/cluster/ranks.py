# SPDX-License-Identifier: Apache-2.0
"""All ranks on one clock: calls, work and waiting of each, and the members of one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from stepscope.cluster.drawing import KINDS, aligned, binned
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem, missing
from stepscope.web.run_analysis import RunAnalysis

MOST_RANKS = 256
DEFAULT_RANKS = 64
MOST_PIXELS = 4000


def _span(run: RunAnalysis) -> tuple[int, int]:
    """First and last moment of all ranks on the aligned clock."""

    def find() -> tuple[int, int]:
        steps = aligned(run.analysis.digests["cluster_steps"].select("rank", "start_ns", "end_ns"), run.analysis.clocks)
        if not steps.height:
            raise missing("communication", "no rank of this run could be put on a common clock")
        return int(steps["start_ns"].min()), int(steps["end_ns"].max())  # type: ignore[arg-type]

    return run.once("span", find)


def timeline(run: RunAnalysis, query: Query) -> dict[str, Any]:
    """What some ranks did in a window, at most one span a pixel each."""
    clocks = run.analysis.clocks
    base, until = _span(run)
    low, high = query.window(until - base)
    high = max(min(high, until - base + 1), low + 1)
    pixels = query.number("pixels", 1000, least=1, most=MOST_PIXELS)
    places = {rank: place for place, rank in enumerate(clocks.ranks) if not clocks.reason[place]}
    chosen = query.numbers("ranks")
    ranks = [rank for rank in chosen if rank in places] if chosen is not None else list(places)[:DEFAULT_RANKS]
    ranks = ranks[:MOST_RANKS]
    ops: dict[str, int] = {}
    rows = []
    for rank in ranks:
        place = places[rank]
        own = run.once(f"aligned {rank}", lambda rank=rank: aligned(run.segments.filter(pl.col("rank") == rank), clocks))  # type: ignore[misc]
        calls = run.once(f"calls {rank}", lambda rank=rank: run.calls.filter(pl.col("rank") == rank))  # type: ignore[misc]
        worker, span = run.workers.get(rank, (None, None))
        rows.append(
            {
                "rank": rank, "worker": worker, "span": span, "offset_ns": round(float(clocks.offset_ns[place])),
                "sigma_ns": round(float(clocks.sigma_ns[place])), "work": _work(own, base, low, high, pixels),
                "calls": _calls(calls, base, low, high, pixels, ops),
            }
        )  # fmt: skip
    steps = run.analysis.digests["cluster_steps"].filter(pl.col("rank") == (ranks[0] if ranks else -1))
    steps = aligned(steps.select("rank", "step", "start_ns", "end_ns"), clocks)
    refused = [{"rank": rank, "reason": reason} for rank, reason in zip(clocks.ranks, clocks.reason, strict=True) if reason]
    return {
        "length_ns": until - base, "base_ns": str(base), "from": low, "to": high, "kinds": list(KINDS), "ops": list(ops),
        "ranks": rows, "all_ranks": list(places), "refused": refused,
        "steps": [{"step": step, "from": start - base, "to": end - base} for _, step, start, end in steps.iter_rows()],
    }  # fmt: skip


def _window(frame: pl.DataFrame, base: int, low: int, high: int) -> pl.DataFrame:
    return frame.filter((pl.col("end_ns") > base + low) & (pl.col("start_ns") < base + high))


def _work(frame: pl.DataFrame, base: int, low: int, high: int, pixels: int) -> dict[str, Any]:
    own = _window(frame, base, low, high)
    start, end = own["start_ns"].to_numpy() - base, own["end_ns"].to_numpy() - base
    kind = own["kind"].to_numpy().astype(np.int64)
    thinned = own.height > pixels
    if thinned:
        start, end, kind = binned(start, end, kind, low, high, pixels, len(KINDS))
    return {"start": start.tolist(), "end": end.tolist(), "kind": kind.tolist(), "thinned": thinned}


def _calls(frame: pl.DataFrame, base: int, low: int, high: int, pixels: int, ops: dict[str, int]) -> dict[str, Any]:
    own = _window(frame, base, low, high).sort("start_ns", "index")
    thinned = own.height > pixels
    if thinned:  # the longest of each pixel
        own = own.with_columns(pixel=(pl.col("start_ns") - base - low) * pixels // max(high - low, 1))
        own = own.sort("pixel", pl.col("start_ns") - pl.col("end_ns")).unique("pixel", keep="first", maintain_order=True)
    return {
        "start": (own["start_ns"] - base).to_list(), "end": (own["end_ns"] - base).to_list(), "call": own["call"].to_list(),
        "op": [ops.setdefault(op, len(ops)) for op in own["op"].to_list()], "bytes": own["bytes"].to_list(), "thinned": thinned,
    }  # fmt: skip


def call(run: RunAnalysis, query: Query) -> dict[str, Any]:
    """One call on all its members, who came last, and how long each was held up by it."""
    number = query.number("call", 0)
    rows = run.calls.filter(pl.col("call") == number).sort("rank")
    if not rows.height:
        raise Problem(404, "unknown_call", f"no call {number}", hint="take a number from cluster/timeline")
    base, _ = _span(run)
    matches = run.analysis.matches
    last = int(rows["start_ns"].arg_max() or 0)
    members = rows.select("rank", "step", "peer", "bytes", "wait_ns", start=pl.col("start_ns") - base, end=pl.col("end_ns") - base)
    return {
        "call": number, "op": rows["op"][0], "group": list(matches.groups[int(rows["gid"][0])].members),
        "group_name": matches.groups[int(rows["gid"][0])].name or None, "last": rows["rank"][last],
        "expected": int(matches.expected[number]), "members": members.to_dicts(),
    }  # fmt: skip
