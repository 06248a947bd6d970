# SPDX-License-Identifier: Apache-2.0
"""RuntimeProfilerJson*.json: what MindSpore writes at exit with MS_ENABLE_RUNTIME_PROFILER=1 (docs/formats/mindspore.md 12.1)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.chrome.events import read_events
from stepscope.formats.mindspore import cpu_files
from stepscope.formats.mindspore.ranges import arrows
from stepscope.formats.mindspore.records import NO_FLOW
from stepscope.tables import ALL_TABLES, Facts, Tables

_FLOW = "Default::Default::flow"
_LONGEST_NS = float(1 << 60)


def read(path: Path) -> Tables:
    """Host events as operators, and the launches of a graph as its kernels. Times are floats, accurate to a quarter microsecond.

    Raises:
        CaptureError: the file holds no event.
    """
    quality: list[pl.DataFrame] = []
    # Starts of arrows end before they begin by a few ticks; as an unsigned number that is a length of centuries.
    length = pl.when(pl.col("dur_ns") < _LONGEST_NS).then(pl.col("dur_ns").round()).otherwise(0.0)
    end = pl.col("ts_ns") + length.cast(pl.Int64)
    flow = pl.when(pl.col("args.flow_id") != NO_FLOW).then(pl.col("args.flow_id").reinterpret(signed=True))
    complete = (pl.col("ph") == "X") & pl.col("ts_ns").is_not_null()
    parts = [
        events.filter(complete).select(
            "pid", "tid", "name", pl.col("ts_ns").alias("start_ns"), end.alias("end_ns"), flow.alias("flow")
        )
        for events in read_events(path, {"flow_id": pl.UInt64()}, quality=quality)
    ]
    rows = pl.concat(parts) if parts else pl.DataFrame()
    if not rows.height:
        raise CaptureError("the trace holds no events", where=str(path), fix="record again with MS_ENABLE_RUNTIME_PROFILER=1")
    begins = pl.col("name").fill_null("") == _FLOW
    spans = rows.filter(~begins)
    ops = ALL_TABLES["ops"].conform(spans.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True))
    pid = int(ops["pid"].drop_nulls()[0]) if ops["pid"].count() else None
    kernels = cpu_files.read(path.parent, ops, device=0, pid=pid, quality=quality).kernels
    facts = Facts(source="mindspore_runtime", framework="mindspore", device_kind="cpu", activities=("CPU",))
    flows = arrows(rows.filter(begins), spans)
    return Tables({"ops": ops, "flows": flows, "kernels": kernels, "meta": facts.table()}).with_quality(*quality)
