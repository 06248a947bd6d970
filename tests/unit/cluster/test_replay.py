"""The replay of small programs, by hand."""

from __future__ import annotations

import numpy as np

from stepscope.cluster.whatif.replay import Program


def program(call, *, stop=(), late=(), after=(), after_stop=(), lane=None, ranks=2):
    rows = len(call)
    rank = np.repeat(np.arange(ranks), rows // ranks)
    flags = np.zeros(rows, dtype=bool)
    flags[list(stop)] = True
    waits = np.full(rows, -1)
    shares, rest = np.zeros(rows), np.ones(rows)
    for (row, target), share in zip(late, after or [0.0] * len(late), strict=True):
        waits[row], shares[row] = target, share
    for row, share in after_stop:
        rest[row] = share
    return Program(
        rank, np.array(call), np.zeros(rows, dtype=int) if lane is None else np.array(lane), flags, waits, shares, rest, ranks
    )


def run(made, work, transfer):
    clock, begin, end = made.run(np.array([work], dtype=float), np.array([transfer], dtype=float))
    return clock[0].tolist(), begin[0].tolist(), end[0].tolist()


def test_everybody_waits_for_the_last():
    made = program([0, -1, 0, -1], stop=(0, 2))
    clock, begin, end = run(made, [10, 5, 30, 5], [7])
    assert begin[0] == 10
    assert end == [37]
    assert clock == [42, 42]


def test_a_call_that_nobody_waits_for_costs_nothing():
    made = program([0, -1, 0, -1])
    assert run(made, [10, 5, 30, 5], [100])[0] == [15, 35]


def test_waiting_later_hides_the_call_behind_work():
    # Issue, 20 of work, wait, 4 of work: of the 24 before the closing row a sixth comes after the wait.
    made = program([0, -1, 0, -1], late=((1, 0), (3, 2)), after=(4 / 24, 4 / 24))
    assert run(made, [10, 24, 10, 24], [15])[0] == [34, 34]
    assert run(made, [10, 24, 10, 24], [40])[0] == [54, 54]


def test_calls_of_one_lane_queue():
    made = program([0, 1, -1, 0, 1, -1], stop=(1, 4))
    _, begin, end = run(made, [0, 1, 1, 0, 1, 1], [50, 5])
    assert begin[1] == 50
    assert end == [50, 55]


def test_contradicting_waits_are_noticed():
    # Each rank waits for the call that the other issues afterwards.
    made = program([0, 1, -1, 1, 0, -1], stop=(0, 3), lane=[0, 1, 0, 0, 1, 0])
    assert made.stuck == 2


def test_scenarios_are_independent():
    made = program([0, -1, 0, -1], stop=(0, 2))
    clock, _, _ = made.run(np.array([[10.0, 0, 10, 0], [10, 0, 50, 0]]), np.array([[5.0], [5.0]]))
    assert clock.max(1).tolist() == [15, 55]
