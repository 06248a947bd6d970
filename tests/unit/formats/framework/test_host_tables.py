# SPDX-License-Identifier: Apache-2.0
"""Tables from framework records: the golden vector, pairing, replay, memory, steps."""

from __future__ import annotations

import struct
from pathlib import Path

import polars as pl
import pytest
from framework_examples import BASE, KEY, PID, QUEUE_TID, TENSOR_A, TENSOR_B, frame, mark, vector
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.formats.framework import FrameworkClock, read, read_clock, write
from stepscope.formats.framework.python_replay import python_calls_table
from stepscope.formats.framework.queue_pairs import queue_table
from stepscope.tables import Tables

EPOCH = 1_700_000_000_000_000_000
INFO = {
    "config": {"common_config": {"activities": ["ProfilerActivity.CPU"]}},
    "start_info": {"syscnt_enable": False},
    "end_info": {"collectionTimeEnd": EPOCH + 5_000_000, "MonotonicTimeEnd": BASE + 5_000_000},
}
RAW = FrameworkClock()


def read_frames(folder: Path, clock: FrameworkClock = RAW, **frames: pl.DataFrame) -> Tables:
    write(folder, frames)
    return read(folder, clock).check()


def issues(tables: Tables) -> dict[str, int]:
    return dict(tables.quality.select("issue", "count").rows())


@pytest.fixture
def golden_vector(tmp_path) -> Tables:
    return read_frames(tmp_path, read_clock(tmp_path, None, INFO), **vector())


def test_golden_vector_ops(golden_vector):
    assert golden_vector.ops.to_dicts() == [
        {
            "pid": PID,
            "tid": PID,
            "start_ns": EPOCH,
            "end_ns": EPOCH + 250_000,
            "name": "aten::mm",
            "seq": 7,
            "fwd_thread": None,
            "scope": 0,
            "is_async": False,
            "end_tid": PID,
            "shapes": "2,3;3,4",
            "dtypes": "float;float",
            "stack": "train.py(10): step;train.py(20): main",
            "modules": None,
            "flops": None,
            "external_id": None,
            "parent": None,
        }
    ]
    assert golden_vector.op_inputs.rows() == [(0, f"{TENSOR_A}){TENSOR_B}", None, None)]
    assert golden_vector.quality.height == 0


def test_golden_vector_queue_python_and_gc(golden_vector):
    assert golden_vector.queue.rows() == [
        (PID, PID, EPOCH + 100_000, EPOCH + 120_000, "enqueue", "MatMul", 42),
        (PID, QUEUE_TID, EPOCH + 150_000, EPOCH + 190_000, "dequeue", "MatMul", 42),
    ]
    assert golden_vector.python_calls.rows() == [
        (PID, PID, EPOCH + 10_000, EPOCH + 900_000, "nn.Module: Linear_0", "module", 0, 0, 0, KEY)
    ]
    assert golden_vector.gc_pauses.rows() == [(PID, EPOCH + 300_000, EPOCH + 1_800_000)]


def test_golden_vector_memory_and_parameters(golden_vector):
    common = {"pid": PID, "tid": PID, "component": "PTA", "device_type": "npu", "device": 0, "inner": True, "ptr": 0x12C0C0013000}
    common |= {"total_reserved": 2_097_152.0, "stream_ptr": 2, "op_name": None}
    malloc = {"time_ns": EPOCH + 160_000, "action": "malloc", "bytes": 512, "total_allocated": 1024.0, "total_active": 1536.0}
    free = {"time_ns": EPOCH + 200_000, "action": "free", "bytes": -512, "total_allocated": 512.0, "total_active": 1024.0}
    assert golden_vector.memory_events.to_dicts() == [
        {name: {**common, **event}[name] for name in golden_vector.memory_events.columns} for event in (malloc, free)
    ]
    assert golden_vector.param_tensors.select("key", "kind").rows() == [(KEY, "module")]


def ranges(*rows: dict[str, object]) -> pl.DataFrame:
    return frame("op_range", [{"sequence_number": -1, "is_async": 0, "scope": 0, "name": "x", **row} for row in rows])


