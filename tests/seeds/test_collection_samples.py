"""Every collection sample of the profiler's document runs as it stands, and does what the document says."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from samples import block, blocks, run, seeds_folder

import stepscope
from stepscope.collect.observer import load_observer

torch = pytest.importorskip("torch", reason="the samples need torch")
pytestmark = pytest.mark.slow  # each sample is a training process and an analysis

DOCUMENT = "001"
NATIVE = load_observer()
TEXT_FILES = {"analyse.done", "trace_view.json", "operator_details.csv", "ascend_pytorch_profiler.db"}


@pytest.fixture(autouse=True)
def _documents():
    seeds_folder()


def captures(folder):
    return sorted(Path(folder).glob("*_ascend_pt"))


def results(capture):
    return {path.name for path in (capture / "ASCEND_PROFILER_OUTPUT").iterdir()}


@pytest.mark.parametrize("number", [0, 1])
def test_profile_with_schedule_and_handler(number, tmp_path):
    code = [
        code
        for code in blocks(DOCUMENT, "ExportType.Text", "tensorboard_trace_handler", "import torch_npu", "train_one_step()")
        if "AiCoreNone" in code
    ][number]
    assert ("prof.start()" in code) == (number == 1)
    run(tmp_path, code)
    (capture,) = captures(tmp_path / "result")
    assert results(capture) >= TEXT_FILES
    opened = stepscope.open(capture)
    assert opened.steps["step"].to_list() == [0]
    assert (opened.ops["name"] == "aten::addmm").sum() == 2
    assert opened.quality.height == 0


def test_schedule_with_two_cycles(tmp_path):
    code = next(code for code in blocks(DOCUMENT, "skip_first=1", "repeat=2", "range(9)") if "wait=1" in code)
    run(tmp_path, code, before="import torch_npu")
    assert [stepscope.open(capture).steps["step"].to_list() for capture in captures(tmp_path / "result")] == [[3, 4], [7, 8]]


def test_export_chrome_trace(tmp_path):
    run(tmp_path, block(DOCUMENT, "with torch_npu.profiler.profile() as prof", "chrome_trace_14"))
    events = json.loads((tmp_path / "chrome_trace_14.json").read_text())
    assert sum(event.get("name") == "aten::addmm" for event in events) == 10
    (capture,) = captures(tmp_path / "export_only_prof_dir")
    assert not (capture / "ASCEND_PROFILER_OUTPUT").exists()


def test_kineto_profile(tmp_path):
    run(tmp_path, block(DOCUMENT, "_KinetoProfile(activities=None"))
    events = json.loads((tmp_path / "result_dir" / "trace.json").read_text())
    assert sum(event.get("name") == "aten::addmm" for event in events) == 2
    assert not captures(tmp_path / "export_only_prof_dir")


def test_environment_variables(tmp_path):
    settings = dict(line.removeprefix("export ").split("=") for line in block(DOCUMENT, "export HCCL_RDMA_TC").split("\n") if line)
    code = block(DOCUMENT, "with torch_npu.profiler.profile() as prof", "chrome_trace_14")
    run(tmp_path, code, **settings)
    (capture,) = captures(tmp_path / "export_only_prof_dir")
    kept = json.loads((capture / "profiler_metadata.json").read_text())["ENV_VARIABLES"]
    assert {name: kept[name] for name in settings} == settings


@pytest.mark.parametrize("kind", ["profile", "_KinetoProfile"])
def test_metadata(kind, tmp_path):
    call = f"torch_npu.profiler.{kind}(...)"
    code = block(DOCUMENT, call, "add_metadata").replace(call, f"torch_npu.profiler.{kind}()")
    after = "import shutil; shutil.copytree(prof.prof_if.prof_path, 'kept')"
    run(tmp_path, code, before="import torch_npu", after=after)
    kept = json.loads((tmp_path / "kept" / "profiler_metadata.json").read_text())
    assert kept["model"] == ('{"layers": 2}' if kind == "profile" else {"layers": 2})


def test_memory_timeline(tmp_path):
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    code = block(DOCUMENT, "export_memory_timeline", "memory_timeline.html")
    run(tmp_path, code.replace("        ...\n        prof.step()", "        train_one_step()\n        prof.step()"))
    page = (tmp_path / "memory_timeline.html").read_text()
    assert "data:image/png;base64," in page
    assert captures(tmp_path)


def test_child_threads(tmp_path):
    run(tmp_path, block(DOCUMENT, "enable_profiler_in_child_thread", "threading.Thread"))
    (capture,) = captures(tmp_path / "result")
    assert results(capture) >= TEXT_FILES
    ops = stepscope.open(capture).ops.filter(pl.col("name") == "aten::addmm")
    by_thread = sorted(ops.group_by("tid").len()["len"].to_list())
    assert by_thread == ([10] if isinstance(NATIVE, str) else [10, 10, 10])


def test_offline_analysis(tmp_path):
    record = """
import torch_npu
with torch_npu.profiler.profile(on_trace_ready=torch_npu.profiler.tensorboard_trace_handler("./result_data", analyse_flag=False)):
    train_one_step()
"""
    run(tmp_path, record)
    (capture,) = captures(tmp_path / "result_data")
    assert not (capture / "ASCEND_PROFILER_OUTPUT").exists()
    run(tmp_path, block(DOCUMENT, "from torch_npu.profiler.profiler import analyse"))
    assert results(capture) >= TEXT_FILES


def test_handler_for_shared_storage(tmp_path):
    out = run(tmp_path, block(DOCUMENT, "ProfPathCreator", "move_file_to_user_path"), str(tmp_path / "shared"))
    assert out.count("[APP]train") == 5
    (capture,) = captures(tmp_path / "shared")
    assert results(capture) >= TEXT_FILES
    assert stepscope.open(capture).steps["step"].to_list() == [1, 2]
