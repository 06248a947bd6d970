"""Which steps a schedule records (docs/formats/profiler-api.md 7)."""

from __future__ import annotations

import pytest

from stepscope.profiler import ProfilerAction, schedule

LETTERS = {
    ProfilerAction.NONE: "N", ProfilerAction.WARMUP: "W", ProfilerAction.RECORD: "R", ProfilerAction.RECORD_AND_SAVE: "S",
}  # fmt: skip


@pytest.mark.parametrize(
    ("wait", "warmup", "active", "repeat", "skip_first", "skip_first_wait", "actions"),
    [
        (1, 1, 2, 2, 1, 0, "NNWRSNWRSNNNNN"),
        (1, 1, 2, 0, 0, 0, "NWRSNWRSNWRSNW"),
        (0, 0, 1, 0, 0, 0, "SSSSSSSSSSSSSS"),
        (2, 1, 2, 2, 1, 1, "NWRSNNWRSNNNNN"),
        (-1, -1, 0, -1, -1, 0, "SSSSSSSSSSSSSS"),
    ],
)
def test_vectors(wait, warmup, active, repeat, skip_first, skip_first_wait, actions):
    chosen = schedule(wait, active, warmup, repeat, skip_first, skip_first_wait)
    assert "".join(LETTERS[chosen(step)] for step in range(14)) == actions


def test_nine_captures_in_a_hundred_steps():
    chosen = schedule(wait=5, warmup=2, active=3, skip_first=10)
    assert [chosen(step) for step in range(100)].count(ProfilerAction.RECORD_AND_SAVE) == 9


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"wait": "1"}, {"wait": 0}),
        ({"active": 0}, {"active": 1}),
        ({"active": 2.0}, {"active": 1}),
        ({"warmup": -1}, {"warmup": 0}),
        ({"repeat": None}, {"repeat": 0}),
        ({"skip_first": -3}, {"skip_first": 0}),
        ({"skip_first_wait": "yes"}, {"skip_first_wait": 0}),
        ({"wait": True}, {"wait": True}),
    ],
)
def test_wrong_numbers_become_defaults(given, kept, capsys):
    chosen = schedule(**{"wait": 1, "active": 1, **given})
    assert {name: getattr(chosen, name) for name in kept} == kept
    assert capsys.readouterr().err.count("WARNING") == (given != kept)


def test_negative_step_raises():
    with pytest.raises(ValueError, match="-1"):
        schedule(1, 1)(-1)


def test_no_warning_for_defaults(capsys):
    schedule(wait=1, active=1)
    assert capsys.readouterr().err == ""


def test_exhausted_after_the_last_cycle():
    chosen = schedule(wait=1, active=1, repeat=2, skip_first=1)
    assert [chosen.exhausted(step) for step in range(7)] == [False] * 5 + [True] * 2
    assert not schedule(wait=1, active=1).exhausted(10**6)
