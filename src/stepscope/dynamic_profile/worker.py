# SPDX-License-Identifier: Apache-2.0
"""Counts the steps of one process and records those that are asked for (docs/formats/profiler-api.md 17.4, 17.5)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from stepscope.collect.guard import warn_on_failure
from stepscope.control import board
from stepscope.control.config import NEVER, NEXT_STEP, CaptureRequest

# Between these two calls of step() the time of one step is taken: by then compiling and caching are over.
_TIMED, _SETTLED = (10, 11), 12


class Recorder(Protocol):
    request: CaptureRequest
    taken: int
    path: str | None
    complaint: str | None

    @property
    def running(self) -> bool: ...
    @property
    def limit(self) -> str | None: ...
    def step(self) -> bool: ...
    def end(self) -> None: ...
    def end_with_process(self) -> None: ...


@dataclass(frozen=True)
class Progress:
    """Where the last request stands, in the words of `control.board`."""

    state: str = board.IDLE
    text: str = "no request yet"
    request_id: str | None = None
    capture: str | None = None
    queued_id: str | None = None
    busy_until: int | None = None
    late: bool = False


class Worker:
    """Takes requests from the watching thread (`deliver`) and acts on them at the training thread's steps.

    Args:
        record: makes and starts a capture from a request and the number of the step that begins.
        say: takes level and text for the log.
        rank: this process's rank now; -1 when it has none.
        clock: seconds.
    """

    # step() runs between two steps of training with nothing of ours in the processor's caches: it touches little.
    __slots__ = (
        "_alert", "_capture", "_clock", "_mail", "_pending", "_rank", "_record", "_say", "_timed", "cur_step", "progress",
        "step_interval",
    )  # fmt: skip

    def __init__(
        self,
        record: Callable[[CaptureRequest, int], Recorder],
        say: Callable[[str, str], None],
        rank: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ):
        self.cur_step = 0
        self.progress = Progress()
        self.step_interval: float | None = None
        self._record, self._say, self._rank, self._clock = record, say, rank, clock
        self._alert = False
        self._mail: deque[CaptureRequest] = deque()
        self._pending: CaptureRequest | None = None
        self._capture: Recorder | None = None
        self._timed: float | None = None

    def deliver(self, request: CaptureRequest) -> None:
        """From the watching thread; the next step takes it up."""
        self._mail.append(request)
        self._alert = True

    def step(self) -> None:
        """A step of training has ended."""
        self.cur_step = step = self.cur_step + 1
        if self._alert:
            self._guarded(self._attend)
        if step < _SETTLED and step in _TIMED:
            self._time_step()

    def start(self, request: CaptureRequest) -> None:
        """Record from here on, whatever the request's start_step and ranks say."""
        self._guarded(self._start, request)

    def finish(self) -> None:
        """The process ends."""
        capture, self._capture = self._capture, None
        if capture is not None:
            warn_on_failure("ending the capture", capture.end_with_process)
            text = f"the job ended after {capture.taken} of {capture.request.steps} steps of the capture"
            self._say("WARNING", f"{text}; what was recorded is kept in {capture.path}")
            self._now(board.DONE, text, capture.request, capture.path)

    def _guarded(self, work: Callable[..., bool], *arguments: CaptureRequest) -> None:
        # Before the mail is looked at: what comes later than that raises it again.
        self._alert = False
        if warn_on_failure("dynamic_profile", work, *arguments) is not True:
            capture, self._capture, self._pending = self._capture, None, None
            request = capture.request if capture is not None else None
            self._refuse("a fault of the profiler; it is in the output of the job", request)
        if self._capture is not None or self._pending is not None or self._mail:
            self._alert = True

    def _attend(self) -> bool:
        while self._mail:
            self._take_up(self._mail.popleft())
        if self._capture is not None:
            self._step_capture(self._capture)
        # What came during a capture may begin in the step in which that one ends.
        if self._capture is None and self._pending is not None:
            self._heed(self._pending)
        return True

    def _take_up(self, request: CaptureRequest) -> None:
        """A later request takes the place of one that still waits."""
        for note in request.notes:
            self._say("WARNING", note)
        self._pending = None
        if request.stop:
            self._stop(request)
        elif request.start_step == NEVER:
            self._note(board.IDLE, "start_step is 0: nothing is asked for", request)
        elif not request.wants(self._rank()):
            self._note(board.LEFT_OUT, f"rank {self._rank()} is not in rank_list {list(request.ranks or ())}", request)
        else:
            self._pending = request
            if self._capture is not None:
                self._show_step(self._capture)
                self._say("INFO", "a new request came during the capture; it is taken up afterwards")

    def _heed(self, request: CaptureRequest) -> None:
        if request.start_step in (NEXT_STEP, self.cur_step):
            self._pending = None
            self._begin(request)
        elif request.start_step < self.cur_step and request.agreed:
            self._pending = None
            self._say(
                "WARNING", f"begins at step {self.cur_step}, the other ranks at {request.start_step}: it saw the file too late"
            )
            self._begin(request)
        elif request.start_step < self.cur_step:
            self._pending = None
            self._refuse(f"start_step {request.start_step} has passed: this is step {self.cur_step}", request)
            self.progress = replace(self.progress, late=True)
        elif self.progress.request_id != request.request_id or self.progress.state != board.WAITING:
            self._note(board.WAITING, f"for step {request.start_step}", request)

    def _start(self, request: CaptureRequest) -> bool:
        if self._capture is not None:
            self._say("ERROR", "dp.start has no effect: a capture runs")
        else:
            for note in request.notes:
                self._say("WARNING", note)
            self._begin(request)
        return True

    def _begin(self, request: CaptureRequest) -> None:
        capture = self._record(request, self.cur_step)
        if not capture.running:
            self._refuse(capture.complaint or "the profiler did not start", request)
            return
        self._capture = capture
        self._show_step(capture)
        last = self.cur_step + request.steps - 1
        self._say("INFO", f"start: steps {self.cur_step} to {last}, {request.warmup} of them to warm up, into {capture.path}")

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
            why = capture.complaint or "the profiler stopped"
            self._refuse(f"failed at step {capture.taken} of {request.steps}: {why}", request, capture.path)
        elif capture.limit:
            self._note(board.DONE, f"ended early: {capture.limit}", request, capture.path)
        else:
            self._note(board.DONE, f"{request.active} steps", request, capture.path)

    def _stop(self, request: CaptureRequest) -> None:
        capture, self._capture = self._capture, None
        if capture is None:
            self._note(board.IDLE, "stopped; no capture was running", request)
            return
        capture.end()
        self._note(board.DONE, f"stopped after {capture.taken} of {capture.request.steps} steps", request, capture.path)

    def _show_step(self, capture: Recorder) -> None:
        text = f"step {capture.taken + 1} of {capture.request.steps}"
        queued_id = self._pending.request_id if self._pending is not None else None
        until = self.cur_step + capture.request.steps - capture.taken
        self.progress = Progress(board.COLLECTING, text, capture.request.request_id, capture.path, queued_id, until)

    def _refuse(self, why: str, request: CaptureRequest | None, capture: str | None = None) -> None:
        self._now(board.REFUSED, why, request, capture)
        self._say("WARNING", f"refused: {why}")

    def _note(self, state: str, text: str, request: CaptureRequest, capture: str | None = None) -> None:
        self._now(state, text, request, capture)
        self._say("INFO", f"{state}: {text}" + (f", {capture}" if capture else ""))

    def _now(self, state: str, text: str, request: CaptureRequest | None, capture: str | None = None) -> None:
        self.progress = Progress(state, text, request.request_id if request else None, capture)

    def _time_step(self) -> None:
        now = self._clock()
        if self._timed is None:
            self._timed = now
        else:
            self.step_interval = now - self._timed
