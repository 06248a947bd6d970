# SPDX-License-Identifier: Apache-2.0
"""Request a capture from a running job and wait for the answers of its ranks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.collect import paths
from stepscope.control import board, config, plan
from stepscope.control.board import AgedAnswer
from stepscope.errors import CaptureError

TRIES = 3  # how often a common step is chosen again when a rank has passed it
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Patience:
    """How long to wait; tests pass their own clock."""

    seconds: float | None = None  # None: as long as the slowest rank may need
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Outcome:
    """The outcome of a request: its first step, and the answers of its ranks."""

    request_id: str
    start_step: int
    ranks: tuple[AgedAnswer, ...]

    def all_accepted(self) -> bool:
        """Whether every rank waits to record, records or has recorded."""
        good = (board.WAITING, board.COLLECTING, board.DONE)
        return bool(self.ranks) and all(
            (aged.answer.request_id == self.request_id and aged.answer.state in good) or aged.answer.queued_id == self.request_id
            for aged in self.ranks
        )


def watched_folder(path: Path) -> Path:
    """The folder that a job watches, given its path or that of the file in it."""
    folder = path.parent if path.name == config.CONFIG_FILE else path
    if not folder.is_dir():
        raise CaptureError("no such folder", where=str(folder), fix="give the folder of PROF_CONFIG_PATH or dynamic_profile.init")
    return folder


def live_ranks(folder: Path, ranks: Sequence[int] | None = None) -> list[AgedAnswer]:
    """
    Raises:
        CaptureError: no running process watches the folder, or one of `ranks` does not.
    """
    live = [aged for aged in board.read(folder) if aged.live]
    if not live:
        raise CaptureError(
            "no running job watches this folder",
            where=str(folder),
            fix=f"start one with PROF_CONFIG_PATH={folder}, or with dynamic_profile.init in its script",
        )
    missing = sorted(set(ranks or ()) - {aged.answer.rank for aged in live})
    if missing:
        raise CaptureError(
            f"no answer from rank {', '.join(map(str, missing))}",
            where=str(folder),
            cause=f"ranks that answer: {', '.join(str(aged.answer.rank) for aged in live)}",
            fix=f"choose from these; see `stepscope ctl {folder} status`",
        )
    return board.of_ranks(live, ranks)


def start(
    folder: Path,
    keys: Mapping[str, Any],
    *,
    ranks: Sequence[int] | None,
    start_step: int | None,
    patience: Patience,
    progress: Callable[[], tuple[int, float]] | None = None,
) -> Outcome:
    """Request a capture; by default at the next step that all ranks can begin together, which one rank alone can at once.

    Args:
        folder: the folder that the job watches.
        wanted: keys of profiler_config.json that differ from the template.
        ranks: the ranks to record; None for all.
        start_step: the step to begin at.
        waiting: how long to wait until each rank has answered.
        progress: the step of this moment and the seconds that a step takes, where the caller knows them better than the answers
            of the ranks, which may be ten seconds old.
    """
    chosen = live_ranks(folder, ranks)
    if start_step is not None and start_step <= plan.fastest_step(chosen):
        raise CaptureError(
            f"step {start_step} has passed",
            where=str(folder),
            cause=f"the job is at step {plan.fastest_step(chosen)}",
            fix="choose a later step",
        )
    lead = plan.lead_seconds(chosen)
    for _ in range(TRIES):
        soonest = config.NEXT_STEP if len(chosen) == 1 else plan.common_start(chosen, lead, progress() if progress else None)
        first = soonest if start_step is None else start_step
        keys = {**keys, "start_step": first, "is_rank": ranks is not None, "rank_list": list(ranks or ())}
        outcome = _ask(folder, keys, ranks, patience)
        late = [aged for aged in outcome.ranks if aged.answer.late and aged.answer.request_id == outcome.request_id]
        busy = any(aged.answer.state == board.COLLECTING for aged in outcome.ranks)
        if start_step is not None or not late or busy:
            return outcome
        chosen, lead = live_ranks(folder, ranks), 2 * lead
    return outcome


def stop(folder: Path, patience: Patience) -> Outcome:
    """End the running capture and cancel a waiting one."""
    live_ranks(folder)
    return _ask(folder, {config.STOP: True}, None, patience)


def wait_until_done(folder: Path, outcome: Outcome, patience: Patience) -> Outcome:
    """Wait until no rank is waiting or collecting for this request."""
    return _watch(folder, outcome, patience, lambda aged: _has_finished(aged, outcome.request_id))


def _ask(folder: Path, keys: Mapping[str, Any], ranks: Sequence[int] | None, patience: Patience) -> Outcome:
    request_id = uuid.uuid4().hex[:12]
    content = config.to_json({**config.TEMPLATE, **keys, config.REQUEST_ID: request_id})
    try:
        paths.write_file(folder / config.CONFIG_FILE, content)
    except OSError as problem:
        raise CaptureError(
            f"cannot write {config.CONFIG_FILE}",
            where=str(folder),
            cause=f"{problem.strerror}; the previous file is unchanged",
            fix="free disk space or get write permission, then run the command again",
        ) from problem
    before = Outcome(request_id, int(keys.get("start_step", config.NEVER)), tuple(live_ranks(folder, ranks)))
    return _watch(folder, before, patience, lambda aged: _has_answered(aged, request_id))


def _watch(folder: Path, outcome: Outcome, patience: Patience, enough: Callable[[AgedAnswer], bool]) -> Outcome:
    processes = {(aged.answer.host, aged.answer.pid) for aged in outcome.ranks}
    seconds = _patience(outcome.ranks) if patience.seconds is None else patience.seconds
    until = patience.clock() + seconds
    while True:
        began = patience.clock()
        now = [aged for aged in board.read(folder) if (aged.answer.host, aged.answer.pid) in processes]
        outcome = Outcome(outcome.request_id, outcome.start_step, tuple(now))
        if all(enough(aged) or not aged.live for aged in now) or patience.clock() >= until:
            return outcome
        patience.sleep(max(LOOK_SECONDS, patience.clock() - began))  # reading thousands of files from a slow folder takes a while


def _patience(ranks: Sequence[AgedAnswer]) -> float:
    """How long answers may take: a rank polls the file and answers at the end of its step."""
    return 5.0 + plan.lead_seconds(ranks) + 3 * max((aged.answer.step_seconds or 0.0 for aged in ranks), default=0.0)


def _has_answered(aged: AgedAnswer, request_id: str) -> bool:
    return request_id in (aged.answer.request_id, aged.answer.queued_id)


def _has_finished(aged: AgedAnswer, request_id: str) -> bool:
    answer = aged.answer
    return answer.request_id == request_id and answer.state not in (board.WAITING, board.COLLECTING)
