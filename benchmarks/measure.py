# SPDX-License-Identifier: Apache-2.0
"""Run a command and say how long it took and how much memory its whole process tree held at the worst moment."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

SAMPLE_SECONDS = 0.1  # more often would take a sixth of a core from what is measured


@dataclass(frozen=True)
class Cost:
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    output: str


class Failed(RuntimeError):
    """The measured command did not succeed; the message is what it printed."""


def run(command: Sequence[str]) -> Cost:
    """Measure one command. Memory is the largest sum of unshared memory over the process tree."""
    before = _children_cpu()
    started = time.perf_counter()
    peak = 0
    # To a file: a talkative command would wait for ever on a pipe that nobody reads.
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        while process.poll() is None:
            peak = max(peak, _tree_bytes(process.pid))
            time.sleep(SAMPLE_SECONDS)
        seconds = time.perf_counter() - started
        said.seek(0)
        output = said.read()
    if process.returncode:
        raise Failed(f"{' '.join(command)} gave {process.returncode}:\n{output}")
    return Cost(seconds, _children_cpu() - before, peak, output)


def _tree_bytes(pid: int) -> int:
    total = 0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            # Pages of memory-mapped files belong to the page cache, not to the analyser: count what is its own.
            memory = process.memory_info()
            total += memory.rss - memory.shared
    except psutil.Error:
        return total
    return total


def _children_cpu() -> float:
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
