# SPDX-License-Identifier: Apache-2.0
"""The small files of a capture that cluster files are made of; made from its tables where the capture has none."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.capture import Capture, gc_paused
from stepscope.cluster.read.text_files import (
    ANALYSIS,
    METADATA,
    OUTPUT,
    PROFILER_DB,
    STEP_FILE,
    as_groups,
    form_of,
    read_object,
    read_text,
)
from stepscope.errors import CaptureError
from stepscope.export import communication_json, step_trace_time
from stepscope.export.cluster.rank_tables import FIGURES, schema_of
from stepscope.export.cluster.ranks import DB, TEXT, RankFiles
from stepscope.formats import registry
from stepscope.formats.ascend.db.schema import ANALYSIS_DB
from stepscope.formats.sqlite.quick import QuickFile, open_quickly
from stepscope.render.sqlite_table import DbColumn

_COMMUNICATION = ("CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix")


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
    if form == DB and wanted == TEXT and (path / OUTPUT / STEP_FILE).is_file():
        form = TEXT
    if form == TEXT:
        return read_text(path, path / OUTPUT, rank)
    return _databases(path, rank) if form == DB else _from_tables(path, rank)


def _databases(path: Path, rank: int) -> RankFiles:
    folder = path / OUTPUT
    profiler = next(folder / name for name in sorted(os.listdir(folder)) if PROFILER_DB.fullmatch(name))
    found = RankFiles(rank, str(path.absolute()), DB, FIGURES, metadata=read_object(path / METADATA))
    with open_quickly(folder / ANALYSIS) as file:
        for name in _COMMUNICATION:
            found.rows[name] = _frame(file, name)
        steps = _wanted("StepTraceTime")[1:]
        found.steps = [(str(step), list(figures)) for step, *figures in file.rows("StepTraceTime", steps)]
    with open_quickly(profiler) as file:
        meta = dict(file.rows("META_DATA", (DbColumn("name", "T"), DbColumn("value", "T"))))
        hosts = file.rows("HOST_INFO", (DbColumn("hostUid", "T"), DbColumn("hostName", "T")))
        devices = file.rows("RANK_DEVICE_MAP", (DbColumn("rankId", "I"), DbColumn("deviceId", "I")))
    found.groups = as_groups(_loaded(meta.get("parallel_group_info")))
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
        found = read_text(path, folder, rank)
    facts = tables.facts
    found.metadata = dict(facts.metadata)
    found.groups = as_groups(facts.metadata.get("parallel_group_info"))
    found.host = (facts.host_uid, facts.host_name) if facts.host_uid else None
    found.devices = [(rank, facts.device_ids[0])] if facts.device_ids else []
    return found
