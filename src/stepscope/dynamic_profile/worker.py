# SPDX-License-Identifier: Apache-2.0
"""Counts the steps of one process and records those that were requested (docs/formats/profiler-api.md 17.4, 17.5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from stepscope.collect import messages
from stepscope.collect.guard import warn_on_failure
from stepscope.control import board
from stepscope.control.config import NEVER, NEXT_STEP, CaptureRequest


class Recorder(Protocol):
    request: CaptureRequest
    steps_done: int
    path: str | None
    last_warning: str | None

    @property
    def running(self) -> bool: ...
    @property
    def limit(self) -> str | None: ...
    def step(self) -> bool: ...
    def end(self) -> None: ...
    def end_with_process(self) -> None: ...


@dataclass(frozen=True)
class Progress:
    """The state of the last request, in the words of `control.board`."""

    state: str = board.IDLE
    text: str = "no request yet"
    request_id: str | None = None
    capture: str | None = None
    queued_id: str | None = None
    busy_until: int | None = None
    late: bool = False


class Worker:
    """Receives requests from the watching thread (`deliver`) and acts on them at steps of the training thread.

    Args:
        record: starts a capture, given a request and the number of the step that begins.
        log: receives level and text for the log.
        rank: gives the current rank of this process; -1 if it has none.
        world_size: gives the number of ranks of the job.
    """

    # step() runs between training steps with cold caches, so it touches little memory.
    __slots__ = (
        "_capture",
        "_log",
        "_mail",
        "_pending",
        "_rank",
        "_record",
        "_world_size",
        "alert",
        "cur_step",
        "progress",
    )

    def __init__(
        self,
        record: Callable[[CaptureRequest, int], Recorder],
        log: Callable[[str, str], None],
        rank: Callable[[], int],
        world_size: Callable[[], int] = lambda: 1,
    ):
        self.cur_step = 0
        self.progress = Progress()
        self._record, self._log, self._rank, self._world_size = record, log, rank, world_size
        self.alert = False  # whether there is something to do at the end of a step
        self._mail: deque[CaptureRequest] = deque()
        self._pending: CaptureRequest | None = None
        self._capture: Recorder | None = None

    def deliver(self, request: CaptureRequest) -> None:
        """Called by the watching thread; the next step handles the request."""
        self._mail.append(request)
        self.alert = True

    def step(self) -> None:
        """A step of training has ended."""
        self.cur_step += 1
        if self.alert:
            self.act()

    def act(self) -> None:
        """What an alert asks for; whoever counts steps by itself sets `cur_step` and calls this."""
        self._run(self._work)

    def start(self, request: CaptureRequest) -> None:
        """Record from here on, whatever the request's start_step says; only the ranks that it names."""
        self._run(self._start, request)

    def finish(self) -> None:
        """The process ends."""
        capture, self._capture = self._capture, None
        if capture is not None:
            warn_on_failure("ending the capture", capture.end_with_process)
            text = f"the job ended after {capture.steps_done} of {capture.request.steps} steps of the capture"
            self._log("WARNING", f"{text}; the data recorded so far are in {capture.path}")
            self._set_progress(board.DONE, text, capture.request, capture.path)
        waiting, self._pending = self._pending, None
        # One that arrived after the last step has no chance to be looked at any more.
        waiting = next((request for request in reversed(self._mail) if request.start_step != NEVER), waiting)
        if waiting is not None and waiting.wants(self._rank()):
            self._warn(
                f"a capture was requested for {_when(waiting)}, but the job ended after step {self.cur_step}: it was not recorded; "
                "request an earlier step, or let the job run longer"
            )

    def _run(self, work: Callable[..., bool], *arguments: CaptureRequest) -> None:
        # Cleared before the mail is read: a request that arrives later sets it again.
        self.alert = False
        if warn_on_failure("dynamic_profile", work, *arguments) is not True:
            capture, self._capture, self._pending = self._capture, None, None
            request = capture.request if capture is not None else None
            self._refuse("the profiler failed; see the output of the job for the reason", request)
        if self._capture is not None or self._pending is not None or self._mail:
            self.alert = True

    def _work(self) -> bool:
        while self._mail:
            self._accept(self._mail.popleft())
        if self._capture is not None:
            self._step_capture(self._capture)
        # A request received during a capture may begin in the step in which that capture ends.
        if self._capture is None and self._pending is not None:
            self._schedule(self._pending)
        return True

    def _accept(self, request: CaptureRequest) -> None:
        """Handle a new request; it replaces one that is still waiting."""
        for note in request.notes:
            self._warn(note)
        replaced, self._pending = self._pending, None
        if replaced is not None and not request.stop:
            self._warn(f"the request for {_when(replaced)} was replaced by a newer one before it began")
        if request.refusal:
            self._refuse(request.refusal, request)
        elif request.stop:
            self._stop(request)
        elif request.start_step == NEVER:
            self._set_state(board.IDLE, "start_step is 0: no capture requested", request)
        elif not self._is_left_out(request):
            self._pending = request
            if self._capture is not None:
                self._show_step(self._capture)
                self._log("INFO", "received a new request during the capture; it is handled afterwards")

    def _is_left_out(self, request: CaptureRequest) -> bool:
        """Whether rank_list does not name this process; a list that no process can match is said on the terminal."""
        rank, ranks = self._rank(), list(request.ranks or ())
        if request.wants(rank):
            return False
        self._set_state(board.LEFT_OUT, f"rank {rank} is not in rank_list {ranks}", request)
        if rank == -1:
            why = "this process has no rank (RANK is not set and torch.distributed is not initialised)"
            self._warn(f"nothing is recorded: rank_list is {ranks}, but {why}; set is_rank to false")
        elif not any(rank < self._world_size() for rank in ranks):
            why = f"the job has ranks 0 to {self._world_size() - 1}" if ranks else "an empty list names no rank"
            self._warn(f"nothing is recorded: rank_list is {ranks}, but {why}; correct rank_list, or set is_rank to false")
        return True

    def _schedule(self, request: CaptureRequest) -> None:
        if request.start_step in (NEXT_STEP, self.cur_step):
            self._pending = None
            self._begin(request)
        elif request.start_step < self.cur_step and request.agreed:
            self._pending = None
            self._log(
                "WARNING",
                f"begins at step {self.cur_step}, the other ranks at {request.start_step}: this rank read the file too late",
            )
            self._begin(request)
        elif request.start_step < self.cur_step:
            self._pending = None
            why = f"start_step {request.start_step} has passed: this is step {self.cur_step}"
            self._set_progress(board.REFUSED, why, request)
            self._warn(f"refused: {why}; set -1 for the next step, or a later one")
            self.progress = replace(self.progress, late=True)
        elif self.progress.request_id != request.request_id or self.progress.state != board.WAITING:
            self._set_state(board.WAITING, f"for step {request.start_step}", request)

    def _start(self, request: CaptureRequest) -> bool:
        if self._capture is not None:
            text = f"dp.start has no effect: a capture is running, step {self._capture.steps_done + 1} of "
            self._warn(f"{text}{self._capture.request.steps}")
            return True
        for note in request.notes:
            self._warn(note)
        if not self._is_left_out(request):
            self._begin(request)
        return True

    def _begin(self, request: CaptureRequest) -> None:
        capture = self._record(request, self.cur_step)
        if not capture.running:
            self._refuse(capture.last_warning or "the profiler did not start", request)
            return
        self._capture = capture
        self._show_step(capture)
        last = self.cur_step + request.steps - 1
        self._log("INFO", f"start: steps {self.cur_step} to {last}, {request.warmup} of them warm-up, into {capture.path}")

    def _step_capture(self, capture: Recorder) -> None:
        over = capture.step()
        if over or not capture.running:
            self._capture = None
            self._conclude(capture, over=over)
        else:
            self._show_step(capture)

    def _conclude(self, capture: Recorder, *, over: bool) -> None:
        request = capture.request
        if not over:
            why = capture.last_warning or "the profiler stopped"
            self._refuse(f"failed at step {capture.steps_done} of {request.steps}: {why}", request, capture.path)
        elif capture.limit:
            self._set_state(board.DONE, f"ended early: {capture.limit}", request, capture.path)
        else:
            self._set_state(board.DONE, f"{request.active} steps", request, capture.path)

    def _stop(self, request: CaptureRequest) -> None:
        capture, self._capture = self._capture, None
        if capture is None:
            self._set_state(board.IDLE, "stopped; no capture was running", request)
            return
        capture.end()
        self._set_state(board.DONE, f"stopped after {capture.steps_done} of {capture.request.steps} steps", request, capture.path)

    def _show_step(self, capture: Recorder) -> None:
        text = f"step {capture.steps_done + 1} of {capture.request.steps}"
        queued_id = self._pending.request_id if self._pending is not None else None
        until = self.cur_step + capture.request.steps - capture.steps_done
        self.progress = Progress(board.COLLECTING, text, capture.request.request_id, capture.path, queued_id, until)

    def _warn(self, text: str) -> None:
        """In the log, and on the terminal: what the user has to know of a request that gives no capture."""
        self._log("WARNING", text)
        messages.warning(f"dynamic_profile: {text}")

    def _refuse(self, why: str, request: CaptureRequest | None, capture: str | None = None) -> None:
        self._set_progress(board.REFUSED, why, request, capture)
        self._log("WARNING", f"refused: {why}")

    def _set_state(self, state: str, text: str, request: CaptureRequest, capture: str | None = None) -> None:
        self._set_progress(state, text, request, capture)
        self._log("INFO", f"{state}: {text}" + (f", {capture}" if capture else ""))

    def _set_progress(self, state: str, text: str, request: CaptureRequest | None, capture: str | None = None) -> None:
        self.progress = Progress(state, text, request.request_id if request else None, capture)


def _when(request: CaptureRequest) -> str:
    return "the next step" if request.start_step == NEXT_STEP else f"step {request.start_step}"
