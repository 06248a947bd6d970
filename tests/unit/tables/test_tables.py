"""Tables: the schema's promises, the facts, and the store."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from stepscope.tables import ALL_TABLES, Facts, SchemaError, Tables, store
from stepscope.tables.host import GC_PAUSES
from stepscope.tables.reference import page
from stepscope.tables.store import fingerprint, read_store, store_folder, write_store


def pauses(*starts: int) -> pl.DataFrame:
    return GC_PAUSES.conform(pl.DataFrame({"pid": [1] * len(starts), "start_ns": starts, "end_ns": [at + 1 for at in starts]}))


def test_a_text_is_asked_in_its_rows_not_in_all_that_the_process_has_read():
    """`.cat.starts_with` and its like answer for every text of every capture that was opened; a cast answers for the column."""
    source = Path(store.__file__).parents[1]
    asked = re.compile(r"\.cat\b(?!\.to\()")
    found = [path.name for path in source.rglob("*.py") if "polars" in (text := path.read_text("utf-8")) and asked.search(text)]
    assert found == []


def test_conform_orders_casts_fills_and_sorts():
    frame = GC_PAUSES.conform(pl.DataFrame({"other": [0, 0], "start_ns": [5, 3]}, schema={"other": pl.Int8, "start_ns": pl.Int32}))
    assert frame.to_dict(as_series=False) == {"pid": [None, None], "start_ns": [3, 5], "end_ns": [None, None]}
    assert GC_PAUSES.check(frame) is frame


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        pytest.param(pauses(1).drop("pid"), r"missing \['pid'\]", id="missing-column"),
        pytest.param(pauses(1).cast({"pid": pl.Int32}), "pid is Int32, not Int64", id="wrong-type"),
        pytest.param(pauses(1).with_columns(more=1), r"unexpected \['more'\]", id="unknown-column"),
        pytest.param(pauses(1, 2).reverse(), "not sorted", id="unsorted"),
    ],
)
def test_check_refuses(frame, complaint):
    with pytest.raises(SchemaError, match=complaint):
        GC_PAUSES.check(frame)


def test_every_column_has_a_sentence():
    for table in ALL_TABLES.values():
        for column in table.columns:
            assert column.doc.endswith((".", "…")), f"{table.name}.{column.name}"


def test_reference_page_is_up_to_date():
    assert (Path(__file__).parents[3] / "docs" / "tables.md").read_text() == page(), "run `make docs`"


def test_absent_tables_are_empty_and_unknown_ones_an_error():
    assert Tables().ops.height == 0
    assert Tables().ops.schema == ALL_TABLES["ops"].schema
    with pytest.raises(AttributeError):
        _ = Tables().nonsense
    with pytest.raises(KeyError):
        Tables({"nonsense": pl.DataFrame()})


def test_facts_survive_the_table():
    facts = Facts(rank=3, device_ids=(0, 4), schedule={"wait": 1}, gc_threshold=0.5, metadata={"任务": [1, "x"]}, host_sys=("cpu",))
    assert Facts.of(facts.table()) == facts


def test_store_gives_back_what_it_got(tmp_path):
    tables = Tables({"gc_pauses": pauses(3, 1), "meta": Facts(rank=1).table()})
    write_store(tmp_path / "s", tables, [["f", 1, 2]])
    back = read_store(tmp_path / "s", [["f", 1, 2]])
    assert back is not None
    back.check()
    assert back.gc_pauses.equals(tables.gc_pauses)
    assert back.facts.rank == 1
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "s" / "gc_pauses.arrow").stat().st_mode & 0o777 == 0o640


def test_store_is_stale_when_a_source_changes(tmp_path):
    source = tmp_path / "data"
    source.write_text("1")
    write_store(tmp_path / "s", Tables(), fingerprint([source], tmp_path))
    assert read_store(tmp_path / "s", fingerprint([source], tmp_path)) is not None
    source.write_text("22")
    assert read_store(tmp_path / "s", fingerprint([source], tmp_path)) is None


def test_store_of_another_program_is_built_again(tmp_path, monkeypatch):
    """Its readers may have had a fault that is mended; the schema is the same."""
    write_store(tmp_path / "s", Tables(), [])
    monkeypatch.setattr("stepscope.tables.store._MADE_BY", {"schema_version": store.SCHEMA_VERSION, "program": "9.9"})
    assert read_store(tmp_path / "s", []) is None
    assert not store.is_fresh(tmp_path / "s", [])


@pytest.mark.parametrize("damage", ["cut", "gone", "manifest"])
def test_a_damaged_store_is_not_opened(tmp_path, damage):
    write_store(tmp_path / "s", Tables({"gc_pauses": pauses(1)}), [])
    file = tmp_path / "s" / ("manifest.json" if damage == "manifest" else "gc_pauses.arrow")
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:30])
    assert read_store(tmp_path / "s", []) is None


def test_a_failed_build_leaves_the_old_store(tmp_path, monkeypatch):
    write_store(tmp_path / "s", Tables({"gc_pauses": pauses(1)}), [])

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_ipc", full)
    with pytest.raises(OSError, match="No space"):
        write_store(tmp_path / "s", Tables({"gc_pauses": pauses(2)}), [])
    kept = read_store(tmp_path / "s", [])
    assert kept is not None
    assert kept.gc_pauses["start_ns"].to_list() == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_store_of_a_read_only_capture_goes_to_the_cache(tmp_path, monkeypatch):
    capture = tmp_path / "capture"
    capture.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert store_folder(capture) == capture / ".stepscope"
    capture.chmod(0o550)
    assert store_folder(capture).parent == tmp_path / "cache" / "stepscope"
    capture.chmod(0o750)
