# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from prof_folder import write

from stepscope.formats.cann.folder import is_raw, open_prof, stamp_of


@pytest.fixture
def prof(tmp_path: Path) -> Path:
    return write(tmp_path)


def issues(path: Path) -> list[tuple[str, str]]:
    return [row[:2] for frame in open_prof(path).lost for row in frame.rows()]


def test_a_whole_folder_loses_nothing(prof: Path):
    opened = open_prof(prof)
    assert opened.lost == ()
    assert (opened.chip, opened.host.pid, opened.devices[0].device) == (5, 4242, 0)
    assert stamp_of(prof.name) == prof.name[12:26]
    assert opened.host.end["collectionTimeEnd"] == "1700000000010000"
    assert opened.devices[0].device_info["ai_core_num"] == 20
    assert opened.devices[0].setting("profLevel", "prof_level") == "level1"
    assert is_raw(prof)


def test_slices_come_in_the_order_of_their_numbers(tmp_path: Path):
    data = tmp_path / "PROF_1" / "host" / "data"
    data.mkdir(parents=True)
    for name in ("aging.compact.task_track.slice_10", "aging.compact.task_track.slice_2", "unaging.compact.task_track.slice_0"):
        (data / name).write_bytes(b"x")
        (data / f"{name}.done").write_text("filesize:1\n")
        (data / f"{name}.complete").write_text("")
    groups = {slices.aging: slices for slices in open_prof(tmp_path / "PROF_1").host.slices("compact.task_track")}
    assert [path.name[-2:] for path in groups[True].paths] == ["_2", "10"]
    assert (groups[True].first, groups[True].missing) == (2, 7)
    assert (groups[False].first, groups[False].missing, len(groups[False].paths)) == (0, 0, 1)


def test_device_slices_lose_the_number_of_their_device(tmp_path: Path):
    data = tmp_path / "PROF_1" / "device_12" / "data"
    data.mkdir(parents=True)
    (data / "stars_soc.data.12.slice_0").write_bytes(b"x")
    (device,) = open_prof(tmp_path / "PROF_1").devices
    assert (device.device, list(device.groups)) == (12, ["stars_soc.data"])


def test_devices_are_ordered_by_number_and_others_left_out(tmp_path: Path):
    for name in ("device_10", "device_9", "device_x", "device_²", "device_"):
        (tmp_path / name).mkdir()
    assert [part.device for part in open_prof(tmp_path).devices] == [9, 10]


def test_a_killed_run_has_no_end(prof: Path):
    (prof / "host" / "end_info").unlink()
    assert open_prof(prof).host.end == {}
    assert issues(prof) == []


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "\xff", "null"])
def test_damaged_settings_are_counted(prof: Path, text: str):
    (prof / "host" / "info.json").write_text(text, "latin-1")
    opened = open_prof(prof)
    assert opened.host.info == {}
    assert issues(prof) == [("info.json", "unreadable-settings")]


@pytest.mark.parametrize(
    ("name", "issue"),
    [
        ("info.json.0", "incomplete-clock"),
        ("start_info.0", "incomplete-clock"),
        ("host_start.log.0", "incomplete-clock"),
        ("dev_start.log.0", "incomplete-clock"),
        ("sample.json", "unreadable-settings"),
    ],
)
def test_a_missing_file_is_counted_with_what_it_spoils(prof: Path, name: str, issue: str):
    (prof / "device_0" / name).unlink()
    assert (name, "unreadable-settings") in issues(prof)
    assert issue in [found for _, found in issues(prof)]


def test_odd_values_in_settings_are_taken_for_missing(prof: Path):
    (prof / "device_0" / "info.json.0").write_text('{"platform_version": "NA", "pid": [], "DeviceInfo": {}, "CPU": [3]}')
    part = open_prof(prof).devices[0]
    assert (part.chip, part.pid, part.device_info) == (open_prof(prof).chip, None, {})  # the chip is the one that the host names
    (prof / "host" / "info.json").unlink()
    assert open_prof(prof).devices[0].chip is None


def test_a_folder_without_parts(tmp_path: Path):
    opened = open_prof(tmp_path)
    assert (opened.host, opened.devices, opened.chip) == (None, (), None)
    assert not is_raw(tmp_path)


def test_a_renamed_folder_has_no_stamp():
    assert stamp_of("PROF_of_monday") == "00000000000000"
