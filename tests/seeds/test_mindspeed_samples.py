"""The loop and every key of MindSpeed's document do what it says."""

from __future__ import annotations

import json
import re

import pytest
from samples import block, run, seeds_folder

import stepscope

torch = pytest.importorskip("torch", reason="the samples need torch")
pytestmark = pytest.mark.slow  # training processes and their analyses

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


@pytest.fixture(autouse=True)
def _documents():
    seeds_folder()


def keys(*holding):
    return re.findall(r"^--(\w+)", block(DOCUMENT, *holding), re.MULTILINE)


def test_static(tmp_path):
    chosen = {
        "level": "level1", "with_stack": True, "with_memory": True, "record_shapes": True, "with_cpu": True,
        "save_path": "./kept", "start_step": 2, "end_step": 4, "data_simplification": False,
    }  # fmt: skip
    assert keys("--level") == list(chosen)
    main = {"enable": True, "profile_type": "static", "ranks": [-1]}
    assert keys("--enable") == list(main)
    config = json.dumps({"profile": {**main, "static_param": chosen}})
    (tmp_path / "tools.json").write_text(config)
    before = TRAINING + "train, prof_config = Training(lambda step: step < 6), 'tools.json'"
    out = run(tmp_path, block(DOCUMENT, "Profiler(prof_config)"), before=before, after="print('after', train.steps)")
    assert "recording steps 2 to 3, counted from 0" in out
    assert out.endswith("after 6\n")
    (capture,) = (tmp_path / "kept").glob("*_ascend_pt")
    opened = stepscope.open(capture)
    assert opened.steps["step"].to_list() == [2, 3]
    assert opened.ops.filter(opened.ops["name"] == "aten::addmm").height == 4
    assert opened.op_inputs["tensors"].str.contains(r"4,8|4, 8").any()
    assert opened.memory_events.height > 0
    assert opened.python_calls["name"].cast(str).str.contains("train_one_step").any()
    settings = json.loads(next(capture.glob("profiler_info*.json")).read_text())["config"]["experimental_config"]
    assert settings["_profiler_level"] == "Level1"
    assert (capture / "FRAMEWORK").is_dir()
    assert (capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").is_file()
