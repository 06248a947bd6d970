# SPDX-License-Identifier: Apache-2.0
"""The FRAMEWORK folder with what our own collector may leave beside the records: a Kineto trace, samples of the host."""

from __future__ import annotations

from pathlib import Path

from stepscope.errors import CaptureError
from stepscope.formats import framework, host_counters, kineto
from stepscope.formats.framework.clock import Clock
from stepscope.tables import Facts, Tables, lost
from stepscope.tables.stack import stacked

KINETO_TRACE = "x.kineto_trace.json"


def read(folder: Path, clock: Clock) -> Tables:
    """Everything of the framework's side; see `framework.read`."""
    parts = [framework.read(folder, clock), host_counters.read(folder, clock)]
    trace = folder / KINETO_TRACE
    if trace.is_file() and not trace.is_symlink():
        parts.append(_trace(trace))
    filled = [part for part in parts if part.filled()]
    return stacked(filled) if filled else parts[0]


def _trace(trace: Path) -> Tables:
    try:
        tables = kineto.read(trace)
    except CaptureError as problem:
        return Tables().noting(lost(trace.name, "unreadable trace", 1, problem.what))
    said = tables.facts
    # Settings are in profiler_info.json; only what the trace alone knows is taken from it.
    return tables.but(meta=Facts(host_name=said.host_name, device_ids=said.device_ids, device_names=said.device_names).table())
