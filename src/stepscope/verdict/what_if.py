# SPDX-License-Identifier: Apache-2.0
"""What a step would take if something took more or less time, or did not happen: one grammar for command, script and page.

A change is `kernel~PATTERN=FACTOR`, `op~PATTERN=FACTOR`, `collective=FACTOR` or `copy=FACTOR`; PATTERN is a regular expression
for names of kernels (or of their types) or operators. What can be left out are the waits (`sync`) and the layers of the host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.partition import names
from stepscope.analysis.partition.layers import LAYERS
from stepscope.analysis.partition.model import COMMUNICATION, COPY
from stepscope.analysis.replay import Change, Schedule, critical_path, join_ranks
from stepscope.errors import CaptureError
from stepscope.tables import Tables
from stepscope.verdict.case import Case, Draft
from stepscope.verdict.settings import limits

WITHOUT = ("sync", *(layer for layer in LAYERS if layer != "sync"))
_CHANGE = re.compile(r"(?P<what>kernel|op)~(?P<pattern>.+)=(?P<factor>[^=]+)|(?P<kind>collective|copy)=(?P<all>[^=]+)")


@dataclass(frozen=True)
class WhatIf:
    """A step as it is and as it would be, ms per step."""

    now_ms: float
    then_ms: float
    error: float  # of the replay, a share
    bottleneck: str  # what the critical path then consists of most
    bottleneck_share: float
    joined: bool = False  # with the other ranks, at their collectives

    @property
    def saved_ms(self) -> float:
        return self.now_ms - self.then_ms

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": "stepscope.whatif/1",
            "now_ms": round(self.now_ms, 6),
            "then_ms": round(self.then_ms, 6),
            "saved_ms": round(self.saved_ms, 6),
            "error": self.error,
            "bottleneck": self.bottleneck,
            "bottleneck_share": round(self.bottleneck_share, 6),
            "joined": self.joined,
        }


def what_if(tables: Tables, *, scale: Sequence[str] = (), without: Sequence[str] = ()) -> WhatIf:
    """Replay a capture with changes.

    Raises:
        CaptureError: a change cannot be understood or matches nothing, or the capture has no launches to replay.
    """
    return what_if_ranks([tables], scale=scale, without=without)[0]


def what_if_ranks(tables: Sequence[Tables], *, scale: Sequence[str] = (), without: Sequence[str] = ()) -> list[WhatIf]:
    """Replay the ranks of a run with changes, joined at their collectives: none ends one before the last has reached it.

    A change need not match on every rank, but on one.

    Raises:
        CaptureError: as `what_if`.
    """
    unknown = [word for word in without if word not in WITHOUT]
    if unknown:
        raise CaptureError(f"{', '.join(unknown)}: not a part of the host", fix=f"give some of {', '.join(WITHOUT)}")
    cases = [Case(one, limits()) for one in tables]
    schedules = [_schedule(case) for case in cases]
    durations = [schedule.duration for schedule in schedules]
    for change in scale:
        masks, factor = _change(cases, change)
        for place, (schedule, mask) in enumerate(zip(schedules, masks, strict=True)):
            chosen = mask[schedule.tasks["task"].to_numpy()]
            durations[place] = np.where(chosen, (durations[place] * factor).astype(np.int64), durations[place])
    changes = [
        Change(
            schedule.without_layers(*without),
            duration,
            ~schedule.waits["full"].to_numpy() if "sync" in without else np.zeros(schedule.target.size, dtype=np.bool_),
        )
        for schedule, duration in zip(schedules, durations, strict=True)
    ]
    joined = join_ranks(tables, schedules) if len(schedules) > 1 else None
    if joined is None:
        saved = [
            schedule.base_finish_ns
            - schedule.finish(host=change.host, duration=change.duration, without_waits=change.without_waits)
            for schedule, change in zip(schedules, changes, strict=True)
        ]
    else:
        saved = joined.saved(changes)
    return [
        _answer(case, schedule, change, gained, joined is not None)
        for case, schedule, change, gained in zip(cases, schedules, changes, saved, strict=True)
    ]


def _schedule(case: Case) -> Schedule:
    schedule = case.schedule if case.has_device else None
    if schedule is None:
        raise _not_replayable()
    return schedule


def _answer(case: Case, schedule: Schedule, change: Change, saved_ns: int, joined: bool) -> WhatIf:
    now = case.parts.total_ns / case.count / 1e6
    name, share = _bottleneck(schedule, change)
    return WhatIf(now, now - saved_ns / case.count / 1e6, schedule.error, name, share, joined)


def _not_replayable() -> CaptureError:
    return CaptureError(
        "this capture cannot be replayed",
        cause="it has no device tasks with launches",
        fix="record with the activities of CPU and device",
    )


def _change(cases: Sequence[Case], change: str) -> tuple[list[npt.NDArray[np.bool_]], float]:
    """Tasks of each rank's model that a change is about, and its factor."""
    match = _CHANGE.fullmatch(change.strip())
    factor = _factor(match["factor"] or match["all"]) if match else None
    if match is None or factor is None:
        raise CaptureError(
            f"{change!r} is not a change",
            fix="write kernel~PATTERN=FACTOR, op~PATTERN=FACTOR, collective=FACTOR or copy=FACTOR; a factor is 0 or more",
        )
    if match["kind"]:
        kind = COMMUNICATION if match["kind"] == "collective" else COPY
        return [case.model.tasks["kind"].to_numpy() == kind for case in cases], factor
    try:
        re.compile(match["pattern"])
    except re.error as problem:
        raise CaptureError(
            f"{match['pattern']!r} is not a regular expression", cause=str(problem), fix="quote special characters"
        ) from None
    masks = [_named(case, match["what"], match["pattern"]) for case in cases]
    if not any(mask.any() for mask in masks):
        raise CaptureError(f"no {match['what']} matches {match['pattern']!r}", fix="see `stepscope top` for names")
    return masks, factor


