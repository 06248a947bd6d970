"""cluster_analysis_output equals that of msprof-analyze, cell by cell: real runs of two ranks, a simulated one with stages."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from shared_data import GOLDEN

from stepscope.cli import main
from stepscope.cluster.simulate import Fault, Plan, record
from stepscope.cluster.simulate.captures import write_captures

REPOSITORY = Path(__file__).parents[3]
RUNS = ("text/level0", "text/level2", "db/level0", "db/level2", "text/stages", "db/stages", "db/slow")
RECIPES = ("cluster_time_summary", "compute_op_sum", "ep_load_balance", "freq_analysis", "hccl_sum", "slow_rank")
WITH_RECIPES = ("db/level2", "db/slow")


def _python() -> Path:
    for candidate in (os.environ.get("STEPSCOPE_PEERS_PYTHON"), REPOSITORY / ".venv-peers" / "bin" / "python"):
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    pytest.skip("no environment with msprof-analyze: `make test` builds .venv-peers, or set STEPSCOPE_PEERS_PYTHON")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Folders of their and of our output, by run."""
    python, folder = _python(), tmp_path_factory.mktemp("peer")
    made = {
        "stages": record(Plan("megatron", tp=1, pp=2, dp=2, micro=2, layers=1, per_host=2), 2, 1),
        "slow": record(Plan("ddp", dp=8, micro=2, layers=1, per_host=4), 2, 1, Fault("frequency", 3, 1.5)),
    }
    roots = {}
    for run in RUNS:
        form, name = run.split("/")
        roots[run] = folder / run if name in made else GOLDEN.folder() / "ascend_pt" / run
        if name in made:
            write_captures(roots[run], made[name], form, analysis=True)
        if name == "slow":
            _add_experts_and_copies(roots[run])
    modes = [(run, mode) for run in RUNS for mode in ("all", *(RECIPES if run in WITH_RECIPES else ()))]
    arguments = [word for run, mode in modes for word in (mode, roots[run], folder / "theirs" / run)]
    done = subprocess.run(
        [python, REPOSITORY / "tests" / "peers" / "cluster.py", *arguments], capture_output=True, text=True, cwd=folder
    )
    if "No module named 'msprof_analyze'" in done.stderr:
        pytest.skip("msprof-analyze is not in the environment of the peers")
    assert done.returncode == 0, done.stderr[-2000:]
    for run in RUNS:
        recipes = ["--recipes", "all"] if run in WITH_RECIPES else []
        words = ["cluster", str(roots[run]), "--no-cache", "--workers", "1", "--out", str(folder / "ours" / run)]
        assert main([*words, *recipes]) == 0
    return {run: [folder / whose / run / "cluster_analysis_output" for whose in ("theirs", "ours")] for run in RUNS}


def _add_experts_and_copies(root: Path) -> None:
    """What the simulation has not: grouped products, their group, and a copy beside each rank's first and last kernel."""
    for rank, path in enumerate(sorted(root.glob("*/*/ascend_pytorch_profiler_*.db"))):
        with closing(sqlite3.connect(path)) as file, file:
            file.execute("UPDATE STRING_IDS SET value = 'GroupedMatmul' WHERE value = 'SwiGlu'")
            file.execute("UPDATE STRING_IDS SET value = ? WHERE value LIKE '4096,%'", (f"{100 + rank},8;50,8;8,8;1",))
            ((text,),) = file.execute("SELECT value FROM META_DATA WHERE name = 'parallel_group_info'").fetchall()
            first = rank // 4 * 4
            groups = {**json.loads(text), "experts": {"group_name": "exp", "global_ranks": list(range(first, first + 4))}}
            file.execute("UPDATE META_DATA SET value = ? WHERE name = 'parallel_group_info'", (json.dumps(groups),))
            file.execute("INSERT INTO STRING_IDS VALUES (9999, 'MEMCPY_ASYNC')")
            ((begin, end),) = file.execute("SELECT MIN(startNs), MAX(endNs) FROM TASK").fetchall()
            for start in (begin - 5000, end - 7000):
                values = (start, start + 20_000, rank, 0, 999_999, 0, 9999, 0, 2, 0, 0)
                file.execute(f"INSERT INTO TASK VALUES ({','.join('?' * len(values))})", values)


