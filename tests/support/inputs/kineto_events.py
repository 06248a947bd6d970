"""Small Kineto traces to read, by the forms PyTorch has written since 2021."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BASE_NS = 1_735_632_360_000_000_000


def event(category: str, name: str, ts: Any, dur: Any = None, **more: Any) -> dict[str, Any]:
    found = {"ph": "X", "cat": category, "name": name, "pid": 100, "tid": 101, "ts": ts, "dur": dur, **more}
    return {key: value for key, value in found.items() if value is not None}


def kernel(name: str, ts: Any, dur: Any, correlation: int, external: int, stream: int = 7, **args: Any) -> dict[str, Any]:
    arguments = {"External id": external, "device": 0, "stream": stream, "correlation": correlation, **args}
    return event("kernel", name, ts, dur, pid=0, tid=stream, args=arguments)


def written(folder: Path, events: list[dict[str, Any]], name: str = "trace.json", **header: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": events}, indent=2))
    return path
