# SPDX-License-Identifier: Apache-2.0
"""Why the device was idle in a stretch of free time: what the host did meanwhile, and the task that ended it."""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.analysis.overlap import FREE
from stepscope.analysis.partition.model import FROM
from stepscope.verdict import words
from stepscope.web.loaded import LoadedCapture
from stepscope.web.timeline.slices import SOURCES
from stepscope.web.views.verdict import answer_of

MOST_OPERATORS = 6

# By the part that takes most of the gap; {op} is the operator that the host spent most of it in.
WHY = {
    "idle.gc": ("The host collected garbage and issued nothing.", "Host 在做垃圾回收，没有下发任务。"),
    "idle.sync": ("The host waited for the device and issued nothing.", "Host 在等待 Device，没有下发任务。"),
    "idle.alloc": ("The host allocated or freed device memory.", "Host 在申请或释放 Device 内存。"),
    "idle.compile": ("The host compiled an operator.", "Host 在编译算子。"),
    "idle.checkpoint": ("The host saved a checkpoint.", "Host 在保存检查点。"),
    "idle.data": ("The host waited for data.", "Host 在等待数据。"),
    "idle.api": ("The host was in calls of the runtime ({op}).", "Host 在运行时调用中（{op}）。"),
    "idle.operator": (
        "The host was still issuing {op}; the device had nothing to run.",
        "Host 仍在下发 {op}，Device 无任务可执行。",
    ),
    "idle.python": ("The host ran Python between operators.", "Host 在算子之间执行 Python。"),
    "idle.queue": ("The next task was issued, but the thread of the task queue was behind.", "任务已下发，但任务队列线程落后。"),
    "idle.launch": ("The next task was launched; this is the latency of the device.", "任务已启动，这是 Device 的启动延迟。"),
    "idle.queued": (
        "Work was issued and did not start: a wait, or work that this capture does not show.",
        "任务已下发但未开始：等待，或此采集未记录的工作。",
    ),
    "": ("Nothing was recorded of the host at this time.", "此时没有 Host 的记录。"),
}


def gap_cause(capture: LoadedCapture, number: int) -> dict[str, Any] | None:
    """The cause of a slice of free time; None for other slices, and where no gap of the partition lies in it."""
    index = capture.trace
    row = int(index.slices["source_row"][number])
    if SOURCES[int(index.slices["source"][number])] != "overlap" or str(capture.tables.overlap["layer"][row]) != FREE:
        return None
    start, end = (int(index.slices[edge][number]) + index.base_ns for edge in ("start", "end"))
    case = answer_of(capture).case
    gaps = case.parts.gaps.filter((pl.col("start_ns") < end) & (pl.col("end_ns") > start))
    columns = [name for name in gaps.columns if name.startswith("idle.")]
    if not gaps.height or not columns:
        return None
    sums = sorted(((int(gaps[name].sum()), name) for name in columns), reverse=True)
    operators = _operators(capture, gaps["tid"].drop_nulls().to_list(), start, end)
    named = operators[0]["name"] if operators else "?"
    why = WHY.get(sums[0][1], WHY[""])
    return {
        "why": {lang: text.replace("{op}", named) for lang, text in zip(words.LANGUAGES, why, strict=True)},
        "parts": [
            {"part": name, "name": {lang: words.part_name(name, lang) for lang in words.LANGUAGES}, "ns": ns}
            for ns, name in sums
            if ns
        ],
        "operators": operators,
        "ended_by": _ended_by(capture, gaps),
    }


def _operators(capture: LoadedCapture, threads: list[int], start: int, end: int) -> list[dict[str, Any]]:
    """Operators of the issuing threads by their time inside the gap, outermost of equal time first."""
    inside = pl.min_horizontal("end_ns", pl.lit(end)) - pl.max_horizontal("start_ns", pl.lit(start))
    rows = (
        capture.tables.ops.with_row_index("row")
        .filter(pl.col("tid").is_in(threads) & (pl.col("start_ns") < end) & (pl.col("end_ns") > start))
        .filter(~pl.col("name").cast(pl.String).str.starts_with("ProfilerStep"))
        .with_columns(inside=inside)
        .sort("inside", "row", descending=[True, False])
        .head(MOST_OPERATORS)
    )
    return [
        {"name": row["name"], "ns": row["inside"], "id": capture.trace.id_of("ops", row["row"])}
        for row in rows.select("name", "inside", "row").to_dicts()
    ]


def _ended_by(capture: LoadedCapture, gaps: pl.DataFrame) -> dict[str, Any] | None:
    """The task that began at the end of the gap, and when the host issued and launched it."""
    number = gaps["task"].drop_nulls()
    if not number.len():
        return None
    task = answer_of(capture).case.model.tasks.row(int(number[-1]), named=True)
    found = capture.trace.id_of(FROM[task["table"]], task["row"])
    name = capture.trace.name_and_length(found)[0] if found is not None else ""
    times = {
        key: None if task[f"{key}_ns"] is None else task[f"{key}_ns"] - capture.base_ns for key in ("issue", "launch", "start")
    }
    return {"name": name, "id": found, **times}
