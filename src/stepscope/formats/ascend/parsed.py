# SPDX-License-Identifier: Apache-2.0
"""Tables of a capture that Ascend tools have parsed: a timeline, csv files and communication json, put together."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.arrays import distinct
from stepscope.errors import CaptureError
from stepscope.formats.ascend import (
    hardware,
    kernel_details,
    matching,
    memory,
    operator_details,
    statistics,
    step_trace_time,
    task_time,
)
from stepscope.formats.ascend.communication.read import Recorded, placed, read_extremes, recorded
from stepscope.formats.ascend.trace.timeline import read_timeline
from stepscope.tables import ALL_TABLES, Tables, issues, lost

Quality = list[pl.DataFrame]


@dataclass(frozen=True)
class ParsedFiles:
    """The files of one capture. `csv` is by the name the file has in msprof, slices in order."""

    timeline: tuple[Path, ...] = ()
    csv: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    communication: Path | None = None
    matrix: Path | None = None  # links of single operators
    extremes: Path | None = None  # links of the fastest, middle and slowest operators
    device: int | None = None  # the only device of the capture, where the files need not say it
    most_bytes: int | None = None  # that a packed timeline may unpack to

    def any(self) -> bool:
        return bool(self.timeline or self.communication or self.extremes or any(self.csv.values()))

    def of(self, name: str) -> tuple[Path, ...]:
        return self.csv.get(name, ())


@dataclass(frozen=True)
class Parsed:
    tables: Tables
    device_ids: tuple[int, ...]
    generation: str  # as the timeline tells it; empty without one


def read_parsed(files: ParsedFiles) -> Parsed:
    """Read everything; a damaged file is counted in `quality` and the others still count.

    Raises:
        CaptureError: not one of the files holds a row.
    """
    quality: Quality = []
    of_kernels: Quality = []
    of_tasks: Quality = []
    # While the timeline is read: the csv of kernels, that of tasks, then the operators of the json.
    with ThreadPoolExecutor(1) as beside:
        rows = beside.submit(kernel_details.read, files.of("op_summary"), quality=of_kernels)
        functions = beside.submit(task_time.read_functions, files.of("task_time") if files.timeline else (), quality=of_tasks)
        communication = beside.submit(recorded, files.communication, files.matrix)
        frames, devices, generation = _timeline(files.timeline, quality, files.most_bytes)
    has_events = any(_table(frames, name).height for name in ("ops", "kernels", "collectives"))
    device = files.device if files.device is not None else _single(devices)
    frames = _with_memory(frames, files, device, quality)
    device = device if device is not None else _single(_devices_of(frames))
    if _table(frames, "kernels").height:
        quality += of_tasks
    frames = _with_kernels(frames, files, device, rows.result().on(device), functions.result(), quality)
    quality += of_kernels
    frames = _with_communication(frames, communication.result(), quality)
    frames = _with_hardware(frames, files, device, quality)
    frames = _with_figures(frames, files, quality, has_events=has_events)
    found = {name: frame for name, frame in frames.items() if frame.height}
    losses = pl.concat([ALL_TABLES["quality"].empty(), *quality])
    if not found:
        raise CaptureError(
            "the parsed files of this capture hold no rows",
            where=", ".join(str(path) for path in _all_paths(files)[:3]),
            cause="; ".join(_said(row) for row in losses.head(3).iter_rows(named=True)) or None,
            fix="parse the raw data of the capture again",
        )
    ids = sorted({*devices, *_devices_of(found)})
    return Parsed(Tables({**found, "quality": losses}), tuple(ids), generation)


def _timeline(
    paths: tuple[Path, ...], quality: Quality, most_bytes: int | None
) -> tuple[dict[str, pl.DataFrame], tuple[int, ...], str]:
    if not paths:
        return {}, (), ""
    try:
        timeline = read_timeline(list(paths), quality=quality, most_bytes=most_bytes)
    except CaptureError as error:  # the csv files may still be good
        quality.append(lost(issues.UNREADABLE_FILE, paths[0].name, 1, f"{error.what}: {error.cause or error.where}"))
        return {}, (), ""
    return timeline.frames, timeline.device_ids, timeline.generation


def _with_memory(
    frames: dict[str, pl.DataFrame], files: ParsedFiles, device: int | None, quality: Quality
) -> dict[str, pl.DataFrame]:
    events, app = memory.read_records(files.of("memory_record"), quality=quality, device=device)
    sampled = _table(frames, "counters")
    if not sampled.filter(pl.col("source") == memory.NPU_MEM).height:
        npu = memory.read_samples(files.of("npu_mem"), quality=quality, device=device)
        sampled = pl.concat([sampled, npu if npu.height else app])
    modules = memory.read_modules(files.of("npu_module_mem"), quality=quality, device=device)
    allocations = memory.read_allocations(files.of("operator_memory"), quality=quality, device=device)
    counters = ALL_TABLES["counters"].conform(pl.concat([sampled, modules]))
    return {**frames, "memory_events": events, "allocations": allocations, "counters": counters}


def _with_kernels(
    frames: dict[str, pl.DataFrame],
    files: ParsedFiles,
    device: int | None,
    rows: kernel_details.KernelRows,
    functions: pl.DataFrame,
    quality: Quality,
) -> dict[str, pl.DataFrame]:
    tasks = _table(frames, "kernels")
    if tasks.height:
        tasks = task_time.with_functions(tasks, functions)
    else:
        tasks = task_time.read(files.of("task_time"), quality=quality, device=device)
        tasks = matching.with_operator_names(tasks, rows.compute)
    if rows.compute.height:
        tasks, metrics = matching.join_compute(tasks, rows)
        frames = {**frames, "kernel_metrics": metrics}
    else:
        tasks = matching.guess_compute(tasks)
    collectives, transfers = matching.join_collectives(_table(frames, "collectives"), _table(frames, "transfers"), rows.collectives)
    return {**frames, "kernels": tasks, "collectives": collectives, "transfers": transfers}


def _with_communication(frames: dict[str, pl.DataFrame], recorded: Recorded, quality: Quality) -> dict[str, pl.DataFrame]:
    found = placed(recorded, _table(frames, "collectives"), quality=quality)
    return {
        **frames,
        "collectives": found.collectives,
        "collective_times": found.times,
        "collective_packets": found.packets,
        "collective_links": found.links,
    }


def _with_hardware(
    frames: dict[str, pl.DataFrame], files: ParsedFiles, device: int | None, quality: Quality
) -> dict[str, pl.DataFrame]:
    rates = [
        hardware.read_cache(files.of(name), kind, quality=quality, device=device)
        for name, kind in (("l2_cache", "l2"), ("soc_pmu", "tlb"))
    ]
    links = [
        hardware.read_links(files.of(name), source, quality=quality, device=device)
        for name, source in (("pcie", "PCIe"), ("hccs", "HCCS"))
    ]
    ports = [
        hardware.read_ports(files.of(name), source, quality=quality, device=device)
        for name, source in (("nic", "NIC"), ("roce", "RoCE"))
    ]
    return {
        **frames,
        "cache_rates": pl.concat(rates),
        "link_summary": pl.concat(links),
        "counters": ALL_TABLES["counters"].conform(pl.concat([_table(frames, "counters"), *ports])),
        "aicpu_tasks": hardware.read_aicpu(files.of("aicpu"), quality=quality, device=device),
    }


def _with_figures(
    frames: dict[str, pl.DataFrame], files: ParsedFiles, quality: Quality, *, has_events: bool
) -> dict[str, pl.DataFrame]:
    """What the vendor's analysis says of events that are not there."""
    operators = () if _table(frames, "ops").height else files.of("operator_details")
    steps = () if has_events else files.of("step_trace_time")
    times = step_trace_time.read(steps, quality=quality)
    marked = _table(frames, "steps")
    if not has_events and not marked.height:
        marked = step_trace_time.steps_of(_table(frames, "kernels"), _table(frames, "collectives"), times)
    types = () if _table(frames, "kernels")["op_type"].count() else files.of("op_statistic")
    calls = () if _table(frames, "api_calls").height else files.of("api_statistic")
    has_links = _table(frames, "transfers").height or _table(frames, "collective_links").height
    return {
        **frames,
        "op_times": operator_details.read(operators, quality=quality),
        "step_times": times,
        "steps": marked,
        "op_type_times": statistics.read_op(types, quality=quality),
        "api_times": statistics.read_api(calls, quality=quality),
        "link_extremes": read_extremes(None if has_links else files.extremes, quality=quality),
    }


def _said(loss: Mapping[str, Any]) -> str:
    return f"{loss['source']}: {loss['issue']}" + (f" ({loss['detail']})" if loss["detail"] else "")


def _table(frames: Mapping[str, pl.DataFrame], name: str) -> pl.DataFrame:
    return frames[name] if name in frames else ALL_TABLES[name].empty()


def _devices_of(frames: Mapping[str, pl.DataFrame]) -> tuple[int, ...]:
    named = ("kernels", "collectives", "memory_events", "allocations", "counters", "cache_rates")
    return tuple({item for name in named for item in distinct(_table(frames, name)["device"])})


def _single(devices: tuple[int, ...]) -> int | None:
    return devices[0] if len(devices) == 1 else None


def _all_paths(files: ParsedFiles) -> list[Path]:
    return [
        *files.timeline,
        *(path for paths in files.csv.values() for path in paths),
        *filter(None, (files.communication, files.matrix, files.extremes)),
    ]
