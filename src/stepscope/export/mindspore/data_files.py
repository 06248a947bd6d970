# SPDX-License-Identifier: Apache-2.0
"""dataset.csv and minddata_pipeline_*: what the input pipeline did (docs/formats/mindspore.md 9)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.analysis.mindspore import data_pipeline
from stepscope.analysis.mindspore.data_pipeline import NONE, Operator
from stepscope.render.atomic import replacing
from stepscope.tables import Tables

_RAW_TITLES = (
    "op_id", "op_type", "num_workers", "output_queue_size", "output_queue_average_size", "output_queue_length",
    "output_queue_usage_rate", "sample_interval", "parent_id", "children_id",
)  # fmt: skip
_STAGE_TITLES = ("Operation", "Stage", "Occurrences", "Avg. time (us)", "Custom Info")
_SHOWN_PAIRS = 2


def write_dataset(tables: Tables, folder: Path) -> list[Path]:
    """Stages of pipeline operators with their mean time; none without any."""
    stages = tables.data_stages
    if not stages.height:
        return []
    spans = tables.ops.select((pl.col("end_ns") - pl.col("start_ns")).gather(stages["op"]).alias("ns"))
    rows = pl.concat([stages.select("operator", "stage", "info"), spans], how="horizontal").filter(pl.col("ns") > 0)
    infos = {text: _info(text) for text in rows["info"].cast(pl.String).unique().to_list()}
    shown = pl.col("info").cast(pl.String).replace_strict(infos, default="", return_dtype=pl.String)
    groups = rows.group_by(pl.col("operator", "stage").cast(pl.String), shown.alias("text"), maintain_order=True)
    summed = groups.agg(pl.len().alias("count"), pl.col("ns").sum())
    lines = [
        (operator, stage, count, round(float(Decimal(ns) / 1000 / count), 2), text)
        for operator, stage, text, count, ns in summed.select("operator", "stage", "text", "count", "ns").iter_rows()
    ]
    return [_csv(folder / "dataset.csv", [_STAGE_TITLES, *lines])]


def _info(text: str | None) -> str:
    """The first two pairs in Python's words; with one alone there is nothing to show."""
    if text is None:
        return ""
    pairs = [pair.partition(":")[::2] for pair in text.split(";") if pair]
    return str(dict(pairs[:_SHOWN_PAIRS]) if len(pairs) >= _SHOWN_PAIRS else {})


def write_pipelines(tables: Tables, folder: Path) -> list[Path]:
    """Raw and summary file of each pipeline."""
    written = []
    for number in tables.data_pipelines["pipeline"].unique().sort().to_list():
        operators = data_pipeline.operators(tables.data_pipelines, number)
        interval = tables.data_pipelines.filter(pl.col("pipeline") == number)["interval_ms"][0]
        if 0 in operators:
            written.append(_csv(folder / f"minddata_pipeline_raw_{number}.csv", [_RAW_TITLES, *_raw_rows(operators, interval)]))
        summary = _summary(tables, number, operators)
        written.append(_csv(folder / f"minddata_pipeline_summary_{number}.csv", [(key, *value) for key, value in summary.items()]))
        path = folder / f"minddata_pipeline_summary_{number}.json"
        with replacing(path) as handle:
            handle.write(json.dumps(summary).encode())
        written.append(path)
    return written


def _raw_rows(operators: dict[int, Operator], interval: int | None) -> Iterable[Sequence[Any]]:
    """Breadth first from operator 0, the one that gives the batches."""
    waiting: list[tuple[int, int | None]] = [(0, None)]
    seen = set()
    while waiting:
        number, parent = waiting.pop(0)
        if number in seen:
            continue
        seen.add(number)
        one, children = operators[number], data_pipeline.queued_children(operators, number)
        sizes = None if one.queue_sizes is None else list(one.queue_sizes)
        average = sum(sizes) / len(sizes) if sizes else None
        rate = average / one.queue_length if average is not None and one.queue_length else None
        yield number, one.kind, one.workers, sizes, average, one.queue_length, rate, interval, parent, children or None
        waiting += [(child, number) for child in children]


def _summary(tables: Tables, number: int, operators: dict[int, Operator]) -> dict[str, list[Any]]:
    found = list(operators.values())
    parents = {child: one.number for one in found for child in one.children}
    pipeline, push, whole = data_pipeline.batch_times(tables.data_batches, number)
    summary: dict[str, list[Any]] = {
        "op_ids": [one.number for one in found],
        "op_names": [one.name for one in found],
        "pipeline_ops": [one.label for one in found],
        "num_workers": [one.workers for one in found],
        "queue_average_size": [one.queue_average for one in found],
        "queue_utilization_pct": [one.queue_use for one in found],
        "queue_empty_freq_pct": [one.queue_empty for one in found],
        "children_ids": [list(one.children) for one in found],
        "parent_id": [parents.get(one.number, NONE) for one in found],
        "avg_cpu_pct": [one.cpu for one in found],
        "per_pipeline_time": [pipeline],
        "per_push_queue_time": [push],
        "per_batch_time": [whole],
        "avg_cpu_pct_per_worker": [one.cpu_per_worker for one in found],
    }
    advice = data_pipeline.advice(operators)
    if advice.cpu:
        summary["cpu_analysis_details"] = advice.cpu
    if advice.queue:
        summary["queue_analysis_details"] = advice.queue
    if advice.bottleneck:
        summary["bottleneck_warning"], summary["bottleneck_suggestion"] = [advice.bottleneck], [advice.suggestion]
    return summary


def _csv(path: Path, rows: Iterable[Sequence[Any]]) -> Path:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    with replacing(path) as handle:
        handle.write(text.getvalue().encode())
    return path
