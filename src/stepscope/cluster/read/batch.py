# SPDX-License-Identifier: Apache-2.0
"""Digests of a batch of ranks whose tasks are in one frame, with each query made once.

The ranks are laid one after the other on a clock of the batch, with a long gap after each, so that windows, waits and spans of
all of them are found in one pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from stepscope.analysis.partition.spans import Ints, Spans, join, minus, union
from stepscope.cluster.digest import SAME_NS, CallRows, Calls, Digests, call_rows, member_lists
from stepscope.cluster.read.from_tables import TOP_KERNELS, is_ranks
from stepscope.cluster.read.names import operator_names
from stepscope.formats.cann.write.hash import text_hash
from stepscope.tables.cluster import CAUSES, CLUSTER_TABLES
from stepscope.tables.schema import in_order

_GAP_NS = 1 << 42  # more than an hour: no task of one rank reaches into the next


@dataclass(frozen=True)
class Batch:
    """Tasks of some ranks.

    Attributes:
        ranks: rank by place.
        metadata: of the captures, by place.
        tasks: place, step, name, op_type, start_ns, end_ns, shapes, call (a communication operator), group; in the order of the
            places.
        preparing: ns before the first task, by place and step.
    """

    ranks: list[int]
    metadata: list[dict[str, Any]]
    tasks: pl.DataFrame
    preparing: Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class _Clock:
    """The clock of the batch.

    Attributes:
        shift: what is added to times of each rank.
        first: number of each rank's first window.
        windows: borders; after the last window of each rank there is one for the gap.
        place: rank of each window, -1 for gaps.
        step: of each window.
    """

    shift: Ints
    first: Ints
    count: Ints
    windows: Ints
    place: Ints
    step: Ints

    @property
    def start(self) -> Ints:
        return np.asarray(self.windows[self.first])

    @property
    def end(self) -> Ints:
        return np.asarray(self.windows[self.first + self.count])


def digests_of_batch(batch: Batch) -> list[Digests | None]:
    """The digest of each rank; None for those of which the general way says more."""
    clock = _clock(batch)
    work = batch.tasks.filter(pl.col("end_ns") > pl.col("start_ns"))
    place = work["place"].to_numpy()
    start, end = (work[name].to_numpy() + clock.shift[place] for name in ("start_ns", "end_ns"))
    is_call = work["call"].to_numpy()
    compute, communication = (
        union(
            np.clip(start[of], clock.start[place[of]], clock.end[place[of]]),
            np.clip(end[of], clock.start[place[of]], clock.end[place[of]]),
        )
        for of in (~is_call, is_call)
    )
    listed, calls = _calls(work, clock, place, start, end, is_call)
    rows = call_rows(calls, clock.windows, compute, {})
    if rows.residual_ns:
        return [None] * len(batch.ranks)
    known: dict[str, list[int]] = {}
    members = [_members(metadata, known) for metadata in batch.metadata]
    listed = _with_peers(batch, listed, members)
    of_compute = np.clip(start[~is_call], clock.start[place[~is_call]], clock.end[place[~is_call]] - 1)
    kernels = np.bincount(np.searchsorted(clock.windows, of_compute, side="right") - 1, minlength=len(clock.place))
    groups, lists = _group_frame(listed, members)
    frames = {
        "cluster_calls": _call_frame(clock, rows, listed),
        "cluster_steps": _step_frame(clock, rows, listed, compute, communication, kernels),
        "cluster_kernels": _kernel_frame(batch, clock),
        "cluster_groups": groups,
        "cluster_ranks": _rank_frame(batch, clock),
    }
    return _apart(batch, frames, lists)


def _apart(batch: Batch, frames: Mapping[str, pl.DataFrame], lists: pl.DataFrame) -> list[Digests | None]:
    ranks = pl.Series(batch.ranks, dtype=pl.Int64)
    parts: list[dict[str, pl.DataFrame]] = [{} for _ in batch.ranks]
    for name, frame in frames.items():
        table = CLUSTER_TABLES[name]
        frame = in_order(frame, ("place", *table.sorted_by[1:]))
        numbers = frame["place"]
        whole = table.arrange(frame.with_columns(rank=ranks.gather(numbers)))
        order = numbers.to_numpy()
        first = np.searchsorted(order, np.arange(len(batch.ranks) + 1))
        for place, part in enumerate(parts):
            part[name] = whole.slice(int(first[place]), int(first[place + 1] - first[place]))
    return [Digests({**part, "cluster_members": lists}) for part in parts]


def _clock(batch: Batch) -> _Clock:
    tasks = batch.tasks.select("place", "step", "start_ns", "end_ns")
    spans = tasks.group_by("place", "step").agg(first=pl.col("start_ns").min(), last=pl.col("end_ns").max())
    spans = spans.sort("place", "first", "step")
    following = pl.col("first").shift(-1).over("place", order_by=pl.int_range(pl.len()))
    spans = spans.with_columns(last=pl.min_horizontal("last", following - 1))
    preparing = [round(batch.preparing.get(key, 0.0)) for key in spans.select("place", "step").iter_rows()]
    spans = spans.with_columns(start=pl.col("first") - pl.Series(preparing, dtype=pl.Int64)).sort(
        "place", "start", maintain_order=True
    )
    place = spans["place"].to_numpy()
    count = np.bincount(place, minlength=len(batch.ranks))
    first = np.concatenate(([0], np.cumsum(count + 1)[:-1]))
    windows = np.zeros(int((count + 1).sum()), dtype=np.int64)
    own = np.arange(len(place)) + place  # a gap after the windows of each rank before
    windows[own] = spans["start"].to_numpy()
    windows[first + count] = spans.group_by("place").agg(pl.col("last").max()).sort("place")["last"].to_numpy()
    for at, number in zip(first, count, strict=True):
        windows[at : at + number + 1] = np.maximum.accumulate(windows[at : at + number + 1])
    begin, length = windows[first], windows[first + count] - windows[first]
    shift = np.concatenate(([0], np.cumsum(length + _GAP_NS)[:-1])) - begin
    of_window = np.repeat(np.arange(len(batch.ranks)), count + 1)
    step = np.zeros(len(windows), dtype=np.int64)
    step[own] = spans["step"].to_numpy()
    of_border = np.array(of_window)
    of_window[first + count] = -1
    return _Clock(shift, first, count, windows + shift[of_border], of_window[:-1], step[:-1])


def _calls(work: pl.DataFrame, clock: _Clock, place: Ints, start: Ints, end: Ints, is_call: Any) -> tuple[pl.DataFrame, Calls]:
    inside = is_call & (start >= clock.start[place]) & (start < clock.end[place])
    window = np.searchsorted(clock.windows, start[inside], side="right") - 1
    order = np.lexsort((np.arange(len(window)), start[inside], window))
    rows = work.filter(pl.Series(inside))[order] if len(order) else work.clear()
    start, end, window = start[inside][order], end[inside][order], window[order]
    # The earliest start of this and all later calls: one queued behind its lane starts after its successors.
    issue = np.minimum.accumulate(start[::-1])[::-1] if len(start) else start
    rows = rows.with_columns(
        operator_names(rows.select(pl.coalesce("op_type", "name")).to_series()).alias("op"),
        pl.col("group").fill_null("?"),
        pl.coalesce(pl.col("group"), pl.lit("?")).alias("lane"),
        pl.Series("issue_ns", issue - clock.shift[rows["place"].to_numpy()], dtype=pl.Int64),
    )
    return rows, Calls(issue.astype(np.int64), start, end, window.astype(np.int64))


Members = dict[str, tuple[list[int], str, str]]


@cache
def _hash(text: str) -> str:
    return str(text_hash(text))


def _members(metadata: Mapping[str, Any], known: dict[str, list[int]]) -> Members:
    """By key of a group: its ranks, what the program calls it, its full text.

    Args:
        known: lists of ranks of other captures by key: one object for equal ones, which are looked at once.
    """
    listed = metadata.get("parallel_group_info")
    found: Members = {}
    for key, entry in listed.items() if isinstance(listed, dict) else ():
        ranks: Any = entry.get("global_ranks") if isinstance(entry, dict) else None
        before = known.get(key)
        if before is not None and ranks == before:
            ranks = before
        elif is_ranks(ranks):
            known[key] = ranks
        else:
            continue
        found[key] = found[_hash(key)] = (ranks, str(entry.get("group_name") or ""), key)
    return found


def _with_peers(batch: Batch, calls: pl.DataFrame, members: Sequence[Members]) -> pl.DataFrame:
    p2p = calls.filter(pl.col("op").is_in(["send", "recv"])).select("place", "group").unique()
    pairs = []
    for place, group in p2p.iter_rows():
        ranks, own = members[place].get(group, ((), "", ""))[0], batch.ranks[place]
        if len(ranks) == 2 and own in ranks:
            other = ranks[0] if ranks[1] == own else ranks[1]
            pairs.append((place, group, other if other != own else None))
    known = pl.DataFrame(pairs, schema={"place": pl.Int64, "group": pl.String, "other": pl.Int64}, orient="row")
    calls = calls.join(known, on=["place", "group"], how="left", maintain_order="left").with_columns(
        peer=pl.when(pl.col("op").is_in(["send", "recv"])).then("other"), variable=pl.col("op").str.starts_with("alltoall")
    )
    ahead = pl.col("end_ns").cum_max().shift(1).over("place", "lane", order_by=pl.int_range(pl.len()))
    overlaps = (pl.col("start_ns") < ahead - SAME_NS).fill_null(False)
    shared = calls.filter(overlaps).select("place", "lane").unique().with_columns(shared=pl.lit(True))
    if not shared.height:
        return calls
    calls = calls.join(shared, on=["place", "lane"], how="left", maintain_order="left")
    finer = pl.concat_str("lane", "op", pl.col("peer").cast(pl.String).fill_null("-"), separator="/")
    return calls.with_columns(lane=pl.when("shared").then(finer).otherwise("lane"))


def _call_frame(clock: _Clock, rows: CallRows, calls: pl.DataFrame) -> pl.DataFrame:
    real = clock.place[rows.window] >= 0
    first = np.searchsorted(rows.window, np.arange(len(clock.place)))
    window = rows.window[real]
    number = pl.Series(rows.call[real], dtype=pl.Int64).replace(-1, None)
    late = np.where(rows.late >= 0, rows.late - first[rows.window], -1)[real]
    return pl.DataFrame(
        {
            **{
                name: calls[name].gather(number)
                for name in ("group", "op", "peer", "variable", "lane", "start_ns", "end_ns", "issue_ns")
            },
            "place": clock.place[window],
            "step": clock.step[window],
            "index": (np.arange(len(rows.call)) - first[rows.window])[real],
            "folded": np.where(rows.call[real] >= 0, 1, 0),
            "stop": rows.stop[real],
            "late": pl.Series(late, dtype=pl.Int64).replace(-1, None),
            "after_ns": rows.after[real],
            "before_stop_ns": rows.before_stop[real],
            "wait_ns": rows.waited[real],
            **{f"w_{cause}": rows.work[real, at] for at, cause in enumerate(CAUSES)},
        }
    )


def _step_frame(
    clock: _Clock, rows: CallRows, calls: pl.DataFrame, compute: Spans, communication: Spans, kernels: Ints
) -> pl.DataFrame:
    real = clock.place >= 0
    first, beyond = clock.windows[:-1][real], clock.windows[1:][real]
    p2p = calls["op"].is_in(["send", "recv", "sendrecv", "batchsendrecv"]).to_numpy() if calls.height else np.zeros(0, bool)
    own = rows.call >= 0
    waited = np.zeros(len(rows.call), dtype=np.int64)
    waited[own] = np.where(p2p[rows.call[own]], rows.waited[own], 0)
    shift = clock.shift[clock.place[real]]
    return pl.DataFrame(
        {
            "place": clock.place[real],
            "step": clock.step[real],
            "start_ns": first - shift,
            "end_ns": beyond - shift,
            "computing_ns": compute.within(first, beyond),
            "communication_ns": communication.within(first, beyond),
            "exposed_ns": minus(communication, compute).within(first, beyond),
            "wait_ns": rows.wait[real],
            "free_ns": beyond - first - join(compute, communication).within(first, beyond),
            "bubble_ns": np.bincount(rows.window, waited, len(clock.place)).astype(np.int64)[real],
            "kernels": kernels[real],
        }
    )


def _kernel_frame(batch: Batch, clock: _Clock) -> pl.DataFrame:
    tasks = batch.tasks.filter(~pl.col("call"))
    place = tasks["place"].to_numpy()
    start = tasks["start_ns"].to_numpy() + clock.shift[place]
    tasks = tasks.filter(pl.Series((start >= clock.start[place]) & (start < clock.end[place])))
    length = pl.col("end_ns") - pl.col("start_ns")
    found = tasks.group_by("place", "name", "shapes").agg(
        pl.len().cast(pl.Int64).alias("count"),
        length.sum().alias("total_ns"),
        length.median().cast(pl.Int64).alias("median_ns"),
        length.quantile(0.95).cast(pl.Int64).alias("p95_ns"),
    )
    found = found.sort(["place", "total_ns", "name", "shapes"], descending=[False, True, False, False], nulls_last=True)
    return found.filter(pl.int_range(pl.len()).over("place") < TOP_KERNELS)


def _group_frame(calls: pl.DataFrame, members: Sequence[Members]) -> tuple[pl.DataFrame, pl.DataFrame]:
    seen = calls.select("place", "group").unique().sort("place", "group")
    rows, ranks_of = [], []
    for place, group in seen.iter_rows():
        ranks, called, text = members[place].get(group, (None, "", ""))
        rows.append((place, group, text or None, called or None))
        ranks_of.append(ranks)
    listed, lists = member_lists(ranks_of)
    schema: dict[str, Any] = {"place": pl.Int64, "group": pl.String, "text": pl.String, "pg_name": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(listed), lists


def _rank_frame(batch: Batch, clock: _Clock) -> pl.DataFrame:
    sizes = []
    for metadata in batch.metadata:
        given = metadata.get("distributed_args")
        sizes.append(given if isinstance(given, dict) else {})

    def size(key: str) -> list[int | None]:
        return [value if isinstance(value := one.get(key), int) and value > 0 else None for one in sizes]

    count = len(batch.ranks)
    return pl.DataFrame(
        {
            "place": pl.Series(range(count), dtype=pl.Int64),
            "source": ["ascend_text"] * count,
            "lean": [True] * count,
            "start_ns": clock.start - clock.shift,
            "end_ns": clock.end - clock.shift,
            "world_size": pl.Series(size("world_size"), dtype=pl.Int64),
            "tp": pl.Series(size("tensor_model_parallel_size"), dtype=pl.Int64),
            "pp": pl.Series(size("pipeline_model_parallel_size"), dtype=pl.Int64),
            "dp": pl.Series(size("data_parallel_size"), dtype=pl.Int64),
            "cp": pl.Series(size("context_parallel_size"), dtype=pl.Int64),
            "ep": pl.Series(size("expert_model_parallel_size"), dtype=pl.Int64),
            "losses": [0] * count,
            "residual_ns": [0] * count,
        }
    )
