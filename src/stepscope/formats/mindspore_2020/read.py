# SPDX-License-Identifier: Apache-2.0
"""A folder of MindSpore 2020 as tables: tasks with operators, steps, all-reduces, AI CPU (docs/formats/cann.md 6.11)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import orjson
import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.cann.chips import CHIPS, evidence_of
from stepscope.formats.cann.clock import CounterClock
from stepscope.formats.cann.device.side import DeviceSide, read_device
from stepscope.formats.cann.folder import Part, Slices
from stepscope.formats.cann.layouts import AICORE, HWTS, TRAINING_TRACE
from stepscope.formats.cann.records import read_records, text_lines
from stepscope.formats.mindspore_2020 import texts
from stepscope.formats.mindspore_2020.files import Found, by_device
from stepscope.formats.mindspore_2020.step_trace import step_trace
from stepscope.tables import ALL_TABLES, TEXT, Facts, Tables, issues, lost

_PLATFORM = 1
_FREQUENCY = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")
_FILES = {"hwts.log.data": HWTS.file, "aicore.data": AICORE.file, "training_trace": TRAINING_TRACE.file}
_TASKS, _GRAPH, _POINTS, _AICPU = (
    "Framework.host.vm.task_desc_info", "Framework.host.vm.graph_desc_info", "Framework.host.vm.point", "DATA_PREPROCESS.dev.AICPU",
)  # fmt: skip
_UNREAD = {"DATA_PREPROCESS.dev.TDT": "file: queue of the data set", "ts_track.data": "file: states of tasks"}
_OPERATOR = ("name", "op_type", "block_num", "input_shapes", "input_formats", "output_shapes", "output_formats")


def read(folder: Path) -> Tables:
    """Tables of a folder; what is missing or damaged is counted in `quality`.

    Times are those of the device's counter: these captures do not say when that was zero.

    Raises:
        CaptureError: no record in the folder can be read.
    """
    devices = by_device(folder)
    frames: dict[str, list[pl.DataFrame]] = {}
    losses: list[pl.DataFrame] = []
    evidence: dict[str, str] = {}
    before = 0  # kernels of the devices before: the table has them first
    for device, found in devices.items():
        part = _part(folder, device, found)
        evidence |= evidence_of(_PLATFORM, [kind for kind in found if kind in (*_FILES, _AICPU)])
        tables_of_device = _device_tables(part, found, losses)
        if "kernel_metrics" in tables_of_device:
            moved = pl.col("kernel") + before
            tables_of_device["kernel_metrics"] = tables_of_device["kernel_metrics"].with_columns(moved)
        before += tables_of_device["kernels"].height
        for name, frame in tables_of_device.items():
            if frame.height:
                frames.setdefault(name, []).append(frame)
    schemas = {name: ALL_TABLES[name] for name in frames}
    tables = {name: table.sort(table.conform(pl.concat(frames[name], how="diagonal"))) for name, table in schemas.items()}
    if not tables:
        raise CaptureError(
            "nothing in this folder of MindSpore 2020 can be read",
            where=str(folder),
            cause="its records are empty or damaged",
            fix="give the folder that holds hwts.log.data.*, training_trace.* and Framework.host.vm.* of one run",
        )
    facts = Facts(
        source="records of MindSpore 2020",
        framework="mindspore",
        device_kind="npu",
        device_ids=tuple(devices),
        device_names={str(device): CHIPS[_PLATFORM].name for device in devices},
        platform=_PLATFORM,
        evidence=evidence,
    )
    fault = "the start of the device's counter was not recorded: times count from its zero"
    losses.append(lost(issues.INCOMPLETE_CLOCK, folder.name, 1, fault))
    return Tables({**tables, "meta": facts.table()}).with_quality(*(row for row in losses if row.height))


def _part(folder: Path, device: int, found: Found) -> Part:
    """The device's records as those of a device folder."""
    settings = {name: _json(folder / name) for name in (f"info.json.{device}", "sample.json")}
    info = {"platform_version": str(_PLATFORM), **settings[f"info.json.{device}"]}
    groups = {_FILES[kind]: (_slices(kind, found[kind]),) for kind in _FILES if kind in found}
    part = Part(folder, device, info, settings["sample.json"], {}, {}, CounterClock(), CounterClock(), 0, groups)
    stated = str(part.device_info.get("hwts_frequency", ""))
    rate = float(stated) if _FREQUENCY.fullmatch(stated) and float(stated) else CHIPS[_PLATFORM].counter_mhz
    return Part(folder, device, info, settings["sample.json"], {}, {}, CounterClock(mhz=rate), CounterClock(), 0, groups)


def _slices(kind: str, numbered: list[tuple[int, Path]]) -> Slices:
    first, last = numbered[0][0], numbered[-1][0]
    missing = last - first + 1 - len({number for number, _ in numbered})
    return Slices(kind, False, first, tuple(path for _, path in numbered), missing)


def _json(path: Path) -> dict[str, object]:
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}  # most of these folders have none
    return value if isinstance(value, dict) else {}


