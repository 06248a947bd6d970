# SPDX-License-Identifier: Apache-2.0
"""Asking a running job for a capture and waiting for what its ranks answer."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.collect import paths
from stepscope.control import board, config, plan
from stepscope.control.board import Seen
from stepscope.errors import CaptureError

TRIES = 3  # how often a common step is chosen anew when a rank had passed it
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Waiting:
    """How to wait; tests bring their own clock."""

    seconds: float | None = None  # None: as long as the slowest rank may need
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Outcome:
    """What became of a request: its first step, and the ranks it was for as they stand."""

    request_id: str
    start_step: int
    ranks: tuple[Seen, ...]

    def accepted(self) -> bool:
        """Whether every rank has said that it will record, does or did."""
        good = (board.WAITING, board.COLLECTING, board.DONE)
        return bool(self.ranks) and all(
            (seen.answer.request_id == self.request_id and seen.answer.state in good) or seen.answer.queued_id == self.request_id
            for seen in self.ranks
        )


def folder_of(path: Path) -> Path:
    """The folder that a job watches, by its path or that of the file in it."""
    folder = path.parent if path.name == config.CONFIG_FILE else path
    if not folder.is_dir():
        raise CaptureError("no such folder", where=str(folder), fix="give the folder of PROF_CONFIG_PATH or dynamic_profile.init")
    return folder


def live_ranks(folder: Path, ranks: Sequence[int] | None = None) -> list[Seen]:
    """
    Raises:
        CaptureError: no running process watches the folder, or one of the wanted ranks does not.
    """
    live = [seen for seen in board.read(folder) if seen.live]
    if not live:
        raise CaptureError(
            "no running job watches this folder",
            where=str(folder),
            fix=f"start one with PROF_CONFIG_PATH={folder}, or with dynamic_profile.init in its script",
        )
    missing = sorted(set(ranks or ()) - {seen.answer.rank for seen in live})
    if missing:
        raise CaptureError(
            f"no answer from rank {', '.join(map(str, missing))}",
            where=str(folder),
            cause=f"ranks that answer: {', '.join(str(seen.answer.rank) for seen in live)}",
            fix=f"choose among these; `stepscope ctl {folder} status` says more",
        )
    return board.of_ranks(live, ranks)


def start(
    folder: Path, wanted: Mapping[str, Any], *, ranks: Sequence[int] | None, start_step: int | None, waiting: Waiting
) -> Outcome:
    """Ask for a capture; without a step the next one that all ranks can begin at together.

    Args:
        folder: what the job watches.
        wanted: keys of profiler_config.json that differ from the template.
        ranks: the ranks to record; None is all.
        start_step: the step to begin at.
        waiting: how long to wait until each rank has answered.
    """
    chosen = live_ranks(folder, ranks)
    if start_step is not None and start_step <= plan.fastest_step(chosen):
        raise CaptureError(
            f"step {start_step} has passed",
            where=str(folder),
            cause=f"the job is at step {plan.fastest_step(chosen)}",
            fix="choose a later one",
        )
    lead = plan.lead_seconds(chosen)
    for _ in range(TRIES):
        first = start_step if start_step is not None else plan.common_start(chosen, lead)
        given = {**wanted, "start_step": first, "is_rank": ranks is not None, "rank_list": list(ranks or ())}
        outcome = _ask(folder, given, ranks, waiting)
        late = [seen for seen in outcome.ranks if seen.answer.late and seen.answer.request_id == outcome.request_id]
        busy = any(seen.answer.state == board.COLLECTING for seen in outcome.ranks)
        if start_step is not None or not late or busy:
            return outcome
        chosen, lead = live_ranks(folder, ranks), 2 * lead
    return outcome


def stop(folder: Path, waiting: Waiting) -> Outcome:
    """End the capture that runs, and forget the one that waits."""
    live_ranks(folder)
    return _ask(folder, {config.STOP: True}, None, waiting)


def finished(folder: Path, outcome: Outcome, waiting: Waiting) -> Outcome:
    """Wait until no rank waits or collects for this request any more."""
    return _watch(folder, outcome, waiting, lambda seen: _over(seen, outcome.request_id))


def _ask(folder: Path, given: Mapping[str, Any], ranks: Sequence[int] | None, waiting: Waiting) -> Outcome:
    request_id = uuid.uuid4().hex[:12]
    content = config.written({**config.TEMPLATE, **given, config.REQUEST_ID: request_id})
    try:
        paths.write_file(folder / config.CONFIG_FILE, content)
    except OSError as problem:
        raise CaptureError(
            f"cannot write {config.CONFIG_FILE}",
            where=str(folder),
            cause=f"{problem.strerror}; the file from before is unchanged",
            fix="make room or get the right to write, then ask again",
        ) from problem
    before = Outcome(request_id, int(given.get("start_step", config.NEVER)), tuple(live_ranks(folder, ranks)))
    return _watch(folder, before, waiting, lambda seen: _answered(seen, request_id))


def _watch(folder: Path, outcome: Outcome, waiting: Waiting, enough: Callable[[Seen], bool]) -> Outcome:
    asked = {(seen.answer.host, seen.answer.pid) for seen in outcome.ranks}
    seconds = _patience(outcome.ranks) if waiting.seconds is None else waiting.seconds
    until = waiting.clock() + seconds
    while True:
        began = waiting.clock()
        now = [seen for seen in board.read(folder) if (seen.answer.host, seen.answer.pid) in asked]
        outcome = Outcome(outcome.request_id, outcome.start_step, tuple(now))
        if all(enough(seen) or not seen.live for seen in now) or waiting.clock() >= until:
            return outcome
        waiting.sleep(max(LOOK_SECONDS, waiting.clock() - began))  # thousands of files on a slow folder take their time


def _patience(ranks: Sequence[Seen]) -> float:
    """A rank looks at the file, and answers at the end of its step."""
    return 5.0 + plan.lead_seconds(ranks) + 3 * max((seen.answer.step_seconds or 0.0 for seen in ranks), default=0.0)


def _answered(seen: Seen, request_id: str) -> bool:
    return request_id in (seen.answer.request_id, seen.answer.queued_id)


def _over(seen: Seen, request_id: str) -> bool:
    answer = seen.answer
    return answer.request_id == request_id and answer.state not in (board.WAITING, board.COLLECTING)
