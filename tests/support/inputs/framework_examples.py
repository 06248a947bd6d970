# SPDX-License-Identifier: Apache-2.0
"""The worked examples of the framework format: bytes, and the records they stand for (docs/formats/framework.md 4, 14)."""

from __future__ import annotations

from typing import Any

import polars as pl

OP_RANGE_PLAIN = bytes.fromhex(
    "0100480000000010a5d4e800000090e0a8d4e80000000700000000000000e110000000000000e110000000000000e110"
    "000000000000000000000000000000000200080000006174656e3a3a6d6d"
)
OP_RANGE_FULL = bytes.fromhex(
    "0100fc0000000010a5d4e800000090e0a8d4e80000000700000000000000e110000000000000e110000000000000e110"
    "000000000000000000000000000000000200080000006174656e3a3a6d6d03000b000000666c6f61743b666c6f617404"
    "0007000000322c333b332c3405006500000030783535643063306138313030303b30783766316535633030303030303b"
    "666c6f61743b343b322c333b332c313b32303b302930783535643063306138323030303b307837663165356330313030"
    "30303b666c6f61743b343b332c343b342c313b32303b30080025000000747261696e2e7079283130293a20737465703b"
    "747261696e2e7079283230293a206d61696e"
)
OP_MARK = bytes.fromhex(
    "020034000000c0e4a6d4e800000001000000000000002a00000000000000e110000000000000e1100000000000000100060000004d61744d756c"
)
MEMORY = bytes.fromhex(
    "03004d000000003001c0c01200000081a7d4e80000000002000000000000000400000000000000002000000000000006"
    "00000000000002000000000000001400000000e110000000000000e110000000000000"
)
TRACER_FUNC = bytes.fromhex(
    "1037a5d4e8000000e110000000000000e110000000000000157c4a7fb979379e00a0cbb2d4e8000000e1100000000000"
    "00e110000000000000887766554433221101"
)
TRACER_HASH = bytes.fromhex(
    "040022000000157c4a7fb979379e0100140000004c696e65617223232323232339343337313233340400350000008877"
    "6655443322110100270000005f5f746f7263685f6e70755f70726f66696c65725f707974686f6e5f7472616365725f65"
    "786974"
)
PARAM_MODULE = bytes.fromhex(
    "05007a000000157c4a7fb979379e01006c0000007765696768742930783535643063306138333030303b307831326330"
    "63303032303030303b666c6f61743b343b342c333b332c313b32303b302930783535643063306138343030303b307831"
    "32633063303032313030303b666c6f61743b343b342c333b332c313b32303b30"
)
PARAM_OPTIMIZER = bytes.fromhex(
    "0500af00000022222222222222220200a100000030783535643063306138333030303b30783132633063303032303030"
    "303b666c6f61743b343b342c333b332c313b32303b302930783535643063306138343030303b30783132633063303032"
    "313030303b666c6f61743b343b342c333b332c313b32303b30296578705f6176673e3078353564306330613835303030"
    "3b30783132633063303032323030303b666c6f61743b343b342c333b332c313b32303b305d"
)
GC = bytes.fromhex("e110000000000000e0a3a9d4e80000004087c0d4e8000000")

BASE = 1_000_000_000_000
PID = 4321
QUEUE_TID = 4400
KEY, EXIT_KEY = 0x9E3779B97F4A7C15, 0x1122334455667788

TENSOR_A = "0x55d0c0a81000;0x7f1e5c000000;float;4;2,3;3,1;20;0"
TENSOR_B = "0x55d0c0a82000;0x7f1e5c010000;float;4;3,4;4,1;20;0"
WEIGHT = "0x55d0c0a83000;0x12c0c0020000;float;4;4,3;3,1;20;0"
GRADIENT = "0x55d0c0a84000;0x12c0c0021000;float;4;4,3;3,1;20;0"
STATE = "0x55d0c0a85000;0x12c0c0022000;float;4;4,3;3,1;20;0"

