# SPDX-License-Identifier: Apache-2.0
"""Other people's tools give the same figures on our Kineto export as on the trace it was made from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stepscope.capture import open_capture
from stepscope.export.trace.kineto import write_kineto

REPOSITORY = Path(__file__).resolve().parents[3]
FIGURES = REPOSITORY / "tests" / "peers" / "figures.py"
TRACES = ["gpu_train_control.pt.trace.json.gz", "gpu_nccl.pt.trace.json.gz"]  # the first has the rank 3
# HolisticTraceAnalysis sorts launches and kernels of one microsecond in no fixed order, so the lengths of queues between them
# depend on the order of events in the file, which is not kept.
LOOSE = {"queue": 2e-3}

pytestmark = pytest.mark.slow  # each tool reads each trace twice


@pytest.fixture(scope="module")
def python() -> str:
    """Python of the environment that has the tools."""
    for candidate in (os.environ.get("STEPSCOPE_PEERS_PYTHON"), REPOSITORY / ".venv-peers" / "bin" / "python"):
        if candidate and Path(candidate).is_file():
            return str(candidate)
    pytest.skip("no environment with HolisticTraceAnalysis: `make test` builds .venv-peers, or set STEPSCOPE_PEERS_PYTHON")


@pytest.fixture(scope="module", params=TRACES)
def folders(request, golden, tmp_path_factory) -> tuple[Path, Path]:
    """A folder with the trace and one with our export of it, under the same name: tools take ranks and workers from it."""
    root = tmp_path_factory.mktemp("peers")
    for name in ("original", "export"):
        (root / name).mkdir()
    shutil.copy(golden / "kineto" / request.param, root / "original")
    write_kineto(open_capture(root / "original" / request.param).tables, root / "export" / request.param)
    assert any((root / "original").glob(".stepscope*"))  # which is no trace, whatever tool lists the folder
    return root / "original", root / "export"


def figures(python: str, tool: str, folder: Path) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [python, str(FIGURES), tool, str(folder)], capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_holistic_trace_analysis(python, folders):
    theirs, ours = (figures(python, "hta", folder) for folder in folders)
    assert theirs["ranks"]
    assert all(theirs.values())
    for name, table in theirs.items():
        if name in LOOSE:
            assert [pytest.approx(row, rel=LOOSE[name]) for row in _numbers(table)] == _numbers(ours[name]), name
        else:
            assert ours[name] == table, name


def _numbers(rows: list[list[Any]]) -> list[list[float]]:
    return [[cell for cell in row if isinstance(cell, (int, float))] for row in rows]


def test_tensorboard_plugin_of_pytorch(python, folders):
    if any(folders[0].glob("gpu_train_control*")):
        pytest.skip("the tool needs half a minute for this trace")
    theirs, ours = (figures(python, "tb", folder) for folder in folders)
    assert theirs == ours
    (worker,) = theirs.keys() - {"All"}
    assert {"overview", "operation_table_by_name", "kernel_table"} <= theirs[worker].keys()
    assert "comm_ops" in theirs["All"]
