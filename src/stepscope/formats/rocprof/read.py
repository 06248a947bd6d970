# SPDX-License-Identifier: Apache-2.0
"""A result of rocprofv3 as tables."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.chrome.inflate import Note, blocks
from stepscope.formats.gpu.collectives import collectives
from stepscope.formats.gpu.ranges import operators
from stepscope.formats.rocprof import fields
from stepscope.formats.rocprof.json_lists import Document
from stepscope.formats.rocprof.process import Process
from stepscope.tables import ALL_TABLES, TEXT, Facts, Tables, issues, lost
from stepscope.tables.issues import Issue

_BLOCK_BYTES = 16 << 20
# Unknown about a collective without its operator.
_UNKNOWN = {"op_type": TEXT, "count": pl.Int64(), "data_type": TEXT}
# Ranges that nest on their thread, and marks (docs/formats/rocprof.md 2.3).
_NESTED, _MARK = ("roctxThreadRangeA", "roctxRangePushA"), "roctxMarkA"
_RANGES = ("roctxProcessRangeA", "roctxRangeStartA")


def read(path: Path, *, most_bytes: int | None = None) -> Tables:
    """Read the JSON of `rocprofv3 --output-format json`, plain or gzip; packed, it may unpack to `most_bytes`.

    Raises:
        CaptureError: the file is not such a result, or has no record.
    """
    found: dict[tuple[Issue, str], int] = {}

    def note(issue: Issue, count: int, detail: str) -> None:
        if count:
            found[issue, detail] = found.get((issue, detail), 0) + count

    try:
        data = b"".join(blocks(path, _BLOCK_BYTES, note, most_bytes))
    except OSError as error:
        raise CaptureError(
            "cannot be read", where=str(path), cause=error.strerror, fix="check the path and its permissions"
        ) from error
    document = Document(data, note)
    places = document.places(fields.SIGN, b"[")
    # Older versions write one object, newer ones a list with one object for each process.
    starts = [start for place in places for start in document.elements(place)] or document.places(fields.SIGN, b"{")
    processes = [Process(document, start, number, note) for number, start in enumerate(starts)]
    if not document.is_whole:
        note(issues.TRUNCATED_FILE, 1, "brackets are left open")
    tables = _tables(processes, note)
    if not any(tables[name].height for name in ("kernels", "api_calls", "ops", "marks")):
        raise CaptureError(
            "the result has no record",
            where=str(path),
            cause="; ".join(f"{issue.sentence_for(count)} {detail}" for (issue, detail), count in found.items())
            or "its lists are empty",
            fix="record with: rocprofv3 --kernel-trace --hip-trace --memory-copy-trace --output-format json",
        )
    note(issues.INCOMPLETE_CLOCK, 1, "times count from the start of the machine")
    quality = [lost(issue, path.name, count, detail) for (issue, detail), count in found.items()]
    return tables.replace(meta=_facts(processes, tables).table()).with_quality(*quality)


def _tables(processes: list[Process], note: Note) -> Tables:
    if not processes:
        return Tables()
    tasks = pl.concat([process.tasks() for process in processes]).sort("device", "start_ns", maintain_order=True)
    ranges = pl.concat([process.ranges() for process in processes])
    what = pl.col("operation")
    marks = ranges.filter(what.is_in([_MARK, *_RANGES])).with_columns(
        kind=pl.when(what == _MARK).then(pl.lit("marker")).otherwise(pl.lit("start/end")), end_tid="tid"
    )
    for name in fields.UNREAD:
        note(issues.UNSUPPORTED_KIND, sum(process.count(name) for process in processes), name)
    return Tables(
        {
            "ops": operators(ranges.filter(what.is_in(_NESTED))),
            "marks": ALL_TABLES["marks"].conform(marks),
            "api_calls": ALL_TABLES["api_calls"].conform(pl.concat([process.calls() for process in processes])),
            "kernels": ALL_TABLES["kernels"].conform(tasks),
            "collectives": collectives(tasks.with_columns(pl.lit(None, kind).alias(name) for name, kind in _UNKNOWN.items())),
        }
    )


def _facts(processes: list[Process], tables: Tables) -> Facts:
    first = processes[0]
    node, command = first.metadata.get("node"), first.metadata.get("command")
    times = [first.metadata.get(key) for key in ("init_time", "fini_time")]
    start, end = (time if isinstance(time, int) and 0 < time < 1 << 61 else None for time in times)
    used = set(tables["kernels"]["device"].drop_nulls().unique().to_list())
    gpus = {number: agent for process in processes for number, agent in process.gpus.values() if number in used}
    host = node.get("hostname") if isinstance(node, dict) else ""
    return Facts(
        source="rocprof",
        framework="pytorch" if (tables["ops"]["scope"] == 0).any() else "",
        device_kind="rocm",
        host_name=host if isinstance(host, str) else "",
        process_name=Path(str(command[0])).name if isinstance(command, list) and command else "",
        device_ids=tuple(sorted(used)),
        device_names={
            str(number): str(agent.get("product_name") or agent.get("name") or "") for number, agent in sorted(gpus.items())
        },
        activities=tuple(word for word, name in (("CPU", "ops"), ("CUDA", "kernels")) if tables[name].height),
        record_shapes=tables["ops"]["shapes"].count() > 0,
        session_start_ns=start,
        session_end_ns=end,
        metadata={"command": [str(word) for word in command]} if isinstance(command, list) else {},
    )
