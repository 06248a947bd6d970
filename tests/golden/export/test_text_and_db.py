"""A real capture read from text and written as databases, and the other way round, gives the same tables.

What one of the two forms has no place for is named here, column by column, with the reason.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stepscope.analysis.link.capture import link
from stepscope.export.analysis_db import write_analysis_db
from stepscope.export.ascend_db import write_profiler_db
from stepscope.export.text_files import write_text
from stepscope.formats.ascend import text as ascend_text
from stepscope.formats.ascend.db import read as ascend_db
from stepscope.formats.ascend.profiler_info import read_capture_facts
from stepscope.tables import Tables

CAPTURES = [f"{level}/rank{rank}_ascend_pt" for level in ("level0", "level2") for rank in (0, 1)]

# Numbers that a database gives to rows, derived lanes, and how a source says "nothing".
EITHER_WAY = {
    "kernels": {"global_task_id", "host_task_type", "batch_id", "extra"},
    "collectives": {"comm_op_id", "group_index", "extra"},
    "transfers": {"global_task_id"},
    "python_calls": {"call_id", "parent_id"},  # a database has none; those made from the spans count otherwise
}
NOT_IN_DATABASES = {
    "api_calls": {"mode", "item_id"},
    "kernel_metrics": {"cube_utilization"},
    # The old timeline puts the arrow a few µs into the launch, a database has the start of the launch
    # (docs/formats/outputs.md 3.3); events have a launch there and no arrow in the timeline.
    "kernels": {"task_type", "launch_ns", "launch_tid"},
    "collectives": {"relay", "retry", "launch_ns"},
    "transfers": {"estimated_us"},
}
NOT_IN_TEXT = {
    # Tasks that hold others share their launch and get no arrow.
    "kernels": {"core", "mix_block_num", "launch_ns", "launch_tid"},
    "collectives": {"group_name", "op_type"},
    # GE records keep only their totals.
    "memory_events": {"pid", "tid", "action", "ptr", "bytes", "op_name"},
    "kernel_metrics": {"aiv_mac_time", "aiv_mac_ratio", "aiv_mte1_time", "aiv_mte1_ratio"},
}
TABLES = (
    "ops", "python_calls", "queue", "api_calls", "kernels", "kernel_metrics", "collectives", "transfers", "collective_times",
    "collective_packets", "counters", "memory_events", "allocations", "steps", "flows",
)  # fmt: skip


def assert_same(before: Tables, after: Tables, but: dict[str, set[str]], *, decimals: int, left_out: set[str]) -> None:
    for name in TABLES:
        if name in left_out:
            continue
        old, new = before[name], after[name]
        assert new.height == old.height, name
        ignored = EITHER_WAY.get(name, set()) | but.get(name, set())
        for column in old.columns:
            if column not in ignored:
                assert differing(old[column], new[column], decimals) == [], f"{name}.{column}"


def differing(old: pl.Series, new: pl.Series, decimals: int) -> list[tuple[object, object]]:
    if old.dtype == pl.Categorical:
        old, new = old.cast(pl.String), new.cast(pl.String)
    different = old.ne_missing(new)
    if old.dtype.is_float():
        far = (old - new).abs() > 10.0**-decimals * pl.select(pl.max_horizontal(old.abs(), 1.0)).to_series()
        different &= far.fill_null(True)
    return list(zip(old.filter(different).head(5), new.filter(different).head(5), strict=True))


@pytest.mark.parametrize("capture", CAPTURES)
def test_text_to_databases(golden, tmp_path, capture):
    folder = golden / "ascend_pt" / "text" / capture
    facts, _ = read_capture_facts(folder)
    tables = link(ascend_text.read(folder / "ASCEND_PROFILER_OUTPUT", facts))
    write_profiler_db(tables, tmp_path / "ascend_pytorch_profiler_0.db")
    write_analysis_db(tables, tmp_path / "analysis.db")
    back = link(ascend_db.read(tmp_path / "ascend_pytorch_profiler_0.db", facts))
    # Timelines of level 0 leave the host's calls out; launches known by their arrows stand in the database.
    left_out = {"api_calls"} if "level0" in capture else set()
    # Databases hold whole nanoseconds.
    whole = tables.replace(**{name: _whole(tables[name]) for name in ("kernels", "collectives", "transfers")})
    assert_same(whole, back, NOT_IN_DATABASES, decimals=7, left_out=left_out)
    assert tables.cache_rates.height  # has no table in the database


@pytest.mark.parametrize("capture", CAPTURES)
def test_databases_to_text(golden, tmp_path, capture):
    folder = golden / "ascend_pt" / "db" / capture
    facts, _ = read_capture_facts(folder)
    tables = link(ascend_db.read(_database(folder), facts))
    write_text(tables, tmp_path)
    back = link(ascend_text.read(tmp_path, facts))
    left_out = {"kernel_metrics"}
    but = NOT_IN_TEXT
    if "level0" in capture:
        # Level 0 shows neither the host's calls nor the link-level tasks, so these tasks are no longer told apart.
        left_out |= {"api_calls", "transfers"}
        but = {**but, "kernels": but["kernels"] | {"kind"}}
    assert_same(tables, back, but, decimals=9, left_out=left_out)
    measured = set(tables.kernel_metrics.columns) - NOT_IN_TEXT["kernel_metrics"]
    # No database counts cube_utilization; the column of the csv file is there all the same.
    assert set(back.kernel_metrics.columns) - measured == ({"cube_utilization"} if "level2" in capture else set())
    assert back.kernel_metrics.height == tables.kernel_metrics.height
    # kernel_details rounds counters to three decimals (of µs, where they are times).
    for name in measured - {"kernel"}:
        unit = 1.0 if name.endswith("_time") else 1e-3
        assert (back.kernel_metrics[name] - tables.kernel_metrics[name]).abs().max() <= unit / 2 * 1.000001, name


def _whole(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(duration_ns=(pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64))


def _database(folder: Path) -> Path:
    return next((folder / "ASCEND_PROFILER_OUTPUT").glob("ascend_pytorch_profiler*.db"))
