# SPDX-License-Identifier: Apache-2.0
"""Where the time of each step went on each device (docs/formats/outputs.md 7).

All results are whole nanoseconds. One row per (device, step), or per device with a null step when the capture has no
step that reached the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from stepscope.analysis.overlap import COMMUNICATION, COMPUTING, FREE, LAYERS, NOT_OVERLAPPED, computing, device_layers, layers
from stepscope.analysis.steps import LAST, by_launch, ranged_by_connection, step_of
from stepscope.tables import Tables

RECEIVE = "hcom_receive"
KEY = ("device", "row")
VALUES = (
    "computing_ns", "not_overlapped_ns", "overlapped_ns", "communication_ns", "free_ns", "stage_ns", "bubble_ns",
    "not_overlapped_except_receive_ns", "preparing_ns",
)  # fmt: skip


@dataclass(frozen=True)
class DeviceTime:
    """Where the time of all devices went, summed over their steps (of the whole capture where it has none).

    What a step took on a device is computing + exposed communication + free: the shares are parts of that sum, as every
    reader of step_trace_time.csv would work them out. Free reaches as far as the capture's own generation has it
    (`overlap.device_layers`), and what lies outside all steps counts nowhere.
    """

    rows: int  # steps, once for each device
    computing_ns: float
    exposed_ns: float
    overlapped_ns: float
    free_ns: float

    @property
    def whole_ns(self) -> float:
        return self.computing_ns + self.exposed_ns + self.free_ns

    @property
    def communication_ns(self) -> float:
        return self.exposed_ns + self.overlapped_ns

    def share(self, part_ns: float) -> float:
        return part_ns / self.whole_ns if self.whole_ns else 0.0

    @property
    def exposed_share(self) -> float:
        """Exposed (non-overlapped) communication as a part of step time."""
        return self.share(self.exposed_ns)

    def as_dict(self) -> dict[str, float]:
        """Times in ms and shares of step time."""
        times = {"computing": self.computing_ns, "exposed": self.exposed_ns, "overlapped": self.overlapped_ns, "free": self.free_ns}
        return {
            "rows": self.rows,
            **{f"{name}_ms": round(value / 1e6, 6) for name, value in times.items()},
            **{f"{name}_share": round(self.share(times[name]), 6) for name in ("computing", "exposed", "free")},
        }


def device_time(tables: Tables) -> DeviceTime:
    """The sums over `step_times`."""
    rows = step_times(tables)
    names = ("computing_ns", "not_overlapped_ns", "overlapped_ns", "free_ns")
    took = pl.sum_horizontal("computing_ns", "not_overlapped_ns", "free_ns")
    return DeviceTime(rows.filter(took > 0).height, *(float(rows[name].sum()) for name in names))


def step_times(tables: Tables) -> pl.DataFrame:
    """Where the time of each step went on each device: columns of `step_trace_time`, values as floats.

    Computed from the device's own events. The vendor's figures (table `step_times`) stand in where no timeline tells the
    range of a step on the device. Empty when nothing is known of a device.
    """
    reached = tables.ops.height > 0 and tables.steps["device_start_ns"].count() > 0
    if tables.step_times.height and not reached:
        rows = tables.step_times
    elif tables.kernels.height or tables.collectives.height:
        rows = step_trace_time(tables)
    else:
        rows = tables.step_times
    return rows.select(pl.col("device").cast(pl.Int64), "step", pl.col(VALUES).cast(pl.Float64))


def step_trace_time(tables: Tables, *, whole_device: bool | None = None) -> pl.DataFrame:
    """Rows of step_trace_time.csv: device, step, then the nine values in ns.

    What a layer of the overlap analysis shows belongs to the step on whose device range it starts. On GPUs a task belongs to
    the step that launched it, and a gap to the step whose tasks began last before it.

    Args:
        tables: linked tables.
        whole_device: how far Free reaches, see `overlap.device_layers`; by default as the capture's own generation has it.
    """
    ranges = _ranges(tables.steps)
    shown = device_layers(tables, whole_device=whole_device)
    if by_launch(tables.device_kind) and ranges["host_ns"].count():
        shown = _of_launching_steps(tables, ranges, shown.filter(pl.col("layer") == FREE))
    else:
        shown = _inside(shown, ranges)
    return _rows(shown, _inside(_received(tables.collectives), ranges), ranges, tables, stage=LAYERS)


def steps_by_task(tables: Tables) -> pl.DataFrame:
    """Table `steps` with the device ranges that analysis.db goes by."""
    tasks = ["connection_id", "start_ns", "end_ns"]
    both = pl.concat([tables.kernels.select(tasks), tables.collectives.select(tasks)])
    return ranged_by_connection(tables.steps, tables.api_calls, both)


def step_trace_time_by_task(tables: Tables, steps: pl.DataFrame | None = None) -> pl.DataFrame:
    """Rows of StepTraceTime in analysis.db, columns as `step_trace_time`.

    A task belongs to the step on whose device range (that of database captures) it starts, and the overlap is that of the
    step's own tasks; Free is what lies between them.

    Args:
        tables: linked tables.
        steps: `steps_by_task` of the same, when the caller has them already.
    """
    ranges = _ranges(steps_by_task(tables) if steps is None else steps)
    spans = ["device", "name", "kind", "start_ns", "end_ns", "duration_ns"]
    kernels = _inside(computing(tables.kernels.select(spans)), ranges)
    collectives = _inside(tables.collectives.select("device", "start_ns", "end_ns", "duration_ns"), ranges)
    shown = layers(kernels, collectives, by=KEY, whole_device=False)
    busy = [layer for layer in LAYERS if layer != FREE]
    return _rows(shown, _inside(_received(tables.collectives), ranges), ranges, tables, stage=busy)


def _ranges(steps: pl.DataFrame) -> pl.DataFrame:
    """Device ranges that items are sorted into; everything when no step reached the device."""
    reached = steps.filter(pl.col("device_start_ns").is_not_null() & pl.col("device_end_ns").is_not_null())
    if reached.height:
        return reached.select("step", start_ns="device_start_ns", end_ns="device_end_ns", host_ns="start_ns")
    return pl.DataFrame(
        {"step": [None], "start_ns": [-LAST], "end_ns": [LAST], "host_ns": [None]},
        schema={"step": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64, "host_ns": pl.Int64},
    )


def _inside(items: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    return items.with_columns(row=step_of(items["start_ns"], ranges, closed="left")).drop_nulls("row")


def _of_launching_steps(tables: Tables, ranges: pl.DataFrame, free: pl.DataFrame) -> pl.DataFrame:
    """The layers of each step's own tasks, and the gaps of the device from its first task to that of the next step."""
    place = ranges.select("step", row=pl.int_range(pl.len(), dtype=pl.Int64)).unique("step", keep="first")
    spans = ["device", "name", "kind", "start_ns", "end_ns", "duration_ns", "step"]
    kernels = tables.kernels.select(spans).join(place, on="step", maintain_order="left")
    collectives = tables.collectives.select(*spans[:2], *spans[3:]).join(place, on="step", maintain_order="left")
    busy = layers(kernels, collectives, by=KEY, whole_device=False).filter(pl.col("layer") != FREE)
    until_next = pl.max_horizontal(pl.col("start_ns").shift(-1), "end_ns")
    latest_first = ranges.with_row_index("row").sort("start_ns").with_columns(end_ns=until_next).reverse()
    owner = latest_first["row"].cast(pl.Int64).gather(step_of(free["start_ns"], latest_first, closed="left"))
    return pl.concat([busy, free.with_columns(row=owner).drop_nulls("row").select(busy.columns)])


