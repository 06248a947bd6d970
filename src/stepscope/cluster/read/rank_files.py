# SPDX-License-Identifier: Apache-2.0
"""The small files of a capture that cluster files are made of; made from its tables where the capture has none."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from stepscope.capture import Capture, gc_paused
from stepscope.errors import CaptureError
from stepscope.export import communication_json, step_trace_time
from stepscope.export.cluster.ranks import DB, TEXT, RankFiles, schema_of
from stepscope.formats import registry
from stepscope.formats.ascend.communication import keys
from stepscope.formats.ascend.db.schema import ANALYSIS_DB
from stepscope.formats.sqlite.quick import QuickFile, open_quickly
from stepscope.render.sqlite_table import DbColumn

OUTPUT = "ASCEND_PROFILER_OUTPUT"
_STEP_FILE, _METADATA, ANALYSIS = "step_trace_time.csv", "profiler_metadata.json", "analysis.db"
PROFILER_DB = re.compile(r"ascend_pytorch_profiler(?:_\d+)?\.db")
_NOT_FIGURES = ("Step", "Device_id")
_COMMUNICATION = ("CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix")


def form_of(path: Path) -> str:
    """Which files a capture has: databases, text, or ("") none of them."""
    try:
        names = [entry.name for entry in os.scandir(path / OUTPUT)]
    except OSError:
        return ""
    if ANALYSIS in names and any(map(PROFILER_DB.fullmatch, names)):
        return DB
    return TEXT if _STEP_FILE in names else ""


def read_rank_files(path: Path, rank: int, wanted: str = "") -> RankFiles:
    """The files of one capture.

    Args:
        path: its folder.
        rank: of the run.
        wanted: which form to take when it has both.

    Raises:
        CaptureError: they cannot be read.
    """
    form = form_of(path)
    if form == DB and wanted == TEXT and (path / OUTPUT / _STEP_FILE).is_file():
        form = TEXT
    if form == TEXT:
        return _text(path, path / OUTPUT, rank)
    return _databases(path, rank) if form == DB else _from_tables(path, rank)


def _text(path: Path, folder: Path, rank: int) -> RankFiles:
    metadata = _object(path / _METADATA)
    headers, steps = _steps(_content(folder / _STEP_FILE))
    return RankFiles(
        rank, str(path.absolute()), TEXT, headers, steps,
        communication=_object(folder / keys.FILE), matrix=_object(folder / keys.MATRIX_FILE),
        metadata=metadata, groups=_groups(metadata.get("parallel_group_info")),
    )  # fmt: skip


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise CaptureError("the file cannot be read", where=str(path), cause=str(error)) from error


def _object(path: Path) -> dict[str, Any]:
    content = _content(path)
    if not content.strip():
        return {}
    try:
        found = orjson.loads(content)
    except ValueError:
        try:
            found = json.loads(content)  # this one reads NaN too
        except ValueError as error:
            raise CaptureError(
                "the file is not valid JSON", where=str(path), cause=str(error), fix="export the capture again"
            ) from error
    return found if isinstance(found, dict) else {}


def _steps(content: bytes) -> tuple[tuple[str, ...], list[tuple[str, list[float]]]]:
    """Names and figures of each step."""
    reader = csv.reader(io.StringIO(content.decode("utf-8-sig", "replace"), newline=""))
    names = next(reader, [])
    places = [place for place, name in enumerate(names) if name not in _NOT_FIGURES]
    step = names.index("Step") if "Step" in names else -1
    rows = [
        (row[step] if 0 <= step < len(row) else "", [_number(row[place]) if place < len(row) else 0 for place in places])
        for row in reader
        if row
    ]
    return tuple(names[place] for place in places), rows


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0


def _groups(listed: Any) -> dict[str, Any]:
    return {str(name): entry for name, entry in listed.items()} if isinstance(listed, dict) else {}


def _databases(path: Path, rank: int) -> RankFiles:
    folder = path / OUTPUT
    profiler = next(folder / name for name in sorted(os.listdir(folder)) if PROFILER_DB.fullmatch(name))
    found = RankFiles(rank, str(path.absolute()), DB, metadata=_object(path / _METADATA))
    with open_quickly(folder / ANALYSIS) as file:
        for name in _COMMUNICATION:
            found.rows[name] = _frame(file, name)
        steps = _wanted("StepTraceTime")[1:]
        found.steps = [(str(step), list(figures)) for step, *figures in file.rows("StepTraceTime", steps)]
    with open_quickly(profiler) as file:
        meta = dict(file.rows("META_DATA", (DbColumn("name", "T"), DbColumn("value", "T"))))
        hosts = file.rows("HOST_INFO", (DbColumn("hostUid", "T"), DbColumn("hostName", "T")))
        devices = file.rows("RANK_DEVICE_MAP", (DbColumn("rankId", "I"), DbColumn("deviceId", "I")))
    found.groups = _groups(_loaded(meta.get("parallel_group_info")))
    found.host = (str(hosts[0][0]), str(hosts[0][1])) if hosts else None
    found.devices = [(one, device) for one, device in devices if one is not None and device is not None]
    return found


def _wanted(table: str) -> tuple[DbColumn, ...]:
    return ANALYSIS_DB[table].columns


def _frame(file: QuickFile, name: str) -> pl.DataFrame:
    rows: Sequence[tuple[Any, ...]] = file.rows(name, _wanted(name))
    return pl.DataFrame(rows, schema=schema_of(ANALYSIS_DB[name]), orient="row", strict=False)


def _loaded(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _from_tables(path: Path, rank: int) -> RankFiles:
    """The files that an export of the capture would have."""
    files = registry.claim(path)
    if files is None:
        raise CaptureError("no reader knows this capture", where=str(path))
    with gc_paused(), tempfile.TemporaryDirectory(prefix="stepscope-") as name:
        tables = Capture(files).load(keep=False, parallel=False)
        folder = Path(name)
        step_trace_time.write(tables, folder)
        communication_json.write(tables, folder)
        found = _text(path, folder, rank)
    facts = tables.facts
    found.metadata = dict(facts.metadata)
    found.groups = _groups(facts.metadata.get("parallel_group_info"))
    found.host = (facts.host_uid, facts.host_name) if facts.host_uid else None
    found.devices = [(rank, facts.device_ids[0])] if facts.device_ids else []
    return found
