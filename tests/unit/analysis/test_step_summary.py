"""Means over steps, and steps that are slow."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.analysis.step_summary import step_summary


def frame(*totals: float) -> pl.DataFrame:
    return pl.DataFrame(
        {"busy": [total / 4 for total in totals], "total": list(totals)}, schema=dict.fromkeys(("busy", "total"), float)
    )


def test_means_and_percentages():
    summary = step_summary(frame(8.0, 12.0), ["busy"])
    assert (summary.average, summary.median, summary.deviation) == (10.0, 10.0, 2.0)
    assert summary.parts.rows() == [("busy", 2.5, 25.0)]


@pytest.mark.parametrize(
    ("totals", "slow"),
    [
        pytest.param((10, 11, 12, 13, 14, 16), [False] * 6, id="within-three-deviations"),
        pytest.param((10, 11, 12, 13, 14, 18), [False, False, False, False, False, True], id="beyond"),
        pytest.param((10, 10, 10, 90), [False] * 4, id="no-deviation-to-measure-by"),
    ],
)
def test_slow_steps(totals, slow):
    assert step_summary(frame(*totals), ["busy"]).slow == slow


def test_no_steps():
    summary = step_summary(frame(), ["busy"])
    assert (summary.average, summary.median, summary.deviation, summary.slow) == (None, 0.0, 0.0, [])
