# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepscope.formats.cann.folder import open_prof
from stepscope.formats.cann.layouts import HBM, LAYOUTS, MSPROFTX, STARS, TASK_TRACK, TS_TRACK, Layout
from stepscope.formats.cann.records import read_records, unknown_files
from stepscope.formats.cann.write.folder import rows


def folder(tmp_path: Path, **files: bytes) -> Path:
    """`task_track_3=...` is slice 3 of host's task_track; `stars_0`, `hbm_0`, `tx_0` likewise."""
    names = {
        "task_track": "host/data/aging.compact.task_track", "kept": "host/data/unaging.compact.task_track",
        "tx": "host/data/aging.additional.msproftx", "stars": "device_0/data/stars_soc.data.0", "hbm": "device_0/data/hbm.data.0",
        "ts": "device_0/data/ts_track.data.0",
    }  # fmt: skip
    for key, data in files.items():
        name, _, number = key.rpartition("_")
        path = tmp_path / f"{names[name]}.slice_{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path


def tracks(count: int, first: int = 0) -> bytes:
    return rows(TASK_TRACK, level=5000, type=802, task=first + np.arange(count), stamp=np.arange(count) + 5).tobytes()


def read(path: Path, layout: Layout):
    opened = open_prof(path)
    found = read_records(opened.host if layout.file.startswith(("compact", "additional")) else opened.devices[0], layout)
    return found, [row for frame in found.lost for row in frame.select("issue", "count", "detail").rows()]


def test_a_record_may_span_two_slices(tmp_path: Path):
    data = tracks(10)
    found, losses = read(folder(tmp_path, task_track_0=data[:100], task_track_1=data[100:130], task_track_2=data[130:]), TASK_TRACK)
    assert found.rows["task"].tolist() == list(range(10))
    assert losses == []


def test_slice_10_comes_after_slice_2(tmp_path: Path):
    parts = {f"task_track_{number}": tracks(1, number) for number in range(12)}
    assert read(folder(tmp_path, **parts), TASK_TRACK)[0].rows["task"].tolist() == list(range(12))


def test_aging_records_come_first_and_are_counted(tmp_path: Path):
    found, _ = read(folder(tmp_path, kept_0=tracks(2), task_track_0=tracks(3, 50)), TASK_TRACK)
    assert (found.rows["task"].tolist(), found.aging) == ([50, 51, 52, 0, 1], 3)


def test_an_aged_head_is_cut_off(tmp_path: Path):
    found, losses = read(folder(tmp_path, task_track_4=tracks(5)[10:]), TASK_TRACK)
    assert found.rows["task"].tolist() == [1, 2, 3, 4]
    assert losses == [("truncated-record", 1, "at the start: 54 B left")]


def test_the_tail_of_a_killed_run_is_cut_off(tmp_path: Path):
    found, losses = read(folder(tmp_path, task_track_0=tracks(5)[:-10]), TASK_TRACK)
    assert found.rows["task"].tolist() == [0, 1, 2, 3]
    assert losses == [("truncated-record", 1, "at the end: 54 B left")]


def test_bytes_lost_between_slices_cost_one_record_on_each_side(tmp_path: Path):
    data = tracks(30)
    found, losses = read(folder(tmp_path, task_track_0=data[: 64 * 10 + 30], task_track_1=data[64 * 11 + 50 :]), TASK_TRACK)
    assert found.rows["task"].tolist() == [*range(10), *range(12, 30)]
    assert losses == [("truncated-record", 2, "between slices: 44 B left")]


def test_a_missing_slice_is_counted(tmp_path: Path):
    found, losses = read(folder(tmp_path, task_track_0=tracks(2), task_track_2=tracks(2, 8)), TASK_TRACK)
    assert found.rows["task"].tolist() == [0, 1, 8, 9]
    assert losses == [("missing-slices", 1, "")]


def test_a_broken_record_is_left_out(tmp_path: Path):
    data = bytearray(tracks(4))
    data[64] ^= 1
    found, losses = read(folder(tmp_path, task_track_0=bytes(data)), TASK_TRACK)
    assert found.rows["task"].tolist() == [0, 2, 3]
    assert losses == [("damaged-record", 1, "magic is not 0x5a5a")]


@pytest.mark.parametrize("cut", [10, 100, 250])
def test_a_magic_inside_a_body_does_not_mislead(tmp_path: Path, cut: int):
    marks = rows(MSPROFTX, level=20500, inner_magic=0x5A5A, tag=120, mark=np.arange(6)).tobytes()
    found, losses = read(folder(tmp_path, tx_3=marks[cut:]), MSPROFTX)
    assert found.rows["mark"].tolist() == [1, 2, 3, 4, 5]
    assert losses == [("truncated-record", 1, f"at the start: {256 - cut} B left")]


def test_samples_without_magic_are_cut_where_slices_were_dropped(tmp_path: Path):
    data = rows(HBM, time_us=np.arange(4)).tobytes()
    assert read(folder(tmp_path / "old", hbm_2=data[5:]), HBM)[0].rows["time_us"].tolist() == [1, 2, 3]
    assert read(folder(tmp_path / "new", hbm_0=data[:-5]), HBM)[0].rows["time_us"].tolist() == [0, 1, 2]


def test_empty_and_tiny_files(tmp_path: Path):
    for number, data in enumerate((b"", b"x", b"\xd3")):
        for key, layout in (("stars", STARS), ("ts", TS_TRACK)):
            found, losses = read(folder(tmp_path / f"{key}{number}", **{f"{key}_0": data}), layout)
            assert len(found) == 0
            assert losses == ([("truncated-record", 1, "at the end: 1 B left")] if data else [])


def test_a_folder_in_place_of_a_file_is_counted(tmp_path: Path):
    (folder(tmp_path, stars_1=rows(STARS).tobytes()) / "device_0/data/stars_soc.data.0.slice_0").mkdir()
    found, losses = read(tmp_path, STARS)
    assert len(found) == 1
    assert [issue for issue, *_ in losses] == ["unreadable-file"]


def test_kinds_that_nobody_reads_are_named_with_their_bytes(tmp_path: Path):
    path = folder(tmp_path, hbm_0=b"1234", stars_0=b"")
    (frame,) = unknown_files(open_prof(path).devices[0], ["stars_soc.data"])
    assert frame.rows() == [("device_0/data/hbm.data", "unknown-file", "loss", "bytes", 4, "")]


def test_no_folder_no_records():
    assert len(read_records(None, STARS)) == 0


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"{layout.file} {layout.size}")
def test_fields_lie_within_their_record(layout: Layout):
    for dtype, offset in (field[:2] for field in layout.dtype.fields.values()):
        assert offset + dtype.itemsize <= layout.size
