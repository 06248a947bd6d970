# SPDX-License-Identifier: Apache-2.0
"""Write a FRAMEWORK capture of any size with the project's own writers: nested operators, queue, memory, Python calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import polars as pl

from stepscope.formats.framework.records import write

PID = TID = 4321
QUEUE_TID, BACKWARD_TID = 4400, 4500
UNIX_END, RAW_END = 1_700_000_100_000_000_000, 100_000_000_000
NAMES = np.array(["aten::linear", "aten::addmm", "aten::gelu", "aten::add", "aten::_softmax", "aten::layer_norm"])
SHAPES = np.array(["4,1024,4096;4096,4096;4096", "4096,1024;1024,4096", "8,2048;;", "1024,1024"])
GROUP = 4  # one outer operator with three inside


def capture(folder: Path, *, ops: int, steps: int, seed: int = 1) -> Path:
    """Write a capture of `ops` operators in `steps` steps and return its folder."""
    root = folder / f"bench_{PID}_20260101000000000_ascend_pt"
    rng = np.random.default_rng(seed)
    groups = ops // GROUP
    length = rng.integers(8_000, 60_000, groups)
    start = np.cumsum(length + 2_000) - length
    records = {
        "op_range": _operators(start, length, steps, rng),
        "op_mark": _marks(start, length),
        "memory_usage": _blocks(start, length, rng),
        "python_tracer_func": _python(start, length),
        "python_tracer_hash": pl.DataFrame(
            {"key": np.arange(50, dtype=np.uint64), "value": [f"model.py({n}): forward" for n in range(50)]}
        ),
    }
    (root / "FRAMEWORK").mkdir(parents=True)
    write(root / "FRAMEWORK", records)
    (root / "profiler_info.json").write_bytes(orjson.dumps(_info()))
    (root / "profiler_metadata.json").write_bytes(b"{}")
    return root


def _operators(start: np.ndarray, length: np.ndarray, steps: int, rng: np.random.Generator) -> pl.DataFrame:
    inner = [(start + length * part // GROUP + 500, start + length * (part + 1) // GROUP - 500) for part in range(GROUP - 1)]
    starts = np.concatenate([start, *(left for left, _ in inner)])
    ends = np.concatenate([start + length, *(right for _, right in inner)])
    count = starts.size
    edges = np.linspace(0, int(ends.max()) + 1_000, steps + 1).astype(np.int64)
    names = NAMES[rng.integers(0, NAMES.size, count)].tolist() + [f"ProfilerStep#{number}" for number in range(steps)]
    shapes = SHAPES[rng.integers(0, SHAPES.size, count)].tolist() + [None] * steps
    starts, ends = np.concatenate([starts, edges[:-1]]), np.concatenate([ends, edges[1:] - 1])
    frame = pl.DataFrame({"start": starts, "end": ends, "name": names, "shapes": shapes})
    thread = {name: pl.lit(TID, pl.Int64) for name in ("process_id", "start_thread_id", "end_thread_id")}
    return frame.with_columns(**thread, dtypes=pl.when(pl.col("shapes").is_not_null()).then(pl.lit("float;float"))).sort("end")


def _marks(start: np.ndarray, length: np.ndarray) -> pl.DataFrame:
    parts = []
    for category, shift, tid in ((0, 1_000, TID), (1, 2_000, TID), (2, 3_000, QUEUE_TID), (3, 7_000, QUEUE_TID)):
        parts.append(
            pl.DataFrame({"time": start + shift, "correlation_id": np.arange(start.size)}).with_columns(
                category=category, thread_id=tid
            )
        )
    return pl.concat(parts).with_columns(process_id=PID, name=pl.lit("aclnnMatMul")).sort("time")


def _blocks(start: np.ndarray, length: np.ndarray, rng: np.random.Generator) -> pl.DataFrame:
    size = 512 * rng.integers(1, 4096, start.size)
    events = [(start + 600, size, 0), (start + length, -size, 1), (start + length + 10, -size, 2)]
    ptr = 1_000_000 + (np.arange(start.size) % 4096) * 4_194_304
    frames = [
        pl.DataFrame({"time": at, "alloc_size": change, "ptr": ptr}).with_columns(data_type=kind) for at, change, kind in events
    ]
    frame = pl.concat(frames).sort("time")
    total = pl.when(pl.col("data_type") == 2).then(0).otherwise("alloc_size").cum_sum()
    active = pl.when(pl.col("data_type") == 1).then(0).otherwise("alloc_size").cum_sum()
    return frame.with_columns(
        total_allocated=total, total_reserved=pl.lit(1 << 34), total_active=active, stream=2, device_type=20, device_index=0,
        component_type=0, allocator_type=0, thread_id=TID, process_id=PID,
    )  # fmt: skip


def _python(start: np.ndarray, length: np.ndarray) -> pl.DataFrame:
    keys = (np.arange(start.size) % 50).astype(np.uint64)
    calls = pl.DataFrame({"time": start, "key": keys}).with_columns(tag=0)
    returns = pl.DataFrame({"time": start + length, "key": keys}).with_columns(tag=1)
    return pl.concat([calls, returns]).with_columns(thread_id=TID, process_id=PID).sort("time")


def _info() -> dict[str, object]:
    common = {"activities": ["ProfilerActivity.CPU"], "record_shapes": True, "profile_memory": True, "with_stack": True}
    return {
        "config": {"common_config": common, "experimental_config": {"_profiler_level": "Level1", "_export_type": ["text"]}},
        "start_info": {"syscnt_enable": False, "freq": 100, "start_cnt": 0, "start_monotonic": 0},
        "end_info": {"collectionTimeEnd": UNIX_END, "MonotonicTimeEnd": RAW_END},
    }
