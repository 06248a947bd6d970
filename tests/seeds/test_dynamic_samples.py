"""The three documented ways to record a job that runs already: each sample as it stands, and what it leaves."""

from __future__ import annotations

import json
import shlex

import pytest
from samples import COLLECTION, TEXT_FILES, block, blocks, captures, results, run

import stepscope
from stepscope.control.config import TEMPLATE

pytest.importorskip("torch", reason="the samples need torch")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("seeds")]  # each sample is a training process

# What a user does in another window: edit the file; the job goes on when its watcher has seen that.
EDIT = """
import itertools, pathlib, time
folder, asked, steps, done = pathlib.Path("profiler_config_path"), {}, range(9), itertools.count()
def edit(**changes):
    file = folder / "profiler_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    until = time.monotonic() + 180
    seen = f"start_step {changes['start_step']}, active {changes['active']}"
    # The watcher writes its log for the first time when it is next awake.
    while not any(seen in log.read_text() for log in (folder / "log").glob("monitor_dp_*")):
        assert time.monotonic() < until
        time.sleep(0.01)
train_plainly = train_one_step
def train_one_step():
    step = next(done)
    if step in asked:
        edit(**asked[step])
    train_plainly()
"""


@pytest.fixture(autouse=True)
def _polls_often(monkeypatch):
    monkeypatch.setenv("STEPSCOPE_POLL_SECONDS", "0.05")


def recorded(folder):
    return sorted(stepscope.open(capture).steps["step"].to_list() for capture in captures(folder))


def test_an_environment_variable_and_no_change_of_the_script(tmp_path):
    name, path = shlex.split(block(COLLECTION, "export PROF_CONFIG_PATH"))[1].split("=")
    plain = """
second = torch.optim.SGD(model.parameters(), lr=0.1)
asked[2] = {
    "start_step": -1, "active": 2, "warmup": 1, "analyse": True, "prof_dir": "out", "metadata": {"tp": 2},
    "experimental_config": {"mstx": True},
}
for step in steps:
    train_one_step()
    second.step()
"""
    folder = tmp_path / path.rpartition("/")[2]
    run(tmp_path, plain, before=EDIT, **{name: str(folder)})
    # The step() of iteration 2 is the third: what runs after it is step 3, which warms up.
    assert recorded(tmp_path / "out") == [[4, 5]]
    (capture,) = captures(tmp_path / "out")
    assert results(capture) >= TEXT_FILES
    assert {"step 4", "step 5"} <= set(stepscope.open(capture).marks["message"].to_list())
    assert json.loads((capture / "profiler_metadata.json").read_text())["tp"] == 2
    logs = {path.name.partition("_rank_")[2] for path in (folder / "log").iterdir()}
    assert logs == {"-1.log"}
    assert "start: steps 3 to 5" in next((folder / "log").glob("dp_*")).read_text()


def test_init_and_step(tmp_path):
    (code,) = (code for code in blocks(COLLECTION, "dp.init(", "dp.step()") if "dp.start(" not in code)
    before = EDIT + 'asked[1] = {"start_step": 4, "active": 2}\nasked[4] = {"start_step": -1, "active": 1}\n'
    look = "print(json.dumps({'template': json.loads((folder / 'profiler_config.json').read_text())}))\n"
    out = run(tmp_path, code, before=before, after="dp.init('again')\n" + look)
    # Edited during the capture of 4 and 5: that one follows it.
    assert recorded(tmp_path) == [[4, 5], [6]]
    last = json.loads(out.splitlines()[-1])["template"]
    assert last == {**TEMPLATE, "start_step": -1}
    assert "this call has no effect" in out
    assert not (tmp_path / "again").exists()


def test_start(tmp_path):
    code = block(COLLECTION, "dp.start(", "dp.init(")
    # Only what is to be recorded counts in the file of start; ranks and step do not.
    (tmp_path / "start_config_path").write_text(json.dumps({"active": 2, "start_step": 70, "is_rank": True}))
    before = EDIT + 'asked[5] = {"start_step": -1, "active": 1}\n'
    again = """
dp.start("no_such_file")  # so the file of init is used: one step
train_one_step()
dp.start("start_config_path")  # has no effect: a capture runs
dp.step()
"""
    out = run(tmp_path, code, before=before, after=again)
    assert recorded(tmp_path) == [[5, 6], [7], [9]]
    assert "dp.start: cannot read the file" in out
