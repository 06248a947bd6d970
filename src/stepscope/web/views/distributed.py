# SPDX-License-Identifier: Apache-2.0
"""The Distributed view: computing and communication of all workers of a run (docs/reference/viewer.md 4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple
from typing import Any

import polars as pl

from stepscope.analysis import distributed as analysis
from stepscope.analysis.communication import stepped
from stepscope.analysis.step_time import step_times
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, Shown
from stepscope.web.parameters import Query
from stepscope.web.problems import bad_parameter, missing

COMPUTATION = ("Computation", "Overlapping", "Communication", "Other", "Bubble", "Preparing")
SYNCHRONIZING = ("Data Transfer Time", "Synchronizing Time", "Wait (other)", "Idle")


def overview(workers: Mapping[str, LoadedCapture], missing_workers: list[dict[str, Any]], query: Query) -> dict[str, Any]:
    """Both charts. `all` is the mean over the steps of a worker."""
    steps = sorted({step for opened in workers.values() for step in _steps(opened)["step"].drop_nulls().to_list()})
    step = query.text("step") or "all"
    if step != "all" and step not in map(str, steps):
        raise bad_parameter("step", f"all or one of {', '.join(map(str, steps[:50]))}")
    number = None if step == "all" else int(step)
    others = any(not opened.is_npu for opened in workers.values())
    matched = analysis.matched_collectives({worker: opened.tables for worker, opened in workers.items()}) if others else {}
    return {
        "steps": steps,
        "step": step,
        "workers": list(workers),
        "missing": missing_workers,
        "computation": {
            "title": "Computation/Communication Overview (us)",
            "series": list(COMPUTATION),
            "rows": [_computation(opened, number) for opened in workers.values()],
        },
        "synchronizing": {
            "title": "Synchronizing/Communication Overview (us)",
            "series": list(SYNCHRONIZING),
            "rows": [
                _synchronizing(opened, number) if opened.is_npu else analysis.matched_parts(matched.get(worker), number)
                for worker, opened in workers.items()
            ],
        },
    }


def _steps(opened: LoadedCapture) -> pl.DataFrame:
    return opened.once("step times", lambda: step_times(opened.tables))


def _computation(opened: LoadedCapture, step: int | None) -> list[float] | None:
    mean = analysis.mean_step(_steps(opened), step)
    return None if mean is None else [value / 1000.0 for value in astuple(mean)]


def _synchronizing(opened: LoadedCapture, step: int | None) -> list[float] | None:
    times = opened.once("collective times", lambda: stepped(opened.tables, "collective_times"))
    return analysis.collective_parts(times, step)


def operations(opened: LoadedCapture, query: Query) -> Listing:
    """Communication Operations Stats of one worker, by kind of operator."""
    step = query.optional("step")
    number = int(step) if step is not None and step.isdigit() else None
    of_kinds = analysis.collectives_by_kind if opened.is_npu else analysis.collectives_by_type
    frame = of_kinds(opened.tables, number)
    if step not in (None, "all") and number is None:
        frame = frame.clear()
    if not frame.height and step is None:
        raise missing("communication", "no communication operators in this capture")
    frame = frame.with_columns((pl.col(key) / pl.col("calls")).alias(f"avg_{key}") for key in ("size", "elapse", "transit")).sort(
        "elapse", "name", descending=[True, False]
    )
    words = ("Transit Size (bytes)", "Elapse Time (us)", "Transit Time (us)")
    if not opened.is_npu:
        words = ("Size (bytes)", "Latency (us)", "Data Transfer Time (us)")
    total = ("Total ", "", "") if opened.is_npu else ("Total ", "Total ", "")
    columns = [Shown("name", "Name"), Shown("calls", "Calls", summed=True)]
    for key, word, first in zip(("size", "elapse", "transit"), words, total, strict=True):
        columns += [Shown(key, f"{first}{word}", summed=True), Shown(f"avg_{key}", f"Avg {word}")]
    return Listing(frame, tuple(columns), (("elapse", True),))


def slow(workers: Mapping[str, LoadedCapture]) -> dict[str, Any]:
    """Workers by how long they compute: the one that computes longest holds the others up."""
    return {"rows": [asdict(row) for row in analysis.slow_workers({name: opened.tables for name, opened in workers.items()})]}
