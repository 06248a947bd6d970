"""Scopes and input pipelines of MindSpore captures, by hand (docs/formats/mindspore.md 9, 10)."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.analysis.mindspore.data_pipeline import NONE, Operator, advice, batch_times, operators, queued_children
from stepscope.analysis.mindspore.scopes import scope_bars
from stepscope.tables import ALL_TABLES, Tables


def kernels(*rows) -> Tables:
    names, starts, ends = zip(*rows, strict=True)
    frame = pl.DataFrame({"device": [0] * len(rows), "name": names, "start_ns": starts, "end_ns": ends})
    return Tables({"kernels": ALL_TABLES["kernels"].conform(frame)})


def test_neighbours_of_one_scope_make_one_bar():
    tables = kernels(
        ("Default/a/Add-op0", 0, 10), ("Default/a/Mul-op0", 12, 20), ("Default/b/Add-op1", 20, 30), ("Gradients/b/Sub-op0", 31, 40),
        ("ReLU", 41, 45),
    )  # fmt: skip
    assert scope_bars(tables).rows() == [
        (0, "Default", 0, 30),
        (0, "Gradients", 31, 40),
        (1, "a", 0, 20),
        (1, "b", 20, 30),
        (1, "b", 31, 40),
    ]


def test_a_kernel_beside_the_one_shown_is_left_out():
    assert scope_bars(kernels(("Default/a/Add-op0", 0, 10), ("Default/b/Add-op1", 5, 30))).rows() == [
        (0, "Default", 0, 10),
        (1, "a", 0, 10),
    ]


def pipeline(*rows) -> dict[int, Operator]:
    """Rows of op_id, op_type, workers, children, queue sizes (of 10 places) and processor samples."""
    names = ("op_id", "op_type", "workers", "children", "queue_sizes", "cpu_pct")
    listed = [
        {**dict(zip(names, row, strict=True)), "pipeline": 0, "queue_length": None if row[4] is None else 10, "interval_ms": 1}
        for row in rows
    ]
    table = ALL_TABLES["data_pipelines"]
    return operators(table.conform(pl.DataFrame(listed, schema_overrides=table.schema)), 0)


def test_averages_of_an_operator():
    found = pipeline((0, "MapOp", 4, [], [0, 5, 10, 0], [40.0, 60.0]))[0]
    assert (found.queue_average, found.queue_use, found.queue_empty) == (3.75, 37.5, 50.0)
    assert (found.cpu, found.cpu_per_worker) == (50.0, 12.5)
    unknown = pipeline((0, "MapOp", 0, [], None, None))[0]
    assert {unknown.queue_average, unknown.queue_use, unknown.queue_empty, unknown.cpu, unknown.cpu_per_worker} == {NONE}


def test_children_without_a_queue_are_passed():
    found = pipeline((0, "BatchOp", 1, [1], [1], None), (1, "EpochCtrlOp", 1, [2, 3], None, None), (2, "MapOp", 1, [], [1], None),
                     (3, "TakeOp", 1, [1], None, None))  # fmt: skip
    assert queued_children(found, 0) == [2]


BATCH, SHUFFLE = (0, "BatchOp", 2, [1], [5]), (0, "ShuffleOp", 1, [1], [5])
FULL, EMPTY = (1, "MapOp", 1, [], [9], [30.0]), (1, "MapOp", 1, [], [0], [30.0])


@pytest.mark.parametrize(
    ("rows", "bottleneck", "word"),
    [
        pytest.param([(*BATCH, [200.0]), FULL], "Batch(id=0)", "num_parallel_workers>2", id="busy"),
        pytest.param([(*BATCH, [1.0]), EMPTY], "Batch(id=0)", "prefetch_size", id="starved"),
        pytest.param([(*BATCH, [60.0]), FULL], "", "", id="fine"),
        pytest.param([(*SHUFFLE, [99.0]), FULL], "", "", id="one-thread-only"),
    ],
)
def test_bottlenecks(rows, bottleneck, word):
    found = advice(pipeline(*rows))
    assert found.bottleneck == bottleneck
    assert word in found.suggestion


def test_a_device_that_waits_is_said():
    found = advice(pipeline((0, "DeviceQueueOp", 1, [1], None, [1.0]), (1, "BatchOp", 1, [], [0, 0, 0, 1], [30.0])))
    assert any("empty 75.0%" in text for text in found.queue)


def test_batch_times_leave_the_first_out():
    queues = [(0, False, "queue", batch, 3, 16, moment) for batch, moment in ((1, 100), (2, 130), (3, 150))]
    times = [(0, False, "batch", 1, 50, None, 100), *((0, False, "pipeline", batch, 4 * batch - 4, None, 0) for batch in (2, 3))]
    rows = [times[0], queues[0], times[1], queues[1], times[2], queues[2]]
    table = ALL_TABLES["data_batches"]
    frame = table.conform(pl.DataFrame(rows, schema=table.schema, orient="row"))
    assert batch_times(frame, 0) == (6.0, -1.0, 25.0)  # 30 and 20 ms apart
