"""Every collection sample of the profiler's document runs as it stands, and does what the document says."""

from __future__ import annotations

import json
import sqlite3

import polars as pl
import pytest
from npu_process import reason_without_device
from samples import COLLECTION, TEXT_FILES, block, blocks, captures, fields, output, results, start, write

import stepscope
from stepscope.collect.tiers.observer import load_observer

torch = pytest.importorskip("torch", reason="the samples need torch")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("seeds")]  # the samples are training processes and analyses

NATIVE = load_observer()
LAYERS = 2  # of the small network

# One process runs these one after the other, each in its own folder: importing torch takes longer than any of them.
ONE_BY_ONE = """
import os, runpy, sys
for folder in sys.argv[1:]:
    os.chdir(folder)
    sys.argv, sys.path[0] = ["sample.py"], folder
    runpy.run_path("sample.py", run_name="__main__")
"""
RECORD_ONLY = """
import torch_npu
with torch_npu.profiler.profile(on_trace_ready=torch_npu.profiler.tensorboard_trace_handler("./result_data", analyse_flag=False)):
    train_one_step()
"""
# Inference on the current device of the thread.
ON_ITS_DEVICE = """
networks = [network().to(f"npu:{number}") for number in range(3)]
def model(data):
    number = torch.npu.current_device()
    return networks[number](data.to(f"npu:{number}"))
"""


def csv(capture, name):
    return pl.read_csv(capture / "ASCEND_PROFILER_OUTPUT" / name, infer_schema_length=None)


def metadata_sample(kind):
    call = f"torch_npu.profiler.{kind}(...)"
    return block(COLLECTION, call, "add_metadata").replace(call, f"torch_npu.profiler.{kind}()")


def marked_step():
    """A training step with the two fragments that mark it; what the second one only hints at is a product."""
    host, stream = block(COLLECTION, 'range_start("dataloader", None)'), block(COLLECTION, 'range_start("matmul", stream)')
    body = host + stream.replace("torch.matmul()", "torch.matmul(square, square)")
    supplied = "import torch_npu\nsquare = torch.ones(4, 4).to('npu')\ndataloader = lambda: None\n"
    return supplied + "def train_one_step():\n    " + body.replace("\n", "\n    ")


