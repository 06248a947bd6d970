# SPDX-License-Identifier: Apache-2.0
"""Run a command and measure its time and the peak memory of its whole process tree."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.1  # sampling more often would cost a sixth of a core


@dataclass(frozen=True)
class Cost:
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    output: str


class Failed(RuntimeError):
    """The measured command failed; the message is its output."""


def run(command: Sequence[str]) -> Cost:
    """Measure one command. Memory is the largest sum over the process tree, what its processes share counted once."""
    before = _children_cpu()
    peaks = [0]
    ended = threading.Event()
    # To a file: a command with much output would block on a pipe that nobody reads.
    with tempfile.TemporaryFile("w+") as output_file:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=output_file, stderr=subprocess.STDOUT)
        # Beside the wait, whose end is exact: a loop that samples and sleeps would add up to a sample to each short command.
        sampler = threading.Thread(target=_sample, args=(process.pid, peaks, ended))
        sampler.start()
        process.wait()
        seconds = time.perf_counter() - began
        ended.set()
        sampler.join()
        output_file.seek(0)
        output = output_file.read()
    if process.returncode:
        raise Failed(f"{' '.join(command)} gave {process.returncode}:\n{output}")
    return Cost(seconds, _children_cpu() - before, max(peaks), output)


def _sample(pid: int, peaks: list[int], ended: threading.Event) -> None:
    pause = SAMPLE_SECONDS
    while not ended.wait(pause):
        began = time.perf_counter()
        peaks.append(_tree_bytes(pid))
        pause = max(SAMPLE_SECONDS, 20 * (time.perf_counter() - began))  # looking holds up the process that is looked at


def _tree_bytes(pid: int) -> int:
    total = 0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            total += _own_bytes(process.pid)
    except psutil.Error:
        return total
    return total


def _own_bytes(pid: int) -> int:
    """Anonymous memory, what forked processes share divided among them; pages of mapped files belong to the page cache."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) << 10
    return 0


def _children_cpu() -> float:
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
