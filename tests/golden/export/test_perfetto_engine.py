# SPDX-License-Identifier: Apache-2.0
"""Perfetto's own engine imports the export of every real capture without an error and without dropping a slice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shared_data import GOLDEN
from thorough import some
from viewer.perfetto_engine import imported

from stepscope.capture import open_capture
from stepscope.export.trace.perfetto import write_perfetto

# Starting the engine and loading up to 90,000 slices takes it several seconds.
pytestmark = pytest.mark.slow


def captures() -> list[str]:
    folder = GOLDEN.find()
    if folder is None:
        return []
    found = [*folder.glob("kineto/**/*.json.gz"), *folder.glob("ascend_pt/*/*/rank?_ascend_pt"), *folder.glob("prof_raw/*/PROF_*")]
    found += folder.glob("mindspore/*/*_ascend_ms")
    return sorted(str(path.relative_to(folder)) for path in found)


@pytest.mark.parametrize("name", some(captures(), 4))
def test_no_error_and_no_dropped_slice(golden: Path, tmp_path: Path, name: str):
    path = write_perfetto(open_capture(golden / name).tables, tmp_path / "trace.json")
    events = json.loads(path.read_bytes())["traceEvents"]
    spans, arrows = (sum(event["ph"] == phase for event in events) for phase in ("X", "s"))
    assert spans > 0
    assert imported(path) == {"slices": spans, "arrows": arrows}


def test_every_kernel_of_a_gpu_has_one_arrow(golden: Path, tmp_path: Path):
    tables = open_capture(golden / "kineto" / "gpu_nccl.pt.trace.json.gz").tables
    path = write_perfetto(tables, tmp_path / "trace.json")
    events = json.loads(path.read_bytes())["traceEvents"]
    arrows = [event["name"] for event in events if event["ph"] == "s"]
    assert {name: arrows.count(name) for name in set(arrows)} == {"ac2g": tables.kernels.height, "fwdbwd": 543, "MsTx": 30}
