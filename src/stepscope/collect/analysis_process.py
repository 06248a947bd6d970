# SPDX-License-Identifier: Apache-2.0
"""Analysis beside the training job: always another process, so that its memory, threads and faults stay there."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from stepscope import analysis_queue, child_process
from stepscope.collect import messages

_WORKER = "stepscope.worker:main"
# What it imports on its way through the analysis of a job's own capture.
_USED = (
    "stepscope.worker",
    "stepscope.analysis.link.capture",
    "stepscope.export.analysis_db",
    "stepscope.export.ascend_db",
    "stepscope.export.text_files",
    "stepscope.formats.ascend_capture.records",
    "stepscope.formats.cann.tasks",
    "pyarrow",
)
_LOOK_SECONDS, _END_SECONDS = 0.1, 1.0


class Outcome(NamedTuple):
    ok: bool
    error: str | None
    seconds: float
    files: tuple[str, ...] = ()
    unmet: str | None = None  # what was asked for and the capture does not have


class AnalysisProcess:
    """One running request to the worker.

    Args:
        request: what to do, as stepscope.worker takes it.
        background: leave half of the processors to the training job.
    """

    def __init__(self, request: Mapping[str, Any], *, background: bool = False):
        self._began = time.monotonic()
        text = json.dumps({**request, "background": background})
        warm = None if background else _warm.take(text)
        if warm is not None:
            self._process, self._errors = warm
            return
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by wait()
        environment = child_process.environment()
        if background:
            environment.setdefault("POLARS_MAX_THREADS", str(max(1, (os.cpu_count() or 1) // 2)))
        self._process = subprocess.Popen(
            child_process.command(_WORKER, text),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )

    def wait(self, progress: Callable[[str], None] = lambda stage: None) -> Outcome:
        """Read the worker's reports until it ends."""
        result: dict[str, Any] = {}
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                report = child_process.report(line)
                if "stage" in report:
                    progress(str(report["stage"]))
                result = report if "ok" in report else result
        code = self._process.wait()
        seconds = time.monotonic() - self._began
        with self._errors as errors:
            if not result:
                return Outcome(
                    False,
                    f"the analysis process ended with {child_process.how_ended(code)}: {child_process.last_line(errors)}",
                    seconds,
                )
        return Outcome(bool(result["ok"]), result.get("error"), seconds, tuple(result.get("files", ())), result.get("unmet"))


class _WarmProcess:
    """At most one process that has loaded the analyser and waits for a request."""

    def __init__(self) -> None:
        self._waiting: tuple[subprocess.Popen[bytes], IO[bytes]] | None = None

    def start(self) -> None:
        if self._waiting is not None and self._waiting[0].poll() is None:
            return
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        process = subprocess.Popen(
            child_process.command("stepscope.child_process:wait_for_request", _WORKER, *_USED),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=child_process.environment(),
        )
        self._waiting = process, errors

    def take(self, request: str) -> tuple[subprocess.Popen[bytes], IO[bytes]] | None:
        """The process, with the request sent to it; None when there is none."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return None
        process = waiting[0]
        assert process.stdin is not None
        try:
            os.write(process.stdin.fileno(), request.encode() + b"\n")
        except OSError:  # it has ended
            _dispose(*waiting)
            return None
        process.stdin.close()
        return waiting

    def end(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            _dispose(*waiting)

    def forget(self) -> None:
        """Leave the process to the one that started it: after a fork only that one's end of the pipe may keep it waiting."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting[0].stdin is not None:
            waiting[0].returncode = 0  # not a child of this process
            waiting[0].stdin.close()


