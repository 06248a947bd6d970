# SPDX-License-Identifier: Apache-2.0
"""Why a device stood still: what the host did in free time and what ended it, or which rank a collective waited for."""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.analysis.overlap import FREE
from stepscope.analysis.partition.model import FROM
from stepscope.analysis.source_lines import operator_places, user_frame
from stepscope.verdict import words
from stepscope.verdict.case import Case
from stepscope.verdict.rules.communication import WAIT, group_members
from stepscope.web.loaded import LoadedCapture
from stepscope.web.timeline.slices import SOURCES
from stepscope.web.views.verdict import answer_of, free_slice

MOST_OPERATORS = 6
MOST_ALIKE = 20

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


# By what is known of the rank; {rank}, {ms} of the wait.
LATE = {
    "global": ("Waits for rank {rank}: its data came last ({ms} ms).", "等待 rank {rank}：其数据最后到达（{ms} ms）。"),
    "group": (
        "Waits for rank {rank} of its group: its data came last ({ms} ms).",
        "等待组内 rank {rank}：其数据最后到达（{ms} ms）。",
    ),
}
OUTSIDE = (
    "This is outside of the steps that are analysed (the first one after the profiler starts is left out); no cause is told.",
    "此处不在所分析的步内（profiler 启动后的第一步不计入），无法给出原因。",
)
_NOTHING: dict[str, Any] = {
    "parts": [], "operators": [], "ended_by": None, "place": None, "alike": None, "late": [], "global": False,
}  # fmt: skip


def cause_of(capture: LoadedCapture, number: int) -> dict[str, Any] | None:
    """Why the device stood still in a slice: of free time, or of a collective or transfer that waits."""
    source = SOURCES[int(capture.trace.slices["source"][number])]
    if source == "overlap":
        return gap_cause(capture, number)
    return _late_rank(capture, source, number) if source in ("collectives", "transfers") else None


def origin_of(capture: LoadedCapture, number: int) -> dict[str, Any] | None:
    """The operator that a slice is or was launched by, with its line and its module; None where nothing tells."""
    index = capture.trace
    source = SOURCES[int(index.slices["source"][number])]
    place_of = int(index.slices["source_row"][number])
    row: int | None = place_of
    if source in ("kernels", "collectives"):
        row = capture.tables[source]["op"][place_of]
    elif source != "ops":
        return None
    if row is None:
        return None
    place = capture.once("operator places", lambda: operator_places(capture.tables)).row(row, named=True)
    return {"operator": str(capture.tables.ops["name"][row]), "id": index.id_of("ops", row), **place}


def _late_rank(capture: LoadedCapture, source: str, number: int) -> dict[str, Any] | None:
    """The ranks that a collective waited for, the latest first; None where nothing waits or nobody says for whom."""
    row = int(capture.trace.slices["source_row"][number])
    own = pl.col("row") == row if source == "transfers" else pl.col("collective") == row
    waits = (
        capture.tables.transfers.with_row_index("row")
        .filter(own & pl.col("task_type").cast(pl.String).str.contains(WAIT))
        .with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
        .drop_nulls("dst_rank")
        .sort("ns", descending=True)
    )
    if not waits.height:
        return None
    members = group_members(answer_of(capture).case, waits["collective"])
    late = [
        {
            "rank": members[rank] if members is not None and rank < len(members) else rank,
            "ns": ns,
            "id": capture.trace.id_of("transfers", at),
        }
        for rank, ns, at in waits.group_by("dst_rank", maintain_order=True).first().select("dst_rank", "ns", "row").iter_rows()
    ]
    text = LATE["global" if members is not None else "group"]
    shown = {"{rank}": str(late[0]["rank"]), "{ms}": f"{late[0]['ns'] / 1e6:,.3f}"}
    why = {
        lang: one.replace("{rank}", shown["{rank}"]).replace("{ms}", shown["{ms}"])
        for lang, one in zip(words.LANGUAGES, text, strict=True)
    }
    return {"why": why, **_NOTHING, "late": late, "global": members is not None}


