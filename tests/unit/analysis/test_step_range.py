"""A part of a capture keeps its references right."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.analysis.step_range import between, missing_steps, numbered, only_steps, rows_of_steps
from stepscope.errors import CaptureError
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


def test_steps_by_their_numbers_with_the_work_of_the_device_in_its_own_time():
    # The device is 120 ns behind the host: each kernel begins in the next step of the host.
    late = capture().kernels.with_columns(pl.col("start_ns", "end_ns") + 120)
    steps = frame(
        "steps", step=[7, 8, 9], start_ns=[0, 100, 200], end_ns=[100, 200, 300], device_start_ns=[130, 230, 330],
        device_end_ns=[230, 330, 430],
    )  # fmt: skip
    whole = capture().replace(kernels=late, steps=steps, op_times=frame("op_times", name=["k"], count=[3]))
    part = rows_of_steps(whole, 8, 8)
    assert part.steps["step"].to_list() == [8]
    assert part.ops["name"].to_list() == ["b", "b1"]
    assert part.kernels.select("name", "op").rows() == [("l", 1)]
    assert not part.op_times.height  # nobody knows how much of the sum was in this step
    part.check()
    only = numbered(whole, 8, 9)
    assert (only.steps["step"].to_list(), only.kernels.height) == ([8, 9], 3)


@pytest.mark.parametrize(
    ("tables", "cause"),
    [(capture(), "recorded steps: 7 to 9"), (Tables(), "the capture marks no steps")],
    ids=["others recorded", "none marked"],
)
def test_steps_that_were_not_recorded(tables, cause):
    with pytest.raises(CaptureError, match="no step 3") as problem:
        rows_of_steps(tables, 3, 3)
    assert problem.value.cause == cause
