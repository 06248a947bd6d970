# SPDX-License-Identifier: Apache-2.0
"""Captures are analysed with numpy 1, which environments with MindSpore have."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import pathlib, sqlite3, sys
import numpy, polars
from stepscope.render.sqlite_file import new_database
from stepscope.render.sqlite_table import DbColumn, DbTable
assert numpy.__version__.startswith("1."), numpy.__version__
frame = polars.DataFrame({"a": numpy.arange(30_000)})  # records of less than 128 bytes: their length takes one byte
with new_database(pathlib.Path(sys.argv[1])) as file:
    file.fill(DbTable("T", (DbColumn("a", "I"),)), frame)
print(sqlite3.connect(sys.argv[1]).execute("SELECT count(*), sum(a) FROM T").fetchone())
"""


@pytest.mark.slow  # starts another Python
@pytest.mark.parametrize("kernels", ["0", "1"])
def test_databases_are_written_with_numpy_1(tmp_path: Path, kernels: str):
    given = os.environ.get("STEPSCOPE_MINDSPORE_PYTHON")
    python = Path(given) if given else ROOT / ".venv-mindspore" / "bin" / "python"
    if not python.is_file():
        pytest.skip("no environment with numpy 1: `make test` builds .venv-mindspore, or set STEPSCOPE_MINDSPORE_PYTHON")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "STEPSCOPE_KERNELS": kernels}
    command = [str(python), "-c", SCRIPT, str(tmp_path / "t.db")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.strip() == "(30000, 449985000)", done.stderr
