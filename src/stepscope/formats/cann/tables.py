# SPDX-License-Identifier: Apache-2.0
"""A raw folder as tables: host and device sides read, joined and put into the schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.ascend.db.schema import NO_DEVICE_MARK
from stepscope.formats.cann import chips
from stepscope.formats.cann.beginning import recording_start, split_calls, without_early_tasks
from stepscope.formats.cann.communication import communication
from stepscope.formats.cann.device.side import DeviceSide, asks_host, read_device
from stepscope.formats.cann.facts import read_prof_facts
from stepscope.formats.cann.folder import Part, Prof, open_prof
from stepscope.formats.cann.host.old_files import old_kinds
from stepscope.formats.cann.host.side import HOST_FILES, HostSide, has_wide_streams, read_host
from stepscope.formats.cann.records import unknown_files
from stepscope.formats.cann.sampled import tables as sampled
from stepscope.formats.cann.tasks import join, kernel_metrics, kernels, task_parts, task_states
from stepscope.tables import ALL_TABLES, Tables, issues, lost
from stepscope.tables.threads import side_by_side

_FREQUENCY = "AI Core Freq"


def read(path: Path, *, parallel: bool = True) -> Tables:
    """Tables of a raw PROF folder; what is missing or damaged is counted in `quality`.

    Device records of chips that cannot be read yet are left out, with a row in `quality`; the host's calls are still read.

    Args:
        path: the folder.
        parallel: whether both sides may be read at the same time, which takes more memory.

    Raises:
        CaptureError: nothing in the folder can be read.
    """
    prof = open_prof(path)
    obstacle = chips.obstacle_of(prof)
    chip = chips.chip_of(prof.chip)
    readable = chip is not None and chip.readable
    known = [part for part in prof.devices if _is_readable(part)] if readable else []
    apart = parallel and bool(known) and not any(asks_host(part) for part in known)
    if apart:
        wide = has_wide_streams(prof.host)
        host, devices = side_by_side(lambda: read_host(prof), lambda: [read_device(part, wide) for part in known])
    else:
        host = read_host(prof, parallel=parallel)
        devices = [read_device(part, host.wide, _queued(host, part.device)) for part in known]
    facts = read_prof_facts(prof)
    joined = join(host, devices)
    begin_ns = recording_start(host.apis, joined.rows, facts.session_start_ns)
    joined = without_early_tasks(joined, begin_ns)
    one_core = [side.device for side in devices] if chip is not None and chip.shows_device_core else []
    table = kernels(joined, host, prof.host.pid if prof.host else None, one_core=one_core)
    collectives, transfers, comm_lost = communication(joined, host, facts.session_start_ns)
    table = _without_parts_of(collectives, table)
    calls = split_calls(host.apis, begin_ns)
    frames = {
        "api_calls": calls.whole,
        "early_calls": calls.early,
        "kernels": table,
        "kernel_metrics": kernel_metrics(joined, table, devices),
        "task_states": task_states(joined),
        "task_parts": task_parts(table, devices),
        "collectives": collectives,
        "transfers": transfers,
        "marks": _marks(host, devices),
        "memory_events": ALL_TABLES["memory_events"].conform(host.op_memory),
        "steps": ALL_TABLES["steps"].conform(host.steps) if host.steps is not None else ALL_TABLES["steps"].empty(),
        "meta": facts.table(),
    }
    samples = sampled.with_op_names(sampled.read_sampled(prof, wide=host.wide), table) if readable else Tables()
    frames |= {name: samples[name] for name in samples.filled() if name != "quality"}
    frames["counters"] = _with_frequency(samples.counters, devices)
    quality = [
        *prof.lost,
        *host.lost,
        *(side.quality for side in devices),
        *joined.quality,
        *comm_lost,
        samples.quality,
        *_not_read(prof),
        lost(issues.BEFORE_RECORDING, "api_event", calls.early.height, "calls that ended in it: in the statistics only"),
        lost(issues.BEFORE_RECORDING, "api_event", calls.skipped, "calls: left out"),
        lost(issues.RAW_DEVICE_UNREAD, str(path), int(not readable), obstacle),
        *(_unread_device(part) for part in prof.devices if readable and not _is_readable(part)),
        _unfinished(prof),
    ]
    tables = Tables({name: frame for name, frame in frames.items() if frame.height}).with_quality(
        *(row for row in quality if row.height)
    )
    if not any(name not in ("meta", "quality") for name in tables.filled()):
        raise CaptureError(
            "nothing in this raw folder can be read",
            where=str(path),
            cause=obstacle or "its records are empty or damaged",
            fix="parse it with the vendor's msprof, then analyse again" if not readable else "capture again",
        )
    return tables


def _is_readable(part: Part) -> bool:
    chip = chips.chip_of(part.chip)
    return chip is not None and chip.readable


def _unread_device(part: Part) -> pl.DataFrame:
    """A device of another chip than those that are read."""
    return lost(issues.RAW_DEVICE_UNREAD, part.path.name, 1, f"not yet readable: chip {chips.chip_name(part.chip)}")


def _queued(host: HostSide, device: int | None) -> pl.DataFrame:
    """What the host queued on a device, as device readers ask for it."""
    cores = host.descriptions["core"].cast(pl.String).gather(host.tasks["description"])
    operator = pl.col("description").is_not_null().alias("is_operator")
    tasks = host.tasks.select("device", "stream", "task_id", "batch_id", operator).with_columns(cores.alias("core"))
    return tasks.filter(pl.col("device") == device).drop("device")


def _unfinished(prof: Prof) -> pl.DataFrame:
    """The collector writes `start_info` first and `end_info` last, beside the data of the host and of each device."""
    open_parts = [part.path.name for part in prof.parts if part.start and not part.end]
    detail = f"no end_info in {', '.join(open_parts)}"
    return lost(issues.RECORDING_UNFINISHED, prof.path.name, int(bool(open_parts)), detail)


def _without_parts_of(collectives: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """A communication operator represents its own launch; its tasks do not count for other operators."""
    if not collectives.height:
        return table
    launched = collectives["connection_id"].drop_nulls().unique().implode()
    return table.with_columns(pl.col("extra") | pl.col("connection_id").is_in(launched).fill_null(False))


def _marks(host: HostSide, devices: Sequence[DeviceSide]) -> pl.DataFrame:
    """Marks of the host with their part on a device, joined by the number of the mark.

    Connections are numbered as in docs/formats/enums.md 8.
    """
    if not host.marks.height:
        return ALL_TABLES["marks"].empty()
    parts = [
        side.marks.select(
            "mark_id",
            "stream",
            pl.col("start_ns").alias("device_start_ns"),
            pl.col("end_ns").alias("device_end_ns"),
            pl.lit(side.device, pl.Int32).alias("device"),
        )
        for side in devices
    ]
    rows = host.marks
    if parts:
        on_device = pl.concat(parts).unique("mark_id", keep="first", maintain_order=True)
        rows = rows.join(on_device, on="mark_id", how="left", maintain_order="left")
        rows = rows.with_columns(
            pl.when(pl.col("device").is_not_null()).then(pl.col("mark_id") + NO_DEVICE_MARK).alias("connection_id")
        )
    return ALL_TABLES["marks"].conform(rows)


def _with_frequency(counters: pl.DataFrame, devices: Sequence[DeviceSide]) -> pl.DataFrame:
    frames = [
        side.points.filter(pl.col("kind") == "frequency").select(
            pl.lit(_FREQUENCY).alias("source"),
            pl.lit(_FREQUENCY).alias("name"),
            pl.lit("MHz").alias("series"),
            pl.lit(side.device, pl.Int32).alias("device"),
            "time_ns",
            pl.col("value").cast(pl.Float64),
        )
        for side in devices
    ]
    rows = [ALL_TABLES["counters"].conform(frame) for frame in frames if frame.height]
    return ALL_TABLES["counters"].sort(pl.concat([counters, *rows])) if rows else counters


def _not_read(prof: Prof) -> list[pl.DataFrame]:
    """Kinds of files that nobody reads, with their size."""
    rows: list[pl.DataFrame] = []
    if prof.host is not None:
        rows += unknown_files(prof.host, [*HOST_FILES, *old_kinds(prof.host), *sampled.HOST_FILES])
    for part in prof.devices:
        rows += unknown_files(part, [*chips.device_files(chips.chip_of(part.chip) or chips.UNSAID), *sampled.DEVICE_FILES])
    return rows
