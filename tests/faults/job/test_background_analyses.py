"""Analyses in the background survive the end of the job, however abrupt it is."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from stepscope import analysis_queue as queue
from stepscope.cli import main

pytest.importorskip("torch", reason="collecting needs torch")
pytestmark = pytest.mark.slow  # a training process, and one that analyses

SCRIPT = """
import os, sys, threading
import torch
from stepscope import profiler as P
handler = P.tensorboard_trace_handler("runs", async_mode=True)
for _ in range(4):
    with P.profile(on_trace_ready=handler):
        torch.ones(4).sin()
print("threads", sum(thread.name == "stepscope-analysis" for thread in threading.enumerate()), flush=True)
if sys.argv[1] == "abruptly":
    os._exit(0)
"""
PATIENCE = 240


def run(folder, how):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how],
        cwd=folder,
        env={**os.environ, "STEPSCOPE_MIN_FREE_BYTES": "0"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "threads 1" in done.stdout or "threads 0" in done.stdout
    return done.stdout + done.stderr


def finished(folder):
    """Folders come and go meanwhile."""
    return sum("analyse.done" in names for _, _, names in os.walk(folder))


def test_all_captures_are_analysed_after_an_abrupt_end(tmp_path):
    run(tmp_path, "abruptly")
    captures = sorted((tmp_path / "runs").glob("*_ascend_pt"))
    assert len(captures) == 4
    until = time.monotonic() + PATIENCE
    running = set()
    while finished(tmp_path) < 4:
        # One may end and the next begin while we look: those that run in both looks run at the same time.
        states = [queue.state_of(capture) for capture in captures]
        again = [queue.state_of(capture) for capture in captures]
        running.add(
            sum(all(one is not None and one.state == queue.RUNNING for one in pair) for pair in zip(states, again, strict=True))
        )
        assert time.monotonic() < until, states
        time.sleep(0.02)
    assert running <= {0, 1}


def test_a_job_that_ends_normally_waits_for_them(tmp_path):
    said = run(tmp_path, "normally")
    assert finished(tmp_path) == 4
    assert said.count("All profiling data parsed") == 4
    assert not list(tmp_path.rglob(queue.STATE_FILE))


def test_info_says_that_an_analysis_waits(tmp_path, capsys):
    run(tmp_path, "normally")
    capture = next((tmp_path / "runs").glob("*_ascend_pt"))
    queue.enqueue(capture, {})
    assert main(["info", str(capture)]) == 0
    assert "waiting for its turn since" in capsys.readouterr().out
