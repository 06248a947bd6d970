# SPDX-License-Identifier: Apache-2.0
"""Watches profiler_config.json for one process and keeps its answer up to date (docs/formats/profiler-api.md 17.3).

It is a thread of the training process: a separate process would have to be forked from a threaded one, found again and cleaned
up, while a thread cannot be left behind. It shares nothing but the folder with other ranks or jobs.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from stepscope.collect import messages
from stepscope.collect.guard import Fuse, quietly
from stepscope.control import board, trust
from stepscope.control.config import CONFIG_FILE, LARGEST, NEVER, NEXT_STEP, CaptureRequest, parse, template
from stepscope.dynamic_profile.journal import Journal
from stepscope.dynamic_profile.worker import Progress
from stepscope.errors import CaptureError

LEAST_SECONDS, MOST_SECONDS = 1.0, 50.0
LAST_WRITE_SECONDS = 5.0  # longest wait at process exit for a folder that hangs


class WatchedWorker(Protocol):
    """What the watching thread needs of the worker."""

    cur_step: int
    progress: Progress

    def deliver(self, request: CaptureRequest) -> None: ...


class Monitor:
    """Polls the file, passes requests to the worker and writes the worker's progress.

    Args:
        folder: where profiler_config.json is.
        worker: receives requests.
        journal: the logs.
        answer: gives the identity of this process.
        since_ns: a file that exists at the start counts as a request if it is younger than this.
        agree: gives the common step of all ranks for a request without a step.
        clock: seconds.
        poll_seconds: a fixed time between two polls.
        distrust: says why nothing in the folder is followed, or None.
    """

    def __init__(
        self,
        folder: Path,
        worker: WatchedWorker,
        journal: Journal,
        answer: Callable[[], board.Answer],
        *,
        since_ns: int,
        agree: Callable[[str, CaptureRequest], int | None] = lambda key, request: None,
        clock: Callable[[], float] = time.monotonic,
        poll_seconds: float | None = None,
        distrust: Callable[[], str | None] | None = None,
    ):
        self.problem: str | None = None
        self._unusable = False  # the file itself is invalid, so the request is refused
        self._folder, self._worker, self._journal, self._answer = folder, worker, journal, answer
        self._agree = agree
        self._distrust = distrust or (lambda: trust.distrust_of_folder(folder))
        self._file = str(folder / CONFIG_FILE)
        self._clock, self._since_ns, self._fixed = clock, since_ns, poll_seconds
        self._seen: tuple[int, int, int] | None = None
        self._first = True
        self._written: tuple[Progress, str | None] | None = None
        self._written_at = float("-inf")
        self._pace = _Pace()
        self._wake, self._ended = threading.Event(), False
        self._fuse = Fuse(self._on_fault)
        self.thread = threading.Thread(target=self._run, name="stepscope-dynamic-profile", daemon=True)

    @property
    def poll_seconds(self) -> float:
        """The duration of a step in whole seconds: more often finds nothing new, and less often begins captures late."""
        if self._fixed is not None:
            return self._fixed
        return min(max(float(int(self._pace.seconds or 0)), LEAST_SECONDS), MOST_SECONDS)

    def start(self) -> None:
        self.thread.start()

    def wake(self) -> None:
        self._wake.set()

    def end(self) -> None:
        """Report that the process ends."""
        self._ended = True
        self._wake.set()
        if self.thread.is_alive():
            self.thread.join(LAST_WRITE_SECONDS)

    def poll(self) -> None:
        """Read the file, write the answer and the logs once."""
        self.read_config()
        # At each poll, since one slow step among fast ones must not make all later polls rare.
        self._pace.note(self._worker.cur_step, self._clock())
        self.answer()
        self._journal.flush()

    def read_config(self) -> None:
        """Read the file if it has changed."""
        distrusted = self._distrust()
        if distrusted is not None:
            # What stands there now is not followed later either, when the folder is in order again.
            self._first, self._since_ns = True, time.time_ns()
            self._report(f"requests are not followed: {distrusted}", unusable=True)
            return
        first, self._first = self._first, False
        try:
            found = self._read()
        except CaptureError as problem:
            self._report(problem.what, unusable=True)
            return
        except FileNotFoundError:
            self._seen = None
            self._report(f"{CONFIG_FILE} is missing; write it again to request a capture")
            return
        except OSError as problem:
            if problem.errno == errno.ELOOP:
                self._report(f"the request is not followed: {self._file} is a symbolic link", unusable=True)
                return
            self._report(f"{CONFIG_FILE} cannot be read: {problem.strerror}")
            return
        if found is None:
            return
        if first and self._seen is not None and self._seen[0] <= self._since_ns:
            self._journal.config_file("INFO", f"{CONFIG_FILE} is older than this job; waiting for the next change")
            return
        self._hand_over(found, changed=not first)

    def answer(self) -> None:
        """Write our answer when it has changed, and regularly as a heartbeat."""
        progress, now = self._worker.progress, self._clock()
        news = (progress, self.problem)
        quiet = board.HEARTBEAT_SECONDS if self._pace.seconds is not None else 0.0  # the first known speed is written at once
        if news == self._written and now - self._written_at < max(quiet, self.poll_seconds):
            return
        self._write(progress)
        self._written, self._written_at = news, now

    def _write(self, progress: Progress, *, ended: bool = False) -> None:
        state, text = progress.state, progress.text
        if self.problem and self._unusable and state not in (board.WAITING, board.COLLECTING):
            state, text = board.REFUSED, self.problem
        answer = replace(
            self._answer(),
            step=self._worker.cur_step,
            step_seconds=self._pace.seconds,
            poll_seconds=self.poll_seconds,
            state=board.ENDED if ended else state,
            text=f"{state}, {text}" if ended else text,
            request_id=progress.request_id,
            queued_id=progress.queued_id,
            busy_until=progress.busy_until,
            late=progress.late,
            capture=progress.capture,
            problem=self.problem,
        )
        try:
            board.write(self._folder, answer)
        except (OSError, CaptureError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else problem.cause
            text = f"cannot write the state of this rank below {self._folder}: {why}"
            quietly(board.write_over, self._folder, replace(answer, problem=text))
            messages.once(messages.warning, f"{text}; `stepscope ctl status` may show an old state")
            self._journal.config_file("ERROR", text)

    def _read(self) -> bytes | None:
        """The content if it is new, else None. Opens the file each time, because shared folders cache a plain stat."""
        # Without O_NONBLOCK, opening a pipe of that name would block for ever.
        number = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            identity = _identity(number)
            if identity == self._seen:
                return None
            distrusted = trust.distrust_of_file(self._file, os.fstat(number))
            if distrusted is not None:
                self._seen = None
                raise CaptureError(f"the request is not followed: {distrusted}")
            with open(number, "rb", closefd=False) as file:
                content = file.read(LARGEST + 1)
            # Changed while we read it: the next poll reads it whole.
            self._seen = identity if identity == _identity(number) else None
        finally:
            os.close(number)
        return content if self._seen else None

    def _hand_over(self, content: bytes, *, changed: bool) -> None:
        try:
            request = parse(content)
        except CaptureError as problem:
            self._report(f"{problem.what}: {problem.cause}" if problem.cause else problem.what, unusable=True)
            return
        self.problem = None
        if not request.stop and request.start_step != NEVER:
            request = replace(request, refusal=trust.outside_roots(request.prof_dir))
        if changed and request.start_step == NEVER and not request.stop and content != template():
            text = f"{CONFIG_FILE} was changed, but its start_step is {NEVER}, which means off: nothing is recorded"
            self._journal.config_file("WARNING", text)
            messages.warning(f"{text}; set -1 for the next step, or a number above {self._worker.cur_step}")
        if request.start_step == NEXT_STEP and self._seen is not None:
            common = self._agree(f"{self._seen[0]}_{hashlib.sha256(content).hexdigest()[:12]}", request)
            if common is not None:
                request = replace(request, start_step=common, agreed=True)
        self._journal.config_file("INFO", f"load json success: start_step {request.start_step}, active {request.active}")
        self._worker.deliver(request)

    def _report(self, text: str, *, unusable: bool = False) -> None:
        """Log a problem; one that persists is logged once."""
        if text != self.problem:
            self.problem, self._unusable = text, unusable
            self._journal.config_file("ERROR", text)
            messages.warning(f"dynamic_profile: {text}")

    def _run(self) -> None:
        while not self._ended:
            self._fuse.run("watching profiler_config.json", self.poll)
            if self._fuse.blown:
                return
            self._wake.wait(self.poll_seconds)
            self._wake.clear()
        self._journal.config_file("INFO", "done")
        quietly(self._write_last)

    def _write_last(self) -> None:
        self._write(self._worker.progress, ended=True)
        self._journal.close()

    def _on_fault(self) -> None:
        self._report("the watching thread failed; see the output of the job for the reason")
        self._write(self._worker.progress)
        self._journal.close()


class _Pace:
    """Seconds per step: the fastest of the last intervals, since a start step that is too early fails and a later one works."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._last: tuple[int, float] | None = None
        self._recent: list[float] = []

    def note(self, step: int, now: float) -> None:
        if self._last is not None and step > self._last[0] and now > self._last[1]:
            self._recent = [*self._recent[-2:], (now - self._last[1]) / (step - self._last[0])]
            self.seconds = min(self._recent)
        if self._last is None or step != self._last[0]:
            self._last = step, now


def _identity(number: int) -> tuple[int, int, int]:
    status = os.fstat(number)
    return status.st_mtime_ns, status.st_size, status.st_ino
