# SPDX-License-Identifier: Apache-2.0
"""The small text files of a capture that cluster files are made of; read without the columnar engine."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from stepscope.errors import CaptureError
from stepscope.export.cluster.ranks import DB, TEXT, RankFiles
from stepscope.formats.ascend.communication import keys

OUTPUT = "ASCEND_PROFILER_OUTPUT"
STEP_FILE, METADATA = "step_trace_time.csv", "profiler_metadata.json"
_NOT_FIGURES = ("Step", "Device_id")
ANALYSIS = "analysis.db"
PROFILER_DB = re.compile(r"ascend_pytorch_profiler(?:_\d+)?\.db")


def form_of(path: Path) -> str:
    """Which files a capture has: databases, text, or ("") none of them."""
    try:
        names = [entry.name for entry in os.scandir(path / OUTPUT)]
    except OSError:
        return ""
    if ANALYSIS in names and any(map(PROFILER_DB.fullmatch, names)):
        return DB
    return TEXT if STEP_FILE in names else ""


def read_text(path: Path, folder: Path, rank: int) -> RankFiles:
    """The text files of one capture.

    Args:
        path: of the capture.
        folder: where they lie.

    Raises:
        CaptureError: they cannot be read.
    """
    metadata = read_object(path / METADATA)
    headers, steps = _steps(_content(folder / STEP_FILE))
    return RankFiles(
        rank, str(path.absolute()), TEXT, headers, steps,
        communication=read_object(folder / keys.FILE), matrix=read_object(folder / keys.MATRIX_FILE),
        metadata=metadata, groups=as_groups(metadata.get("parallel_group_info")),
    )  # fmt: skip


def joined(parts: Sequence[RankFiles]) -> RankFiles:
    """Captures of one rank one after the other; a step that is in both counts where it comes first."""
    first, *rest = parts
    for part in rest:
        known = {step for step, _ in first.steps}
        first.steps += [(step, figures) for step, figures in part.steps if step not in known]
        if first.form == part.form == DB:
            from stepscope.export.cluster.rank_tables import join_rows

            join_rows(first, part)
        else:
            first.communication = {**part.communication_document(), **first.communication_document()}
            first.matrix = {**part.matrix_document(), **first.matrix_document()}
            first.form = TEXT
    return first


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise CaptureError("the file cannot be read", where=str(path), cause=str(error)) from error


def read_object(path: Path) -> dict[str, Any]:
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


def as_groups(listed: Any) -> dict[str, Any]:
    return {str(name): entry for name, entry in listed.items()} if isinstance(listed, dict) else {}
