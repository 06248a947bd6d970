"""Statistics of kernels and API calls, waiting time and step of kernels."""

from __future__ import annotations

import pytest
from capture_rows import MAIN, api, api_calls, collective, collectives, kernels, rows, steps, tables, task

from stepscope.analysis.link.capture import link
from stepscope.analysis.statistics import (
    api_statistic,
    communication_statistic,
    kernel_rows,
    kernel_summary,
    op_statistic,
    with_details,
)
from stepscope.tables import Facts


def test_waiting_time_is_the_gap_to_the_row_before_on_the_device():
    linked = tables(
        kernels=kernels(task(100, 110), task(105, 120), task(200, 210, duration_ns=9.5), task(215, 220, device=1), task(225, 230)),
        collectives=collectives(collective(130, 190)),
    )
    found = kernel_rows(linked)
    assert found.select("table", "row", "wait_ns").rows() == [
        ("kernels", 0, 0.0),
        ("kernels", 1, 0.0),
        ("collectives", 0, 10.0),
        ("kernels", 2, 10.0),
        ("kernels", 3, 15.5),
        ("kernels", 4, 0.0),
    ]


def test_rows_are_computing_kernels_and_collectives():
    linked = tables(
        kernels=kernels(
            task(1, 2, core="AI_CORE"),
            task(3, 4, core="INVALID"),
            task(5, 6, core="HCCL_AI_CPU"),
            task(7, 8, kind="memcpy"),
            task(9, 10, core=None),
        )
    )
    assert kernel_rows(linked)["start_ns"].to_list() == [1, 9]


def test_step_of_a_kernel_is_that_of_its_start_on_the_device():
    linked = link(
        tables(
            steps=steps((7, 0, 50), (8, 60, 70)),
            kernels=kernels(
                task(100, 200, launch_ns=10, launch_tid=MAIN),
                task(200, 220, launch_ns=65, launch_tid=MAIN),
                task(201, 300),
                task(301, 302),
            ),
        )
    )
    # The range of step 7 is 100-200 with both ends, that of step 8 is 200-220.
    assert kernel_rows(linked)["step"].to_list() == [7, 7, 8, None]


def test_op_statistic():
    linked = tables(
        meta=Facts(session_start_ns=50).table(),
        kernels=kernels(
            task(100, 110, op_type="Add", core="AI_VECTOR_CORE"),
            task(120, 131, op_type="Add", core="AI_VECTOR_CORE"),
            task(140, 219, op_type="MatMul", core="AI_CORE"),
            task(40, 90, op_type="MatMul", core="AI_CORE"),
            task(300, 400, op_type=None, core="AI_CORE"),
            task(400, 500, op_type="Add", core="INVALID"),
            task(500, 600, op_type="Add", core="AI_CORE", kind="communication"),
        ),
    )
    assert op_statistic(linked).rows() == [
        (0, "MatMul", "AI_CORE", 1, 79.0, 79.0, 79.0, 79.0, pytest.approx(79 / 3)),
        (0, "Add", "AI_VECTOR_CORE", 2, 21.0, 10.0, 10.0, 11.0, pytest.approx(7)),
    ]


def test_api_statistic():
    calls = [
        api(0, 1000, 1),
        api(0, 2000, 2),
        api(0, 3001, 3),
        api(0, 5, 4, "acl", "Zeta"),
        api(0, 6, 5, "runtime", "Alpha"),
        api(0, 7, 6, "acl"),
        api(0, 8, 7, "os", "read"),
    ]
    found = api_statistic(tables(api_calls=api_calls(*calls)))
    assert found.drop("variance_us2").rows() == [
        ("runtime", "Alpha", 6, 1, 6, 6, 6),
        ("acl", "Zeta", 5, 1, 5, 5, 5),
        ("node", "launch", 6001, 3, 2000, 1000, 3001),
        ("acl", "launch", 7, 1, 7, 7, 7),
    ]
    assert found["variance_us2"][2] == pytest.approx((1 + 0 + 1.001**2) / 3)


@pytest.mark.parametrize(("generation", "mean"), [("G2", 562), ("G3", 563)])
def test_half_a_nanosecond_of_a_mean(generation, mean):
    # 562.5 ns are exact in binary microseconds, too.
    calls = [api(0, 500, 1), api(0, 625, 2)]
    found = api_statistic(tables(meta=Facts(generation=generation).table(), api_calls=api_calls(*calls)))
    assert found["avg_ns"].to_list() == [mean]


