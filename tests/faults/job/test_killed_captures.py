"""A process that is killed while it records on the simulated NPU leaves whole steps, and everyone says that it did not end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from npu_process import reason_without_device

import stepscope
from stepscope.cli import main

pytestmark = pytest.mark.slow  # a training process of its own

# The training thread does nothing while it waits for the device's first records on disk, and ends the process in that moment:
# whatever is written after them is missing.
SCRIPT = """
import os, signal, sys
from pathlib import Path
import torch
from stepscope import profiler as P, simnpu
simnpu.load()
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32)).to("npu")
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(8, 32).to("npu")

def step():
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()

step()
prof = P.profile(
    activities=[P.ProfilerActivity.CPU, P.ProfilerActivity.NPU],
    schedule=P.schedule(wait=0, active=1_000_000),  # longer than any of its processes lives
    on_trace_ready=P.tensorboard_trace_handler("runs"),
    profile_memory=True,
)
prof.start()
for _ in range(3):
    step()
    prof.step()
torch.npu.synchronize()
capture = Path(prof.prof_if.prof_path)
while not any(path.stat().st_size for path in capture.glob("PROF_*/device_0/data/stars_soc*slice_0")):
    pass
os.kill(os.getpid(), signal.SIGKILL if sys.argv[1] == "KILL" else signal.SIGTERM)
"""


@pytest.fixture(scope="module", params=["KILL", "TERM"])
def killed(request, tmp_path_factory) -> Path:
    reason = reason_without_device()
    if reason:
        pytest.skip(f"no simulated NPU: {reason}")
    folder = tmp_path_factory.mktemp(request.param)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, request.param],
        cwd=folder,
        env={**os.environ, "STEPSCOPE_MIN_FREE_BYTES": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == -signal.Signals[f"SIG{request.param}"], done.stdout + done.stderr
    (found,) = folder.rglob("*_ascend_pt")
    return found


def test_every_kernel_on_disk_has_its_operator(killed):
    kernels = stepscope.open(killed).kernels.filter(~pl.col("extra"))
    assert kernels.height >= 3 * 10
    assert kernels.filter(pl.col("op").is_null()).height == 0


def test_memory_of_the_device_is_there(killed):
    events = stepscope.open(killed).memory_events
    # A forward and a backward pass of two layers and an optimizer step allocate more often than this.
    assert events.filter(pl.col("device_type").cast(pl.String) == "npu").height >= 3 * 5


def test_everyone_says_that_it_did_not_end(killed, tmp_path, capsys):
    said = "the recording did not end"
    assert main(["info", str(killed)]) == 0
    assert said in capsys.readouterr().out.splitlines()[0]
    assert main(["info", "--json", str(killed)]) == 0
    assert json.loads(capsys.readouterr().out)["complete"] is False
    assert main(["top", "--json", "--limit", "2", str(killed)]) == 0
    assert [json.loads(line)["complete"] for line in capsys.readouterr().out.splitlines()] == [False, False]
    assert main(["report", str(killed), "--out", str(tmp_path / "report.html")]) == 0
    assert said in (tmp_path / "report.html").read_text()