@pytest.mark.parametrize("run", [run for run in RUNS if run.startswith("text")])
def test_text_files_are_the_same(outputs, run):
    theirs, ours = outputs[run]
    names = sorted(path.name for path in theirs.iterdir())
    assert sorted(path.name for path in ours.iterdir()) == names
    for name in names:
        expected, found = (_text(folder / name) for folder in (theirs, ours))
        assert found == expected, name


def _text(path: Path):
    """The content; rows and groups in an order that does not come from the order of folders on the disk."""
    if path.suffix == ".csv":
        head, *rows = csv.reader(path.read_text().splitlines())
        return head, sorted(rows)
    content = json.loads(path.read_text())
    if path.name == "communication_group.json":
        return {key: sorted(value, key=json.dumps) for key, value in content.items()}
    return content


@pytest.mark.parametrize("run", [run for run in RUNS if run.startswith("db")])
def test_databases_are_the_same(outputs, run):
    theirs, ours = (_database(folder / "cluster_analysis.db") for folder in outputs[run])
    assert {name for name in ours if not name.startswith("Stepscope")} == set(theirs)
    for name, (columns, rows) in theirs.items():
        own_columns, own_rows = ours[name]
        assert own_columns == columns
        assert len(own_rows) == len(rows), name
        for row, own in zip(rows, own_rows, strict=True):
            # Sums of the same numbers in another order differ in the last digit.
            assert all(
                math.isclose(cell, mine, rel_tol=1e-12, abs_tol=1e-12) if isinstance(cell, float) else cell == mine
                for cell, mine in zip(row, own, strict=True)
            ), (name, row, own)


def _database(path: Path) -> dict[str, tuple[list[str], list[tuple[object, ...]]]]:
    found = {}
    with closing(sqlite3.connect(path)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            cursor = connection.execute(f'SELECT * FROM "{name}"')
            rows = sorted(
                map(_plain, cursor),
                key=lambda row: [f"{cell:.9g}" if isinstance(cell, (int, float)) else str(cell) for cell in row],
            )
            found[name] = ([column[0] for column in cursor.description], rows)
    return found


def _plain(row: tuple[object, ...]) -> tuple[object, ...]:
    """Without the names of numpy's types; ranks joined by ; in order."""
    words = (re.sub(r"np\.int64\((\d+)\)", r"\1", cell) if isinstance(cell, str) else cell for cell in row)
    return tuple(";".join(sorted(cell.split(";"))) if isinstance(cell, str) and ";" in cell else cell for cell in words)


def test_the_runs_have_what_is_compared(outputs):
    """Stages, indices of the layout, totals: a comparison of empty files would prove nothing."""
    steps = (outputs["text/stages"][0] / "cluster_step_trace_time.csv").read_text()
    assert '"(0, 1)"' in steps
    assert "TP Index" in steps
    tables = _database(outputs["db/stages"][0] / "cluster_analysis.db")
    assert {row[1] for row in tables["ClusterStepTraceTime"][1]} == {"rank", "stage"}
    assert {row[0] for row in tables["CommunicationGroupMapping"][1]} == {"collective", "p2p"}
    assert any(row[1] == "Total Op Info" for row in tables["ClusterCommunicationMatrix"][1])
    recipes = _database(outputs["db/slow"][0] / "cluster_analysis.db")
    assert recipes["SlowRank"][1] == [(3, 4)]
    assert recipes["AbnormalFrequencyRanks"][1] == [(3, "[1200]")]
    assert {"ComputeOpAllRankStats", "HcclTopOpStats", "HcclGroupNameMap", "SlowOpStats"} <= set(recipes)
    assert [row[0] for row in recipes["TopEPTokensInfo"][1]] == ["0,1,2,3", "4,5,6,7"]
    assert any(0 < row[-1] < row[-2] for row in recipes["ClusterTimeSummary"][1])  # copies that ran partly alone