def gap_cause(capture: LoadedCapture, number: int) -> dict[str, Any] | None:
    """The cause of a slice of free time; None for other slices."""
    index = capture.trace
    row = int(index.slices["source_row"][number])
    if SOURCES[int(index.slices["source"][number])] != "overlap" or str(capture.tables.overlap["layer"][row]) != FREE:
        return None
    start, end = (int(index.slices[edge][number]) + index.base_ns for edge in ("start", "end"))
    case = answer_of(capture).case
    gaps = case.parts.gaps.filter((pl.col("start_ns") < end) & (pl.col("end_ns") > start))
    columns = [name for name in gaps.columns if name.startswith("idle.")]
    if not gaps.height or not columns:
        return {"why": dict(zip(words.LANGUAGES, OUTSIDE, strict=True)), **_NOTHING}
    sums = sorted(((int(gaps[name].sum()), name) for name in columns), reverse=True)
    operators = _operators(capture, gaps["tid"].drop_nulls().to_list(), start, end)
    # The innermost that fills most of the gap says more than the range around it.
    named = next(
        (one["name"] for one in reversed(operators) if 2 * one["ns"] > end - start), operators[0]["name"] if operators else "?"
    )
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
        "place": _place(capture, gaps["tid"].drop_nulls().to_list(), start, end),
        "alike": _alike(capture, case, columns, sums[0][1]),
        "late": [],
        "global": False,
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


def _place(capture: LoadedCapture, threads: list[int], start: int, end: int) -> dict[str, Any] | None:
    """The line of the user's code, the innermost line and the modules that the host was in for most of the gap."""
    inside = pl.min_horizontal("end_ns", pl.lit(end)) - pl.max_horizontal("start_ns", pl.lit(start))
    own = pl.col("tid").is_in(threads) & (pl.col("start_ns") < end) & (pl.col("end_ns") > start)
    # Down the calls that fill most of the gap, outermost first.
    filling = pl.col("inside") * 2 > pl.lit(end - start)
    calls = capture.tables.python_calls.filter(own).with_columns(inside=inside).filter(filling)
    calls = calls.sort("start_ns", "end_ns", descending=[False, True])
    kind = pl.col("kind").cast(pl.String)
    modules = calls.filter(kind == "module")["name"].cast(pl.String).str.strip_prefix("nn.Module: ").to_list()
    ops = (
        capture.tables.ops.filter(own & pl.col("stack").is_not_null()).with_columns(inside=inside).filter(filling).sort("start_ns")
    )
    frames = calls.filter((kind != "module") & pl.col("name").cast(pl.String).str.contains(r"\(\d+\): "))["name"].cast(pl.String)
    # Stacks of operators have the line of each call; the calls themselves have the line of each function.
    stack = str(ops["stack"][-1]) if ops.height else ";".join(reversed(frames.to_list()))
    if not stack and not modules:
        return None
    return {"line": user_frame(stack) if stack else "", "innermost": stack.split(";")[0], "modules": modules}


def _alike(capture: LoadedCapture, case: Case, columns: list[str], part: str) -> dict[str, Any]:
    """How many gaps have the same part as their largest, their length together, and the longest of them as slices."""
    largest = pl.max_horizontal(columns)
    same = case.parts.gaps.filter((pl.col(part) == largest) & (largest > 0)).select("start_ns", "end_ns")
    same = same.with_columns(ns=pl.col("end_ns") - pl.col("start_ns")).sort("ns", "start_ns", descending=[True, False])
    longest: dict[int, dict[str, int]] = {}
    for start, end, ns in same.head(MOST_ALIKE).iter_rows():
        found = free_slice(capture, case, start, end)
        if found is not None:
            longest.setdefault(found, {"id": found, "start_ns": start - capture.base_ns, "ns": ns})
    return {"count": same.height, "ns": int(same["ns"].sum()), "longest": list(longest.values())}


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
