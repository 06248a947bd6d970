# SPDX-License-Identifier: Apache-2.0
"""Analysis of captures on disk (docs/formats/mindspore.md 2.3)."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stepscope.collect import messages
from stepscope.collect.analysis_process import AnalysisProcess
from stepscope.collect.guard import warn_on_failure
from stepscope.errors import CaptureError

RESULTS = "ASCEND_PROFILER_OUTPUT"


def consecutive(action: str, steps: Any) -> list[int] | None:
    """A list of consecutive steps; anything else gives an error message and None."""
    if steps is None:
        return None
    good = isinstance(steps, list) and steps and all(isinstance(step, int) and not isinstance(step, bool) for step in steps)
    ordered = sorted(steps) if good else []
    if good and ordered[0] >= 1 and ordered == list(range(ordered[0], ordered[0] + len(ordered))):
        return ordered
    messages.error(f"{action}: step_list={steps!r} is not a list of consecutive whole numbers from 1; all steps are analysed")
    return None


def analyse(
    profiler_path: Any,
    max_process_number: Any = None,
    pretty: Any = False,
    step_list: Any = None,
    data_simplification: Any = True,
) -> None:
    """`mindspore.profiler.profiler.analyse`: as Profiler.offline_analyse, with the number of captures analysed at the same time."""
    warn_on_failure("analyse", analyse_offline, profiler_path, pretty, step_list, data_simplification, max_process_number)


def analyse_offline(path: Any, pretty: Any, step_list: Any, data_simplification: Any, processes: Any = None) -> None:
    """Analyse every capture at or below `path`, each in its own process."""
    from stepscope.formats import discover

    if not isinstance(pretty, bool):
        messages.warning(f"offline_analyse: pretty={pretty!r} is not a bool; using False")
        pretty = False
    try:
        found = discover.find(Path(path))
    except (CaptureError, TypeError) as problem:
        messages.error(f"offline_analyse: expected a *_ascend_ms folder or a folder of such folders: {problem}")
        return
    extra = {"pretty": pretty, "steps": consecutive("offline_analyse", step_list), "simplify": data_simplification is True}
    most = processes if isinstance(processes, int) and processes > 0 else (os.cpu_count() or 1) // 2
    jobs = max(1, min(most, len(found)))

    def analyse_one(capture: Path) -> bool:
        outcome = AnalysisProcess({"do": "analyse", "capture": str(capture), **extra}).wait()
        if outcome.unmet:
            messages.error(f"offline_analyse: {outcome.unmet}: {capture}")
        if outcome.ok:
            written = f"{len(outcome.files)} files in {capture / RESULTS}"
            messages.info(f"offline_analyse: analysed in {outcome.seconds:.1f} s, {written}; next: stepscope top {capture}")
        else:
            messages.error(f"offline_analyse: {capture}: {outcome.error}")
        return outcome.ok

    with ThreadPoolExecutor(jobs) as pool:
        done = list(pool.map(analyse_one, [files.root for files in found]))
    if len(done) > 1:
        messages.info(f"offline_analyse: {sum(done)} of {len(done)} captures in {path} analysed")
