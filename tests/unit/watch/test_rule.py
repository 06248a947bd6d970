"""When a step is an outlier, and which outliers deserve a capture."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.watch.rule import COOLDOWN_STEPS, LEAST, Alarms, Limit

MS = 1_000_000


def outliers(durations):
    """Steps over the limit, and those of them that fire."""
    limit, alarms = Limit(1.5), Alarms()
    over, fired = [], []
    for step, ns in enumerate(durations):
        if 0 < limit.ns < ns:
            over.append(step)
            if alarms.fires(step, ns):
                fired.append(step)
        limit.add(ns)
    return over, fired


def noisy(seed, share, *, count=100_000):
    steps = np.random.default_rng(seed).normal(1.0, share, count)
    return np.maximum(steps * 100 * MS, MS).astype(np.int64)


@pytest.mark.parametrize("share", [0.05, 0.10, 0.25])
def test_noise_gives_at_most_one_alarm_in_100_000_steps(share):
    assert len(outliers(noisy(1, share).tolist())[1]) <= 1


@pytest.mark.parametrize("share", [0.02, 0.25])
def test_an_evaluation_every_100_steps_gives_one_alarm_in_100_000(share):
    steps = noisy(2, share)
    steps[99::100] *= 5
    over, fired = outliers(steps.tolist())
    assert len(over) > 900  # each is seen
    assert fired == [99]


@pytest.mark.parametrize(
    ("steady", "last", "slow"),
    [
        pytest.param(100 * MS, 149 * MS, False, id="below-k-medians"),
        pytest.param(100 * MS, 151 * MS, True, id="above-k-medians"),
        pytest.param(2 * MS, 6 * MS, False, id="thrice-a-tiny-step-is-within-5-ms"),
        pytest.param(2 * MS, 8 * MS, True, id="over-5-ms"),
    ],
)
def test_the_limit(steady, last, slow):
    assert (outliers([steady] * 200 + [last])[0] == [200]) is slow


def test_a_wide_spread_lifts_the_limit():
    # Quartiles 60 ms apart: 100 + 8 * 60 / 1.35 = 455 ms, far above 1.5 medians.
    assert outliers([70 * MS, 70 * MS, 100 * MS, 130 * MS, 130 * MS] * 40 + [400 * MS])[0] == []


def test_nothing_is_judged_before_there_are_enough_steps():
    assert outliers([MS] * (LEAST - 1) + [10_000 * MS])[0] == []
    assert outliers([MS] * LEAST + [10_000 * MS])[0] == [LEAST]


@pytest.mark.parametrize("seed", range(20))
def test_a_slowdown_to_twice_the_time_fires_at_its_first_step(seed):
    steps = noisy(seed, 0.05, count=400)
    steps[300:] *= 2
    assert outliers(steps.tolist())[1] == [300]


def test_a_cooldown_follows_an_alarm_unless_it_gets_twice_as_bad():
    alarms = Alarms()
    assert alarms.fires(1000, 100)
    assert not alarms.fires(1003, 199)
    assert alarms.fires(1017, 200)
    assert not alarms.fires(1017 + COOLDOWN_STEPS - 1, 399)
    assert alarms.fires(1017 + COOLDOWN_STEPS + 12, 100)


def test_a_period_that_lapsed_is_forgotten():
    alarms = Alarms()
    for step in range(0, 6000, 600):
        alarms.fires(step, 100)
    assert not alarms.fires(6600, 100)
    assert alarms.fires(6600 + 600 * 11, 100)
