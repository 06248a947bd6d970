"""When a step is an outlier, and which outliers deserve a capture."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.watch.rule import COOLDOWN_STEPS, KNOWN_STEPS, LASTING, LEAST, Alarms, Limit

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


def _bimodal(random, count, *, times, share, spread=0.08):
    return random.normal(1.0, spread, count) * np.where(random.random(count) < share, times, 1.0)


def _every(random, count, period, length=1):
    steps = random.normal(1.0, 0.1, count)
    for part in range(length):
        steps[period - 1 + part :: period] *= 5
    return steps


def _wandering(random, count):
    """Noise whose values depend on those before them."""
    steps = random.normal(0.0, 0.02, count)
    for number in range(1, count):
        steps[number] += 0.98 * steps[number - 1]
    return np.exp(steps)


# What is no news after its first time, or not at all.
USUAL = {
    "student-3": lambda random, count: 1 + 0.05 * random.standard_t(3, count),
    "student-5": lambda random, count: 1 + 0.1 * random.standard_t(5, count),
    "log-normal-30-percent": lambda random, count: random.lognormal(0.0, 0.3, count),
    "log-normal-60-percent": lambda random, count: random.lognormal(0.0, 0.6, count),
    "exponential": lambda random, count: 1 + random.exponential(0.3, count),
    "a-tenth-takes-1.4-times": lambda random, count: _bimodal(random, count, times=1.4, share=0.10),
    "a-fifth-takes-1.4-times": lambda random, count: _bimodal(random, count, times=1.4, share=0.20),
    "some-take-thrice": lambda random, count: _bimodal(random, count, times=3.0, share=0.02),
    "nearly-a-quarter-takes-thrice": lambda random, count: _bimodal(random, count, times=3.0, share=0.24),
    "one-of-2000-takes-thrice": lambda random, count: _bimodal(random, count, times=3.0, share=1 / 2000),
    "accumulation-of-8": lambda random, count: _every(random, count, 8),
    "evaluation-of-5-steps": lambda random, count: _every(random, count, 1000, 5),
    "drift-to-5-times": lambda random, count: np.linspace(1, 5, count) * random.normal(1.0, 0.1, count),
    "slow-waves": lambda random, count: (1 + 0.5 * np.sin(np.arange(count) / 300)) * random.normal(1.0, 0.1, count),
    "wandering": _wandering,
}


@pytest.mark.parametrize("steps", USUAL.values(), ids=USUAL)
def test_what_comes_again_gives_at_most_one_alarm_in_100_000_steps(steps):
    durations = np.maximum(steps(np.random.default_rng(20261118), 100_000) * 100 * MS, MS).astype(np.int64)
    assert len(outliers(durations.tolist())[1]) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_a_slowdown_fires_although_single_steps_were_as_slow_before(seed):
    random = np.random.default_rng(seed)
    steps = _bimodal(random, 4000, times=3.0, share=0.01, spread=0.05)
    steps[2000:2020] = random.normal(3.0, 0.05, 20)
    over, fired = outliers((steps * 100 * MS).astype(np.int64).tolist())
    assert len(over) > 30
    assert any(2000 <= step < 2000 + LASTING for step in fired)
    assert len(fired) == 2


def test_what_is_like_a_known_step_is_no_news_unless_it_is_twice_as_slow():
    alarms = Alarms()
    assert alarms.fires(1000, 100)
    assert not alarms.fires(1003, 199)
    assert alarms.fires(1017, 398)
    assert not alarms.fires(1900, 100)  # a small one does not hide the large one
    assert not alarms.fires(1017 + KNOWN_STEPS - 1, 700)
    assert alarms.fires(1017 + 2 * KNOWN_STEPS, 100)


def test_a_slowdown_that_lasts_fires_once_in_a_while():
    alarms = Alarms()
    fired = [step for step in range(2000) if alarms.fires(step, 100)]
    assert fired == [0, COOLDOWN_STEPS, 2 * COOLDOWN_STEPS, 3 * COOLDOWN_STEPS]
