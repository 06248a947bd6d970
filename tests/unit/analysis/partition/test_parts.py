# SPDX-License-Identifier: Apache-2.0
"""Each nanosecond of a step in one part, on numbers that can be checked by hand."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analysis.partition import device_model, exclusive_time, partition
from stepscope.tables import ALL_TABLES, Facts, Tables


def tables(**rows) -> Tables:
    frames = {name: ALL_TABLES[name].conform(pl.DataFrame(given, infer_schema_length=None)) for name, given in rows.items()}
    return Tables({**frames, "meta": Facts(device_kind="npu", rank=0).table()})


def kernel(start, end, *, kind="compute", issue=None, stream=1, **more):
    return {
        "device": 0, "stream": stream, "start_ns": start, "end_ns": end, "kind": kind, "name": "k", "launch_ns": issue,
        "launch_tid": 1 if issue is not None else None, **more,
    }  # fmt: skip


def step(number, start, end, *, inflated=False):
    return {"step": number, "start_ns": start, "end_ns": end, "inflated": inflated}


def parts(made: Tables) -> list[dict[str, int]]:
    rows = partition(device_model(made)).windows.to_dicts()
    return [{name: value for name, value in row.items() if value} for row in rows]


def test_precedence_and_exclusive_time():
    made = tables(
        kernels=[
            kernel(0, 40, issue=0),
            kernel(20, 60, kind="memcpy", issue=1, stream=3),
            kernel(50, 100, kind="communication", issue=2, stream=2),
        ]
    )
    assert parts(made) == [{"total": 100, "computing": 40, "communication": 50, "copy": 10}]
    rows = exclusive_time(device_model(made)).sort("task").select("task", "ns").rows()
    assert rows == [(0, 40), (1, 10), (2, 50)]


def test_a_gap_by_what_its_issuing_thread_did():
    made = tables(
        kernels=[kernel(0, 100, issue=0), kernel(1000, 1100, issue=950)],
        api_calls=[{"tid": 1, "start_ns": 100, "end_ns": 300, "name": "aclrtSynchronizeStream"}],
        ops=[
            {"tid": 1, "start_ns": 50, "end_ns": 400, "name": "aten::item", "scope": 0},
            {"tid": 1, "start_ns": 500, "end_ns": 700, "name": "enumerate(DataLoader)#x.__next__", "scope": 7},
            {"tid": 2, "start_ns": 0, "end_ns": 900, "name": "aten::other_thread", "scope": 0},
        ],
        gc_pauses=[{"start_ns": 600, "end_ns": 650}],
    )
    assert parts(made) == [
        {
            "total": 1100,
            "computing": 200,
            "idle.sync": 200,
            "idle.operator": 100,
            "idle.data": 150,
            "idle.gc": 50,
            "idle.other": 350,  # 400-500 and 700-950
            "idle.launch": 50,
        }
    ]


def test_the_task_queue_and_latency():
    made = tables(
        kernels=[kernel(0, 100, issue=0), kernel(200_000, 200_100, issue=100_000, correlation_id=7)],
        queue=[{"tid": 5, "start_ns": 9_000, "end_ns": 10_000, "kind": "enqueue", "correlation_id": 7}],
    )
    # Enqueued at 10 us, launched at 100 us, started at 200 us: the last piece is longer than a healthy device needs.
    assert parts(made) == [{"total": 200_100, "computing": 200, "idle.other": 9_900, "idle.queue": 90_000, "idle.queued": 100_000}]


def test_windows_begin_with_the_first_task_issued_in_the_step():
    made = tables(
        steps=[step(3, 0, 100), step(4, 100, 200)],
        kernels=[kernel(60, 90, issue=10), kernel(120, 150, issue=80), kernel(160, 170, issue=105), kernel(230, 260, issue=190)],
    )
    model = device_model(made)
    assert model.windows.tolist() == [60, 160, 260]  # the last one: its host end and its lag, or its last task
    assert model.steps == (3, 4)
    assert [row["total"] for row in parts(made)] == [100, 100]


@pytest.mark.parametrize(
    ("rows", "windows", "steps"),
    [
        pytest.param({"steps": [step(1, 0, 10), step(2, 10, 30)]}, [0, 10, 30], (1, 2), id="no device: the host's steps"),
        pytest.param({"kernels": [kernel(5, 9, issue=1), kernel(20, 25, issue=2)]}, [5, 25], (None,), id="no steps: one window"),
        pytest.param({"kernels": [kernel(5, 9)], "steps": [step(1, 0, 10)]}, [0, 10], (1,), id="no launches: the host's steps"),
        pytest.param(
            {"steps": [step(1, 0, 10, inflated=True), step(2, 10, 20), step(3, 20, 40, inflated=True)]},
            [10, 20],
            (2,),
            id="inflated steps are left out",
        ),
        pytest.param({}, [0, 0], (None,), id="nothing at all"),
    ],
)
def test_windows_of_lesser_captures(rows, windows, steps):
    model = device_model(tables(**rows))
    assert model.windows.tolist() == windows
    assert model.steps == steps
    partition(model)


def test_host_only_captures_are_divided_by_layer():
    made = tables(steps=[step(1, 0, 100)], ops=[{"tid": 1, "start_ns": 10, "end_ns": 40, "name": "aten::add", "scope": 0}])
    assert parts(made) == [{"step": 1, "total": 100, "host.operator": 30, "host.other": 70}]


def test_after_the_last_task_nothing_recorded_is_not_the_hosts():
    made = tables(
        steps=[step(1, 0, 100)],
        kernels=[kernel(0, 40, issue=0)],
        ops=[{"tid": 1, "start_ns": 50, "end_ns": 60, "name": "aten::add", "scope": 0}],
    )
    assert parts(made) == [{"step": 1, "total": 100, "computing": 40, "idle.operator": 10, "idle.unknown": 50}]


TASKS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 60), st.sampled_from(["compute", "communication", "memcpy"]), st.integers(0, 40)),
    min_size=1,
    max_size=12,
)


@given(TASKS, st.lists(st.integers(0, 300), min_size=2, max_size=4, unique=True))
def test_sums_are_exact_whatever_comes(tasks, borders):
    borders = sorted(borders)
    made = tables(
        steps=[step(number, start, end) for number, (start, end) in enumerate(pairwise(borders))],
        kernels=[kernel(start, start + length, kind=kind, issue=max(0, start - lag)) for start, length, kind, lag in tasks],
    )
    model = device_model(made)
    found = partition(model)  # raises when the parts of a window do not sum up
    assert found.windows["total"].sum() == model.end_ns - model.start_ns
    rows = exclusive_time(model)
    for number, part in enumerate(("computing", "communication", "copy")):
        own = rows.filter(pl.col("part") == number)
        assert own["ns"].sum() == found.sum_ns(part)
        by_window = dict(own.group_by("window").agg(pl.col("ns").sum()).iter_rows())
        assert [by_window.get(window, 0) for window in range(model.count)] == found.windows[part].to_list()
