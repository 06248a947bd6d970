"""torch.profiler sees the simulated NPU: launches, kernels, copies, the operators behind them, memory."""

from __future__ import annotations

import json
from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torch.profiler")

from npu_process import on_npu  # noqa: E402


@on_npu
def test_plain_torch_profiler(tmp_path):
    from stepscope.simnpu.records import COPY_H2D, KERNEL, Records

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).npu()
    batch, wanted = torch.randn(4, 8), torch.randn(4, 2, device="npu")

    def step():
        torch.nn.functional.mse_loss(model(batch.to("npu")), wanted).backward()

    for _ in range(2):
        step()
    torch.npu.synchronize()
    records = Records()  # beside it: each has its own
    records.start()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiled:
        step()
    records.stop()
    profiled.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]

    tasks = records.tasks()
    kernels = [event for event in events if event.get("cat") == "kernel"]
    copies = [event for event in events if event.get("cat") == "gpu_memcpy"]
    launches = {event["args"]["correlation"]: event for event in events if event.get("cat") == "privateuse1_runtime"}
    names = Counter(records.description(number)["name"] for number in tasks[tasks["kind"] == KERNEL]["description"])
    assert Counter(event["name"] for event in kernels) == names
    assert names["aclnnAddmm_MatMulCommon_MatMulV2"] == 2
    assert len(copies) == (tasks["kind"] == COPY_H2D).sum() == 1
    for event in kernels + copies:
        assert event["ts"] >= launches[event["args"]["correlation"]]["ts"]
    flows = Counter(event["ph"] for event in events if event.get("cat") == "ac2g")
    assert flows["s"] == flows["f"] == len(kernels) + len(copies)

    operators = {event["args"]["External id"]: event["name"] for event in events if event.get("cat") == "cpu_op"}
    of_kernel = {event["name"]: operators[event["args"]["External id"]] for event in kernels}
    assert of_kernel["aclnnAddmm_MatMulCommon_MatMulV2"] == "aten::addmm"
    on_host = [event for event in events if event.get("cat") == "cpu_op"]
    begin, end = min(event["ts"] for event in on_host), max(event["ts"] + event["dur"] for event in events if "dur" in event)
    assert all(begin <= event["ts"] <= event["ts"] + event["dur"] <= end for event in kernels + copies)  # one clock
    on_device = [event for event in events if event["name"] == "[memory]" and event["args"]["Device Type"] == 20]
    assert sum(event["args"]["Bytes"] > 0 for event in on_device) > 3
    averages = {row.key: row for row in profiled.key_averages()}
    assert averages["aten::addmm"].device_time_total > 0