def _factor(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) and value >= 0 else None


def _named(case: Case, what: str, pattern: str) -> npt.NDArray[np.bool_]:
    tasks = case.model.tasks
    mask = np.zeros(tasks.height, dtype=np.bool_)
    own = (tasks["table"] == 0).to_numpy()
    if what == "kernel":
        kernels = case.tables.kernels
        hit = names.matches(kernels["name"], pattern) | names.matches(kernels["op_type"], pattern)
        mask[own] = hit[tasks["row"].to_numpy()[own]]
    else:
        hit = names.matches(case.tables.ops["name"], pattern)
        rows = tasks["op"].fill_null(-1).to_numpy()
        known = rows >= 0
        mask[known] = hit[rows[known]]
    return mask


def _bottleneck(schedule: Schedule, change: Change) -> tuple[str, float]:
    path = critical_path(schedule, host=change.host, duration=change.duration, without_waits=change.without_waits)
    whole = int((path["end_ns"] - path["start_ns"]).sum())
    by = path.group_by("where").agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum()).sort("ns", "where", descending=[True, False])
    if not by.height or not whole:
        return "", 0.0
    return str(by["where"][0]), int(by["ns"][0]) / whole


def remove_causes(case: Case, drafts: Sequence[Draft], shares: Sequence[float]) -> WhatIf:
    """Replay a capture with the causes of some findings gone, each by a share between 0 and 1.

    Of waits, which are there or not, that share of them goes, spread evenly.

    Raises:
        CaptureError: the capture has no launches to replay.
    """
    schedule = _schedule(case)
    host, duration = schedule.host_ns.astype(np.float64), schedule.duration.astype(np.float64)
    waits = np.zeros(schedule.target.size, dtype=np.bool_)
    least = 0.0
    for draft, share in zip(drafts, shares, strict=True):
        if draft.host_layers:
            host = host - share * (schedule.host_ns - schedule.without_layers(*draft.host_layers))
        if draft.duration is not None:
            duration = np.minimum(duration, schedule.duration - share * (schedule.duration - draft.duration))
        if draft.without_waits is not None:
            turn = np.cumsum(draft.without_waits) * share
            waits |= draft.without_waits & (np.floor(turn) > np.floor(turn - share))
        # What the replay does not see, such as a late rank, is not less because others come to it (`engine._together`).
        least = max(least, share * draft.saved_ns)
    changed = Change(np.maximum(host, 0).astype(np.int64), duration.astype(np.int64), waits)
    saved = max(schedule.saved(host=changed.host, duration=changed.duration, without_waits=waits), least) / case.count / 1e6
    now = case.parts.total_ns / case.count / 1e6
    name, share_of_path = _bottleneck(schedule, changed)
    return WhatIf(now, max(now - saved, 0.0), schedule.error, name, share_of_path)


def can_be_removed(draft: Draft) -> bool:
    """Whether a replay without the cause of a finding is possible."""
    return bool(draft.host_layers) or draft.duration is not None or draft.without_waits is not None
