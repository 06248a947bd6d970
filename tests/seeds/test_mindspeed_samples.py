"""The loop and every key of MindSpeed's document do what it says."""

from __future__ import annotations

import json
import re

import pytest
from samples import block, run

import stepscope

torch = pytest.importorskip("torch", reason="the samples need torch")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("seeds")]  # training processes and their analyses

DOCUMENT = "003"
# The sample's `while train:` asks this object; what it leaves open happens there.
TRAINING = """
class Training:
    def __init__(self, more):
        self.steps, self.more = 0, more
    def __bool__(self):
        if not self.more(self.steps):
            return False
        self.steps += 1
        train_one_step()
        return True
"""


# Edits the file twice while the sample trains: once it is there, and again when the first capture is finished.
EDITING = """
import json, time
from pathlib import Path
config, deadline = Path("watched/profiler_config.json"), time.monotonic() + 120
wanted = {"start_step": -1, "active": 2, "prof_dir": "./first"}
def finished(folder):
    return any(Path(folder).glob("*_ascend_pt/profiler_metadata.json"))
def more(step):
    global wanted
    assert time.monotonic() < deadline, "no capture"
    if step > 0 and wanted and config.exists() and (wanted["prof_dir"] == "./first" or finished("first")):
        config.write_text(json.dumps({**json.loads(config.read_text()), **wanted}))
        wanted = {"start_step": -1, "active": 1, "prof_dir": "./second"} if wanted["prof_dir"] == "./first" else None
    time.sleep(0.05)  # the work of a step
    return not finished("second")
"""

STATIC = {
    "level": "level1", "with_stack": True, "with_memory": True, "record_shapes": True, "with_cpu": True,
    "save_path": "./kept", "start_step": 2, "end_step": 4, "data_simplification": False,
}  # fmt: skip
MAIN = {"enable": True, "profile_type": "static", "ranks": [-1]}
DYNAMIC = {"enable": True, "profile_type": "dynamic", "ranks": -1, "dynamic_param": {"config_path": "./watched"}}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder and the output of a process that runs the sample with a static configuration, then with a dynamic one."""
    folder = tmp_path_factory.mktemp("mindspeed")
    (folder / "watched").mkdir()
    (folder / "tools.json").write_text(json.dumps({"profile": {**MAIN, "static_param": STATIC}}))
    sample = block(DOCUMENT, "Profiler(prof_config)")
    before = TRAINING + "train, prof_config = Training(lambda step: step < 6), 'tools.json'"
    between = f"print('trained', train.steps)\n{EDITING}\ntrain, prof_config = Training(more), {DYNAMIC!r}\n"
    return folder, run(folder, f"{sample}\n{between}{sample}", before=before)


def keys(*holding):
    return re.findall(r"^--(\w+)", block(DOCUMENT, *holding), re.MULTILINE)


def test_the_document_has_the_keys_that_are_set_here():
    assert keys("--enable") == list(MAIN)
    assert keys("--level") == list(STATIC)
    assert keys("--config_path") == list(DYNAMIC["dynamic_param"])


def test_static(ran):
    folder, out = ran
    assert "recording steps 2 to 3, counted from 0" in out
    assert "trained 6\n" in out
    (capture,) = (folder / "kept").glob("*_ascend_pt")
    opened = stepscope.open(capture)
    assert opened.steps["step"].to_list() == [2, 3]
    assert opened.ops.filter(opened.ops["name"] == "aten::addmm").height == 4
    assert opened.op_inputs["tensors"].str.contains(r"4,8|4, 8").any()
    assert opened.memory_events.height > 0
    assert opened.kernels.height > 0
    assert opened.python_calls["name"].cast(str).str.contains("train_one_step").any()
    settings = json.loads(next(capture.glob("profiler_info*.json")).read_text())["config"]["experimental_config"]
    assert settings["_profiler_level"] == "Level1"
    assert (capture / "FRAMEWORK").is_dir()
    assert (capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").is_file()


def test_dynamic(ran):
    folder, _ = ran
    recorded = {}
    for name in ("first", "second"):
        (capture,) = (folder / name).glob("*_ascend_pt")
        recorded[name] = stepscope.open(capture).steps["step"].to_list()
    assert [len(steps) for steps in recorded.values()] == [2, 1]
    assert recorded["first"][-1] < recorded["second"][0]
    assert list((folder / "watched" / "log").glob("dp_*.log"))
