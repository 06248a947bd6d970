# SPDX-License-Identifier: Apache-2.0
"""The timeline of msprof: runtime calls, device tasks, communication and counters, no framework (docs/formats/cann.md 7.3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from stepscope.analysis import overlap
from stepscope.analysis.sub_tasks import without_parents
from stepscope.export.trace.counters import counter_events
from stepscope.export.trace.flows import launch_arrows, mark_flows
from stepscope.export.trace.spans import device_spans
from stepscope.export.trace.timeline import Timeline, lay_out
from stepscope.export.trace.view import metadata, write_array
from stepscope.render.atomic import replacing
from stepscope.render.lines import Lines
from stepscope.render.microseconds import MicrosecondText, TimeText
from stepscope.tables import ALL_TABLES, Tables

SHOWN = ("api_calls", "kernels", "task_parts", "collectives", "transfers", "marks", "counters")
# Calls that record or await an event on a stream; arrows lead from them to their tasks.
EVENT_CALLS = ("aclrtRecordEvent", "aclrtStreamWaitEvent")


def write(tables: Tables, path: Path) -> list[Path]:
    """Write the timeline; nothing when the capture has no event."""
    shown = Tables({name: tables[name] for name in (*SHOWN, "meta") if tables[name].height})
    if not any(shown[name].height for name in SHOWN):
        return []
    # The layers end where the cut durations of tasks do, and not where the tasks do (docs/formats/cann.md 2).
    lasted = pl.col("duration_ns").floor().cast(pl.Int64, strict=False)
    cut = pl.coalesce(pl.col("start_ns") + lasted, "end_ns").alias("end_ns")
    kernels = shown.kernels.with_columns(cut, pl.lit(None, pl.Float64).alias("duration_ns"))
    layers = overlap.layers(kernels, shown.collectives)
    # msprof shows a group by its text where it knows that.
    collectives = shown.collectives.with_columns(group=pl.coalesce("group_name", "group"))
    timeline = lay_out(shown.replace(overlap=ALL_TABLES["overlap"].conform(layers), collectives=collectives))
    with replacing(path) as handle:
        write_array(_events(shown, timeline, MicrosecondText()), handle)
    return [path]


def _events(tables: Tables, timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    yield from device_spans(timeline, clock, with_api=True)
    yield from counter_events(timeline, tables.counters, clock)
    yield from launches(timeline, clock)
    yield from mark_flows(timeline, clock)
    # Last: the events above have named their processes and threads by now.
    yield metadata(timeline)


def launches(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """Both ends of the arrows from calls on the host to what they launched; a call that launched nothing has its end, too."""
    calls = timeline["api_calls"].drop_nulls("connection_id")
    tasks = without_parents(timeline["kernels"]).drop_nulls("connection_id")
    is_copy = pl.col("kind") == "memcpy"
    copies = tasks.filter(is_copy)["connection_id"].unique().implode()
    of_event = (pl.col("level") == "acl") & pl.col("name").is_in(EVENT_CALLS)
    events = calls.filter(of_event)["connection_id"].implode()
    yield launch_arrows(clock, calls.filter((pl.col("level") == "node") | of_event | pl.col("connection_id").is_in(copies)), "s")
    operators = (pl.col("kind") == "compute") | is_copy | pl.col("connection_id").is_in(events)
    yield launch_arrows(clock, tasks.filter(operators), "f")
    yield launch_arrows(clock, timeline["collectives"].drop_nulls("connection_id"), "f")
