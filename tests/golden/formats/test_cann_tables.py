"""Raw folders of real devices against what the vendor's tool made of the same bytes."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import polars as pl
import pytest

from stepscope.analysis.link.capture import link
from stepscope.capture import open_capture
from stepscope.cli import main
from stepscope.formats import cann
from stepscope.formats.ascend import msprof_output
from stepscope.formats.ascend.db import read as ascend_db
from stepscope.tables import ALL_TABLES, Facts, Tables
from stepscope.tables.store import read_store

A2 = ("a2_elementwise_1task", "a2_pypto_mix_aicpu_event", "a2_torch_add_2100tasks")
PLACE = ["device", "stream", "task_id", "context_id", "start_ns"]
# What the database says of a task in the words of the raw records.
SAME_AS_DATABASE = (
    *PLACE, "end_ns", "kind", "name", "op_type", "core", "host_task_type", "pid", "model_id", "op_state", "hf32", "input_shapes",
    "input_dtypes", "input_formats", "output_shapes", "output_dtypes", "output_formats",
)  # fmt: skip
SAME_AS_FILES = (*PLACE, "kind", "name", "op_type", "core", "task_type", "batch_id", "model_id", "input_shapes", "op_state")


@pytest.fixture(scope="module", params=A2)
def case(request, golden) -> Path:
    folder: Path = golden / "prof_raw" / request.param
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return folder


@pytest.fixture(scope="module")
def raw(case) -> Tables:
    return cann.read(next(case.glob("PROF_*"))).check()


def unpacked(path: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / path.name.removesuffix(".gz")
    if path.suffix == ".gz":
        target.write_bytes(gzip.decompress(path.read_bytes()))
    else:
        shutil.copyfile(path, target)
    return target


@pytest.fixture(scope="module")
def database(case, tmp_path_factory) -> Tables:
    return ascend_db.read(unpacked(next(case.glob("msprof_*.db*")), tmp_path_factory.mktemp("db")), Facts())


@pytest.fixture(scope="module")
def files(case, tmp_path_factory) -> Tables:
    prof = tmp_path_factory.mktemp("files") / next(case.glob("PROF_*")).name
    for path in (case / "official_output").iterdir():
        unpacked(path, prof / "mindstudio_profiler_output")
    return msprof_output.read(prof)


def texts(frame: pl.DataFrame, columns) -> pl.DataFrame:
    """Categories of two readers are numbered differently; their texts are compared."""
    return frame.select(pl.col(name).cast(pl.String) if frame[name].dtype == pl.Categorical else name for name in columns).sort(
        PLACE
    )


def test_tasks_equal_the_database(raw, database):
    ours, theirs = texts(raw.kernels, SAME_AS_DATABASE), texts(database.kernels, SAME_AS_DATABASE)
    assert ours.height == theirs.height
    for name in SAME_AS_DATABASE:
        assert ours[name].to_list() == theirs[name].to_list(), name


def test_tasks_equal_the_files(raw, files):
    parents = raw.kernels.filter(pl.col("context_id").is_not_null()).select("stream", "task_id", "batch_id").unique()
    shown = raw.kernels.join(parents, on=["stream", "task_id", "batch_id"], how="left", maintain_order="left", coalesce=False)
    shown = shown.filter(pl.col("context_id").is_not_null() | pl.col("stream_right").is_null())
    ours, theirs = texts(shown, SAME_AS_FILES), texts(files.kernels, SAME_AS_FILES)
    assert ours.height == theirs.height
    for name in SAME_AS_FILES:
        assert ours[name].to_list() == theirs[name].to_list(), name


def test_launches_equal_the_database(raw, database):
    def launches(tables: Tables) -> list[tuple]:
        calls = tables.api_calls.select(
            "connection_id", pl.col("start_ns").alias("call_ns"), "tid", pl.col("name").cast(pl.String).alias("call")
        )
        rows = tables.kernels.select(*PLACE, "connection_id").join(
            calls.drop_nulls("connection_id"), on="connection_id", how="inner"
        )
        return rows.drop("connection_id").sort(PLACE, nulls_last=True).rows()

    ours, theirs = launches(raw), launches(database)
    assert len(ours) >= min(raw.kernels.height, 2)
    assert ours == theirs


def test_calls_equal_the_database(raw, database):
    columns = ["start_ns", "end_ns", "tid", "pid", "level", "name"]
    ours, theirs = (
        tables.api_calls.select(pl.col(columns[:4]), pl.col("level", "name").cast(pl.String)).sort(columns)
        for tables in (raw, database)
    )
    assert ours.rows() == theirs.rows()


def test_counters_of_kernels_equal_the_database(raw, database):
    def values(tables: Tables) -> pl.DataFrame:
        rows = tables.kernels.select(PLACE)[tables.kernel_metrics["kernel"].to_list()]
        return rows.hstack(tables.kernel_metrics.drop("kernel")).sort(PLACE)

    ours, theirs = values(raw), values(database)
    assert ours.height == theirs.height > 0
    for name in theirs.columns:
        expected = theirs[name].fill_null(-1).to_list()
        assert ours[name].fill_null(-1).to_list() == pytest.approx(expected, rel=1e-9, abs=1e-9), name


def test_frequency_and_facts_equal_the_database(raw, database):
    columns = ["source", "name", "series", "device", "value"]
    ours, theirs = (tables.counters.cast({pl.Categorical: pl.String}) for tables in (raw, database))
    assert ours.select(columns).rows() == theirs.select(columns).rows()
    # One tick of the device's counter: the vendor's tool rounds these otherwise than those of tasks.
    assert (ours["time_ns"] - theirs["time_ns"]).abs().max() <= 20
    for fact in ("host_name", "device_names", "device_ids", "rank", "session_start_ns", "session_end_ns"):
        assert getattr(raw.facts, fact) == getattr(database.facts, fact), fact


def test_kernels_are_attributed_to_the_operator_around_their_launch(raw):
    calls = raw.api_calls.filter(pl.col("level") == "node")
    if not calls.height:
        pytest.skip("no operator was launched through the framework")
    ops = calls.select("pid", "tid", pl.col("start_ns") - 100, pl.col("end_ns") + 100, pl.col("item_id").alias("name"))
    linked = link(raw.replace(ops=ALL_TABLES["ops"].conform(ops)))
    of_node = raw.kernels["connection_id"].is_in(calls["connection_id"].implode()).fill_null(False)
    launched = linked.kernels.filter(of_node & (pl.col("kind") == "compute"))
    owner = linked.ops["name"].cast(pl.String).gather(launched["op"])
    assert launched.height > 0
    assert owner.to_list() == launched["name"].cast(pl.String).to_list()


def test_nothing_is_lost(raw, case):
    # The one task that the host did not queue is a place holder that the device itself put on a stream.
    expected = {"operator-unknown": 1} if case.name == "a2_elementwise_1task" else {}
    assert dict(raw.quality.select(pl.col("issue").cast(pl.String), "count").iter_rows()) == expected


def test_310b_reads_as_well(golden):
    folder = golden / "prof_raw" / "a310b_addcmul_1task"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    tables = cann.read(next(folder.glob("PROF_*"))).check()
    operators = tables.kernels.filter(pl.col("kind") == "compute")
    assert operators["op_type"].cast(pl.String).to_list() == ["Addcmul"]
    assert tables.kernel_metrics.height == 1


def test_analysing_a_prof_folder_leaves_the_vendors_files_alone(golden, tmp_path, capsys):
    source = next((golden / "prof_raw" / A2[0]).glob("PROF_*"))
    prof = tmp_path / source.name
    shutil.copytree(source, prof, copy_function=shutil.copyfile)
    prof.chmod(0o750)  # the real captures may be read-only, and then the store would be elsewhere
    vendors = prof / "mindstudio_profiler_output" / "op_summary_20260522113006.csv"
    vendors.parent.mkdir()
    vendors.write_text("not ours")
    for _ in range(2):
        assert main(["analyse", str(prof)]) == 0
    written = sorted(path.name for path in (prof / "stepscope_output").iterdir() if path.is_file())
    kinds = ("api_statistic", "msprof", "msprof", "op_statistic", "op_summary", "task_time")
    assert [name.rpartition("_")[0] for name in written] == list(kinds)
    assert all("_20260522113002." in name for name in written)
    assert vendors.read_text() == "not ours"
    assert read_store(prof / ".stepscope", None) is not None
    assert main(["info", str(tmp_path)]) == 0
    assert "read from  raw PROF" in capsys.readouterr().out


def test_raw_records_and_the_vendors_files_give_the_same(case, raw, tmp_path):
    """The same folder through `open_capture`: raw by default, the vendor's files with `source="parsed"`."""
    source = next(case.glob("PROF_*"))
    prof = tmp_path / source.name
    shutil.copytree(source, prof, copy_function=shutil.copyfile)
    prof.chmod(0o750)
    for path in (case / "official_output").iterdir():
        unpacked(path, prof / "mindstudio_profiler_output")
    by_raw, by_files = (open_capture(prof, source=form).load(keep=False) for form in ("auto", "parsed"))
    assert by_raw.kernels.height == raw.kernels.height
    names = [tables.kernels.filter(pl.col("kind") == "compute")["name"].cast(pl.String).to_list() for tables in (by_raw, by_files)]
    assert names[0] == names[1]
    assert by_raw.facts.source == "raw PROF"
    assert by_files.facts.source == "PROF"


def test_launches_of_two_folders_get_different_numbers(golden, tmp_path):
    """Each PROF folder of a capture numbers its launches from one; a task must not find a call of the other."""
    (tmp_path / "profiler_info_0.json").write_text("{}")
    for name in A2[1:]:
        source = next((golden / "prof_raw" / name).glob("PROF_*"))
        shutil.copytree(source, tmp_path / source.name, copy_function=shutil.copyfile)
    tables = open_capture(tmp_path).load(keep=False)
    calls = tables.api_calls.drop_nulls("connection_id")
    assert calls["connection_id"].is_unique().all()
    found = tables.kernels.join(calls, on="connection_id", how="inner")
    assert found.height > 2000
    assert (found["pid"] == found["pid_right"]).all()