def _dispose(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    process.kill()  # it waits, and holds nothing
    process.communicate()
    errors.close()


_warm = _WarmProcess()
atexit.register(lambda: _warm.end())


def prepare_analysis() -> None:
    """Let a process load the analyser now, so that the next analysis that the job waits for begins at once."""
    with contextlib.suppress(OSError):
        _warm.start()


def wait_with_progress(process: AnalysisProcess) -> Outcome:
    """Wait, showing the current phase on one line of a terminal."""
    if not sys.stderr or not sys.stderr.isatty():
        return process.wait()
    outcome = process.wait(lambda stage: print(f"\r\033[K{stage} …", end="", file=sys.stderr, flush=True))
    print("\r\033[K", end="", file=sys.stderr, flush=True)
    return outcome


def analyse_capture(
    capture: Path,
    *,
    background: bool,
    op_args: bool = False,
    afterwards: Callable[[], None] = lambda: None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Analyse a finished capture and print the outcome; a failure gives one warning.

    Args:
        capture: the capture's folder.
        background: return at once; the interpreter waits for the analysis when it ends.
        op_args: write the operators' arguments beside the capture too.
        afterwards: called when the analysis has ended, also after a failure.
        further: other keys of the request to the worker.
    """
    wanted = {"do": "analyse", "capture": str(capture), "op_args": op_args, **(extra or {})}
    how = "async mode" if background else "sync mode, for which the job waits (async_mode=True does not wait)"
    messages.info(f"Start parsing profiling data in {how}, at: {capture}")

    def finish(outcome: Outcome) -> None:
        if outcome.unmet:
            messages.error(f"{outcome.unmet}: {capture}")
        if outcome.ok:
            waited = "" if background else "; the job waited for it"
            messages.info(
                f"All profiling data parsed in a total time of {outcome.seconds:.1f} s{waited}; next: stepscope top {capture}"
            )
        else:
            messages.warning(f"the analysis failed; the raw data are intact, try `stepscope analyse {capture}`: {outcome.error}")
        afterwards()

    if background:
        analysis_queue.enqueue(capture, wanted)
        _background.follow(capture, finish)
    else:
        finish(wait_with_progress(AnalysisProcess(wanted)))


class _Background:
    """Waits for the analyses of this job that other processes make, all on one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Path, Callable[[Outcome], None]] = {}
        self._workers: list[subprocess.Popen[bytes]] = []
        self._thread: threading.Thread | None = None

    def follow(self, capture: Path, finish: Callable[[Outcome], None]) -> None:
        with self._lock:
            self._workers.append(analysis_queue.start_worker(capture.parent))
            self._open[capture] = finish
            if self._thread is None:
                # Not a daemon: the interpreter waits for it, as it waits for any thread of the user.
                self._thread = threading.Thread(target=self._wait, name="stepscope-analysis", daemon=False)
                self._thread.start()

    def _wait(self) -> None:
        while True:
            with self._lock:
                self._workers = [process for process in self._workers if process.poll() is None]
                idle = not self._workers
                waiting = list(self._open.items())
            for capture, finish in waiting:
                outcome = _outcome_of(capture, idle=idle)
                if outcome is not None:
                    self._open.pop(capture)
                    finish(outcome)
            if not self._open:
                for process in self._workers:  # done with ours; it may go on with those of other ranks
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_END_SECONDS)
            with self._lock:
                if not self._open:
                    self._thread = None
                    return
            time.sleep(_LOOK_SECONDS)


_background = _Background()


def _forget_in_child() -> None:
    global _background
    _background = _Background()  # the thread and its lock are the parent's
    _warm.forget()


os.register_at_fork(after_in_child=_forget_in_child)


def _outcome_of(capture: Path, *, idle: bool) -> Outcome | None:
    """How the analysis of a capture ended; None while it waits or runs. `idle`: no process of ours works any more."""
    state = analysis_queue.state_of(capture)
    if state is None:
        return Outcome(False, "the capture was removed", 0.0)
    if state.state in (analysis_queue.DONE, analysis_queue.FAILED):
        analysis_queue.forget(capture)
        result = state.outcome
        seconds = float(result.get("seconds") or 0.0)
        return Outcome(bool(result.get("ok")), result.get("error"), seconds, tuple(result.get("files", ())), result.get("unmet"))
    if idle and (state.state == analysis_queue.INTERRUPTED or not analysis_queue.is_served(capture.parent)):
        return Outcome(False, "the analysis process ended unexpectedly", time.time() - state.since)
    return None