def _received(collectives: pl.DataFrame) -> pl.DataFrame:
    return collectives.filter(pl.col("name").cast(pl.String).str.starts_with(RECEIVE)).select("device", "start_ns", "end_ns")


def _rows(
    shown: pl.DataFrame, received: pl.DataFrame, ranges: pl.DataFrame, tables: Tables, *, stage: Sequence[str]
) -> pl.DataFrame:
    """The values of each (device, step); a stage reaches from the first to the last piece of the layers named."""
    length = pl.col("end_ns") - pl.col("start_ns")
    pieces = shown.group_by(*KEY, "layer").agg(length.sum().alias("ns"), pl.col("start_ns").min(), pl.col("end_ns").max())
    pieces = pieces.cast({"layer": pl.String})
    sums = pieces.group_by(KEY).agg(
        computing_ns=pl.col("ns").filter(pl.col("layer") == COMPUTING).sum(),
        communication_ns=pl.col("ns").filter(pl.col("layer") == COMMUNICATION).sum(),
        not_overlapped_ns=pl.col("ns").filter(pl.col("layer") == NOT_OVERLAPPED).sum(),
        free_ns=pl.col("ns").filter(pl.col("layer") == FREE).sum(),
        first_ns=pl.col("start_ns").filter(pl.col("layer").is_in([COMPUTING, COMMUNICATION])).min(),
    )
    extent = (
        pieces.filter(pl.col("layer").is_in(stage)).group_by(KEY).agg(extent_ns=pl.col("end_ns").max() - pl.col("start_ns").min())
    )
    bubbles = received.group_by(KEY).agg(bubble_ns=length.sum())
    devices = shown.select("device").unique()
    frame = devices.join(ranges.with_row_index("row").cast({"row": pl.Int64}), how="cross")
    for part in (sums, extent, bubbles):
        frame = frame.join(part, on=KEY, how="left", nulls_equal=True)
    values = [name for name in frame.columns if name.endswith("_ns") and name not in ("host_ns", "first_ns", "start_ns", "end_ns")]
    frame = frame.with_columns(pl.col(values).fill_null(0)).sort("device", "step", "row")
    not_overlapped, bubble = pl.col("not_overlapped_ns"), pl.col("bubble_ns")
    began = pl.coalesce("host_ns", pl.lit(tables.ops["start_ns"].min(), pl.Int64))
    return frame.select(
        "device",
        "step",
        "computing_ns",
        "not_overlapped_ns",
        overlapped_ns=pl.col("communication_ns") - not_overlapped,
        communication_ns=pl.col("communication_ns"),
        free_ns=pl.col("free_ns"),
        stage_ns=pl.col("extent_ns") - bubble,
        bubble_ns=bubble,
        not_overlapped_except_receive_ns=pl.max_horizontal(not_overlapped - bubble, 0),
        preparing_ns=(pl.col("first_ns") - began).fill_null(0),
    )
