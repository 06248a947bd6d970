# SPDX-License-Identifier: Apache-2.0
"""The digest of a rank: its calls in program order, the local work before each, and where it waited.

The compute stream is what a rank does. Between two issues of calls it works (w), or it stands still until a call has ended.
Waiting is taken out, so that the victims of a slow rank have the work of healthy ones. Only durations on the rank's own clock
are used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.partition.spans import EMPTY, Ints, Spans, complement, join, minus, union
from stepscope.tables.cluster import CAUSES, CLUSTER_TABLES

Flags = npt.NDArray[np.bool_]
SAME_NS = 5_000  # launch latency: two moments closer than this are the same point of the program
SHORTEST_NS = 1_000  # idle stretches below this are the device's own gaps


class Digests:
    """The digests of some ranks as frames by table name (see `tables/cluster.py`)."""

    def __init__(self, frames: Mapping[str, pl.DataFrame]):
        self.frames = {name: frames[name] if name in frames else table.empty() for name, table in CLUSTER_TABLES.items()}

    def __getitem__(self, name: str) -> pl.DataFrame:
        return self.frames[name]

    @property
    def ranks(self) -> list[int]:
        return self["cluster_ranks"]["rank"].to_list()

    def filter(self, ranks: Sequence[int]) -> Digests:
        """The digests of some ranks only."""
        chosen = pl.col("rank").is_in(list(ranks))
        return Digests({name: frame.filter(chosen) if "rank" in frame.columns else frame for name, frame in self.frames.items()})

    def check(self) -> Digests:
        for name, frame in self.frames.items():
            CLUSTER_TABLES[name].check(frame)
        return self


class MemberLists:
    """The lists of members of digests that arrive one by one, each kept once: ten thousand ranks share the list of all."""

    def __init__(self) -> None:
        self._parts: list[pl.DataFrame] = []
        self._known: set[int] = set()
        self._last: pl.DataFrame | None = None

    def take(self, digests: Digests) -> Digests:
        """The digests without their lists, which are kept here."""
        lists = digests["cluster_members"]
        if lists is not self._last:  # ranks that were read together have one frame
            fresh = lists.filter(~lists["listed"].is_in(list(self._known))) if self._known else lists
            if fresh.height:
                self._parts.append(fresh)
                self._known.update(fresh["listed"].to_list())
            self._last = lists
        return Digests({name: frame for name, frame in digests.frames.items() if name != "cluster_members"})

    def give(self, digests: Digests) -> Digests:
        """The digests with the lists that their groups have."""
        if not self._parts:
            return digests
        lists = pl.concat(self._parts)
        wanted = digests["cluster_groups"]["listed"].drop_nulls().unique().implode()
        return Digests({**digests.frames, "cluster_members": lists.filter(lists["listed"].is_in(wanted)).sort("listed")})


def union_digests(parts: Sequence[Digests]) -> Digests:
    """All digests in one set, sorted, whatever the order in which they arrive."""
    frames = {
        name: table.sort(pl.concat([part[name] for part in parts])) if parts else table.empty()
        for name, table in CLUSTER_TABLES.items()
    }
    lists = frames["cluster_members"]
    return Digests({**frames, "cluster_members": lists.unique("listed", keep="first", maintain_order=True)})


def member_lists(lists: Iterable[Sequence[int] | None]) -> tuple[pl.Series, pl.DataFrame]:
    """The key of each list of ranks (null for none), and table `cluster_members`: ten thousand ranks share the list of all."""
    keys: list[int | None] = []
    found: dict[int, list[int]] = {}
    before: dict[int, int] = {}  # the same object again
    kept = []
    for ranks in lists:
        if ranks is None:
            keys.append(None)
            continue
        if id(ranks) not in before:
            members = sorted(set(ranks))
            text = hashlib.blake2b(np.array(members, dtype="<i8").tobytes(), digest_size=8).digest()
            before[id(ranks)] = int.from_bytes(text, "little", signed=True)
            found.setdefault(before[id(ranks)], members)
            kept.append(ranks)
        keys.append(before[id(ranks)])
    schema: dict[str, Any] = {"listed": pl.Int64, "members": pl.List(pl.Int64)}
    table = pl.DataFrame(sorted(found.items()), schema=schema, orient="row")
    return pl.Series("listed", keys, dtype=pl.Int64), table


@dataclass(frozen=True)
class Calls:
    """Calls of one rank in program order: when the compute stream reached each, when it ran, in which window."""

    issue: Ints
    start: Ints
    end: Ints
    window: Ints


@dataclass(frozen=True)
class CallRows:
    """One row per call and a closing row per window, in order.

    Attributes:
        call: row of `Calls`; -1 in closing rows.
        window: number of the window.
        work: ns by cause, rows × causes.
        stop: whether the compute stream stood still for this very call.
        late: row (of this result, same window) of the call waited for before this row's issue; -1 for none.
        after: local ns between the end of that wait and the issue.
        before_stop: local ns between the issue of a call and the moment at which the compute stream stood still for it.
        waited: ns that the compute stream waited for the call of each row.
        wait: ns waited, by window.
    """

    call: Ints
    window: Ints
    work: Ints
    stop: Flags
    late: Ints
    after: Ints
    before_stop: Ints
    waited: Ints
    wait: Ints
    residual_ns: int


def call_rows(
    calls: Calls,
    windows: Ints,
    compute: Spans,
    causes: Mapping[str, Spans],
    starts: Ints | None = None,
    launches: Ints | None = None,
) -> CallRows:
    """Cut the time of a rank at the issues of its calls.

    Args:
        calls: in program order.
        windows: n + 1 borders of the steps.
        compute: when the device computed.
        causes: what the host was doing, by cause; later ones count only where earlier ones do not.
        starts: starts of compute tasks, rising, and `launches`, when the host launched them: tells waiting for a call from a
            device that had nothing to do.
    """
    first, beyond = int(windows[0]), int(windows[-1])
    count = len(windows) - 1
    issue = np.maximum.accumulate(np.clip(calls.issue, first, beyond)) if len(calls.issue) else calls.issue
    issue = np.clip(issue, windows[calls.window], windows[calls.window + 1])
    per_cause = _exclusive(causes, compute)
    stretch = _stretches(complement(compute, first, beyond), np.concatenate((issue, windows[1:-1])))
    wait, blocker, at, begun, until = _waits(calls, issue, stretch, per_cause, starts, launches)

    number = np.bincount(calls.window, minlength=count)
    row_of_call = np.arange(len(issue)) + calls.window
    closing = np.cumsum(number + 1) - 1
    rows = len(issue) + count
    call = np.full(rows, -1, dtype=np.int64)
    call[row_of_call] = np.arange(len(issue))
    window = np.repeat(np.arange(count), number + 1)
    border = np.empty(rows, dtype=np.int64)
    border[row_of_call] = issue
    border[closing] = windows[1:]
    left = np.concatenate(([first], border[:-1]))

    stop = np.zeros(rows, dtype=np.bool_)
    late = np.full(rows, -1, dtype=np.int64)
    following = np.searchsorted(issue, at, side="left")  # first call issued at or after the end of the stretch
    place = np.clip(np.searchsorted(windows, at, side="left") - 1, 0, count - 1)
    next_row = np.where(
        (following < len(issue)) & (calls.window[np.minimum(following, max(len(issue) - 1, 0))] == place) if len(issue) else False,
        row_of_call[np.minimum(following, max(len(issue) - 1, 0))] if len(issue) else 0,
        closing[place],
    )
    block_row = row_of_call[blocker] if len(issue) else blocker
    sync = next_row - 1 == block_row
    stop[block_row[sync]] = True
    asynchronous = ~sync & (block_row < next_row) & (window[block_row] == window[np.minimum(next_row, rows - 1)])
    late[next_row[asynchronous]] = block_row[asynchronous]
    resumed = np.array(border)
    resumed[next_row[asynchronous]] = until[asynchronous]
    after = border - resumed - wait.within(resumed, border)
    stood = np.array(border)
    stood[block_row[sync]] = begun[sync]
    before_stop = stood - border - wait.within(border, stood)

    work = np.empty((rows, len(CAUSES)), dtype=np.int64)
    work[:, 0] = compute.within(left, border)
    for place_, cause in enumerate(CAUSES[1:-1], 1):
        work[:, place_] = minus(per_cause.get(cause, EMPTY), wait).within(left, border)
    waited = wait.within(left, border)
    rest = border - left - waited - work[:, :-1].sum(1)
    work[:, -1] = np.maximum(rest, 0)
    for_call = np.bincount(block_row, until - begun, rows).astype(np.int64)
    waited_in = np.bincount(window, waited, count).astype(np.int64)
    return CallRows(call, window, work, stop, late, after, before_stop, for_call, waited_in, int(-np.minimum(rest, 0).sum()))


def _exclusive(causes: Mapping[str, Spans], compute: Spans) -> dict[str, Spans]:
    taken, found = compute, {}
    for name, spans in causes.items():
        found[name] = minus(spans, taken)
        taken = join(taken, spans)
    return found


def _stretches(idle: Spans, cuts: Ints) -> Spans:
    """Idle spans, cut at moments inside them; not merged."""
    place = np.searchsorted(idle.start, cuts, side="right") - 1
    inside = (place >= 0) & (cuts > idle.start[place]) & (cuts < idle.end[place]) if idle.start.size else np.zeros(len(cuts), bool)
    inner = np.unique(cuts[inside])
    start = np.sort(np.concatenate((idle.start, inner)))
    end = np.sort(np.concatenate((idle.end, inner)))
    long = end - start > SHORTEST_NS
    return Spans(start[long], end[long])


def _waits(
    calls: Calls, issue: Ints, stretch: Spans, causes: Mapping[str, Spans], starts: Ints | None, launches: Ints | None
) -> tuple[Spans, Ints, Ints, Ints, Ints]:
    """When the compute stream waited; by wait the call it waited for, the end of the stretch, begin and end of the wait."""
    none = np.empty(0, dtype=np.int64)
    if not len(issue) or not stretch.start.size:
        return EMPTY, none, none, none, none
    order = np.argsort(calls.end, kind="stable")
    ends = calls.end[order]
    low = np.searchsorted(ends, stretch.start, side="right")
    high = np.searchsorted(ends, stretch.end + SAME_NS // 2, side="right")
    blocker = order[np.maximum(high - 1, 0)]
    begin = np.maximum(stretch.start, np.minimum(issue[blocker], calls.end[blocker]))
    until = np.minimum(calls.end[blocker], stretch.end)
    held = (high > low) & (until > begin) & (issue[blocker] < stretch.end)
    begin, until, blocker, at = begin[held], until[held], blocker[held], stretch.end[held]
    spans = union(begin, until)
    busy = [causes[name] for name in ("data_loading", "gc", "allocation", "checkpoint") if name in causes]
    if launches is not None and starts is not None and len(starts) and any(one.start.size for one in busy):
        # The next task was launched only after the call had ended: until then the host, not the call, held the device up.
        task = np.minimum(np.searchsorted(starts, at - SAME_NS // 2), len(starts) - 1)
        host_late = launches[task] > until
        spans = join(union(begin[~host_late], until[~host_late]), minus(union(begin[host_late], until[host_late]), join(*busy)))
    return spans, blocker, at, begin, until


def frame_of_calls(
    rank: int, steps: Sequence[int | None], rows: CallRows, calls: Mapping[str, pl.Series], issue: Ints
) -> pl.DataFrame:
    """Table `cluster_calls` of one rank.

    Args:
        steps: number of each window.
        rows: as `call_rows` gives them.
        calls: columns of the calls: group, op, peer, seq, bytes, variable, lane, start_ns, end_ns.
        issue: of the calls.
    """
    table = CLUSTER_TABLES["cluster_calls"]
    number = pl.Series(rows.call, dtype=pl.Int64).replace(-1, None)
    first = np.searchsorted(rows.window, np.arange(len(steps)))
    index = np.arange(len(rows.call)) - first[rows.window]
    columns: dict[str, pl.Series] = {name: series.gather(number) for name, series in calls.items()}
    late = np.where(rows.late >= 0, rows.late - first[rows.window], -1)
    return table.conform(
        pl.DataFrame(
            {
                **columns,
                "rank": pl.Series([rank] * len(index), dtype=pl.Int64),
                "step": pl.Series(list(steps), dtype=pl.Int64).gather(rows.window),
                "index": pl.Series(index),
                "issue_ns": pl.Series(issue).gather(number) if len(issue) else pl.Series([None] * len(index), dtype=pl.Int64),
                "folded": pl.Series(np.where(rows.call >= 0, 1, 0)),
                "stop": pl.Series(rows.stop),
                "late": pl.Series(late).replace(-1, None),
                "after_ns": pl.Series(rows.after),
                "before_stop_ns": pl.Series(rows.before_stop),
                "wait_ns": pl.Series(rows.waited),
                **{f"w_{cause}": pl.Series(rows.work[:, place]) for place, cause in enumerate(CAUSES)},
            }
        )
    )
