# SPDX-License-Identifier: Apache-2.0
"""What MindSpore sampled of its input pipelines: queues, processors, batches (docs/formats/mindspore.md 7.6)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from stepscope.formats.mindspore.losses import note
from stepscope.tables import ALL_TABLES, Tables, issues

_TIMES = {0: "pipeline", 1: "push", 2: "batch"}
_QUEUE = 1
_BATCH_FIELDS = 5


def read(folder: Path, quality: list[pl.DataFrame]) -> Tables:
    """Tables `data_pipelines` and `data_batches` of every pipeline in a folder."""
    operators, batches = [], []
    for path, number in _numbered_files(folder, r"pipeline_profiling_(\d+)\.json"):
        usage = _usage(_json(folder / f"minddata_cpu_utilization_{number}.json", quality))
        operators += _operators(_json(path, quality), number, usage, path.name, quality)
    for word in ("dataset_iterator", "device_queue"):
        for path, number in _numbered_files(folder, rf"{word}_profiling_(\d+)\.txt"):
            batches += _batches(path, number, word == "device_queue", quality)
    frames = {
        name: ALL_TABLES[name].conform(pl.DataFrame(rows, schema=ALL_TABLES[name].schema, orient="row"))
        for name, rows in (("data_pipelines", operators), ("data_batches", batches))
        if rows
    }
    return Tables(frames)


def _numbered_files(folder: Path, pattern: str) -> list[tuple[Path, int]]:
    listed = sorted(folder.iterdir()) if folder.is_dir() else []
    return [
        (path, int(match[1]))
        for path in listed
        if (match := re.fullmatch(pattern, path.name)) and path.is_file() and not path.is_symlink()
    ]


def _json(path: Path, quality: list[pl.DataFrame]) -> Mapping[str, Any]:
    try:
        value = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, orjson.JSONDecodeError) as fault:
        note(quality, issues.UNREADABLE_FILE, path.name, 1, str(fault))
        return {}
    return value if isinstance(value, dict) else {}


def _items(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = content.get("op_info")
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _usage(content: Mapping[str, Any]) -> dict[int, list[float]]:
    """Processor share by operator and sample."""
    found = {}
    for item in _items(content):
        metrics = item.get("metrics")
        system, user = (
            (_numbers(metrics.get(f"{word}_utilization")) for word in ("sys", "user")) if isinstance(metrics, dict) else ([], [])
        )
        number = item.get("op_id")
        if isinstance(number, int) and number >= 0:
            found[number] = [float(one + other) for one, other in zip(system, user, strict=False)]
    return found


def _numbers(value: object) -> list[float]:
    return (
        [item for item in value if isinstance(item, (int, float)) and not isinstance(item, bool)] if isinstance(value, list) else []
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None


def _operators(
    content: Mapping[str, Any], pipeline: int, usage: Mapping[int, list[float]], source: str, quality: list[pl.DataFrame]
) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    strange = 0
    for item in _items(content):
        number, kind = _whole(item.get("op_id")), item.get("op_type")
        if number is None or not isinstance(kind, str):
            strange += 1
            continue
        metrics = item.get("metrics")
        queue = metrics.get("output_queue") if isinstance(metrics, dict) else None
        queue = queue if isinstance(queue, dict) else {}
        sizes = [int(size) for size in _numbers(queue.get("size"))] if queue else None
        children = [int(child) for child in _numbers(item.get("children"))]
        interval = _whole(content.get("sampling_interval"))
        rows.append((
            pipeline, number, kind, _whole(item.get("num_workers")), children, _whole(queue.get("length")), sizes, interval,
            usage.get(number),
        ))  # fmt: skip
    note(quality, issues.NOT_UNDERSTOOD, source, strange, "neither number nor kind")
    return rows


def _batches(path: Path, pipeline: int, to_device: bool, quality: list[pl.DataFrame]) -> list[tuple[Any, ...]]:
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError as fault:
        note(quality, issues.UNREADABLE_FILE, path.name, 1, fault.strerror or str(fault))
        return []
    rows: list[tuple[Any, ...]] = []
    bad = 0
    for line in lines:
        words = line.split()[:_BATCH_FIELDS]
        if len(words) < _BATCH_FIELDS or not all(re.fullmatch(r"-?\d{1,18}", word) for word in words):
            bad += bool(line.strip())
            continue
        kind, sub, batch, value, moment = map(int, words)
        if kind == _QUEUE:
            rows.append((pipeline, to_device, "queue", batch, value, sub, moment))
        elif sub in _TIMES:
            rows.append((pipeline, to_device, _TIMES[sub], batch, value, None, moment))
        else:
            bad += 1
    note(quality, issues.UNREADABLE_LINE, path.name, bad, "not five known numbers")
    return rows