def test_communication_statistic():
    linked = tables(
        collectives=collectives(
            collective(100, 130, op_type="hcom_allReduce_"),
            collective(140, 160, op_type="hcom_allReduce_"),
            collective(170, 180, op_type="hcom_send_"),
        ),
        transfers=rows(
            "transfers",
            *(
                {"device": 0, "start_ns": start, "end_ns": end, "collective": 0, "is_master": is_master}
                for start, end, is_master in ((100, 120, True), (100, 130, False), (120, 128, True))
            ),
        ),
    )
    assert communication_statistic(linked).drop("ratio").rows() == [
        (0, "hcom_allReduce_", 2, 48.0, 20.0, 24.0, 28.0),
        (0, "hcom_send_", 1, 10.0, 10.0, 10.0, 10.0),
    ]


def test_kernel_summary():
    linked = tables(
        kernels=kernels(
            task(0, 10, core="AI_CORE"), task(20, 50, core="AI_CORE"), task(60, 70, kind="memcpy", name="MEMCPY_ASYNC")
        ),
        collectives=collectives(
            collective(100, 130, op_type="hcom_allReduce_", name="hcom_allReduce__271_0_1"),
            collective(140, 160, op_type="hcom_allReduce_", name="hcom_allReduce__271_1_1"),
            collective(170, 180, kernel=0),
        ),
    )
    assert kernel_summary(linked).rows() == [
        ("hcom_allReduce_", "communication", None, 2, 50.0, 20.0, 25.0, 30.0, 0.5),
        ("MatMul", "compute", "AI_CORE", 2, 40.0, 10.0, 20.0, 30.0, 0.4),
        ("MEMCPY_ASYNC", "memcpy", None, 1, 10.0, 10.0, 10.0, 10.0, 0.1),
    ]


def test_a_task_and_its_part_count_once():
    linked = tables(
        kernels=kernels(
            task(0, 40, name="KERNEL_MIX_AIC", kind="other", stream=7, task_id=1, batch_id=0),
            task(5, 35, stream=7, task_id=1, batch_id=0, context_id=0),
        )
    )
    assert kernel_summary(linked).select("name", "total_ns", "share").rows() == [("MatMul", 30.0, 1.0)]


@pytest.mark.parametrize("view", [kernel_rows, op_statistic, api_statistic, kernel_summary])
def test_nothing_ran(view):
    assert view(tables(quality=rows("quality"))).height == 0


def test_kernels_are_work_and_not_waits_nor_the_parts_of_communication():
    linked = tables(
        kernels=kernels(
            task(0, 10, name="gemm"),
            task(10, 90, name="EVENT_WAIT", kind="event"),
            task(20, 60, name="Notify Wait", kind="communication"),
            task(60, 80, name="SDMA", kind="other"),
            task(90, 95, name="copy", kind="memcpy"),
        ),
        collectives=collectives(collective(20, 80)),
        waits=rows("waits", {"device": 0, "start_ns": 0, "end_ns": 7, "name": "Context Sync"}),
    )
    assert kernel_summary(linked).select("name", "calls", "total_ns").rows() == [
        ("hcom_allReduce_", 1, 60.0),
        ("gemm", 1, 10.0),
        ("copy", 1, 5.0),
    ]
    assert set(kernel_summary(linked, all_tasks=True)["name"]) == {
        "hcom_allReduce_", "gemm", "copy", "EVENT_WAIT", "Notify Wait", "SDMA", "Context Sync",
    }  # fmt: skip


def test_a_collective_that_is_one_kernel_keeps_its_stream():
    linked = tables(
        kernels=kernels(task(0, 10), task(10, 30, kind="communication", name="ncclKernel", stream=20, block_num=24)),
        collectives=collectives(collective(10, 30, kernel=1, op_type="allreduce"), collective(40, 50)),
    )
    shown = with_details(linked, kernel_rows(linked))
    assert shown.select("name", "stream", "block_num").rows() == [
        ("MatMul", 2, None),
        ("hcom_allReduce__271_0_1", 20, 24),
        ("hcom_allReduce__271_0_1", None, None),
    ]
    assert kernel_summary(linked)["name"].to_list() == ["ncclKernel", "MatMul", "hcom_allReduce_"]
