"""What one script leaves on the simulated NPU, seen from outside: its output, its files and what the commands say about them."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from npu_process import reason_without_device

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow  # a training process and its analyses, once for all tests

SCRIPT = """
import time
import torch
import torch_npu
from torch.utils.checkpoint import checkpoint
from torch_npu import profiler

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(64, 64)
    def forward(self, x):
        return torch.softmax(self.inner(x), dim=-1)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = Block(), torch.nn.Linear(64, 4)
    def forward(self, x):
        return self.head(checkpoint(self.block, x, use_reentrant=True))

net, pages = Net().npu(), torch.rand(4, 1024, 1024)
def train_one_step():
    net(torch.rand(8, 64).npu().requires_grad_()).sum().backward()
train_one_step()
config = profiler._ExperimentalConfig(
    profiler_level=profiler.ProfilerLevel.Level1, export_type=[profiler.ExportType.Text], op_attr=True, l2_cache=True,
    data_simplification=False, sys_io=True, sys_interconnection=True, mstx=True)
with profiler.profile(
    activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU], with_stack=True, with_modules=True,
    record_shapes=True, profile_memory=True, experimental_config=config,
    schedule=profiler.schedule(wait=0, warmup=0, active=2, repeat=1), on_trace_ready=profiler.tensorboard_trace_handler("result"),
) as prof:
    for _ in range(5):
        pages.npu()
    torch.npu.synchronize()
    time.sleep(0.06)  # three samples of the links without traffic
    for _ in range(2):
        torch_npu.npu.mstx.mark("here", torch_npu.npu.current_stream())
        train_one_step()
        prof.step()
print("the script's own words")
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The process, the capture and its folder of results."""
    reason = reason_without_device()
    if reason:
        pytest.skip(f"no simulated NPU: {reason}")
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "stepscope", "run", "train.py"]
    environment = {**os.environ, "STEPSCOPE_MIN_FREE_BYTES": "0", "TASK_QUEUE_ENABLE": "2"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (capture,) = (folder / "result").glob("*_ascend_pt")
    return done, capture, capture / "ASCEND_PROFILER_OUTPUT"


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def select(results, query):
    with closing(sqlite3.connect(results / "ascend_pytorch_profiler.db")) as database:
        return database.execute(query).fetchall()


def test_messages_go_to_stderr_and_say_who_waits_and_what_comes_next(ran):
    done, capture, _ = ran
    assert done.stdout == "the script's own words\n"
    assert "for which the job waits (async_mode=True does not wait)" in done.stderr
    assert f"; the job waited for it; next: stepscope top {capture}\n" in done.stderr


def test_operators_of_the_scripts_thread_have_call_stacks_in_every_file(ran):
    _, _, results = ran
    named = [row["Call Stack"] for row in table(results / "operator_details.csv") if row["Name"] == "aten::linear"]
    events = json.loads((results / "trace_view.json").read_text())
    traced = [event for event in events if event["name"] == "aten::linear" and event.get("args", {}).get("Call stack")]
    first_runs = 2 * 2  # in each step; the second run of the block is backward's, whose thread calls no script
    assert sum("train.py(" in stack and "train_one_step" in stack for stack in named) == len(traced) == first_runs
    assert select(results, "SELECT COUNT(*) FROM PYTORCH_CALLCHAINS")[0][0] > 0


def test_traffic_is_that_of_the_whole_capture(ran):
    _, _, results = ran
    received = {row["Mode"]: row for row in table(results / "pcie.csv")}["Rx_cpl_avg(MB/s)"]
    assert float(received["Max"]) > float(received["Avg"]) > float(received["Min"]) == 0
    assert (results / "hccs.csv").exists()
    rates = select(results, "SELECT rxByteRate, txByteRate FROM NIC UNION ALL SELECT rxByteRate, txByteRate FROM ROCE")
    assert rates
    assert None not in {cell for row in rates for cell in row}


def test_files_of_the_vendors_tool_are_kept_if_asked_for(ran):
    _, capture, _ = ran
    names = {path.name.partition("_2")[0] for path in capture.glob("PROF_*/*")}
    assert names >= {"mindstudio_profiler_output", "mindstudio_profiler_log", "msprof"}


def test_attributes_cache_and_workspace(ran):
    done, _, results = ran
    attributes = select(results, "SELECT DISTINCT value FROM COMPUTE_TASK_INFO JOIN STRING_IDS ON id = attrInfo")
    assert {text for (text,) in attributes} - {"N/A", ""}
    assert "op_attr" not in done.stderr
    assert any(float(row["Hit Rate"]) > 0 for row in table(results / "l2_cache.csv") if row["Hit Rate"] != "N/A")
    assert "WORKSPACE" in {row["Component"] for row in table(results / "memory_record.csv")}


def test_marks_on_a_stream_have_their_operators(ran):
    _, _, results = ran
    query = (
        "SELECT value, event.connectionId FROM PYTORCH_API api JOIN STRING_IDS ON STRING_IDS.id = api.name"
        " LEFT JOIN CONNECTION_IDS one ON one.id = api.connectionId"
        " LEFT JOIN MSTX_EVENTS event ON event.connectionId = one.connectionId WHERE value = 'mstx_mark_op' AND api.type = 50001"
    )
    found = select(results, query)
    assert len(found) == 2
    assert None not in {number for _, number in found}


def test_a_block_that_backward_runs_again_has_its_backward(ran):
    """Reentrant checkpointing: the second run is on a thread on which no module call is recorded."""
    _, capture, _ = ran
    command = [sys.executable, "-m", "stepscope", "top", str(capture), "--by", "module"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    rows = {row["path"]: row for row in csv.DictReader(io.StringIO(said), delimiter="\t")}
    block, net = rows["Net_0/Block_0"], rows["Net_0"]
    assert float(block["device_backward_ms"]) > float(rows["Net_0/Block_0/Linear_0"]["device_backward_ms"]) > 0
    assert float(net["device_backward_ms"]) > float(block["device_backward_ms"])
