"""Host and device time of operators."""

from __future__ import annotations

import polars as pl
import pytest
from capture_rows import DEQUEUE, MAIN, WORKER, collective, collectives, kernels, op, ops, queue, queued, tables, task

from stepscope.analysis.link.capture import link
from stepscope.analysis.marks import mark_summary
from stepscope.analysis.operators import operator_details, operator_summary
from stepscope.tables import Facts


def test_two_busy_threads_do_not_share_host_time():
    # One tree over all threads would take the 60 of the other thread from `a` and leave 29.
    found = operator_details(link(tables(ops=ops(op("a", 0, 100), op("b", 10, 70, WORKER), op("c", 80, 91)))))
    assert found.select("name", "host_self_ns", "host_total_ns").rows() == [("a", 89, 100), ("b", 60, 60), ("c", 11, 11)]


def test_steps_are_not_listed():
    found = operator_details(link(tables(ops=ops(op("epoch", 0, 100), op("ProfilerStep#1", 10, 90), op("a", 20, 30)))))
    assert found.select("op", "name").rows() == [(0, "epoch"), (2, "a")]


def test_device_times_go_up_the_tree():
    linked = link(
        tables(
            ops=ops(op("outer", 0, 100), op("inner", 10, 20)),
            queue=queue(queued(1, (12, 13), (200, 210)), queued(2, (30, 31), (220, 230))),
            kernels=kernels(
                task(300, 310, launch_ns=205, launch_tid=DEQUEUE, duration_ns=10.25, task_type="AI_CORE", core="AI_VECTOR_CORE"),
                task(400, 430, launch_ns=225, launch_tid=DEQUEUE, task_type="MIX_AIC", core="AI_CORE"),
                task(440, 444, launch_ns=226, launch_tid=DEQUEUE, core="AI_CORE"),
            ),
            collectives=collectives(collective(500, 600, launch_ns=206, launch_tid=DEQUEUE)),
        )
    )
    columns = ["name", "device_self_ns", "device_total_ns", "aicore_self_ns", "aicore_total_ns"]
    assert operator_details(linked).select(columns).rows() == [
        ("outer", 34.0, 144.25, 4.0, 14.25),
        ("inner", 110.25, 110.25, 10.25, 10.25),
    ]


def test_sums_of_fractions_are_exact():
    pieces = [task(i, i + 1, duration_ns=0.1, launch_ns=5, launch_tid=MAIN) for i in range(10)]
    assert operator_details(link(tables(ops=ops(op("a", 0, 10)), kernels=kernels(*pieces))))["device_self_ns"].to_list() == [1.0]


def test_summary_by_name():
    linked = link(
        tables(
            ops=ops(op("f", 0, 100), op("f", 10, 50), op("g", 20, 30), op("g", 200, 220)),
            kernels=kernels(task(300, 330, launch_ns=25, launch_tid=MAIN), task(400, 410, launch_ns=15, launch_tid=MAIN)),
        )
    )
    found = operator_summary(linked)
    # The inner f is inside an f: its 40 are in the total once.
    assert found.drop("host_share").rows() == [("g", 2, 30, 30, 30.0, 30.0, 0.75), ("f", 2, 90, 100, 10.0, 40.0, 0.25)]
    assert found["host_share"].to_list() == [0.25, 0.75]


@pytest.mark.parametrize("view", [operator_details, operator_summary])
def test_no_operators(view):
    assert view(link(tables(kernels=kernels(task(1, 2))))).height == 0


def test_framework_only_has_no_device_time():
    found = operator_details(link(tables(ops=ops(op("a", 0, 10)))))
    assert found.select(pl.col("^device_.*$")).rows() == [(0.0, 0.0)]


@pytest.mark.parametrize(
    ("kind", "operators", "annotated"),
    [
        pytest.param("cuda", ["aten::add"], ["forward"], id="a-gpu-lists-annotations-as-marks"),
        pytest.param("npu", ["forward", "aten::add"], [], id="an-npu-lists-them-as-its-csv-does"),
    ],
)
def test_annotations_are_no_operators(kind, operators, annotated):
    ranges = ops(op("ProfilerStep#3", 0, 100, scope=7), op("forward", 10, 90, scope=7), op("aten::add", 20, 30, scope=0))
    linked = link(tables(meta=Facts(device_kind=kind).table(), ops=ranges))
    assert operator_summary(linked)["name"].to_list() == operators
    assert mark_summary(linked)["mark"].to_list() == annotated
