# SPDX-License-Identifier: Apache-2.0
"""Times of lines, what steps leave behind, and operations per byte, on tables made by hand."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.analysis.memory.kept import kept_over_steps
from stepscope.analysis.roofline import roofline, tensor_bytes
from stepscope.analysis.source_lines import line_times, lines_with_backward
from stepscope.tables import ALL_TABLES, Tables


def tables(ops: dict[str, list[object]]) -> Tables:
    count = len(ops["name"])
    times = {"start_ns": [10 * place for place in range(count)], "end_ns": [10 * place + 9 for place in range(count)]}
    return Tables({"ops": ALL_TABLES["ops"].conform(pl.DataFrame({"tid": [1] * count, "pid": [1] * count, **times, **ops}))})


def test_lines_have_the_time_of_their_operators() -> None:
    found = line_times(
        tables({"name": ["mm", "add", "mm", "loose"], "parent": [None] * 4}),
        pl.Series("line", ["a/b.py(3): run", "a/b.py(3): run", "a/b (x).py(40)", None]),
    )
    assert found.select("file", "line", "function", "calls", "host_ns").rows() == [
        ("a/b.py", 3, "run", 2, 18),
        ("a/b (x).py", 40, None, 1, 9),
    ]
    assert found["operators"].to_list() == [["add", "mm"], ["mm"]]


def test_backward_counts_for_the_line_of_its_forward_operator() -> None:
    made = tables(
        {
            "name": ["aten::mm", "autograd::engine::evaluate_function: MmBackward0", "aten::mm"],
            "seq": [7, 7, -1],
            "fwd_thread": [None, 1, None],
            "scope": [0, 1, 0],
            "parent": [None, None, 1],
        }
    )
    assert lines_with_backward(made, pl.Series("line", ["m.py(1): f", None, None])).to_list() == ["m.py(1): f"] * 3


@pytest.mark.parametrize(
    ("shapes", "dtypes", "size"),
    [("2,3;4", "float;int64", 56), ("2,3;;4", "c10::BFloat16;;Half", 20), ("", "", 0), (None, None, 0), ("2", "strange", 0)],
)
def test_bytes_of_tensors(shapes: str | None, dtypes: str | None, size: int) -> None:
    assert tensor_bytes(shapes, dtypes) == size


def test_operations_per_byte_and_second() -> None:
    made = tables(
        {
            "name": ["aten::mm", "aten::mm", "aten::add"],
            "parent": [None] * 3,
            "flops": [120, 120, None],
            "shapes": ["2,3;3,10", "2,3;3,10", "2"],
            "dtypes": ["float;float", "float;float", "float"],
        }
    )
    (row,) = roofline(made).to_dicts()
    assert (row["name"], row["dtype"], row["calls"], row["flops"]) == ("aten::mm", "float", 2, 240)
    assert row["bytes"] == 2 * 4 * (6 + 30)
    assert row["inputs_only"]
    assert row["time_ns"] == 18, "on the host, where nothing ran on a device"


def test_what_every_step_leaves_behind_comes_first() -> None:
    steps = pl.DataFrame({"start_ns": [0, 100, 200, 300], "end_ns": [100, 200, 300, 400]})
    blocks = pl.DataFrame(
        [
            # leaks in every step
            *(("leak.py(1): f", "aten::cat", 8, 100 * step + 10, None) for step in range(4)),
            # given back in the step after
            *(("ok.py(1): f", "aten::mm", 64, 100 * step + 20, 100 * step + 150) for step in range(4)),
            # once, and much of it; before the first step; in the last one, which no step follows
            ("once.py(1): f", "aten::empty", 1000, 110, 390),
            ("before.py(1): f", "aten::empty", 1000, -50, None),
        ],
        schema={"owner": pl.String, "operator": pl.String, "bytes": pl.Int64, "start_ns": pl.Int64, "release_ns": pl.Int64},
        orient="row",
    )
    found = kept_over_steps(blocks, steps)
    assert found.judged == 3
    assert found.rows.select("owner", "steps", "bytes", "held").rows() == [
        ("leak.py(1): f", 3, 24, 24),
        ("once.py(1): f", 1, 1000, 0),
    ]
    assert found.rows["per_step"].to_list() == [[8, 8, 8], [0, 1000, 0]]


def test_no_steps_leave_nothing_behind() -> None:
    schema = {"owner": pl.String, "operator": pl.String, "bytes": pl.Int64, "start_ns": pl.Int64, "release_ns": pl.Int64}
    found = kept_over_steps(pl.DataFrame(schema=schema), pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64}))
    assert (found.judged, found.rows.height) == (0, 0)