def test_ops_are_sorted_parents_first_and_inputs_follow(tmp_path):
    tables = read_frames(
        tmp_path,
        op_range=ranges(
            {"start": 20, "end": 25, "name": "late", "scalars": "Int"},
            {"start": 10, "end": 12, "name": "child", "tensors": "t"},
            {"start": 10, "end": 30, "name": "parent"},
            {"start": 10, "end": 12, "name": "second child", "tensor_lists": ""},
        ),
    )
    assert tables.ops["name"].to_list() == ["parent", "child", "second child", "late"]
    assert tables.op_inputs.rows() == [(1, "t", None, None), (2, None, "", None), (3, None, None, "Int")]


def test_sentinels_become_null_and_flops_a_number(tmp_path):
    tables = read_frames(
        tmp_path,
        op_range=ranges(
            {"start": 1, "end": 2, "sequence_number": -1, "forward_thread_id": 0, "flops": "1024", "shapes": ""},
            {"start": 2, "end": 3, "sequence_number": 0, "forward_thread_id": 1, "flops": "many", "is_async": 1},
        ),
    )
    assert tables.ops.select("seq", "fwd_thread", "flops", "shapes", "is_async").rows() == [
        (None, None, 1024, "", False),
        (0, 1, None, None, True),
    ]


def test_a_name_that_is_not_text_is_shown(tmp_path):
    fixed = struct.pack("<3q4QBB", 1, 2, -1, 1, 1, 1, 0, 0, 0)
    body = fixed + struct.pack("<HI", 2, 1) + b"\xff"
    (tmp_path / "torch.op_range").write_bytes(struct.pack("<HI", 1, len(body)) + body)
    tables = read(tmp_path, RAW).check()
    assert tables.ops["name"].to_list() == ["N/A"]
    assert issues(tables) == {"text-not-utf8": 1}


def test_steps_of_any_thread(tmp_path):
    tables = read_frames(
        tmp_path,
        op_range=ranges(
            {"start": 50, "end": 90, "name": "ProfilerStep#12", "process_id": 3, "start_thread_id": 8},
            {"start": 10, "end": 40, "name": "ProfilerStep#11", "process_id": 3, "start_thread_id": 7},
            {"start": 20, "end": 30, "name": "ProfilerStep#no number"},
            {"start": 21, "end": 30, "name": "my ProfilerStep#5"},
        ),
    )
    assert tables.steps.rows() == [(11, 3, 10, 40, None, None, None), (12, 3, 50, 90, None, None, None)]


@pytest.mark.parametrize(
    ("marks", "pairs", "lost"),
    [
        pytest.param([mark(0, 1, 7), mark(1, 3, 7, 5)], [("enqueue", 1, 3, 5)], {}, id="pair"),
        pytest.param([mark(1, 3, 7, 5), mark(0, 1, 7)], [("enqueue", 1, 3, 5)], {}, id="file-order-does-not-matter"),
        pytest.param(
            [mark(0, 1, 7), mark(0, 2, 7), mark(1, 3, 7, 5)],
            [("enqueue", 2, 3, 5)],
            {"start-without-end": 1},
            id="newest-start",
        ),
        pytest.param(
            [mark(0, 1, 7), mark(0, 2, 7), mark(1, 3, 7, 5), mark(1, 4, 7, 6)],
            [("enqueue", 2, 3, 5)],
            {"end-without-start": 1, "start-without-end": 1},
            id="older-starts-are-forgotten",
        ),
        pytest.param([mark(1, 3, 7, 5)], [], {"end-without-start": 1}, id="end-alone"),
        pytest.param([mark(0, 1, 7), mark(1, 3, 8, 5)], [], {"end-without-start": 1, "start-without-end": 1}, id="other-thread"),
        pytest.param(
            [mark(0, 1, 7, name="a"), mark(0, 2, 7, name="b"), mark(1, 3, 7, 5, name="a"), mark(1, 4, 7, 6, name="b")],
            [("enqueue", 1, 3, 5), ("enqueue", 2, 4, 6)],
            {},
            id="names-interleave",
        ),
        pytest.param(
            [mark(0, 1, 7), mark(2, 2, 7, 5), mark(1, 3, 7, 5), mark(3, 4, 7, 5)],
            [("enqueue", 1, 3, 5), ("dequeue", 2, 4, 5)],
            {},
            id="sides-interleave",
        ),
        pytest.param([mark(9, 1, 7), mark(0, 1, 7), mark(1, 3, 7, 5)], [("enqueue", 1, 3, 5)], {"unknown-kind": 1}, id="unknown"),
    ],
)
def test_queue_pairing(marks, pairs, lost):
    table, losses = queue_table(frame("op_mark", marks), RAW)
    assert table.select("kind", "start_ns", "end_ns", "correlation_id").rows() == pairs
    assert dict(pl.concat(losses).select("issue", "count").rows()) == lost


