"""Damaged csv files: no exception, no wrong row, and every loss counted."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from stepscope.errors import CaptureError
from stepscope.formats.ascend import hardware, kernel_details, memory, msprof_output
from stepscope.formats.ascend import text as ascend_text
from stepscope.tables import Facts

HEADER = "Device_id,Name,Accelerator Core,Start Time(us),Duration(us),Block Num,Input Shapes,aiv_time(us)\n"
ROWS = [f'0,kernel{i},AI_CORE,{1000 + i}.125\t,1.5,8,"""{i},3;4""",0.5\n' for i in range(6)]
GOOD = HEADER + "".join(ROWS)


def read(folder: Path, content: bytes) -> tuple[pl.DataFrame, dict[str, int]]:
    path = folder / "kernel_details.csv"
    path.write_bytes(content)
    quality: list[pl.DataFrame] = []
    rows = kernel_details.read([path], quality=quality)
    lost = {
        issue: count for frame in quality for issue, count in frame.select(pl.col("issue").cast(pl.String), "count").iter_rows()
    }
    return rows.compute.hstack(rows.metrics), lost


def names(frame: pl.DataFrame) -> list[str]:
    return frame["name"].cast(pl.String).to_list()


def test_cut_at_every_byte(tmp_path):
    good = HEADER + "".join(ROWS[:2])
    whole, lost = read(tmp_path, good.encode())
    assert (whole.height, lost) == (2, {})
    for size in range(len(HEADER), len(good)):
        rows, lost = read(tmp_path, good.encode()[:size])
        cut = good[len(HEADER) : size]
        complete, tail = cut.count("\n"), cut.rpartition("\n")[2]
        # A line that lost only its end of line, or digits of its last cell, cannot be told from a whole one.
        kept = complete + (1 if tail.count(",") == ROWS[0].count(",") and tail.count('"') == 6 else 0)
        assert rows.height == kept, size
        assert lost == ({"unreadable-line": 1} if tail and kept == complete else {}), size
        shared = rows.head(complete)
        assert shared.equals(whole.head(complete).select(shared.columns)), size


@pytest.mark.parametrize(
    ("content", "left", "lost"),
    [
        pytest.param("", [], {"empty-file": 1}, id="empty"),
        pytest.param("\n", [], {"empty-file": 1}, id="blank-header"),
        pytest.param(HEADER, [], {}, id="header-only"),
        pytest.param(HEADER.rstrip(), [], {}, id="header-without-line-end"),
        pytest.param(HEADER.replace("Name", "x").replace("Start", "y") + ROWS[0], [], {"missing-columns": 1}, id="columns-missing"),
        pytest.param(HEADER + ROWS[0] + "0,short\n" + ROWS[1], ["kernel0", "kernel1"], {"incomplete-row": 1}, id="short-line"),
        pytest.param(HEADER + "0,short\n" + ROWS[1], ["kernel1"], {"incomplete-row": 1}, id="short-first-line"),
        pytest.param(HEADER + ROWS[0] + ROWS[1].rstrip() + ",9,9\n" + ROWS[2], ["kernel0", "kernel1", "kernel2"],
                     {"extra-cells": 1}, id="long-line"),
        pytest.param(HEADER + ROWS[0] + '0,"torn\n' + ROWS[2] + ROWS[3], ["kernel0", "kernel2", "kernel3"],
                     {"unreadable-line": 1}, id="open-quote"),
        pytest.param(HEADER + ROWS[0] + ROWS[1].replace("1001.125", "noon"), ["kernel0"], {"incomplete-row": 1}, id="no-time"),
        pytest.param(HEADER + ROWS[0] + ROWS[1].replace(",8,", ",many,"), ["kernel0", "kernel1"], {"unreadable-value": 1},
                     id="no-number"),
        pytest.param(HEADER + ROWS[0] + "\0\0\0\0\0\0", ["kernel0"], {"unreadable-line": 1}, id="zeros-at-the-end"),
        pytest.param(HEADER + ROWS[0] + "\n" + ROWS[1], ["kernel0", "kernel1"], {"incomplete-row": 1}, id="blank-line"),
    ],
)  # fmt: skip
def test_damage_is_counted_and_the_rest_read(tmp_path, content, left, lost):
    rows, found = read(tmp_path, content.encode())
    assert names(rows) == left
    assert found == lost


def test_bytes_that_are_no_text(tmp_path):
    rows, lost = read(tmp_path, HEADER.encode() + ROWS[0].encode() + b"0,\xff\xfe,AI_CORE,1.0,1,8,x,1\n" + ROWS[1].encode())
    assert names(rows) == ["kernel0", "kernel1"]
    assert lost == {"unreadable-line": 1}


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=40))
def test_overwritten_bytes_never_raise(tmp_path_factory, place, garbage):
    content = bytearray(GOOD.encode())
    content[place : place + len(garbage)] = garbage
    folder = tmp_path_factory.mktemp("csv")
    rows, _ = read(folder, bytes(content))
    path = folder / "kernel_details.csv"
    for reader in (memory.read_records, memory.read_allocations, memory.read_modules, hardware.read_aicpu):
        reader([path], quality=[])
    untouched = {f"kernel{i}" for i in range(6) if b"\n" + ROWS[i].encode() in content}
    if content.startswith(HEADER.encode()) and b'"' not in garbage and b"\n" not in garbage and b"\r" not in garbage:
        assert untouched <= set(names(rows))


def test_one_bad_file_does_not_spoil_the_capture(tmp_path):
    (tmp_path / "kernel_details.csv").write_text("Rank,Value\n1,2\n")
    (tmp_path / "trace_view.json").write_text('[{"ph": "X", "na')
    (tmp_path / "communication.json").write_text("{")
    (tmp_path / "l2_cache.csv").write_text("Stream Id,Task Id,Hit Rate,Victim Rate,Op Name\n2,3,N/A,0.5,k\n")
    tables = ascend_text.read(tmp_path, Facts()).check()
    assert tables.cache_rates.height == 1
    found = dict(tables.quality.select("source", "issue").rows())
    assert found["kernel_details.csv"] == "missing-columns"
    assert found["communication.json"] == "unreadable-file"
    assert "trace_view.json" in found


@pytest.mark.parametrize("content", [pytest.param(None, id="no-file"), pytest.param("Rank\n1\n", id="no-row")])
def test_nothing_usable_is_an_error(tmp_path, content):
    if content is not None:
        (tmp_path / "kernel_details.csv").write_text(content)
    with pytest.raises(CaptureError):
        ascend_text.read(tmp_path, Facts())


def test_unparsed_prof_folder_is_an_error(tmp_path):
    (tmp_path / "device_0").mkdir()
    with pytest.raises(CaptureError, match="no parsed files"):
        msprof_output.read(tmp_path)


def test_damaged_session_files_are_counted(tmp_path):
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "start_info").write_text('{"collectionTimeBegin": "1736408883000000.5"}')
    (tmp_path / "host" / "info.json").write_text('{"hostname": ')
    quality: list[pl.DataFrame] = []
    facts = msprof_output.read_output_facts(tmp_path, quality=quality)
    assert (facts.session_start_ns, facts.session_end_ns, facts.host_name) == (1736408883000000500, None, "")
    assert pl.concat(quality).select("source", "issue").rows() == [
        ("info.json", "unreadable-settings"),
        (tmp_path.name, "recording-unfinished"),
    ]
