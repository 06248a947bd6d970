"""Captures of marks alone, when the job or its folder goes away."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

import pytest

import stepscope
from stepscope import mstx
from stepscope.profiler import _ExperimentalConfig, profile, schedule, tensorboard_trace_handler

pytestmark = pytest.mark.slow  # a profiler asks torch for its version

JOB = """
import os, time
from pathlib import Path
from stepscope import mstx
from stepscope.profiler import _ExperimentalConfig, profile, schedule, tensorboard_trace_handler
profiler = profile(
    schedule=schedule(wait=0, warmup=0, active=1000, repeat=1),
    on_trace_ready=tensorboard_trace_handler("runs"),
    experimental_config=_ExperimentalConfig(profiler_level="Level_none", mstx=True),
)
profiler.start()
mstx.range_start("never ends")
file = Path(profiler.prof_if.prof_path) / "FRAMEWORK" / "x.mstx.jsonl"
while file.stat().st_size == 0:  # what was written to the disk stays
    with mstx.mstx_range("work"):
        time.sleep(0.001)
    profiler.step()
os.kill(os.getpid(), 9)
"""


def test_a_killed_job_keeps_its_marks(tmp_path):
    done = subprocess.run([sys.executable, "-c", JOB], cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    capture = stepscope.open(tmp_path / "runs")
    counts = dict(capture.marks.filter(capture.marks["message"] == "work").group_by("message").len().iter_rows())
    assert counts["work"] == capture.steps.height > 0
    assert capture.steps["step"].to_list() == list(range(capture.steps.height))
    assert "never ends" not in capture.marks["message"].to_list()
    assert capture.quality.filter(capture.quality["issue"] == "unreadable-line").height == 0


def test_a_capture_whose_folder_is_deleted_lets_training_go_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPSCOPE_MIN_FREE_BYTES", "0")
    config = _ExperimentalConfig(profiler_level="Level_none", mstx=True)
    handler = tensorboard_trace_handler("runs", analyse_flag=False)
    with profile(
        schedule=schedule(wait=0, warmup=0, active=1, repeat=2), on_trace_ready=handler, experimental_config=config
    ) as prof:
        shutil.rmtree("runs")
        assert mstx.range_start("into nothing") > 0
        prof.step()
        mstx.mark("after")
    assert mstx.range_start("off") == 0
    assert capsys.readouterr().err.count("failed") <= 1