_MM = {
    "start": BASE,
    "end": BASE + 250_000,
    "sequence_number": 7,
    "process_id": PID,
    "start_thread_id": PID,
    "end_thread_id": PID,
    "forward_thread_id": 0,
    "scope": 0,
    "is_async": 0,
    "name": "aten::mm",
}
_MALLOC = {
    "ptr": 0x12C0C0013000,
    "time": BASE + 160_000,
    "alloc_size": 512,
    "total_allocated": 1024,
    "total_reserved": 2_097_152,
    "total_active": 1536,
    "stream": 2,
    "device_type": 20,
    "device_index": 0,
    "component_type": 0,
    "data_type": 0,
    "allocator_type": 0,
    "thread_id": PID,
    "process_id": PID,
}

# Kind, bytes, rows: what the bytes of each example say.
EXAMPLES = {
    "op_range_plain": ("op_range", OP_RANGE_PLAIN, [_MM]),
    "op_range_full": (
        "op_range",
        OP_RANGE_FULL,
        [
            {
                **_MM,
                "dtypes": "float;float",
                "shapes": "2,3;3,4",
                "tensors": f"{TENSOR_A}){TENSOR_B}",
                "stack": "train.py(10): step;train.py(20): main",
            }
        ],
    ),
    "op_mark": (
        "op_mark",
        OP_MARK,
        [{"time": BASE + 120_000, "category": 1, "correlation_id": 42, "thread_id": PID, "process_id": PID, "name": "MatMul"}],
    ),
    "memory": ("memory_usage", MEMORY, [_MALLOC]),
    "tracer_func": (
        "python_tracer_func",
        TRACER_FUNC,
        [
            {"time": BASE + 10_000, "thread_id": PID, "process_id": PID, "key": KEY, "tag": 0},
            {"time": BASE + 900_000, "thread_id": PID, "process_id": PID, "key": EXIT_KEY, "tag": 1},
        ],
    ),
    "tracer_hash": (
        "python_tracer_hash",
        TRACER_HASH,
        [{"key": KEY, "value": "Linear######94371234"}, {"key": EXIT_KEY, "value": "__torch_npu_profiler_python_tracer_exit"}],
    ),
    "param_module": ("param_tensor_info", PARAM_MODULE, [{"key": KEY, "module_params": f"weight){WEIGHT}){GRADIENT}"}]),
    "param_optimizer": (
        "param_tensor_info",
        PARAM_OPTIMIZER,
        [{"key": 0x2222222222222222, "optimizer_params": f"{WEIGHT}){GRADIENT})exp_avg>{STATE}]"}],
    ),
    "gc": ("gc_record", GC, [{"process_id": PID, "start": BASE + 300_000, "end": BASE + 1_800_000}]),
}


def mark(category: int, time: int, tid: int, correlation: int = 0, name: str = "MatMul") -> dict[str, object]:
    return {"time": time, "category": category, "correlation_id": correlation, "thread_id": tid, "process_id": PID, "name": name}


def vector() -> dict[str, pl.DataFrame]:
    """The golden capture: the examples together, with the marks and the free that complete them.

    docs/formats/framework.md 14.
    """
    rows: dict[str, Any] = {
        "op_range": EXAMPLES["op_range_full"][2],
        "op_mark": [
            mark(0, BASE + 100_000, PID),
            mark(1, BASE + 120_000, PID, 42),
            mark(2, BASE + 150_000, QUEUE_TID, 42),
            mark(3, BASE + 190_000, QUEUE_TID, 42),
        ],
        "memory_usage": [
            _MALLOC,
            {**_MALLOC, "time": BASE + 200_000, "alloc_size": -512, "total_allocated": 512, "total_active": 1024, "data_type": 1},
        ],
        **{EXAMPLES[name][0]: EXAMPLES[name][2] for name in ("tracer_func", "tracer_hash", "param_module", "gc")},
    }
    return {name: frame(name, items) for name, items in rows.items()}


def frame(kind: str, rows: list[dict[str, object]]) -> pl.DataFrame:
    """Rows as the raw frame of a record kind; columns left out are null."""
    from stepscope.formats.framework.layouts import KINDS

    return pl.DataFrame(rows, schema=KINDS[kind].schema, orient="row", strict=False)
