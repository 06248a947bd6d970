"""Samples of marks run as they stand, one after the other in one script: the plugin's, and those on streams of communication."""

from __future__ import annotations

import json
import textwrap

import polars as pl
import pytest
from npu_process import reason_without_device
from samples import block, blocks, run

import stepscope

torch = pytest.importorskip("torch", reason="the samples need torch")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("seeds")]  # a training process and an analysis

DOCUMENT, PROFILERS = "000", "001"
# What the document leaves open: its training step, and what that is given.
SUPPLIED = """
steps = 4
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).to("npu")
dataset = torch.utils.data.TensorDataset(torch.rand(8, 8), torch.arange(8) % 3)
train_loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=1, persistent_workers=True)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters())  # made before the plugin is imported
def train_one_step(step, steps, train_loader, model, optimizer, criterion):
    for inputs, wanted in train_loader:
        optimizer.zero_grad()
        criterion(model(inputs.to("npu")), wanted.to("npu")).backward()
        optimizer.step()
    torch.save(model.state_dict(), "checkpoint.pt")
"""

# What the profiler's document leaves open where it marks communication: a group, its operators, and the number that the samples
# get under one name and use under another.
ON_STREAMS = """
import torch.distributed
torch.distributed.init_process_group("hccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
device_id, tensor = 0, torch.ones(4).to("npu")
backend = torch.distributed.distributed_c10d._world.default_pg._get_backend(torch.device("npu"))
torch.allreduce = lambda: torch.distributed.all_reduce(tensor)
def send():
    with torch.npu.stream(p2p_stream):
        tensor * 2
torch.send = send
with torch_npu.profiler.profile(
    on_trace_ready=torch_npu.profiler.tensorboard_trace_handler("./streams", analyse_flag=False),
    experimental_config=torch_npu.profiler._ExperimentalConfig(mstx=True),
):
    for _ in range(2):  # the first time kernels are learned, and the host waits for them
        collective_stream_id = backend._get_stream_id(False)
        {collective}
        collective_stream_id = backend._get_stream_id(True)
        {message}
numbers = [backend._get_stream_id(p2p) for p2p in (False, True)]
torch.distributed.destroy_process_group()
import json
json.dump(numbers, open("streams.json", "w"))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marks")
    importing, profiling = blocks(DOCUMENT, "import mstx_torch_plugin")
    assert "torch_npu.profiler" not in importing
    assert profiling == block(DOCUMENT, "ProfilerLevel.Level_none")
    fragments = {
        "collective": textwrap.indent(block(PROFILERS, 'range_start("allreduce", collective_stream)'), " " * 8).strip(),
        "message": textwrap.indent(block(PROFILERS, 'range_start("send", p2p_stream)'), " " * 8).strip(),
    }
    on_device = reason_without_device() is None
    printed = run(folder, importing + profiling, before=SUPPLIED, after=ON_STREAMS.format(**fragments) if on_device else "")
    assert printed.count("Level_none without mstx would record nothing; mstx is switched on") == 1
    return folder


@pytest.fixture(scope="module")
def capture(folder):
    (made,) = (folder / "result").glob("*_ascend_pt")
    return made


def test_the_four_stages_are_marked(capture):
    opened = stepscope.open(capture)
    assert opened.quality.height == 0
    # No operators: only what the loader's process fetched, which is not an operator either.
    assert opened.ops["name"].cast(pl.String).to_list() == ["DataLoader worker 0: fetch"] * 2
    assert opened.steps["step"].to_list() == [1]
    marks = opened.marks.sort("start_ns")
    # The second of four iterations, with two batches: steps 1 and 2 of the optimizer were in the first.
    assert marks["message"].to_list() == [
        "step 2", "ProfilerStep#1", "dataloader", "forward", "step 3", "dataloader", "forward", "step 4", "save_checkpoint",
    ]  # fmt: skip
    assert marks["kind"].unique().to_list() == ["start/end"]
    (step,) = opened.steps.iter_rows(named=True)
    inside = marks.filter(pl.col("message").is_in(["dataloader", "forward", "save_checkpoint"]))
    assert inside.height == 5
    assert (inside["start_ns"] >= step["start_ns"]).all()
    assert (inside["end_ns"] <= step["end_ns"]).all()
    assert marks["end_ns"].is_between(marks["start_ns"], marks["end_ns"].max()).all()
    if opened.facts.device_kind != "npu":
        return
    # Batches and checkpoints are the host's alone; the device's part of a stage begins after the host's.
    on_device = dict(marks.select("message", pl.col("device_start_ns").is_not_null()).unique().iter_rows())
    assert on_device == {name: name not in ("dataloader", "save_checkpoint") for name in on_device}
    queued = marks.drop_nulls("device_start_ns")
    assert (queued["device_start_ns"] >= queued["start_ns"]).all()
    assert (queued["device_end_ns"] >= queued["device_start_ns"]).all()
    assert queued["connection_id"].min() > 4_000_000_000


def test_the_timeline_shows_them(capture):
    events = json.loads((capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    (batch, other) = [event for event in events if event["name"] == "dataloader"]
    assert batch["ph"] == other["ph"] == "X"
    assert "python" in names[batch["pid"]].lower()
    on_device = [event for event in events if event["name"] == "forward" and names[event["pid"]] == "Ascend Hardware"]
    assert len(on_device) == (2 if stepscope.open(capture).facts.device_kind == "npu" else 0)


def test_ranges_on_streams_of_communication(folder):
    reason = reason_without_device()
    if reason:
        pytest.skip(f"no simulated NPU: {reason}")
    (made,) = (folder / "streams").glob("*_ascend_pt")
    opened = stepscope.open(made)
    collective, messages = json.loads((folder / "streams.json").read_text())
    assert collective != messages
    marks = opened.marks.sort("start_ns").with_columns(pl.col("message", "domain").cast(pl.String))
    for name, stream in (("allreduce", collective), ("send", messages)):
        ranges = marks.filter(pl.col("message") == name)
        assert ranges["stream"].to_list() == [stream] * 2
        assert (ranges["device_end_ns"] >= ranges["device_start_ns"]).all()
    # The range on the stream holds the operator that ran there, which was marked by itself.
    reduced = marks.filter(pl.col("domain") == "communication")
    said = [json.loads(message) for message in reduced["message"]]
    assert [(one["opName"], one["count"], one["dataType"]) for one in said] == [("HcclAllreduce", "4", "fp32")] * 2
    assert [int(one["streamId"]) for one in said] == [collective] * 2
    around = marks.filter(pl.col("message") == "allreduce")
    assert (around["device_start_ns"] <= reduced["device_start_ns"]).all()
    assert (around["device_end_ns"] >= reduced["device_end_ns"]).all()
