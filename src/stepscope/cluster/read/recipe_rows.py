# SPDX-License-Identifier: Apache-2.0
"""The rows of profiler databases that recipes are made of."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.cluster.finding import Problem
from stepscope.cluster.read.rank_files import OUTPUT, PROFILER_DB
from stepscope.errors import CaptureError
from stepscope.export.cluster.recipes import CALL_COLUMNS, KERNEL_COLUMNS, LAUNCHED_COLUMNS, RecipeRows
from stepscope.formats.sqlite.quick import QuickFile, open_quickly

_KERNELS = """
SELECT names.value, types.value, cores.value, shapes.value, CAST(TASK.endNs - TASK.startNs AS REAL)
FROM COMPUTE_TASK_INFO AS info JOIN TASK ON TASK.globalTaskId = info.globalTaskId
LEFT JOIN STRING_IDS AS names ON names.id = info.name LEFT JOIN STRING_IDS AS types ON types.id = info.opType
LEFT JOIN STRING_IDS AS cores ON cores.id = info.taskType LEFT JOIN STRING_IDS AS shapes ON shapes.id = info.inputShapes
"""
_CALLS = """
SELECT names.value, types.value, CAST(op.endNs - op.startNs AS REAL), groups.value
FROM COMMUNICATION_OP AS op LEFT JOIN STRING_IDS AS types ON types.id = op.opType
LEFT JOIN STRING_IDS AS names ON names.id = op.opName LEFT JOIN STRING_IDS AS groups ON groups.id = op.groupName
"""
_LAUNCHED = """
SELECT device.rankId, groups.value, names.value, op.startNs, (op.endNs - op.startNs) / 1000.0
FROM COMMUNICATION_OP AS op CROSS JOIN RANK_DEVICE_MAP AS device JOIN STRING_IDS AS groups ON groups.id = op.groupName
JOIN STRING_IDS AS names ON names.id = op.opName JOIN CANN_API ON CANN_API.connectionId = op.connectionId
"""


def read_recipe_rows(captures: Mapping[int, Sequence[Path]]) -> tuple[RecipeRows, list[Problem]]:
    """The rows of all ranks that have a database, and which do not."""
    kernels: list[tuple[Any, ...]] = []
    calls: list[tuple[Any, ...]] = []
    launched: list[tuple[Any, ...]] = []
    found, problems = RecipeRows(), []
    for rank, paths in sorted(captures.items()):
        for path in paths:
            try:
                with open_quickly(_database(path)) as file:
                    kernels += [(rank, *row) for row in _select(file, _KERNELS, "COMPUTE_TASK_INFO", "TASK")]
                    calls += [(rank, *row) for row in _select(file, _CALLS, "COMMUNICATION_OP")]
                    rows = _select(file, _LAUNCHED, "COMMUNICATION_OP", "RANK_DEVICE_MAP", "CANN_API")
                    launched += [(place, *row) for place, row in enumerate(rows)]
                    seen = _select(file, "SELECT DISTINCT freq FROM AICORE_FREQ", "AICORE_FREQ")
            except CaptureError as problem:
                problems.append(Problem("recipes", {"path": path.name, "error": " ".join(str(problem).split())}, rank))
                continue
            if seen:
                found.frequencies[rank] = sorted({*found.frequencies.get(rank, []), *(int(one) for (one,) in seen)})
    found.kernels = pl.DataFrame(kernels, schema=KERNEL_COLUMNS, orient="row", strict=False)
    found.calls = pl.DataFrame(calls, schema=CALL_COLUMNS, orient="row", strict=False)
    found.launched = pl.DataFrame(launched, schema=LAUNCHED_COLUMNS, orient="row", strict=False)
    return found, problems


def _database(path: Path) -> Path:
    folder = path / OUTPUT
    try:
        name = next((name for name in sorted(os.listdir(folder)) if PROFILER_DB.fullmatch(name)), None)
    except OSError:
        name = None
    if name is None:
        raise CaptureError("the capture has no database of the profiler", fix="export it as a database")
    return folder / name


def _select(file: QuickFile, query: str, *tables: str) -> list[tuple[Any, ...]]:
    return file.select(query) if all(file.columns(table) for table in (*tables, "STRING_IDS")) else []