MARKS = st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(1, 2), st.integers(0, 99), st.sampled_from("ab"))


@pytest.mark.slow  # half a second and more
@given(st.lists(MARKS, max_size=40))
@settings(max_examples=150, deadline=None)
def test_queue_pairing_is_that_of_stacks(rows):
    table, _ = queue_table(frame("op_mark", [mark(kind, time, tid, number, name) for kind, time, tid, number, name in rows]), RAW)
    stacks: dict[tuple[int, str, int], list[int]] = {}
    expected = []
    for kind, time, tid, number, name in sorted(rows, key=lambda row: row[1]):
        stack = stacks.setdefault((tid, name, kind // 2), [])
        if kind % 2 == 0:
            stack.append(time)
        elif stack:
            expected.append((tid, stack.pop(), time, ("enqueue", "dequeue")[kind // 2], name, number))
            stack.clear()
    found = table.select("tid", "start_ns", "end_ns", "kind", "name", "correlation_id").rows()
    assert sorted(found) == sorted(expected)


def events(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    names = ("time", "thread_id", "key", "tag")
    return frame("python_tracer_func", [{"process_id": 1, **dict(zip(names, row, strict=True))} for row in rows])


def texts(**values: str) -> pl.DataFrame:
    return frame("python_tracer_hash", [{"key": int(key[1:]), "value": value} for key, value in values.items()])


def test_python_replay_nests_calls():
    # main -> f -> len (C), then g; main never returns; an exception leaving f counts as its return
    stream = events((0, 7, 1, 0), (2, 7, 2, 0), (3, 7, 3, 2), (4, 7, 9, 3), (5, 7, 9, 1), (6, 7, 4, 0), (8, 7, 9, 1))
    table, losses = python_calls_table(stream, texts(k1="main", k2="f", k3="len"), RAW)
    assert table.select("name", "kind", "start_ns", "end_ns", "call_id", "parent_id").rows() == [
        ("main", "python", 0, 8, 0, 0),
        ("f", "python", 2, 5, 1, 0),
        ("len", "c", 3, 4, 2, 1),
        ("4", "python", 6, 8, 5, 0),
    ]
    assert dict(pl.concat(losses).select("issue", "count").rows()) == {"start-without-end": 1}


def test_start_stack_at_the_end_of_the_file_comes_first():
    stream = events((5, 7, 2, 0), (6, 7, 9, 1), (0, 7, 1, 0), (0, 7, 3, 0))
    table, _ = python_calls_table(stream, texts(k1="outer", k3="inner", k2="f"), RAW)
    assert table.select("name", "end_ns", "parent_id").rows() == [("outer", 6, 0), ("inner", 6, 0), ("f", 6, 1)]


def test_modules_are_numbered_per_class_and_thread():
    names = texts(k1="Linear######900", k2="Linear######800", k3="ReLU######900", k4="f")
    stream = [(2, 0), (9, 1), (1, 0), (9, 1), (2, 0), (9, 1), (3, 0), (9, 1), (4, 0), (9, 1)]
    rows = [(time, 7, key, tag) for time, (key, tag) in enumerate(stream)] + [(50, 8, 1, 0), (51, 8, 9, 1)]
    table, _ = python_calls_table(events(*rows), names, RAW)
    assert table.select("tid", "name", "kind", "module_id").rows() == [
        (7, "nn.Module: Linear_0", "module", 0),
        (7, "nn.Module: Linear_1", "module", 1),
        (7, "nn.Module: Linear_0", "module", 0),
        (7, "nn.Module: ReLU_0", "module", 0),
        (7, "f", "python", None),
        (8, "nn.Module: Linear_0", "module", 0),
    ]


@pytest.mark.slow  # half a second and more
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3), st.integers(1, 4), st.integers(0, 3)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_python_replay_is_that_of_a_stack(rows):
    table, _ = python_calls_table(events(*rows), texts(k1="a"), RAW)
    expected = []
    for tid in sorted({row[1] for row in rows}):
        stream = sorted((row for row in rows if row[1] == tid), key=lambda row: row[0])
        stack: list[list[int]] = []
        calls = []
        for index, (time, _, key, tag) in enumerate(stream):
            if tag % 2 == 0:
                calls.append([tid, time, stream[-1][0], key, index, stack[-1][4] if stack else 0])
                stack.append(calls[-1])
            elif stack:
                stack.pop()[2] = time
        expected += [tuple(call) for call in calls]
    assert table.select("tid", "start_ns", "end_ns", "key", "call_id", "parent_id").rows() == expected


def test_tracer_files_of_2023(tmp_path):
    def record(fixed: bytes, *fields: tuple[int, bytes]) -> bytes:
        body = fixed + b"".join(struct.pack("<HI", kind, len(text)) + text for kind, text in fields)
        return struct.pack("<HI", 1, len(body)) + body

    calls = [(1, 0, b"main"), (2, 0, b"__call__"), (5, 1, b""), (9, 1, b"")]
    (tmp_path / "torch.python_func_call").write_bytes(
        b"".join(record(struct.pack("<3QB", time, 7, 1, tag), (2, name)) for time, tag, name in calls)
    )
    (tmp_path / "torch.python_module_call").write_bytes(record(struct.pack("<3Q", 1, 7, 1), (2, b"900"), (3, b"Linear")))
    tables = read(tmp_path, RAW).check()
    assert tables.python_calls.select("name", "kind", "start_ns", "end_ns", "parent_id", "module_id").rows() == [
        ("main", "python", 1, 9, 0, None),
        ("nn.Module: Linear_0", "module", 2, 5, 0, 0),
    ]


def test_memory_of_host_and_device(tmp_path):
    base = {"ptr": 1, "stream": -1, "device_index": -1, "thread_id": 2, "process_id": 1, "total_allocated": 0}
    base |= {"total_reserved": 0, "total_active": 0, "component_type": 0, "data_type": 0, "allocator_type": 0}
    device = {**base, "device_type": 20, "device_index": 3, "stream": 5}
    rows = [
        {**device, "time": 6, "alloc_size": -8, "data_type": 3, "component_type": 9},
        {**base, "time": 1, "alloc_size": 8, "device_type": 0},
        {**base, "time": 2, "alloc_size": -8, "device_type": 0},
        {**base, "time": 3, "alloc_size": -8, "device_type": 0, "data_type": 1},
        {**device, "time": 4, "alloc_size": -8, "data_type": 2, "component_type": 1, "allocator_type": 1},
        {**device, "time": 5, "alloc_size": 8, "device_type": 1},
    ]
    tables = read_frames(tmp_path, memory_usage=frame("memory_usage", rows))
    shown = tables.memory_events.select("time_ns", "component", "device_type", "device", "action", "inner", "stream_ptr")
    assert shown.rows() == [
        (1, "PTA", "cpu", None, "malloc", True, None),
        (2, "PTA", "cpu", None, "free", True, None),
        (3, "PTA", "cpu", None, "free", True, None),
        (4, "WORKSPACE", "npu", 3, "block_free", False, 5),
        (5, "PTA", "cuda", 3, "malloc", True, 5),
        (6, None, "npu", 3, None, True, 5),
    ]


def test_loss_in_a_file_is_in_quality_with_the_clocks(tmp_path):
    write(tmp_path, vector())
    path = tmp_path / "torch.op_mark"
    path.write_bytes(path.read_bytes()[:-1])
    tables = read(tmp_path, read_clock(tmp_path, None, {})).check()
    assert tables.quality["source"].unique().sort().to_list() == sorted({tmp_path.name, "torch.op_mark"})
    assert issues(tables) == {"incomplete-clock": 1, "truncated-record": 1, "start-without-end": 1}
