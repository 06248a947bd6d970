# SPDX-License-Identifier: Apache-2.0
"""Records of the framework and of its devices, as one set of tables."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from stepscope.formats import mindspore
from stepscope.formats.ascend_capture import prof_folder
from stepscope.formats.reader import CaptureFiles, Options
from stepscope.tables import Facts, Tables
from stepscope.tables.union import union


def read_capture_records(files: CaptureFiles, facts: Facts, options: Options) -> Tables:
    """FRAMEWORK and PROF side by side: the first is mostly Python's time, the second mostly the columnar engine's."""
    forms = {prof: prof_folder.form_to_read(prof, options.source) for prof in files.profs}
    device = "raw PROF" if "raw" in forms.values() else "PROF" if any(forms.values()) else ""
    sources = " and ".join(part for part in ("FRAMEWORK" if files.framework else "", device) if part)
    options.progress(f"reading {sources}")
    reads: list[Callable[[], Tables]] = []
    if files.framework:
        # A PROF folder takes several times as long and is read in two threads itself, which keep two cores busy.
        split = options.parallel and not any(forms.values())
        reads.append(_framework_reader(files.framework, files.profs[0] if files.profs else None, facts, split))
    alone = not files.framework
    reads += [prof_folder.reading(prof, form, facts, options, alone=alone) for prof, form in forms.items() if form]
    with ThreadPoolExecutor(2 if options.parallel else 1) as pool:
        parts = list(pool.map(lambda read: read(), reads))
    notes = [note for prof, form in forms.items() for note in prof_folder.form_notes(prof, form, options.source)]
    if files.framework and any(part.marks.height for part in parts[1:]):
        # The device's files have the same marks, with their part on the device.
        parts[0] = parts[0].replace(marks=parts[0].marks.clear())
    # What the device's own files say (session, host) goes before what the framework noted beside them.
    tables = union([*_renumber_connections(parts), Tables({"meta": facts.table()})])
    union_facts = tables.facts
    level, aic_metrics = facts.level or union_facts.level, facts.aic_metrics or union_facts.aic_metrics
    tables = tables.replace(meta=union_facts.replace(source=sources, level=level, aic_metrics=aic_metrics).table())
    return with_recorded_device(tables).with_quality(*notes)


def with_recorded_device(tables: Tables) -> Tables:
    """Memory events with the device that was recorded, where it was one: the framework's own number counts inside its process.

    docs/formats/outputs.md 8.3.
    """
    devices = tables.facts.device_ids
    if len(devices) != 1 or not tables.memory_events.height:
        return tables
    number = pl.when(pl.col("device_type") == "npu").then(pl.lit(devices[0], pl.Int32)).otherwise("device").alias("device")
    return tables.replace(memory_events=tables.memory_events.with_columns(number))


def _framework_reader(folder: Path, prof: Path | None, facts: Facts, parallel: bool) -> Callable[[], Tables]:
    if facts.framework == "mindspore":
        window = facts.session_start_ns, facts.session_end_ns
        return lambda: mindspore.read(folder, prof, facts.profiler_info, window)
    from stepscope.formats.collector import read as collected
    from stepscope.formats.framework.clock import read_clock

    clock = read_clock(folder.parent, prof, facts.profiler_info)
    return lambda: collected.read(folder, clock, parallel=parallel)


def _renumber_connections(parts: list[Tables]) -> list[Tables]:
    """Every PROF folder counts its launches from one; in those after the first they continue where the previous one ended."""
    renumbered, used = [], 0
    for part in parts:
        numbered = {name: part[name] for name in ("api_calls", "kernels", "collectives") if part[name].height}
        numbers = [frame.select(pl.col("connection_id").max().fill_null(0)).item() for frame in numbered.values()]
        highest = max(numbers, default=0)
        if used and highest:
            part = part.replace(**{name: frame.with_columns(pl.col("connection_id") + used) for name, frame in numbered.items()})
        used += highest
        renumbered.append(part)
    return renumbered
