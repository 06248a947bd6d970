# SPDX-License-Identifier: Apache-2.0
"""What counts as a change; figures of the tests against published ones."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.diff.noise import benjamini_hochberg, judge, least_p, mann_whitney, student, welch


@pytest.mark.parametrize(
    ("t", "freedom", "p"),
    [(2.228, 10, 0.05), (3.169, 10, 0.01), (12.706, 1, 0.05), (1.96, 1e6, 0.05), (0.0, 5, 1.0), (4.587, 10, 0.001)],
)
def test_students_distribution(t, freedom, p):
    assert student(t, freedom) == pytest.approx(p, rel=2e-3)


def test_mann_whitney_of_an_example():
    # U = 3 of 25: z = (9.5 - 0.5) / sqrt(25 * 11 / 12) = 1.880
    a, b = np.array([1.0, 2, 3, 4, 6]), np.array([5.0, 7, 8, 9, 3.5])
    assert mann_whitney(a, b) == pytest.approx(0.0601, abs=1e-4)
    assert mann_whitney(a, a) == 1.0
    assert mann_whitney(np.ones(5), np.ones(5)) == 1.0
    assert mann_whitney(np.arange(6.0), np.arange(6.0) + 10) == pytest.approx(least_p(6, 6))


def test_false_discovery_rate():
    assert benjamini_hochberg(np.array([0.01, 0.04, 0.03, 0.5])) == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])


def test_welch_without_spread():
    assert welch(np.ones(4), np.ones(4)) == 1.0
    assert welch(np.ones(4), np.full(4, 2.0)) == 0.0


def columns(*values):
    return np.array(values, dtype=float).T


STEADY = [100.0, 101, 99, 100, 102, 98, 100, 101, 99, 100]


def test_a_clear_change_and_none():
    base = columns(STEADY, STEADY)
    new = columns([value + 10 for value in STEADY], STEADY[::-1])
    first, second = judge(base, new, floor_ns=2.0)
    assert first.status == "changed"
    assert first.low_ns < 10 < first.high_ns
    assert second.status == "within noise"


def test_a_small_change_is_below_the_floor():
    base, new = columns(STEADY), columns([value + 10 for value in STEADY])
    assert judge(base, new, floor_ns=11.0)[0].status == "within noise"


def test_too_few_samples():
    assert [one.status for one in judge(columns([1, 2]), columns([5, 6, 7]), 0.1)] == ["cannot tell"]


def test_few_samples_must_not_overlap():
    base = columns([100.0, 100.2, 99.9, 100.1])
    assert judge(base, columns([110.0, 110.1, 109.8, 110.2]), 1.0)[0].status == "changed"
    assert judge(base, columns([110.0, 99.95, 110.1, 110.2]), 1.0)[0].status == "within noise"


@pytest.mark.slow  # half a second and more
def test_equal_samples_rarely_differ():
    random = np.random.default_rng(3)
    wrong = 0
    for _ in range(300):
        base, new = (100 + random.normal(0, 10, (12, 5)) for _ in range(2))
        wrong += any(one.status == "changed" for one in judge(base, new, 0.1))
    assert wrong == 0