def settings_of_the_environment():
    return dict(line.removeprefix("export ").split("=") for line in block(COLLECTION, "export HCCL_RDMA_TC").split("\n") if line)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder where all samples ran, each in its own, and the output of the one that prints."""
    reason = reason_without_device()
    if reason:
        pytest.skip(f"no simulated NPU: {reason}")
    top = tmp_path_factory.mktemp("samples")
    plain = blocks(COLLECTION, "ExportType.Text", "tensorboard_trace_handler", "import torch_npu", "train_one_step()")
    plain = [code for code in plain if "AiCoreNone" in code]
    assert ["prof.start()" in code for code in plain] == [False, True]
    keep = "import shutil; shutil.copytree(prof.prof_if.prof_path, 'kept')"
    write(top / "with", plain[0])
    write(top / "start_stop", plain[1])
    cycles = next(code for code in blocks(COLLECTION, "skip_first=1", "repeat=2", "range(9)") if "wait=1" in code)
    write(top / "cycles", cycles, before="import torch_npu")
    write(top / "chrome_trace", block(COLLECTION, "with torch_npu.profiler.profile() as prof", "chrome_trace_14"))
    write(top / "kineto", block(COLLECTION, "_KinetoProfile(activities=None"))
    write(top / "metadata", metadata_sample("profile"), before="import torch_npu", after=keep)
    write(top / "metadata_json", metadata_sample("_KinetoProfile"), before="import torch_npu", after=keep)
    timeline = block(COLLECTION, "export_memory_timeline", "memory_timeline.html")
    write(top / "timeline", timeline.replace("        ...\n        prof.step()", "        train_one_step()\n        prof.step()"))
    write(top / "threads", block(COLLECTION, "enable_profiler_in_child_thread", "threading.Thread"), before=ON_ITS_DEVICE)
    write(top / "marks", block(COLLECTION, "ProfilerLevel.Level_none", "mstx=True", "train_one_step()"), before=marked_step())
    offline = block(COLLECTION, "from torch_npu.profiler.profiler import analyse")
    write(top / "offline", RECORD_ONLY + offline)
    names = ["with", "start_stop", "cycles", "chrome_trace", "kineto", "metadata", "metadata_json", "timeline", "threads", "marks"]
    driver = top / "one_by_one.py"
    driver.write_text(ONE_BY_ONE)
    # The last two sleep for 10 and 15 s, as they say: beside the others.
    domains = write(top / "domains", block(COLLECTION, "mstx_domain_include=['default','domain1']"))
    shared = write(top / "shared", block(COLLECTION, "ProfPathCreator", "move_file_to_user_path"))
    processes = [
        start(top, domains.rename(top / "domains" / "marked.py")),
        start(top / "shared", shared, str(top / "shared" / "storage")),
        start(top, driver, *(str(top / name) for name in [*names, "offline"]), devices=3, **settings_of_the_environment()),
    ]
    outputs = [output(process) for process in processes]
    return top, outputs[1]


def events(path):
    return json.loads(path.read_text())


def kernels_of(capture):
    """What ran on the device, without the frames that hold mixed kernels."""
    return stepscope.open(capture).kernels.filter(pl.col("kind") != "other")


@pytest.mark.parametrize("name", ["with", "start_stop"])
def test_profile_with_schedule_and_handler(name, ran):
    (capture,) = captures(ran[0] / name / "result")
    assert results(capture) >= TEXT_FILES | {"kernel_details.csv", "step_trace_time.csv"}
    assert not results(capture) & {"memory_record.csv", "operator_memory.csv", "api_statistic.csv"}  # not asked for; Level1
    opened = stepscope.open(capture)
    assert opened.steps["step"].to_list() == [0]
    assert (opened.ops["name"] == "aten::addmm").sum() == LAYERS
    kernels = kernels_of(capture)
    assert kernels["op"].null_count() == 0
    assert opened.quality.height == 0
    details = csv(capture, "kernel_details.csv")
    computing = kernels.filter(pl.col("kind") == "compute")
    assert details["Name"].to_list() == computing["name"].to_list()
    assert details["Duration(us)"].to_list() == pytest.approx((computing["duration_ns"] / 1000).to_list(), abs=0.001)
    # Forwards a product per layer; backwards two for the second, and for the first only that of its weight.
    assert details["Name"].str.contains("MatMul").sum() == LAYERS + 3
    assert set(details["Step Id"]) == set(details["Device_id"]) == {0}
    (step,) = csv(capture, "step_trace_time.csv").rows(named=True)
    assert list(step) == fields(COLLECTION, "step\\_trace\\_time")
    assert step["Computing"] == pytest.approx(details["Duration(us)"].sum(), abs=0.1)
    assert step["Communication"] == 0
    assert step["Free"] == pytest.approx(step["Stage"] - step["Computing"], abs=0.01)
    operators = csv(capture, "operator_details.csv")
    assert operators.columns == fields(COLLECTION, "operator\\_details")
    assert operators["Device Self Duration(us)"].sum() == pytest.approx(kernels["duration_ns"].sum() / 1000, abs=0.1)


def test_schedule_with_two_cycles(ran):
    found = captures(ran[0] / "cycles" / "result")
    assert [stepscope.open(capture).steps["step"].to_list() for capture in found] == [[3, 4], [7, 8]]
    assert [sorted(set(csv(capture, "kernel_details.csv")["Step Id"])) for capture in found] == [[3, 4], [7, 8]]


def test_export_chrome_trace(ran):
    names = [event.get("name") for event in events(ran[0] / "chrome_trace" / "chrome_trace_14.json")]
    assert names.count("aten::addmm") == 5 * LAYERS
    assert sum("MatMul" in str(name) for name in names) == 5 * (LAYERS + 3)
    (capture,) = captures(ran[0] / "chrome_trace" / "export_only_prof_dir")
    assert not (capture / "ASCEND_PROFILER_OUTPUT").exists()


def test_kineto_profile(ran):
    names = [event.get("name") for event in events(ran[0] / "kineto" / "result_dir" / "trace.json")]
    assert names.count("aten::addmm") == LAYERS
    assert not captures(ran[0] / "kineto" / "export_only_prof_dir")


def test_environment_variables(ran):
    (capture,) = captures(ran[0] / "chrome_trace" / "export_only_prof_dir")
    kept = json.loads((capture / "profiler_metadata.json").read_text())["ENV_VARIABLES"]
    settings = settings_of_the_environment()
    assert {name: kept[name] for name in settings} == settings


@pytest.mark.parametrize(("name", "value"), [("metadata", '{"layers": 2}'), ("metadata_json", {"layers": 2})])
def test_metadata(name, value, ran):
    assert json.loads((ran[0] / name / "kept" / "profiler_metadata.json").read_text())["model"] == value


def test_memory_timeline(ran):
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    assert "data:image/png;base64," in (ran[0] / "timeline" / "memory_timeline.html").read_text()
    (capture,) = captures(ran[0] / "timeline")
    allocated = stepscope.open(capture).memory_events.filter(pl.col("device_type") == "npu")
    # Parameters, their gradients and both moments of each: 4 × (8 × 16 + 16 + 16 + 1) × 4 bytes at least.
    assert allocated["total_allocated"].max() >= 4 * 161 * 4


def test_child_threads(ran):
    (capture,) = captures(ran[0] / "threads" / "result")
    level1 = {"kernel_details.csv", "memory_record.csv", "operator_memory.csv", "op_statistic.csv", "api_statistic.csv"}
    assert results(capture) >= TEXT_FILES | level1
    addmm = stepscope.open(capture).ops.filter(pl.col("name") == "aten::addmm")
    by_thread = sorted(addmm.group_by("tid").len()["len"].to_list())
    assert by_thread == ([5 * LAYERS] if isinstance(NATIVE, str) else [5 * LAYERS] * 3)
    details = csv(capture, "kernel_details.csv")
    # Two products and what is between them, five times on each of the three devices.
    assert details.group_by("Device_id").len().sort("Device_id").rows() == [(0, 15), (1, 15), (2, 15)]
    absent = {"Model ID", "HF32 Eligible", "Step Id", "OP State"}
    assert set(fields(COLLECTION, "kernel\\_details")) - absent <= set(details.columns)
    assert set(details["Input Shapes"].str.strip_chars('"')) == {"16;4,8;8,16", "4,16", "1;4,16;16,1"}
    assert {"aicore_time(us)", "aiv_time(us)"} <= set(details.columns)  # PipeUtilization


def test_marks_of_a_step(ran):
    (capture,) = captures(ran[0] / "marks" / "result")
    assert {name for name in results(capture) if not name.endswith(".done")} == {"ascend_pytorch_profiler.db"}
    with sqlite3.connect(capture / "ASCEND_PROFILER_OUTPUT" / "ascend_pytorch_profiler.db") as db:
        rows = db.execute(
            "SELECT value, endNs - startNs FROM MSTX_EVENTS JOIN STRING_IDS ON message = id ORDER BY startNs"
        ).fetchall()
    assert [name for name, _length in rows] == ["ProfilerStep#0", "dataloader", "matmul"]
    assert all(length > 0 for _name, length in rows)
    marks = {row["message"]: row for row in stepscope.open(capture).marks.iter_rows(named=True)}
    assert marks["dataloader"]["device_start_ns"] is None  # without a stream only the host's
    assert marks["matmul"]["start_ns"] < marks["matmul"]["device_start_ns"] < marks["matmul"]["device_end_ns"]


def test_marks_by_domain(ran):
    (capture,) = captures(ran[0] / "result")
    marks = stepscope.open(capture).marks.sort("start_ns").slice(1)  # after that of the step
    length = ((marks["end_ns"] - marks["start_ns"]) / 1e9).round(1).to_list()
    names = ["mark_with_default_domain", "range_with_default_domain", "mark_with_domain1", "range_with_domain1"]
    assert list(zip(marks["message"], marks["domain"], strict=True)) == list(
        zip(names, [None, None, "domain1", "domain1"], strict=True)
    )
    assert length[::2] == [0, 0]
    assert min(length[1::2]) >= 1


def test_offline_analysis(ran):
    (capture,) = captures(ran[0] / "offline" / "result_data")
    assert results(capture) >= TEXT_FILES | {"kernel_details.csv"}


def test_handler_for_shared_storage(ran):
    top, out = ran
    assert out.count("[APP]train") == 5
    (capture,) = captures(top / "shared" / "storage")
    assert results(capture) >= TEXT_FILES | {"kernel_details.csv"}
    assert stepscope.open(capture).steps["step"].to_list() == [1, 2]
    kinds = kernels_of(capture)["kind"].to_list()
    assert kinds == ["memcpy", "memcpy", "compute"] * 2  # two copies to the device and an addition, in each step
