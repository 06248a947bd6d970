# SPDX-License-Identifier: Apache-2.0
"""A Kineto trace small enough to check by hand."""

from __future__ import annotations

import json
from pathlib import Path

HOSTILE = "<img src=x onerror=alert(1)> & <b>bold</b>"


def write_trace(path: Path) -> None:
    """Two steps on one CPU thread: `outer` holds `inner` twice, and one operator has HTML for a name."""
    events = []
    for step, start in ((1, 1000.0), (2, 2000.0)):
        events += [
            _slice("user_annotation", f"ProfilerStep#{step}", start, 900.0),
            _slice("cpu_op", "outer", start + 100, 500.0),
            _slice("cpu_op", "inner", start + 150, 100.0),
            _slice("cpu_op", "inner", start + 300, 50.0),
            _slice("cpu_op", HOSTILE, start + 700, 25.0),
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))


def _slice(category: str, name: str, start_us: float, length_us: float) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": 7, "ts": start_us, "dur": length_us, "args": {}}
