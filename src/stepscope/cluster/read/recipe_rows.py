# SPDX-License-Identifier: Apache-2.0
"""The rows of profiler databases that recipes are made of."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.cluster.finding import Problem
from stepscope.cluster.read.text_files import ANALYSIS, OUTPUT, PROFILER_DB
from stepscope.errors import CaptureError
from stepscope.export.cluster.recipes import (
    CALL_COLUMNS,
    EXPERT_COLUMNS,
    EXPERT_GROUP,
    KERNEL_COLUMNS,
    LAUNCHED_COLUMNS,
    LENGTH_COLUMNS,
    STEP_CALL_COLUMNS,
    STEP_COLUMNS,
    TASK_COLUMNS,
    RecipeRows,
)  # fmt: skip
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
_STEP_CALLS = """
SELECT device.rankId, groups.value, names.value, (op.endNs - op.startNs) / 1000.0, {step}
FROM COMMUNICATION_OP AS op CROSS JOIN RANK_DEVICE_MAP AS device JOIN STRING_IDS AS groups ON groups.id = op.groupName
JOIN STRING_IDS AS names ON names.id = op.opName JOIN CANN_API AS api ON api.connectionId = op.connectionId {join}
"""
_STEP_TASKS = """
SELECT api.startNs, api.endNs, api.memory, {step} FROM (
SELECT TASK.startNs, TASK.endNs, CANN_API.startNs AS launch, 0 AS memory FROM COMPUTE_TASK_INFO AS info
JOIN TASK ON TASK.globalTaskId = info.globalTaskId AND TASK.startNs != TASK.endNs
JOIN CANN_API ON CANN_API.connectionId = TASK.connectionId
UNION ALL SELECT op.startNs, op.endNs, CANN_API.startNs, 0 FROM COMMUNICATION_OP AS op
JOIN CANN_API ON CANN_API.connectionId = op.connectionId
UNION ALL SELECT TASK.startNs, TASK.endNs, TASK.startNs, 1 FROM TASK
WHERE taskType = (SELECT id FROM STRING_IDS WHERE value = 'MEMCPY_ASYNC')
) AS api {join} ORDER BY api.startNs, api.endNs
"""
_EXPERTS = """
SELECT shapes.value FROM COMPUTE_TASK_INFO AS info JOIN TASK ON TASK.globalTaskId = info.globalTaskId
LEFT JOIN STRING_IDS AS shapes ON shapes.id = info.inputShapes
WHERE info.opType = (SELECT id FROM STRING_IDS WHERE value = 'GroupedMatmul')
"""
_STEPS = """
SELECT CAST(COALESCE(step, '-1') AS INTEGER), computing, communication_not_overlapped, overlapped, communication, free
FROM StepTraceTime
"""


def read_recipe_rows(captures: Mapping[int, Sequence[Path]]) -> tuple[RecipeRows, list[Problem]]:
    """The rows of all ranks that have a database, and which do not."""
    found, problems = RecipeRows(), []
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _COLUMNS}
    for rank, paths in sorted(captures.items()):
        for path in paths:
            try:
                with open_quickly(_database(path)) as file:
                    own = _rows_of(file, rank)
                    seen = _select(file, "SELECT DISTINCT freq FROM AICORE_FREQ", "AICORE_FREQ")
                analysis = path / OUTPUT / ANALYSIS
                if analysis.is_file():
                    with open_quickly(analysis) as file:
                        own["steps"] = [(rank, *row) for row in file.select(_STEPS)] if file.columns("StepTraceTime") else []
            except CaptureError as problem:
                problems.append(Problem("recipes", {"path": path.name, "error": " ".join(str(problem).split())}, rank))
                continue
            for name, several in own.items():
                rows[name] += several
            if seen:
                found.frequencies[rank] = sorted({*found.frequencies.get(rank, []), *(int(one) for (one,) in seen)})
    for name, columns in _COLUMNS.items():
        setattr(found, name, pl.DataFrame(rows[name], schema=columns, orient="row", strict=False))
    return found, problems


_COLUMNS: dict[str, Any] = {
    "kernels": KERNEL_COLUMNS, "calls": CALL_COLUMNS, "launched": LAUNCHED_COLUMNS, "steps": STEP_COLUMNS,
    "lengths": LENGTH_COLUMNS, "step_calls": STEP_CALL_COLUMNS, "step_tasks": TASK_COLUMNS, "experts": EXPERT_COLUMNS,
}  # fmt: skip


def _rows_of(file: QuickFile, rank: int) -> dict[str, list[tuple[Any, ...]]]:
    marked = bool(file.columns("STEP_TIME"))
    lengths = file.select("SELECT id, (endNs - startNs) / 1000.0 FROM STEP_TIME") if marked else []
    calls, tasks = (_by_step(query, when, marked) for query, when in ((_STEP_CALLS, "api.startNs"), (_STEP_TASKS, "api.launch")))
    tables = ("COMMUNICATION_OP", "RANK_DEVICE_MAP", "CANN_API")
    launched = enumerate(_select(file, _LAUNCHED, *tables))
    return {
        "kernels": [(rank, *row) for row in _select(file, _KERNELS, "COMPUTE_TASK_INFO", "TASK")],
        "calls": [(rank, *row) for row in _select(file, _CALLS, "COMMUNICATION_OP")],
        "launched": [(place, *row) for place, row in launched],
        "lengths": [(rank, *row) for row in lengths] or [(rank, -1, None)],
        "step_calls": _select(file, calls, *tables),
        "step_tasks": [
            (rank, start, end, bool(memory), step)
            for start, end, memory, step in _select(file, tasks, "COMPUTE_TASK_INFO", "TASK", *tables)
        ],
        "experts": [(rank, _expert_ranks(file), *row) for row in _select(file, _EXPERTS, "COMPUTE_TASK_INFO", "TASK")],
    }


def _by_step(query: str, when: str, marked: bool) -> str:
    if not marked:
        return query.format(step="-1", join="")
    return query.format(step="step.id", join=f"LEFT JOIN STEP_TIME AS step ON {when} >= step.startNs AND {when} <= step.endNs")


def _expert_ranks(file: QuickFile) -> str:
    """Ranks of the group of experts, as the metadata have them."""
    meta = file.select("SELECT value FROM META_DATA WHERE name = 'parallel_group_info'") if file.columns("META_DATA") else []
    try:
        groups = json.loads(meta[0][0]) if meta else {}
        members: list[int] = next((one["global_ranks"] for one in groups.values() if one.get("group_name") == EXPERT_GROUP), [])
        return ",".join(map(str, members))
    except (ValueError, AttributeError, KeyError, TypeError):
        return ""


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