def _device_tables(part: Part, found: Found, losses: list[pl.DataFrame]) -> dict[str, pl.DataFrame]:
    side = read_device(part, False)
    losses.append(side.quality)
    known, bad = texts.operators(_lines(found, _TASKS, losses), _lines(found, _GRAPH, losses))
    losses.append(lost(issues.UNREADABLE_LINE, _TASKS, bad))
    entries, strange = texts.ai_cpu("\n".join(_lines(found, _AICPU, losses)))
    losses.append(lost(issues.UNREADABLE_LINE, _AICPU, strange))
    read_kinds = {*_FILES, *_UNREAD, _TASKS, _GRAPH, _POINTS, _AICPU}
    for kind in sorted(found.keys() - read_kinds):
        losses.append(lost(issues.UNKNOWN_FILE, kind, sum(path.stat().st_size for _, path in found[kind])))
    losses += [lost(issues.UNSUPPORTED_KIND, kind, len(found[kind]), what) for kind, what in _UNREAD.items() if kind in found]
    kernels = _kernels(side, known)
    return {
        "kernels": kernels,
        **_metrics(side, kernels),
        **_steps(part, texts.points(_lines(found, _POINTS, losses)), losses),
        "aicpu_tasks": _ai_cpu(part, entries),
    }


def _lines(found: Found, kind: str, losses: list[pl.DataFrame]) -> list[str]:
    lines, bad = text_lines([_slices(kind, found[kind])]) if kind in found else ([], [])
    losses += bad
    return lines


def _kernels(side: DeviceSide, known: pl.DataFrame) -> pl.DataFrame:
    """Operators by the number of their task; everything else that ran has no name."""
    rows = side.tasks.with_columns(pl.lit(side.device, pl.Int32).alias("device"))
    rows = rows.join(known, on="task_id", how="left", maintain_order="left")
    operator = pl.col("name").is_not_null()
    return rows.with_columns(
        pl.coalesce("name", pl.col("device_type").cast(pl.String)).alias("name"),
        pl.when(operator).then(pl.lit("AI_CORE")).alias("core"),
        pl.when(operator).then(pl.lit("AI_CORE")).otherwise(pl.col("device_type").cast(pl.String)).alias("task_type"),
        pl.when(operator).then(pl.lit("compute")).otherwise(pl.lit("other")).alias("kind"),
    ).select(
        "device", "stream", "start_ns", "end_ns", "duration_ns", "task_id", "batch_id", "core", "task_type", "kind", *_OPERATOR
    )  # fmt: skip


def _metrics(side: DeviceSide, kernels: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Table `kernel_metrics` where cores were counted; `kernel` is the row of this device's kernels."""
    counted = kernels.select("kind", "block_num", "duration_ns", mix_block_num=pl.lit(0, pl.Int64)).hstack([side.tasks["pmu"]])
    rows = counted.with_row_index("kernel").filter(pl.col("pmu").is_not_null() & (pl.col("kind") == "compute"))
    if not rows.height:
        return {}
    values = side.metrics(rows.select("pmu", "block_num", "mix_block_num", "duration_ns"))
    return {"kernel_metrics": values.with_columns(rows["kernel"].cast(pl.Int64))}


def _steps(part: Part, named: dict[int, str], losses: list[pl.DataFrame]) -> dict[str, pl.DataFrame]:
    records = read_records(part, TRAINING_TRACE)
    trace = step_trace(records.rows)
    losses += records.lost
    losses.append(lost(issues.START_WITHOUT_END, TRAINING_TRACE.file, trace.open_records, "records of a step without an end"))
    losses.append(lost(issues.END_WITHOUT_START, TRAINING_TRACE.file, trace.odd_reduces, "all-reduces"))
    steps = _in_ns(part, trace.steps, ("start", "end", "forward", "backward"))
    reduces = _in_ns(part, trace.reduces, ("start", "end"))
    device = pl.lit(part.device, pl.Int32).alias("device")
    names = pl.col("tag").replace_strict({**named}, default=None, return_dtype=pl.String) if named else pl.lit(None, pl.String)
    name = pl.coalesce(names, pl.format("all-reduce {}", (pl.col("tag") - 1) // 2))
    return {
        "steps": steps.select(
            "step", "start_ns", "end_ns", device_start_ns="start_ns", device_end_ns="end_ns", inflated=pl.lit(False)
        ),
        "marks": steps.drop_nulls(["forward_ns", "backward_ns"]).select(
            device, start_ns="forward_ns", end_ns="backward_ns", device_start_ns="forward_ns", device_end_ns="backward_ns",
            message=pl.lit("forward and backward"), domain=pl.lit("training_trace"), kind=pl.lit("start/end"),
        ),
        "collectives": reduces.select(
            device, "start_ns", "end_ns", "stream", "step", name=name, op_type=name.map_elements(texts.short_name, pl.String),
            duration_ns=(pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64), group=pl.format("stream {}", "stream"),
        ),
    }  # fmt: skip


def _in_ns(part: Part, frame: pl.DataFrame, columns: Iterable[str]) -> pl.DataFrame:
    """Counter values as times, in columns named `*_ns`; null stays null."""
    times = []
    for name in columns:
        values = frame[name]
        known = pl.Series(f"{name}_ns", part.clock.ns(values.fill_null(0).to_numpy()), pl.Int64)
        times.append(known.set(values.is_null(), None) if values.null_count() else known)
    return frame.hstack(times)


def _ai_cpu(part: Part, entries: pl.DataFrame) -> pl.DataFrame:
    timed = _in_ns(part, entries, ("before_ticks",))
    ran = pl.coalesce(pl.col("run_end_us") - pl.col("run_start_us"), "total_us").cast(pl.Float64)
    return timed.select(
        pl.lit(part.device, pl.Int32).alias("device"),
        pl.col("node").cast(TEXT),
        "compute_us",
        "memcpy_us",
        time_ns="before_ticks_ns",
        task_us=ran,
        dispatch_us=pl.col("dispatch_us").cast(pl.Float64),
        total_us=pl.col("total_us").cast(pl.Float64),
    )
