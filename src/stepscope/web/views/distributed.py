# SPDX-License-Identifier: Apache-2.0
"""The Distributed view: computing and communication of all workers of a run (docs/reference/viewer.md 4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple
from typing import Any

import polars as pl

from stepscope.analysis.communication import workers as analysis
from stepscope.analysis.communication.collectives import stepped
from stepscope.analysis.step_time import step_times
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, Shown
from stepscope.web.parameters import Query
from stepscope.web.problems import bad_parameter, missing

COMPUTATION = ("Computation", "Overlapping", "Communication", "Other", "Bubble", "Preparing")
SYNCHRONIZING = ("Data Transfer Time", "Synchronizing Time", "Wait (other)", "Idle")


def overview(workers: Mapping[str, LoadedCapture], missing_workers: list[dict[str, Any]], query: Query) -> dict[str, Any]:
    """Both charts. `all` is the mean over the steps of a worker."""
    steps = sorted({step for capture in workers.values() for step in _steps(capture)["step"].drop_nulls().to_list()})
    step = query.text("step") or "all"
    if step != "all" and step not in map(str, steps):
        raise bad_parameter("step", f"all or one of {', '.join(map(str, steps[:50]))}")
    number = None if step == "all" else int(step)
    others = any(not capture.is_npu for capture in workers.values())
    matched = analysis.matched_collectives({worker: capture.tables for worker, capture in workers.items()}) if others else {}
    return {
        "steps": steps,
        "step": step,
        "workers": list(workers),
        "missing": missing_workers,
        "computation": {
            "title": "Computation/Communication Overview (us)",
            "series": list(COMPUTATION),
            "rows": [_computation(capture, number) for capture in workers.values()],
        },
        "synchronizing": {
            "title": "Synchronizing/Communication Overview (us)",
            "series": list(SYNCHRONIZING),
            "rows": [
                _synchronizing(capture, number) if capture.is_npu else analysis.matched_parts(matched.get(worker), number)
                for worker, capture in workers.items()
            ],
        },
    }


def _steps(capture: LoadedCapture) -> pl.DataFrame:
    return capture.once("step times", lambda: step_times(capture.tables))


def _computation(capture: LoadedCapture, step: int | None) -> list[float] | None:
    mean = analysis.mean_step(_steps(capture), step)
    return None if mean is None else [value / 1000.0 for value in astuple(mean)]


def _synchronizing(capture: LoadedCapture, step: int | None) -> list[float] | None:
    times = capture.once("collective times", lambda: stepped(capture.tables, "collective_times"))
    return analysis.collective_parts(times, step)


def operations(capture: LoadedCapture, query: Query) -> Listing:
    """Communication Operations Stats of one worker, by kind of operator."""
    step = query.optional("step")
    number = int(step) if step is not None and step.isdigit() else None
    of_kinds = analysis.collectives_by_kind if capture.is_npu else analysis.collectives_by_type
    frame = of_kinds(capture.tables, number)
    if step not in (None, "all") and number is None:
        frame = frame.clear()
    if not frame.height and step is None:
        raise missing("communication", "no communication operators in this capture")
    frame = frame.with_columns((pl.col(key) / pl.col("calls")).alias(f"avg_{key}") for key in ("size", "elapse", "transit")).sort(
        "elapse", "name", descending=[True, False]
    )
    words = ("Transit Size (bytes)", "Elapse Time (us)", "Transit Time (us)")
    if not capture.is_npu:
        words = ("Size (bytes)", "Latency (us)", "Data Transfer Time (us)")
    total = ("Total ", "", "") if capture.is_npu else ("Total ", "Total ", "")
    columns = [Shown("name", "Name"), Shown("calls", "Calls", summed=True)]
    for key, word, first in zip(("size", "elapse", "transit"), words, total, strict=True):
        columns += [Shown(key, f"{first}{word}", summed=True), Shown(f"avg_{key}", f"Avg {word}")]
    return Listing(frame, tuple(columns), (("elapse", True),))


def slow(workers: Mapping[str, LoadedCapture]) -> dict[str, Any]:
    """Workers by how long they compute: the one that computes longest holds the others up."""
    return {"rows": [asdict(row) for row in analysis.slow_workers({name: capture.tables for name, capture in workers.items()})]}
