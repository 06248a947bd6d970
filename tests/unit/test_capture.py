"""Which form of a PROF folder is read, and what may be removed after it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stepscope.capture import Capture
from stepscope.errors import CaptureError
from stepscope.formats.ascend_capture.prof_folder import forms as prof_forms
from stepscope.formats.cann.layouts import API_EVENT
from stepscope.formats.discover import find
from stepscope.simplify import simplify

NAMES = ("PROF_000001_20260716124513290_00195296CPMRIBDM", "PROF_000002_20260716124513290_00195296CPMRIBDM")


def prof(parent: Path, *, chip: int = 5, raw: bool = True, parsed: bool = False, name: str = NAMES[0]) -> Path:
    folder = parent / name
    for part, tail in (("host", ""), ("device_0", ".0")):
        (folder / part / "data").mkdir(parents=True)
        (folder / part / f"info.json{tail}").write_text(json.dumps({"platform_version": str(chip)}))
    if raw:
        (folder / "host/data/aging.api_event.data.slice_0").write_bytes(bytes(40))
        (folder / "device_0/data/stars_soc.data.0.slice_0").write_bytes(bytes(64))
    if parsed:
        (folder / "mindstudio_profiler_output").mkdir()
        (folder / "mindstudio_profiler_output/msprof_20260716124519.json").write_text("[]")
    return folder


@pytest.mark.parametrize(
    ("chip", "raw", "parsed", "forms"),
    [
        pytest.param(5, True, False, ("raw",), id="raw-only"),
        pytest.param(5, True, True, ("raw", "parsed"), id="raw-before-parsed"),
        pytest.param(7, True, True, ("raw", "parsed"), id="310B"),
        pytest.param(4, True, True, ("parsed", "part"), id="old-chip-falls-back"),
        pytest.param(15, True, False, ("raw",), id="950"),
        pytest.param(99, True, False, ("part",), id="unknown-chip-host-only"),
        pytest.param(5, False, True, ("parsed",), id="parsed-only"),
        pytest.param(5, False, False, (), id="nothing"),
    ],
)
def test_forms(tmp_path, chip, raw, parsed, forms):
    assert prof_forms(prof(tmp_path, chip=chip, raw=raw, parsed=parsed)) == forms


def test_records_of_one_side_give_way_to_parsed_files(tmp_path):
    folder = prof(tmp_path, parsed=True)
    (folder / "device_0/data/stars_soc.data.0.slice_0").unlink()
    assert prof_forms(folder) == ("parsed", "part")


def test_each_prof_folder_is_a_capture_of_its_own(tmp_path):
    folders = [prof(tmp_path, name=name) for name in NAMES]
    (tmp_path / "msprof_20260716124519.db").write_bytes(b"")
    found = find(tmp_path)
    assert [(files.root, files.is_prof) for files in found] == [(folder, True) for folder in folders]


@pytest.mark.parametrize("sign", ["FRAMEWORK/torch.op_range", "profiler_info_0.json", "ASCEND_PROFILER_OUTPUT/trace_view.json"])
def test_prof_folders_of_a_framework_are_one_capture(tmp_path, sign):
    for name in NAMES:
        prof(tmp_path, name=name)
    (tmp_path / sign).parent.mkdir(exist_ok=True)
    (tmp_path / sign).write_text("{}")
    (found,) = find(tmp_path)
    assert (found.root, len(found.profs), found.is_prof) == (tmp_path, 2, False)


@pytest.mark.parametrize(
    ("asked", "source", "file"),
    [
        ("auto", "raw", "stars_soc.data.0.slice_0"),
        ("raw", "raw", "stars_soc.data.0.slice_0"),
        ("parsed", "parsed", "msprof_20260716124519.json"),
    ],
)
def test_the_asked_form_is_read(tmp_path, asked, source, file):
    (found,) = find(prof(tmp_path, parsed=True))
    capture = Capture(found, source=asked)
    names = {path.name for path in capture.source_files()}
    assert (capture.source, file in names) == (source, True)
    assert ("stars_soc.data.0.slice_0" in names) is (source == "raw")


def test_parsed_without_parsed_files_is_said(tmp_path):
    (found,) = find(prof(tmp_path))
    with pytest.raises(CaptureError, match="no parsed data") as problem:
        Capture(found, source="parsed")
    assert problem.value.fix == "use --source raw"


@pytest.mark.parametrize(
    ("chip", "everything", "from_raw", "kept"),
    [
        pytest.param(5, True, True, False, id="raw-readable"),
        pytest.param(5, False, True, True, id="not-asked"),
        pytest.param(5, True, False, True, id="analysed-from-it"),
        pytest.param(4, True, True, True, id="chip-not-readable"),
    ],
)
def test_parsed_output_is_removed_only_when_raw_can_replace_it(tmp_path, chip, everything, from_raw, kept):
    folder = prof(tmp_path, chip=chip, parsed=True)
    (found,) = find(folder)
    simplify(found, everything=everything, from_raw=from_raw)
    assert (folder / "mindstudio_profiler_output").exists() is kept
    assert (folder / "device_0/data/stars_soc.data.0.slice_0").exists()


def test_a_chip_that_cannot_be_read_is_named(tmp_path):
    (found,) = find(prof(tmp_path, chip=99))
    with pytest.raises(CaptureError, match="nothing in this raw folder can be read") as problem:
        Capture(found).load(keep=False)
    assert problem.value.cause.startswith("not yet readable: chip of platform_version 99")


def test_host_calls_of_an_unreadable_chip_are_read(tmp_path):
    folder = prof(tmp_path, chip=99)
    (folder / "host/start_info").write_text('{"clockMonotonicRaw": "0", "collectionTimeBegin": "1000000"}')
    call = np.zeros(1, API_EVENT.dtype)
    call["magic"], call["level"], call["type"], call["begin"], call["end"] = API_EVENT.magic, 5000, 1003, 5, 9
    (folder / "host/data/aging.api_event.data.slice_0").write_bytes(call.tobytes())
    (found,) = find(folder)
    tables = Capture(found).load(keep=False)
    assert tables.api_calls.select("level", "start_ns", "end_ns").rows() == [("runtime", 1_000_000_005, 1_000_000_009)]
    assert "not yet readable: chip of platform_version 99" in tables.quality["detail"].to_list()


def test_unreadable_device_data_leaves_the_framework_readable(tmp_path):
    prof(tmp_path, chip=99)
    (tmp_path / "FRAMEWORK").mkdir()
    (tmp_path / "profiler_info_0.json").write_text("{}")
    (found,) = find(tmp_path)
    tables = Capture(found).load(keep=False)
    details = dict(tables.quality.select("issue", "detail").iter_rows())
    assert details["raw-device-unread"] == "not yet readable: chip of platform_version 99"
