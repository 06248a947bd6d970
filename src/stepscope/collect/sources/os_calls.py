# SPDX-License-Identifier: Apache-2.0
"""Calls of this process into the operating system (host_sys osrt), by `perf trace` where it is installed and allowed.

perf stamps with a clock of its own. A few distinctive calls, made at known times, show how it relates to ours.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from stepscope.collect import messages, paths
from stepscope.collect.clocks import raw_ns

FILE, ANCHORS = "x.os_calls.txt", "x.os_call_anchors.csv"
_ANCHORS = 5
_PATIENCE_SECONDS = 5
_ATTACH_SECONDS = 5.0  # perf needs a tenth of a second, more on a busy machine
_STEP_SECONDS, _UNSEEN_SECONDS = 0.02, 0.5
# perf looks for calls whenever there are some, ten times a second at least, and loses what it has not seen when stopped.
# A busy machine may not let it look for a while: neither when it begins nor at the end is a fixed time enough.
_LOOKS = 3


class OsCalls:
    """Records from `start`, which waits until perf is attached, until `stop`."""

    def __init__(self, framework: Path):
        self._framework = framework
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._perf: subprocess.Popen[bytes] | None = None
        self._attached = False

    def start(self) -> None:
        perf = shutil.which("perf")
        if perf is None:
            _leave_out("perf is not installed")
            return
        # Created here, because perf would make it readable for everybody.
        os.close(os.open(self._framework / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, paths.FILE_MODE))
        command = [perf, "trace", "-T", "-p", str(os.getpid()), "-o", str(self._framework / FILE)]
        self._perf = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors)
        self._attached = _wait_until_attached(self._perf)

    def stop(self) -> None:
        perf, self._perf = self._perf, None
        with self._errors as errors:
            if perf is None:
                return
            if perf.poll() is None and self._attached:
                self._write_anchors()
                _wait_until_it_looks(perf, time.monotonic() + _PATIENCE_SECONDS)
            perf.send_signal(signal.SIGINT)
            try:
                code = perf.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                perf.kill()
                code = perf.wait()
            errors.seek(0)
            output = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
            if code not in (0, -signal.SIGINT):
                _leave_out(f"perf trace failed: {output[0] if output else code}")
            elif not self._attached:
                _leave_out(f"perf trace was not attached to this process within {_ATTACH_SECONDS:.0f} s")
            elif not (self._framework / FILE).stat().st_size:
                _leave_out(f"perf trace recorded no call{f': {output[0]}' if output else ''}")

    def _write_anchors(self) -> None:
        lines = ["pid,before_raw_ns,after_raw_ns\n"]
        for _ in range(_ANCHORS):
            before = raw_ns()
            os.getsid(0)
            lines.append(f"{os.getpid()},{before},{raw_ns()}\n")
        paths.write_file(self._framework / ANCHORS, "".join(lines).encode())


def _wait_until_attached(perf: subprocess.Popen[bytes]) -> bool:
    """Whether perf records before our patience ends."""
    deadline = time.monotonic() + _ATTACH_SECONDS
    while time.monotonic() < deadline and perf.poll() is None:
        try:
            mapped = _has_event_buffer(perf.pid)
        except OSError:  # it has just ended, or has rights that we lack: then it is given the time it usually needs
            time.sleep(_UNSEEN_SECONDS)
            return perf.poll() is None
        if mapped:
            return _wait_until_it_looks(perf, deadline)
        time.sleep(_STEP_SECONDS)
    return False


def _has_event_buffer(pid: int) -> bool:
    """perf maps the buffer of its events right before it switches them on."""
    return "[perf_event]" in Path(f"/proc/{pid}/maps").read_text()


def _wait_until_it_looks(perf: subprocess.Popen[bytes], deadline: float) -> bool:
    """Whether perf has looked for calls since now: it does so from when it records, and sleeps between two looks."""
    before = _sleeps(perf.pid)
    while perf.poll() is None:
        if _sleeps(perf.pid) >= before + _LOOKS:
            return True
        if time.monotonic() > deadline:
            break
        time.sleep(_STEP_SECONDS)
    return False


def _sleeps(pid: int) -> int:
    """How often a process went to sleep by itself."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has just ended
        return 0
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].partition("\n")[0])


def _leave_out(why: str) -> None:
    messages.warning(f"host_sys=osrt (operating system calls) is left out: {why}")
