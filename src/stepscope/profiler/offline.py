# SPDX-License-Identifier: Apache-2.0
"""Analysis of captures that exist already (docs/formats/profiler-api.md 13)."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

from stepscope.collect import messages
from stepscope.errors import CaptureError


def analyse(profiler_path: Any, max_process_number: Any = None, export_type: Any = None) -> list[Any] | None:
    """Analyse the capture at a path or every capture directly below it; see stepscope.analyse.

    Returns:
        One result per capture (path, ok, error, …); None when there is nothing to analyse.
    """
    from stepscope.analyser import analyse as analyse_all

    if not isinstance(profiler_path, (str, os.PathLike)) or not str(profiler_path):
        messages.error(f"analyse: profiler_path={profiler_path!r} is not a path; give the folder of a capture, or of several")
        return None
    began = time.monotonic()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results = analyse_all(os.fspath(profiler_path), max_process_number, export_type)
    except CaptureError as problem:
        say = messages.warning if problem.what == "no capture here" else messages.error
        say(f"analyse: {problem}")
        return None
    for warned in caught:
        messages.warning(f"analyse: {warned.message}")
    failed = [result for result in results if not result.ok]
    for result in failed:
        messages.error(f"analyse: {result.path}: {result.error}")
    done = len(results) - len(failed)
    if done:
        number = f"{done} capture{'s' if done > 1 else ''}" if not failed else f"{done} of {len(results)} captures"
        following = f"stepscope top {results[0].path}" if len(results) == 1 else f"stepscope view {profiler_path}"
        messages.info(f"analyse: {number} analysed in {time.monotonic() - began:.1f} s; next: {following}")
    return list(results)
