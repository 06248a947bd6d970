"""Steps that a trainer counts: which of them are recorded, under which numbers, and what is said if none is."""

from __future__ import annotations

import pytest

from stepscope.collect import active
from stepscope.errors import CaptureError
from stepscope.integrations import Plan, Session, parse, session
from stepscope.integrations.frameworks import framework


@pytest.fixture(autouse=True)
def _one_process(monkeypatch, tmp_path):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    assert active.running() is None


@pytest.fixture
def marks(noting_tier, monkeypatch):
    """Names of steps that are open while something is recorded."""
    names = []
    monkeypatch.setattr(
        "stepscope.collect.recording.Recording.push_step", lambda self, name: "start" in noting_tier and names.append(name)
    )
    return names


def run(made, steps, **begin):
    made.begin(**begin)
    for _ in range(steps):
        made.step()
    made.end()


@pytest.mark.parametrize(
    ("first", "steps", "recorded"),
    [(0, 8, [2, 3]), (1, 8, [2, 3]), (2, 8, [2, 3]), (3, 8, [3]), (0, 3, [2])],
    ids=["from-0", "resumed-before", "resumed-at", "resumed-inside", "ends-inside"],
)
def test_steps_keep_the_numbers_of_the_trainer(marks, first, steps, recorded):
    run(Session("steps=2:3,out=runs"), steps, step=first)
    assert [name for name in marks if name in {f"ProfilerStep#{number}" for number in recorded}] == [
        f"ProfilerStep#{number}" for number in recorded
    ]


@pytest.mark.parametrize(
    ("first", "steps", "words"),
    [
        (0, 2, "2 steps ran, but the plan waits for steps 2 to 3, counted from 0"),
        (1, 1, "1 steps ran from step 1 on, but the plan waits for steps 2 to 3, counted from 0"),
        (9, 5, "the loop begins at step 9, but the plan waits for steps 2 to 3, counted from 0"),
    ],
    ids=["too-short", "too-short-after-a-resume", "resumed-behind"],
)
def test_a_plan_that_is_never_reached_is_said(noting_tier, capsys, first, steps, words):
    run(Session("steps=2:3,out=runs"), steps, step=first)
    assert words in capsys.readouterr().err
    assert "stop" not in noting_tier


def test_a_wrong_plan_is_one_line_and_nothing_else(noting_tier, capsys):
    run(Session("stesp=1"), 3)
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "'stesp=1' is not understood, so nothing is recorded: unknown word 'stesp=1'" in shown
    assert noting_tier == []


def test_only_the_ranks_of_the_plan(noting_tier, capsys):
    run(Session("steps=0,ranks=1,out=runs"), 3, rank=0)
    assert noting_tier == []
    run(Session("steps=0,ranks=1,out=runs"), 3, rank=1)
    assert "stop" in noting_tier
    assert capsys.readouterr().err.count("nothing") == 0


def test_ranks_that_the_job_does_not_have_are_said(noting_tier, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    run(Session("steps=0,ranks=2:3,out=runs"), 3, rank=0)
    run(Session("steps=0,ranks=2:3,out=runs"), 3, rank=1)
    shown = capsys.readouterr().err
    assert shown.count("the first rank of the plan is 2, but the job has ranks 0 to 1") == shown.count("\n") == 1
    assert noting_tier == []


def test_ranks_of_a_large_job():
    large = {"WORLD_SIZE": "16"}
    assert [Plan().records(rank, {**large, "LOCAL_RANK": str(rank % 8)}) for rank in (0, 1, 8, 15)] == [True, False, True, False]
    assert all(Plan().records(rank, {"WORLD_SIZE": "8", "LOCAL_RANK": str(rank)}) for rank in range(8))
    assert Plan(ranks=frozenset({15})).records(15, {**large, "LOCAL_RANK": "7"})


def test_our_fault_is_one_warning(noting_tier, monkeypatch, capsys):
    monkeypatch.setattr(session, "schedule", lambda **_: 1 / 0)
    run(Session("steps=0"), 3)
    assert "training continues: ZeroDivisionError" in capsys.readouterr().err


def test_a_second_session_is_refused(noting_tier, capsys):
    one, two = Session("steps=2,out=runs"), Session("steps=2,out=runs")
    one.begin()
    two.begin()
    assert "another profiler is already running in this process; this one records nothing" in capsys.readouterr().err
    two.end()
    one.end()


def test_the_grammar_and_an_absent_framework():
    assert parse("steps=1").analyse is False
    assert parse("steps=1", analyse=True).analyse is True
    assert parse("steps=1,analyse=no", analyse=True).analyse is False
    with pytest.raises(CaptureError, match="this adapter needs nonesuch") as told:
        framework("nonesuch", "nonesuch_framework")
    assert told.value.fix == "pip install nonesuch"
