# SPDX-License-Identifier: Apache-2.0
"""Raw device folders against what the vendor's tool wrote for the same captures."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stepscope.formats import NONE32
from stepscope.formats.ascend.metric_names import is_metric, to_canonical
from stepscope.formats.cann.device.side import DeviceSide, read_device
from stepscope.formats.cann.folder import open_prof

A2 = ("a2_elementwise_1task", "a2_torch_add_2100tasks", "a2_pypto_mix_aicpu_event")
ONE_CORE = "a310b_addcmul_1task"


def _side(golden: Path, name: str) -> DeviceSide:
    (folder,) = (golden / "prof_raw" / name).glob("PROF_*")
    return read_device(open_prof(folder).devices[0], wide=name != ONE_CORE)


def _op_summary(golden: Path, name: str) -> pl.DataFrame:
    (path,) = (golden / "prof_raw" / name / "official_output").glob("op_summary_*.csv*")
    data = path.read_bytes()
    return pl.read_csv(gzip.decompress(data) if path.suffix == ".gz" else data, infer_schema=False)


def _database(golden: Path, name: str, tmp_path: Path) -> sqlite3.Connection:
    (path,) = (golden / "prof_raw" / name).glob("msprof_*.db*")
    copy = tmp_path / "msprof.db"
    data = path.read_bytes()
    copy.write_bytes(gzip.decompress(data) if path.suffix == ".gz" else data)
    return sqlite3.connect(copy)


def _kernels(side: DeviceSide, official: pl.DataFrame) -> pl.DataFrame:
    """The rows of op_summary that have counters, each with its task."""
    ids = official.with_columns(
        pl.col("Stream ID").cast(pl.Int64).alias("stream"),
        pl.col("Task ID").cast(pl.Int64).alias("task_id"),
        pl.col("Context ID").cast(pl.Int64, strict=False).alias("context_id"),
        pl.col("^(Block Num|Block Dim)$").cast(pl.Int64).name.map(lambda _: "block_num"),
        pl.col("^(Mix Block Num|Mix Block Dim)$").cast(pl.Int64).name.map(lambda _: "mix_block_num"),
    )
    tasks = side.tasks.with_row_index("row").with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"))
    key = ["stream", "task_id", "context_id"]
    assert not tasks.select(key).is_duplicated().any()
    return ids.join(tasks, on=key, nulls_equal=True, how="left", maintain_order="left")


@pytest.mark.parametrize("name", A2)
def test_tasks_are_those_of_the_database(golden: Path, name: str, tmp_path: Path) -> None:
    side = _side(golden, name)
    with _database(golden, name, tmp_path) as database:
        official = database.execute("select streamId, taskId, contextId, startNs, endNs from TASK").fetchall()
    ours = side.tasks.select("stream", "task_id", pl.col("context_id").fill_null(NONE32), "start_ns", "end_ns").rows()
    assert sorted(row[:3] for row in ours) == sorted(row[:3] for row in official)
    times = {row[:3]: row[3:] for row in official}
    apart = np.array([np.subtract(row[3:], times[row[:3]]) for row in ours])
    # The documented float rule: at most one nanosecond, in few records.
    assert np.abs(apart).max() <= 1
    assert np.count_nonzero(apart) <= 0.005 * apart.size
    assert side.quality.height == 0


@pytest.mark.parametrize("name", [*A2, ONE_CORE])
def test_metrics_are_those_of_op_summary(golden: Path, name: str) -> None:
    side, official = _side(golden, name), _op_summary(golden, name)
    kernels = _kernels(side, official)
    cells = [column for column in official.columns if is_metric(column)]
    assert len(cells) >= 16
    counted = official.select(pl.any_horizontal(pl.col(cells) != "N/A")).to_series()
    assert (kernels["pmu"].is_not_null() == counted).all()
    assert kernels.filter(counted)["pmu"].n_unique() == side.pmu.height
    metrics = side.metrics(kernels.filter(counted))
    for column in cells:
        canonical, factor = to_canonical(column)
        theirs = official.filter(counted)[column].cast(pl.Float64).to_numpy()
        ours = metrics[canonical].to_numpy() / factor
        if column.endswith("total_cycles"):
            np.testing.assert_array_equal(ours, theirs, column)
        else:
            # Cells have three decimals; cube utilization rests on the duration, which may be 1 ns off.
            np.testing.assert_allclose(
                ours, theirs, rtol=0, atol=0.002 if column.startswith("cube_") else 0.0005001, err_msg=column
            )


@pytest.mark.parametrize("name", A2)
def test_metrics_are_those_of_the_database(golden: Path, name: str, tmp_path: Path) -> None:
    side = _side(golden, name)
    kernels = _kernels(side, _op_summary(golden, name)).filter(pl.col("pmu").is_not_null())
    metrics = side.metrics(kernels)
    with _database(golden, name, tmp_path) as database:
        rows = database.execute(
            "select t.streamId, t.taskId, t.contextId, s.value, p.value from TASK_PMU_INFO p "
            "join TASK t on t.globalTaskId = p.globalTaskId join STRING_IDS s on s.id = p.name"
        ).fetchall()
    official: dict[str, dict[tuple[int, int, int], float]] = {}
    for *key, metric, value in rows:
        official.setdefault(metric, {})[tuple(key)] = value
    keys = kernels.select("stream", "task_id", pl.col("context_id").fill_null(NONE32)).rows()
    assert set(metrics.columns) - set(official) == {"cube_utilization"}
    for metric, values in official.items():
        assert set(values) == set(keys)
        np.testing.assert_allclose(metrics[metric].to_numpy(), [values[key] for key in keys], rtol=1e-14, err_msg=metric)


def test_blocks_of_mix_kernels(golden: Path) -> None:
    """40 vector blocks per kernel; with their number known, the vector half has their cycles."""
    side = _side(golden, "a2_pypto_mix_aicpu_event")
    assert side.pmu["core"].unique().to_list() == ["MIX_AIC"]
    assert np.bincount(side.counters.block_row).tolist() == [40] * 300
    kernels = pl.DataFrame({"pmu": range(300), "block_num": 20, "mix_block_num": 40, "duration_ns": 1000})
    cycles = side.metrics(kernels)["aiv_total_cycles"].to_numpy()
    np.testing.assert_array_equal(cycles, side.counters.block_cycles.reshape(300, 40).sum(axis=1))


@pytest.mark.parametrize("name", A2)
def test_frequency_points_are_those_of_the_database(golden: Path, name: str, tmp_path: Path) -> None:
    points = _side(golden, name).points.filter(pl.col("kind") == "frequency")
    with _database(golden, name, tmp_path) as database:
        official = database.execute("select timestampNs, freq from AICORE_FREQ").fetchall()
    assert points.select("time_ns", "value").rows() == official
