# SPDX-License-Identifier: Apache-2.0
"""Raw folders of other chips with damaged files: nothing raises but the error for users, and tables keep their schema."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prof_folder import SESSION, write
from thorough import THOROUGH

from stepscope.errors import CaptureError
from stepscope.formats import cann
from stepscope.formats.cann.layouts import (
    AICORE,
    EVENT_COUNTER,
    HWTS,
    HWTS_BLOCK,
    PMU_128,
    STARS_32,
    STARS_BLOCK,
    TASK_TRACK_UNIQUE,
    TIMELINE,
    TS_TRACK,
    TS_TRACK_NEXT,
)
from stepscope.formats.cann.write.folder import ProfWriter
from stepscope.formats.cann.write.other_chips import HwtsWriter, TimelineWriter, UniqueIdWriter, device_writer
from stepscope.formats.cann.write.settings import Chip, Session
from stepscope.tables import ALL_TABLES

RECORDS = {
    0: (TIMELINE, EVENT_COUNTER), 1: (HWTS, HWTS_BLOCK, AICORE, TS_TRACK), 4: (HWTS, AICORE, TS_TRACK),
    15: (STARS_32, STARS_BLOCK, PMU_128, TASK_TRACK_UNIQUE, TS_TRACK_NEXT),
}  # fmt: skip
VALUES = st.one_of(st.sampled_from([0, 1, 8, 0xFFFF, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))


@cache
def files_of(platform: int) -> dict[str, bytes]:
    session = Session(SESSION.pid, SESSION.started_ns, SESSION.mono_ns, chip=Chip(platform=platform, counter_mhz=1000.0))
    with tempfile.TemporaryDirectory() as parent:
        files = _contents(write(Path(parent), session))
        for name, content in _contents(_write_parts(Path(parent) / "parts", session)).items():
            if "device_0/data" in name:
                files[name] = files.get(name, b"") + content
        return files


def _contents(prof: Path) -> dict[str, bytes]:
    return {str(path.relative_to(prof)): path.read_bytes() for path in prof.rglob("*") if path.is_file() and path.suffix != ".done"}


def _write_parts(parent: Path, session: Session) -> Path:
    """Parts of tasks and sizes that the device chose, where the chip records them."""
    at = SESSION.started_ns + 1_600_000
    times = {"start_ns": [at + 10, at + 20], "end_ns": [at + 90, at + 95]}
    with ProfWriter(parent, session) as writer:
        device = device_writer(writer, 0)
        if isinstance(device, UniqueIdWriter):
            device.fusions(task=0, type=[1, 3], **times)
            device.blocks(task=0, vector=[0, 1], core_id=[3, 4], block=[0, 1], **times)
            device.counted_blocks(task=0, vector=[0, 1], core_id=[3, 4], block=[0, 1], cycles=9, counters=np.ones((2, 10)), **times)
            device.block_sizes(task=[0, 1], blocks=8, at_ns=at)
        elif isinstance(device, HwtsWriter) and not isinstance(device, TimelineWriter):
            device.blocks(stream=5, task=0, core_id=[3, 4], block=[0, 1], cycles=[9, 8], **times)
            device.block_sizes(stream=5, task=[0, 1], blocks=8, at_ns=at)
        writer.close(at + 1000)
    return writer.path


def read(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as parent:
        prof = Path(parent) / "PROF_000001_20260101000000000_00000001AAAAAAAA"
        for name, data in files.items():
            path = prof / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        try:
            tables = cann.read(prof)
        except CaptureError:
            return
        for name in tables.filled():
            ALL_TABLES[name].check(tables[name])


@pytest.mark.parametrize("platform", RECORDS)
@settings(max_examples=25 if THOROUGH else 10)
@given(data=st.data())
def test_damaged_bytes(platform: int, data: st.DataObject):
    files = dict(files_of(platform))
    names = sorted(name for name in files if name.startswith("device_0"))
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(names))
        content = bytearray(files[name])
        place = int(data.draw(st.floats(0, 1)) * len(content))
        how = data.draw(st.sampled_from(["cut head", "cut tail", "patch", "flip", "drop"]))
        if how == "cut head":
            content = content[place:]
        elif how == "cut tail":
            content = content[:place]
        elif how == "patch":
            patch = data.draw(st.binary(max_size=200))
            content[place : place + len(patch)] = patch
        elif how == "flip" and content:
            content[min(place, len(content) - 1)] ^= 1 << data.draw(st.integers(0, 7))
        files[name] = bytes(content)
        if how == "drop":
            del files[name]
            names.remove(name)
    read(files)


@pytest.mark.parametrize("platform", RECORDS)
@settings(max_examples=25 if THOROUGH else 10)
@given(data=st.data())
def test_any_value_in_a_field_of_all_records(platform: int, data: st.DataObject):
    files = dict(files_of(platform))
    layout = data.draw(st.sampled_from(RECORDS[platform]))
    field = data.draw(st.sampled_from([name for name in layout.dtype.names or () if name != "magic"]))
    value = data.draw(VALUES)
    for name, content in files.items():
        if f"/{layout.file}." in name or f".{layout.file}." in name:
            rows = np.frombuffer(bytearray(content[: len(content) // layout.size * layout.size]), np.uint8).view(layout.dtype)
            rows[field] = np.array(value, np.uint64).astype(rows.dtype[field].base)
            files[name] = rows.tobytes()
    read(files)
