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
_PERF_LOOKS_SECONDS = 0.25  # perf polls ten times a second and loses what it has not seen when stopped


class OsCalls:
    """Records until `stop`, beginning shortly after `start`, which does not wait for perf."""

    def __init__(self, framework: Path):
        self._framework = framework
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._perf: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        perf = shutil.which("perf")
        if perf is None:
            _leave_out("perf is not installed")
            return
        # Created here, because perf would make it readable for everybody.
        os.close(os.open(self._framework / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, paths.FILE_MODE))
        command = [perf, "trace", "-T", "-p", str(os.getpid()), "-o", str(self._framework / FILE)]
        self._perf = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors)

    def stop(self) -> None:
        perf, self._perf = self._perf, None
        with self._errors as errors:
            if perf is None:
                return
            if perf.poll() is None:
                self._write_anchors()
                time.sleep(_PERF_LOOKS_SECONDS)
            perf.send_signal(signal.SIGINT)
            try:
                code = perf.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                perf.kill()
                code = perf.wait()
            if code not in (0, -signal.SIGINT):
                errors.seek(0)
                output = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
                _leave_out(f"perf trace failed: {output[0].strip() if output else code}")

    def _write_anchors(self) -> None:
        lines = ["pid,before_raw_ns,after_raw_ns\n"]
        for _ in range(_ANCHORS):
            before = raw_ns()
            os.getsid(0)
            lines.append(f"{os.getpid()},{before},{raw_ns()}\n")
        paths.write_file(self._framework / ANCHORS, "".join(lines).encode())


def _leave_out(why: str) -> None:
    messages.once(messages.warning, f"host_sys=osrt (operating system calls) is left out: {why}")
