"""Kernels in groups, who launched them, and how their durations are spread."""

from __future__ import annotations

import polars as pl
import pytest
from capture_rows import MAIN, collective, collectives, kernels, op, ops, tables, task

from stepscope.analysis.kernels.groups import histogram, operators_of, time_by
from stepscope.analysis.link.capture import link


def test_time_by_name():
    rows = pl.DataFrame({"name": ["a", "b", "a"], "duration_us": [1.0, 2.5, 3.0]})
    assert time_by(rows, "name").sort("name").rows() == [("a", 2, 4.0), ("b", 1, 2.5)]


def test_operators_of_both_tables():
    linked = link(
        tables(
            ops=ops(op("one", 0, 10), op("two", 20, 30)),
            kernels=kernels(task(100, 110, launch_ns=25, launch_tid=MAIN), task(120, 130)),
            collectives=collectives(collective(200, 210, launch_ns=5, launch_tid=MAIN)),
        )
    )
    rows = pl.DataFrame({"table": ["collectives", "kernels", "kernels"], "row": [0, 0, 1]})
    assert operators_of(rows, linked).to_list() == ["one", "two", None]


@pytest.mark.parametrize(
    ("durations", "edges", "counts"),
    [
        pytest.param([1.0, 1.0, 3.0], [1.0, 2.0, 3.0], [2, 1], id="as-many-bins-as-values"),
        pytest.param([2.0], [1.5, 2.5], [1], id="one"),
    ],
)
def test_histogram(durations, edges, counts):
    assert histogram(pl.Series(durations)) == (edges, counts)


def test_histogram_has_forty_bins_at_most():
    edges, counts = histogram(pl.Series([float(n) for n in range(1000)]))
    assert (len(edges), len(counts), sum(counts)) == (41, 40, 1000)
