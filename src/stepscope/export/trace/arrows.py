# SPDX-License-Identifier: Apache-2.0
"""The arrows of a Perfetto trace: each drawn once, under a number of its own, and only from a span to a span.

Perfetto's engine counts an arrow as an error when its number is used again, when no span is open where it begins or ends,
and when it ends before it begins.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from stepscope.analysis.flows import enqueue_to_dequeue
from stepscope.analysis.link.op_tree import innermost, parents
from stepscope.analysis.sub_tasks import without_parents
from stepscope.export.trace.flows import ARROWS, arrow_names
from stepscope.export.trace.timeline import Timeline
from stepscope.formats.ascend.trace import layers
from stepscope.render.lines import Lines, Whole
from stepscope.render.microseconds import TimeText

_END = ("pid", "tid", "start_ns")
_QUEUE = ("enqueue_to_dequeue", "async_task_queue")


def arrow_events(before: Timeline, after: Timeline, shown: tuple[str, ...], clock: TimeText) -> Iterator[Lines]:
    """Both ends of every arrow, all beginnings first.

    Args:
        before: where arrows of the tables begin and end.
        after: the same spans on the lanes that they are drawn on.
        shown: frames whose spans are drawn.
        clock: how times are written.
    """
    found = _Bound(before, after, shown)
    parts = [
        found.bind(start, end).with_columns(name=pl.lit(name), category=pl.lit(category))
        for (name, category), start, end in _pairs(before, shown)
    ]
    arrows = pl.concat(parts).with_row_index("id") if parts else pl.DataFrame()
    for side, phase in (("from", "s"), ("to", "f")):
        for (name, category), rows in arrows.group_by("name", "category", maintain_order=True) if arrows.height else ():
            ends = rows.select("id", *(pl.col(f"{side}_{key}").alias(key) for key in _END))
            head = f', {{"ph": "{phase}", "bp": "e", "name": "{name}", "cat": "{category}", "id": '
            place = [', "pid": ', Whole("pid"), ', "tid": ', Whole("tid"), ', "ts": ', *clock.at(ends, "start_ns"), "}"]
            yield Lines(ends, [head, Whole("id"), *place])


def _pairs(timeline: Timeline, shown: tuple[str, ...]) -> Iterator[tuple[tuple[str, str], pl.DataFrame, pl.DataFrame]]:
    """Name and category of each kind of arrow, and the ends of its arrows: pid, tid, start_ns."""
    queue = timeline["queue"].select(_END)
    queued = enqueue_to_dequeue(timeline["queue"])
    yield _QUEUE, queue.select(pl.all().gather(queued["enqueue"])), queue.select(pl.all().gather(queued["dequeue"]))
    flows = timeline.flows
    for kind in flows["kind"].unique().drop_nulls().cast(pl.String).sort().to_list():
        rows = flows.filter(pl.col("kind") == kind)
        start = rows.select(pid="from_pid", tid="from_tid", start_ns="from_ns")
        yield (kind, kind), start, rows.select(pid="to_pid", tid="to_tid", start_ns="to_ns")
    launch, operator = arrow_names(timeline.device_kind)
    for name in ("kernels", "collectives"):
        if name not in shown:
            continue
        tasks = timeline[name]
        launched = tasks.filter(pl.col("launch_ns").is_not_null() & pl.col("connection_id").is_not_null())
        if timeline.is_npu and name == "kernels":
            launched = launched.filter(pl.col("kind").is_in(ARROWS))  # docs/formats/outputs.md 3.3
        yield launch, _launches(timeline, launched), launched.select(_END)
        # On a GPU the launching call is inside the operator, and one arrow says both.
        owned = tasks.filter(pl.col("op").is_not_null() & (pl.lit(timeline.is_npu) | pl.col("launch_ns").is_null()))
        yield operator, timeline["ops"].select(pl.col(_END).gather(owned["op"])), owned.select(_END)
    if "device_marks" in shown:
        has_device = pl.col("connection_id").is_not_null() & pl.col("device_start_ns").is_not_null()
        marks, on_device = (timeline[name].filter(has_device).select(_END) for name in ("marks", "device_marks"))
        yield (layers.MARK, layers.MARK), marks, on_device


def _launches(timeline: Timeline, tasks: pl.DataFrame) -> pl.DataFrame:
    """Where the host launched each task."""
    pid = timeline.processes.of(layers.CANN, None, None) if timeline.is_npu else timeline.processes.main_pid
    return tasks.select(pl.lit(pid, pl.Int64).alias("pid"), tid=pl.col("launch_tid").fill_null(0), start_ns="launch_ns")


class _Bound:
    """Which span an end of an arrow stands on, and where that span is drawn."""

    def __init__(self, before: Timeline, after: Timeline, shown: tuple[str, ...]):
        lanes = pl.concat([_drawn(after, name).select(lane=pl.col("tid").cast(pl.Int64)) for name in shown])
        spans = pl.concat([_drawn(before, name) for name in shown]).with_columns(lanes)
        # Nothing is ever open inside an empty span.
        spans = spans.filter(pl.col("start_ns") < pl.col("end_ns"))
        self._spans = spans.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
        self._parents = parents(self._spans)

    def bind(self, start: pl.DataFrame, end: pl.DataFrame) -> pl.DataFrame:
        """Arrows whose both ends stand on a span, in the order of time."""
        sides = []
        for side, points in (("from", start), ("to", end)):
            points = points.cast(dict.fromkeys(_END, pl.Int64))
            asked = points.rename({"start_ns": "time_ns"})
            row = innermost(self._spans, asked, by=("pid", "tid"), at_end=False, parent=self._parents)
            lane = self._spans["lane"].gather(row)
            sides.append(points.select(pl.col(_END).name.prefix(f"{side}_")).with_columns(lane.alias(f"{side}_tid")))
        both = pl.concat(sides, how="horizontal")
        return both.drop_nulls().filter(pl.col("from_start_ns") <= pl.col("to_start_ns"))


def _drawn(timeline: Timeline, name: str) -> pl.DataFrame:
    frame = without_parents(timeline[name]) if name == "kernels" and timeline.is_npu else timeline[name]
    return frame.select(pl.col("pid", "tid").cast(pl.Int64), "start_ns", "end_ns")
