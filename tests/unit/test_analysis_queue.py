"""Analyses in the background wait on disk, one runs at a time, and none is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from stepscope import analysis_queue as queue


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(queue.tempfile, "gettempdir", lambda: str(tmp_path))
    for name in "abc":
        (tmp_path / "runs" / name).mkdir(parents=True)
        queue.enqueue(tmp_path / "runs" / name, {"capture": name})
    return tmp_path / "runs"


def test_one_after_the_other_in_the_order_of_the_requests(runs):
    done = []

    def analyse(request):
        done.append(request["capture"])
        assert queue.state_of(runs / request["capture"]).state == queue.RUNNING
        assert queue.is_served(runs)
        queue.work_off(runs, lambda other: pytest.fail("two at once"))
        return {"ok": request["capture"] != "b", "error": "no space"}

    queue.work_off(runs, analyse)
    assert done == ["a", "b", "c"]
    assert [queue.state_of(runs / name).state for name in "abc"] == [queue.DONE, queue.FAILED, queue.DONE]
    assert queue.describe(queue.state_of(runs / "b")).endswith(": no space")
    assert not queue.is_served(runs)


def test_a_request_that_comes_while_the_last_one_runs(runs):
    done = []

    def analyse(request):
        done.append(request["capture"])
        if request["capture"] == "c":
            (runs / "d").mkdir()
            queue.enqueue(runs / "d", {"capture": "d"})
        return {"ok": True}

    queue.work_off(runs, analyse)
    assert done == ["a", "b", "c", "d"]


def test_what_a_dead_process_left_is_done_again_but_not_for_ever(runs):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name, tries in (("a", 1), ("b", 2)):
        state = json.loads((runs / name / queue.STATE_FILE).read_bytes())
        (runs / name / queue.STATE_FILE).write_text(json.dumps({**state, "state": "running", "pid": ended.pid, "tries": tries}))
    assert queue.state_of(runs / "a").state == queue.INTERRUPTED
    done = []
    queue.work_off(runs, lambda request: done.append(request["capture"]) or {"ok": True})
    assert sorted(done) == ["a", "c"]


def test_requests_of_other_machines_are_theirs(runs):
    state = json.loads((runs / "a" / queue.STATE_FILE).read_bytes())
    (runs / "a" / queue.STATE_FILE).write_text(json.dumps({**state, "host": "elsewhere pid:[1]"}))
    assert [path.name for path in queue.waiting_in(runs)] == ["b", "c"]


@pytest.mark.parametrize("content", ["", "[]", "null", "{}", '{"state": 3'])
def test_a_damaged_state_is_none(runs, content):
    (runs / "a" / queue.STATE_FILE).write_text(content)
    assert queue.state_of(runs / "a") is None
    assert [path.name for path in queue.waiting_in(runs)] == ["b", "c"]


def test_states_are_private_to_owner_and_group(runs):
    assert os.stat(runs / "a" / queue.STATE_FILE).st_mode & 0o007 == 0
