"""From an outlier to one capture of the same steps on all ranks, within the limits of disk and hour."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

import stepscope
from stepscope.control import requests
from stepscope.watch import escalation
from stepscope.watch.escalation import Escalation, Outlier, prune
from stepscope.watch.settings import Settings

MS = 1_000_000


def outlier(step=100, ms=50, rank=0, phases=(0, 0, 0, 0)):
    return Outlier(step, ms * MS, 10 * MS, phases, rank)


@pytest.mark.parametrize(
    ("phases", "reason"),
    [
        ((0, 0, 0, 0), "step"),
        ((25 * MS, 0, 0, 0), "data_wait"),
        ((0, 0, 39 * MS, 0), "gc"),
        ((5 * MS, 0, 5 * MS, 0), "step"),
    ],
)
def test_the_reason_is_the_phase_that_explains_most(phases, reason):
    assert outlier(phases=phases).reason() == reason


class Requests:
    """Stands in for a job that answers."""

    def __init__(self, monkeypatch):
        self.asked = []
        monkeypatch.setattr(requests, "start", self.start)
        monkeypatch.setattr(requests, "wait_until_done", lambda folder, outcome, patience: outcome)

    def start(self, folder, keys, *, ranks, start_step, patience, progress=None):
        self.asked.append((keys["active"], ranks, keys["metadata"]["stepscope_watch"]["step"]))
        return requests.Outcome("id", 0, ())


class Time:
    now = 1000.0

    def __call__(self):
        return self.now


def test_one_request_for_all_ranks_and_few_in_an_hour(tmp_path, monkeypatch):
    job, clock = Requests(monkeypatch), Time()
    ranks = [Escalation(Settings(record=2, captures=3), tmp_path / "control", tmp_path, since=500, clock=clock) for _ in range(3)]
    assert [rank.run(outlier(100 + number, rank=number)) for number, rank in enumerate(ranks)] == ["step", None, None]
    assert ranks[1].run(outlier(400, ms=99)) is None  # not twice as slow
    assert ranks[1].run(outlier(400, ms=100)) == "step"
    assert ranks[2].run(outlier(1200)) is None  # known, of another rank
    assert ranks[2].run(replace(outlier(1200), lasting=True)) == "step"
    assert ranks[0].run(outlier(5000)) is None  # the fourth in an hour
    clock.now += 3600
    assert ranks[0].run(outlier(9000, ms=200)) == "step"
    assert job.asked == [(2, None, 100), (2, None, 400), (2, None, 1200), (2, None, 9000)]
    later = Escalation(Settings(), tmp_path / "control", tmp_path, since=clock.now + 1, clock=clock)
    assert later.run(outlier(9001)) == "step"  # another job in the same folder


def test_two_ranks_that_enter_at_once(tmp_path, monkeypatch):
    Requests(monkeypatch)
    one = Escalation(Settings(), tmp_path, tmp_path, since=0)
    # Both have read the register before either of them writes.
    monkeypatch.setattr(escalation, "_entries", lambda register: [])
    assert [one._enter(outlier()), one._enter(outlier())] == [1, None]


def test_old_captures_make_room_but_only_our_own(tmp_path):
    for number in (1, 2, 3):
        folder = tmp_path / f"0000{number}_step_{number}_step"
        (folder / "x_ascend_pt").mkdir(parents=True)
        (folder / "x_ascend_pt" / "data").write_bytes(bytes(1000))
        (folder / escalation.MARK).touch()
    foreign = tmp_path / "00000_step_0_step"
    foreign.mkdir()
    (foreign / "mine").write_bytes(bytes(5000))
    (tmp_path / "note.txt").touch()
    prune(tmp_path, 1500, keep=tmp_path / "00001_step_1_step")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000_step_0_step", "00001_step_1_step", "note.txt"]


JOB = """
import os, sys, time
import torch
from pathlib import Path
import stepscope
from stepscope.watch import phases, watcher
ns = [10**9]
watcher._now = phases._now = lambda: ns[0]  # a busy machine must not make outliers of its own
handle = stepscope.watch(record=3, rings="rings", out="out")
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
deadline, after = time.monotonic() + 100, 0
for step in range(100_000):
    ns[0] += 50_000_000 if step == 60 else 10_000_000
    (weight * weight).sum().backward()
    optimizer.step()
    time.sleep(0.01)
    Path(f"at_{os.environ['RANK']}").write_text(str(step))
    done = len(list(Path("out").glob("captures/*/*_ascend_pt/profiler_info*.json"))) >= 2
    after += done
    if after > 40 or time.monotonic() > deadline:
        break
"""


@pytest.mark.slow(reason="two processes that import torch and record")
def test_a_slow_step_gives_one_capture_of_the_same_steps_on_all_ranks(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(JOB)
    environment = {**os.environ, "WORLD_SIZE": "2", "STEPSCOPE_POLL_SECONDS": "0.1", "STEPSCOPE_MIN_FREE_BYTES": "0"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "train.py"], cwd=tmp_path, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    said = [rank.communicate(timeout=200)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    (folder,) = (tmp_path / "out" / "captures").iterdir()
    assert folder.name == "00001_step_60_step", said
    captures = stepscope.open_all(folder)
    assert sorted(capture.facts.rank for capture in captures) == [0, 1]
    recorded = [capture.steps["step"].to_list() for capture in captures]
    assert recorded[0] == recorded[1]
    assert len(recorded[0]) == 3
    why = json.loads(next(folder.glob("*/profiler_metadata.json")).read_text())["stepscope_watch"]
    assert (why["step"], why["ns"], why["median_ns"], why["reason"]) == (60, 50 * MS, 10 * MS, "step")
    rings = stepscope.open_all(tmp_path / "rings")
    assert [ring.step_phases.filter("outlier")["step"].to_list() for ring in rings] == [[60], [60]]
