# SPDX-License-Identifier: Apache-2.0
"""Analyses in the background: requests wait on disk beside their captures, and a process that outlives the job works them off.

One process per folder of captures and machine analyses one capture after the other at low priority; `STEPSCOPE_ANALYSIS_JOBS`
allows more. A job that ends abruptly loses none of them: whoever starts the next analysis in the folder continues.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from stepscope import child_process

STATE_FILE = ".analysis.json"
JOBS = "STEPSCOPE_ANALYSIS_JOBS"
WAITING, RUNNING, DONE, FAILED, INTERRUPTED = "waiting", "running", "done", "failed", "interrupted"
_ENTRY = "stepscope.worker:work_off_queue"
_MOST_TRIES = 2  # a capture that ends the process twice is not tried again


@dataclass(frozen=True)
class AnalysisState:
    """How far the analysis of one capture is."""

    state: str
    since: float  # Unix time
    request: dict[str, Any] = field(default_factory=dict)
    host: str = ""
    pid: int = 0
    tries: int = 0
    outcome: dict[str, Any] = field(default_factory=dict)


def enqueue(capture: Path, request: Mapping[str, Any]) -> None:
    """Let the analysis of a capture wait for its turn; `start_worker` comes next."""
    _write(capture, AnalysisState(WAITING, time.time(), dict(request), _host()))


def start_worker(folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that works off what waits in the folder; it ends at once if another one does already."""
    environment = child_process.environment()
    environment.setdefault("POLARS_MAX_THREADS", str(max(1, (os.cpu_count() or 1) // 2)))
    # A session of its own: the signals that end a job do not end it.
    return subprocess.Popen(
        child_process.command(_ENTRY, str(folder)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd="/",
        start_new_session=True,
    )


def state_of(capture: Path) -> AnalysisState | None:
    """The state of a capture's analysis in the background; None when none was asked for."""
    try:
        content = json.loads((capture / STATE_FILE).read_bytes())
        known = {item.name for item in fields(AnalysisState)}
        state = AnalysisState(**{name: value for name, value in content.items() if name in known})
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    if state.state == RUNNING and state.host == _host() and not _runs(state.pid):
        return replace(state, state=INTERRUPTED)
    return state


def forget(capture: Path) -> None:
    """Remove the state of an analysis that is over."""
    (capture / STATE_FILE).unlink(missing_ok=True)


def waiting_in(folder: Path) -> list[Path]:
    """Captures of this machine in a folder that wait for their analysis, the oldest request first."""
    found = []
    for path in folder.glob(f"*/{STATE_FILE}"):
        state = state_of(path.parent)
        again = state is not None and state.state == INTERRUPTED and state.tries < _MOST_TRIES
        if state is not None and state.host == _host() and (state.state == WAITING or again):
            found.append((state.since, path.parent))
    return [capture for _, capture in sorted(found)]


def is_served(folder: Path) -> bool:
    """Whether a process of this machine works off what waits in the folder."""
    handle = _lock(folder, "0")
    if handle is None:
        return True
    os.close(handle)
    return False


def describe(state: AnalysisState) -> str:
    """One line for `stepscope info`; empty when there is nothing to say."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state.since))
    return {
        WAITING: f"waiting for its turn since {when}",
        RUNNING: f"running since {when} (process {state.pid} on {state.host.partition(' ')[0]})",
        INTERRUPTED: f"interrupted: its process has ended; it began at {when}",
        FAILED: f"failed at {when}: {state.outcome.get('error')}",
    }.get(state.state, "")


def work_off(folder: Path, analyse: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Analyse what waits in the folder until nothing does; does nothing while enough other processes do."""
    while waiting_in(folder):
        with _turn(folder) as ours:
            if not ours:
                return  # they look again after they have given up their turn
            for capture, running in iter(lambda: _claim(folder), None):
                outcome = analyse(running.request)
                over = replace(running, state=DONE if outcome.get("ok") else FAILED, since=time.time(), outcome=outcome)
                with contextlib.suppress(FileNotFoundError):  # the capture was removed
                    _write(capture, over)


def _claim(folder: Path) -> tuple[Path, AnalysisState] | None:
    """The next capture, marked as this process's; None when none waits."""
    handle = _lock(folder, "claim", wait=True)
    try:
        for capture in waiting_in(folder):
            state = state_of(capture)
            if state is not None:
                running = replace(state, state=RUNNING, since=time.time(), pid=os.getpid(), tries=state.tries + 1)
                _write(capture, running)
                return capture, running
        return None
    finally:
        if handle is not None:
            os.close(handle)


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[bool]:
    """Whether this process may analyse now."""
    text = os.environ.get(JOBS, "")
    for number in range(int(text) if text.isdigit() and int(text) else 1):
        handle = _lock(folder, str(number))
        if handle is not None:
            try:
                yield True
            finally:
                os.close(handle)
            return
    yield False


def _lock(folder: Path, word: str, *, wait: bool = False) -> int | None:
    """A lock of this machine; the kernel releases it with the process."""
    place = Path(tempfile.gettempdir(), f"stepscope-{os.getuid()}")
    place.mkdir(mode=0o700, exist_ok=True)
    if place.is_symlink() or place.stat().st_uid != os.getuid():
        place = Path(tempfile.mkdtemp(prefix="stepscope-"))  # of somebody else: better too many analyses than none
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    handle = os.open(place / f"analysis-{name}-{word}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _write(capture: Path, state: AnalysisState) -> None:
    partial = capture / f"{STATE_FILE}.{secrets.token_hex(4)}"
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "w") as file:
            json.dump(asdict(state), file)
        os.replace(partial, capture / STATE_FILE)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _host() -> str:
    """This machine and container: process numbers mean something only here."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()} {namespace}"


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return status not in "ZX"
