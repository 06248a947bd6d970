# SPDX-License-Identifier: Apache-2.0
"""What a rank did when, from its digest: work by cause and waiting between the issues of its calls; a pipeline over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.analysis.partition.spans import Ints
from stepscope.cluster.clocks import Clocks
from stepscope.cluster.digest import Digests
from stepscope.tables.cluster import CAUSES

WAIT = "wait"
KINDS = (*CAUSES, WAIT)
SEGMENTS = {"rank": pl.Int64, "step": pl.Int64, "index": pl.Int64, "kind": pl.Int8, "start_ns": pl.Int64, "end_ns": pl.Int64}


def segments(digests: Digests) -> pl.DataFrame:
    """Pieces of every rank's time on its own clock, sorted by rank and start; `kind` is a place in `KINDS`.

    The digest keeps how long each cause lasted before an issue, not each of its spans: causes follow each other in the order of
    `CAUSES`. Where the rank waited inside is known.
    """
    bounds = digests["cluster_steps"].select("rank", "step", begun="start_ns", ended="end_ns")
    rows = digests["cluster_calls"].join(bounds, on=["rank", "step"], nulls_equal=True).sort("rank", "begun", "index")
    if not rows.height:
        return pl.DataFrame(schema=SEGMENTS)
    work = rows.select([f"w_{cause}" for cause in CAUSES]).to_numpy().astype(np.int64)
    first = (rows["index"] == 0).to_numpy()
    border = rows.select(pl.coalesce("issue_ns", "ended")).to_series().to_numpy()
    left = np.where(first, rows["begun"].to_numpy(), np.concatenate(([0], border[:-1])))
    total = work.sum(1)
    waited = np.maximum(border - left - total, 0)
    before = np.concatenate(([0], rows["before_stop_ns"].fill_null(0).to_numpy()[:-1]))
    late = rows["late"].is_not_null().to_numpy()
    begin = np.where(late, border - rows["after_ns"].fill_null(0).to_numpy() - waited, left + np.where(first, 0, before))
    begin = np.clip(begin, left, np.maximum(border - waited, left))
    # Work before the wait and after it, each cut into its causes in proportion.
    share = np.divide(begin - left, total, out=np.zeros(len(total)), where=total > 0).clip(0, 1)
    early = np.round(work * share[:, None]).astype(np.int64)
    parts = np.concatenate((early, waited[:, None], work - early), axis=1)
    ends = left[:, None] + np.cumsum(parts, axis=1)
    kinds = np.tile(np.array([*range(len(CAUSES)), len(CAUSES), *range(len(CAUSES))], dtype=np.int8), (len(total), 1))
    keep = parts > 0
    row = np.nonzero(keep)[0]
    return pl.DataFrame(
        {
            **{name: rows[name].gather(row).cast(SEGMENTS[name]) for name in ("rank", "step", "index")},
            "kind": kinds[keep],
            "start_ns": (ends - parts)[keep],
            "end_ns": ends[keep],
        }
    )


def aligned(frame: pl.DataFrame, clocks: Clocks, columns: Sequence[str] = ("start_ns", "end_ns")) -> pl.DataFrame:
    """Rows of ranks whose clock is known, with their times on the clock of the reference rank."""
    parts = []
    for place, rank in enumerate(clocks.ranks):
        if not clocks.reason[place]:
            own = frame.filter(pl.col("rank") == rank)
            parts.append(own.with_columns(pl.Series(name, clocks.to_reference(place, own[name].to_numpy())) for name in columns))
    return pl.concat(parts) if parts else frame.clear()


@dataclass(frozen=True)
class PipelineStep:
    """One step of a pipeline.

    Attributes:
        spans: stage, kind (forward, backward, both, send, recv, bubble, other), micro (null when unknown), start_ns, end_ns, on the
            aligned clock.
        ranks: the rank that stands for each stage.
        idle: share of the step in which each stage did not compute, whatever it waited for or moved; compares with `ideal`.
        bubble: share of the step that each stage waited in point-to-point calls.
        micro: micro-batches; None when they cannot be counted.
        ideal: share in which stages do not compute in 1F1B that moves nothing, (p - 1) / (m + p - 1); None for other schedules.
    """

    spans: pl.DataFrame
    ranks: list[int]
    idle: list[float]
    bubble: list[float]
    micro: int | None
    ideal: float | None


def pipeline_step(
    digests: Digests, pieces: pl.DataFrame, clocks: Clocks, stage: dict[int, int], step: int, chosen: Sequence[int] = ()
) -> PipelineStep:
    """Forward, backward, sends, receives and bubbles of each stage in one step.

    Args:
        pieces: of the step, as `segments` gives them.
        chosen: ranks to stand for their stage; else the one in the middle by its work.
    """
    calls = digests["cluster_calls"].filter((pl.col("step") == step) & pl.col("rank").is_in(list(stage)))
    steps = digests["cluster_steps"].filter((pl.col("step") == step) & pl.col("rank").is_in(list(stage)))
    spent = calls.group_by("rank").agg(pl.sum_horizontal([pl.col(f"w_{cause}").sum() for cause in CAUSES]).alias("work"))
    work = dict(spent.iter_rows())
    count = max(stage.values()) + 1
    ranks: list[int] = []
    for number in range(count):
        own = sorted((rank for rank in work if stage[rank] == number), key=lambda rank: (work[rank], rank))
        named = [rank for rank in chosen if stage.get(rank) == number]
        ranks += named[:1] or own[len(own) // 2 : len(own) // 2 + 1]
    known = {rank for rank, reason in zip(clocks.ranks, clocks.reason, strict=True) if not reason}
    length = (pl.col("end_ns") - pl.col("start_ns")).clip(1)
    idle = 1 - pl.col("computing_ns").fill_null(0) / length
    shares = steps.select("rank", idle.clip(0, 1).alias("idle"), bubble=pl.col("bubble_ns").fill_null(0) / length)
    of_rank = {rank: (idle, bubble) for rank, idle, bubble in shares.iter_rows()}
    ranks = [rank for rank in ranks if rank in known and rank in of_rank]
    parts = [
        _stage_spans(calls.filter(pl.col("rank") == rank).sort("index"), pieces.filter(pl.col("rank") == rank), stage, rank)
        for rank in ranks
    ]
    schema = {"rank": pl.Int64, "stage": pl.Int64, "kind": pl.String, "micro": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    spans = aligned(pl.concat([pl.DataFrame(schema=schema), *parts]), clocks).sort("stage", "start_ns")
    pairs = calls.filter(pl.col("op") == "send").select("rank", "peer").drop_nulls()
    moves = [(stage[rank], stage[peer]) for rank, peer in pairs.iter_rows() if peer in stage]
    wraps = count > 2 and any(abs(one - other) == count - 1 for one, other in moves)
    ahead = calls.filter((pl.col("op") == "send") & pl.col("rank").is_in(ranks[:1]))
    micro = ahead.height or None
    ideal = (count - 1) / (micro + count - 1) if micro and not wraps and count > 1 else None
    idles, bubbles = ([of_rank[rank][place] for rank in ranks] for place in (0, 1))
    return PipelineStep(spans, ranks, idles, bubbles, None if wraps else micro, ideal)


def _stage_spans(calls: pl.DataFrame, pieces: pl.DataFrame, stage: dict[int, int], rank: int) -> pl.DataFrame:
    """Spans of one rank: its work between point-to-point calls, told by where these go, the calls, and waiting for them."""
    own = stage[rank]
    p2p = calls.filter(pl.col("op").is_in(["send", "recv"]) & pl.col("peer").is_not_null())
    p2p = p2p.filter(pl.col("peer").is_in(list(stage)))
    index, ops = p2p["index"].to_numpy(), p2p["op"].to_list()
    ahead = [stage[peer] > own for peer in p2p["peer"].to_list()]
    said = [("forward" if up == (op == "send") else "backward") for op, up in zip(ops, ahead, strict=True)]
    busy = pieces.filter(pl.col("kind") != KINDS.index(WAIT))
    place = np.searchsorted(index, busy["index"].to_numpy(), side="left") if len(index) else np.zeros(busy.height, dtype=np.int64)
    kinds = [_way(said, ops, number) for number in range(len(ops) + 1)]
    micro = _turns(kinds)
    work = (
        busy.with_columns(part=pl.Series(place, dtype=pl.Int64))
        .group_by("part")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    )
    parts = work["part"].to_list()
    rows = [
        (kinds[part], micro[part], start, end) for part, start, end in zip(parts, work["start_ns"], work["end_ns"], strict=True)
    ]
    rows += [(op, None, start, end) for op, start, end in p2p.select("op", "start_ns", "end_ns").iter_rows()]
    waiting = pieces.filter(pl.col("kind") == KINDS.index(WAIT))
    # A wait belongs to the row before the issue that it precedes.
    for_p2p = np.isin(waiting["index"].to_numpy() - 1, index) if len(index) else np.zeros(waiting.height, dtype=np.bool_)
    held = waiting.filter(pl.Series(for_p2p, dtype=pl.Boolean)).select("start_ns", "end_ns")
    rows += [("bubble", None, start, end) for start, end in held.iter_rows()]
    frame = pl.DataFrame(
        rows, schema={"kind": pl.String, "micro": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row"
    )
    return frame.select(pl.lit(rank, pl.Int64).alias("rank"), pl.lit(own, pl.Int64).alias("stage"), pl.all())


def _way(said: Sequence[str], ops: Sequence[str], number: int) -> str:
    """What lies between two point-to-point calls: what the one before brought, and what the one after takes away."""
    came = said[number - 1] if number and ops[number - 1] == "recv" else None
    goes = said[number] if number < len(ops) and ops[number] == "send" else None
    if came and goes:
        return came if came == goes else "both"
    return came or goes or "other"


def _turns(kinds: Sequence[str]) -> list[int | None]:
    """Micro-batch of each part: forward and backward ones are counted apart, those that are both count for each."""
    seen = {"forward": 0, "backward": 0}
    result: list[int | None] = []
    for kind in kinds:
        result.append(seen["backward"] if kind == "both" else seen.get(kind))
        for one in ("forward", "backward"):
            seen[one] += kind in (one, "both")
    return result


def shared_calls(digests: Digests, clocks: Clocks, rows: pl.DataFrame) -> pl.DataFrame:
    """Calls on the aligned clock, with the number that the same call has on all ranks."""
    calls = digests["cluster_calls"].drop_nulls(["op", "start_ns"])
    numbers = rows.select("rank", "step", "index", "call", "gid")
    joined = calls.join(numbers, on=["rank", "step", "index"], how="left", nulls_equal=True)
    return aligned(
        joined.select("rank", "step", "index", "call", "gid", "op", "peer", "bytes", "wait_ns", "start_ns", "end_ns"), clocks
    )


def binned(start: Ints, end: Ints, kind: Ints, low: int, high: int, pixels: int, kinds: int) -> tuple[Ints, Ints, Ints]:
    """Pieces of one rank as at most `pixels` spans: the kind that lasts longest in each bin, neighbours of one kind joined."""
    width = max((high - low) / pixels, 1.0)
    first = np.clip(((start - low) / width).astype(np.int64), 0, pixels - 1)
    last = np.clip(((end - 1 - low) / width).astype(np.int64), 0, pixels - 1)
    spans = last - first + 1
    piece = np.repeat(np.arange(len(start)), spans)
    bin_of = np.repeat(first, spans) + (np.arange(spans.sum()) - np.repeat(np.cumsum(spans) - spans, spans))
    begun = np.maximum(start[piece], low + bin_of * width)
    ended = np.minimum(end[piece], low + (bin_of + 1) * width)
    spent = np.bincount(bin_of * kinds + kind[piece], np.maximum(ended - begun, 0.0), pixels * kinds).reshape(pixels, kinds)
    best = np.where(spent.sum(1) > 0, spent.argmax(1), -1)
    change = np.flatnonzero(np.diff(best, prepend=-2))
    until = np.append(change[1:], pixels)
    shown = best[change] >= 0
    edges = (low + np.arange(pixels + 1) * width).astype(np.int64)
    return edges[change[shown]], edges[until[shown]], best[change[shown]].astype(np.int64)
