# SPDX-License-Identifier: Apache-2.0
"""Where the host waited for the device: by the name of a call, and by how a call or an operator behaved.

A name is not enough: a pageable copy and a launch into a full queue wait under names that elsewhere cost nothing, and operators
such as `nonzero` wait without any recorded call.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analysis.partition import names
from stepscope.analysis.partition.model import DeviceModel
from stepscope.analysis.partition.spans import Ints
from stepscope.tables import Tables

CALL_NS = 50_000  # a shorter call is not asked whether it waited
CALL_LATE_NS = 30_000  # a call that waited returns this soon after the end of a task
OP_NS = 200_000  # what an operator must take after its issue; below that, host-bound captures are full of coincidences
OP_LATE_NS = 100_000  # an operator that waited for its kernel returns this soon after it,
OP_LATE_SHARE = 0.2  # and its return is a small part of what it took;
LONG_LATE_NS = 500_000  # after a long wait this is soon too: waking up and copying the result out take their time,
LONG_LATE_SHARE = 0.1  # if it is but this share of the wait

# `full` waits are launches into a full queue, found by behaviour: the program did not ask for them. `call` is a row of
# `api_calls`, `op` a row of `ops`; one of them is null.
WAITS = {
    "start_ns": pl.Int64, "end_ns": pl.Int64, "tid": pl.Int64, "full": pl.Boolean, "call": pl.Int64, "op": pl.Int64,
}  # fmt: skip


def waits(model: DeviceModel, tids: list[int]) -> pl.DataFrame:
    """Waits of the issuing threads inside the windows, in order; of nested calls the outermost only."""
    found = pl.concat([_calls(model, tids), _operators(model, tids)]).sort(
        "start_ns", "end_ns", descending=[False, True], maintain_order=True
    )
    # Levels of the runtime are nested: acl above runtime.
    reach = pl.col("end_ns").shift(1).cum_max().fill_null(np.iinfo(np.int64).min)
    return found.filter(pl.col("end_ns") > reach)


def _calls(model: DeviceModel, tids: list[int]) -> pl.DataFrame:
    rows = model.tables.api_calls.with_row_index("call").filter(
        pl.col("tid").is_in(tids) & (pl.col("end_ns") > model.start_ns) & (pl.col("start_ns") < model.end_ns)
    )
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    ended = np.sort(model.tasks["end_ns"].to_numpy())
    place = np.searchsorted(ended, end, side="right") - 1
    last = ended[np.maximum(place, 0)]
    behaves = (place >= 0) & (end - last < CALL_LATE_NS) & (last > start) & (end - start > CALL_NS)
    if behaves.any():
        other = names.matches(rows["name"], f"{names.COMPILE}|{names.ALLOC.removeprefix('(?i)')}")
        behaves &= ~other
    named = names.matches(rows["name"], names.SYNC)
    launch = ~named & names.matches(rows["name"], names.LAUNCH)
    # A launch that returns behind the end of its own task waited for that task, not for a place in the queue. One that is short
    # may have met a short task by chance; where most launches do it, they block.
    issue, own_end = _own_task(model, rows)
    blocked = launch & (own_end > issue) & (own_end <= end)
    if 2 * blocked.sum() >= (launch & (own_end > 0)).sum():
        behaves |= blocked
    blocked &= behaves
    rows = rows.with_columns(
        start_ns=pl.Series(np.where(blocked, issue + 1, start)), full=pl.Series(launch & ~blocked), op=pl.lit(None, pl.Int64)
    )
    return rows.filter(pl.Series(named | behaves)).select(pl.col(name).cast(kind) for name, kind in WAITS.items())


def _own_task(model: DeviceModel, calls: pl.DataFrame) -> tuple[Ints, Ints]:
    """When each call issued its task and when that task ended; the latter is 0 where it issued none."""
    tasks = model.tasks.select("issue_ns", "issue_tid", "end_ns").drop_nulls().sort("issue_ns")
    if not tasks.height or not calls.height:
        return np.zeros(calls.height, dtype=np.int64), np.zeros(calls.height, dtype=np.int64)
    issues = tasks["issue_ns"].to_numpy()
    place = np.maximum(np.searchsorted(issues, calls["end_ns"].to_numpy(), side="right") - 1, 0)
    inside = (issues[place] >= calls["start_ns"].to_numpy()) & (tasks["issue_tid"].to_numpy()[place] == calls["tid"].to_numpy())
    return issues[place], np.where(inside, tasks["end_ns"].to_numpy()[place], 0)


def _operators(model: DeviceModel, tids: list[int]) -> pl.DataFrame:
    """Operators that returned just after their own kernel ended: they waited for it, also where no call was recorded."""
    tasks = model.tasks.filter(
        (pl.col("table") == 0)
        & pl.col("op").is_not_null()
        & (pl.col("issue_ns") >= model.start_ns)
        & (pl.col("issue_ns") < model.end_ns)
    )
    owner = model.tables.ops.select("tid", "end_ns")[tasks["op"]]
    took, late = owner["end_ns"] - tasks["issue_ns"], owner["end_ns"] - tasks["end_ns"]
    soon = ((late < OP_LATE_NS) & (late < OP_LATE_SHARE * took)) | ((late < LONG_LATE_NS) & (late < LONG_LATE_SHARE * took))
    waited = (late >= 0) & (took > OP_NS) & soon & owner["tid"].is_in(tids)
    rows = pl.DataFrame(
        {"start_ns": tasks["issue_ns"] + 1, "end_ns": owner["end_ns"], "tid": owner["tid"], "op": tasks["op"]}
    ).filter(waited)
    rows = rows.with_columns(full=pl.lit(False), call=pl.lit(None, pl.Int64))
    return rows.select(pl.col(name).cast(kind) for name, kind in WAITS.items())


def wait_targets(found: pl.DataFrame, issue: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The task that each wait waited for (-1 for none), and how long after its end the wait returned.

    It is the last task that had ended when the wait returned, of those issued before it began.
    """
    by_end = np.argsort(end, kind="stable")
    ends, issues = end[by_end], issue[by_end]
    start, back = found["start_ns"].to_numpy(), found["end_ns"].to_numpy()
    place = np.searchsorted(ends, back, side="right") - 1
    while True:
        at = np.maximum(place, 0)
        later = (place >= 0) & (ends[at] > start) & (issues[at] > start)
        if not later.any():
            break
        place = place - later
    waited = (place >= 0) & (ends[np.maximum(place, 0)] > start) if ends.size else np.zeros(start.size, dtype=np.bool_)
    at = np.where(waited, np.maximum(place, 0), 0)
    target = np.where(waited, by_end[at], -1) if by_end.size else np.full(start.size, -1)
    tail = np.where(waited, back - ends[at], 0) if by_end.size else np.zeros(start.size, dtype=np.int64)
    return target.astype(np.int64), tail.astype(np.int64)


def callers(tables: Tables, found: pl.DataFrame) -> pl.DataFrame:
    """The waits with `op`, the innermost operator on their thread when they began; null when none was open."""
    from stepscope.analysis.link.groups import group_numbers, last_started

    ops = tables.ops
    of_ops, of_waits = group_numbers([ops.select("tid"), found.select("tid")], ["tid"])
    row = last_started(of_ops, ops["start_ns"].to_numpy(), of_waits, found["start_ns"].to_numpy())
    ends, parents = ops["end_ns"].to_numpy(), ops["parent"].fill_null(-1).to_numpy()
    at = found["start_ns"].to_numpy()
    while True:  # what began last may have ended already: then its parent, and so on
        over = (row >= 0) & (ends[np.maximum(row, 0)] <= at) if ends.size else np.zeros(row.size, dtype=np.bool_)
        if not over.any():
            break
        row = np.where(over, parents[np.maximum(row, 0)], row)
    innermost = pl.Series("innermost", np.where(row >= 0, row, -1)).replace(-1, None)
    return found.with_columns(op=pl.coalesce("op", innermost))
