"""A part of a capture keeps its references right."""

from __future__ import annotations

import polars as pl

from stepscope.analysis.step_range import between, missing_steps, only_steps
from stepscope.tables import ALL_TABLES, Tables


def frame(table, /, **columns):
    return ALL_TABLES[table].conform(pl.DataFrame(columns))


def capture() -> Tables:
    """Three steps of 100 ns, an operator with a child in each, a kernel for each child."""
    return Tables(
        {
            "steps": frame("steps", step=[7, 8, 9], start_ns=[0, 100, 200], end_ns=[100, 200, 300]),
            "ops": frame(
                "ops",
                name=["a", "a1", "b", "b1", "c", "c1"],
                start_ns=[0, 10, 100, 110, 200, 210],
                end_ns=[90, 20, 190, 120, 290, 220],
                parent=[None, 0, None, 2, None, 4],
            ),
            "kernels": frame(
                "kernels", device=[0, 0, 0], name=["k", "l", "m"], start_ns=[15, 115, 215], end_ns=[18, 118, 218], op=[1, 3, 5]
            ),
            "kernel_metrics": ALL_TABLES["kernel_metrics"].conform(pl.DataFrame({"kernel": [0, 2], "cube": [0.5, 0.7]})),
            "data_stages": frame("data_stages", op=[4, 2], operator=["M", "N"]),
        }
    )


def test_the_second_and_third_recorded_step():
    part = only_steps(capture(), [2, 3])
    assert part.steps["step"].to_list() == [8, 9]
    assert part.ops["name"].to_list() == ["b", "b1", "c", "c1"]
    assert part.ops["parent"].to_list() == [None, 0, None, 2]
    assert part.kernels["op"].to_list() == [1, 3]
    assert part.kernel_metrics.rows() == [(1, 0.7)]
    assert part.data_stages.select("op", "operator").rows() == [(2, "M"), (0, "N")]
    part.check()


def test_a_reference_out_of_the_part_is_null():
    part = between(capture(), 10, 100)
    assert part.ops.select("name", "parent").rows() == [("a1", None)]
    assert part.kernels["op"].to_list() == [0]


def test_steps_that_are_not_there_leave_everything():
    part = only_steps(capture(), [9])
    assert part.ops.height == 6
    assert part.quality["issue"].to_list() == ["steps-not-found"]


def test_missing_steps_are_named():
    assert missing_steps(capture(), [2, 3]) is None
    assert missing_steps(capture(), ()) is None
    counted = "the capture has 3 steps, counted from 1 at the first recorded one"
    assert missing_steps(capture(), [99]) == f"steps [99] were not recorded: {counted}; all steps were analysed"
    assert missing_steps(capture(), [3, 4]) == f"steps [4] were not recorded: {counted}; the others were analysed"
    assert missing_steps(Tables({}), [1]) == "steps [1] were not recorded: it has no steps; all steps were analysed"
