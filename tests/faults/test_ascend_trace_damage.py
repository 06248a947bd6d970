# SPDX-License-Identifier: Apache-2.0
"""A timeline that was cut off, or has bytes that are wrong, still gives its whole events."""

from __future__ import annotations

import json

import polars as pl
import pytest
from thorough import some

from stepscope.errors import CaptureError
from stepscope.formats.ascend.trace.timeline import read_timeline
from stepscope.tables import ALL_TABLES

PID = (5000 << 10) | (13 << 5)
EVENTS = [
    {"name": "process_name", "pid": PID, "tid": 0, "ph": "M", "args": {"name": "Ascend Hardware"}},
    *(
        {"name": f"Add{number}", "pid": PID, "tid": 2, "ts": f"{number}.250", "dur": 0.5, "ph": "X", "args": {"Task Id": number}}
        for number in range(6)
    ),
]
TEXT = json.dumps(EVENTS).encode()


def read(path) -> tuple[int, int]:
    """Kernels read, and records lost."""
    quality: list[pl.DataFrame] = []
    timeline = read_timeline([path], quality=quality)
    for name, frame in timeline.frames.items():
        ALL_TABLES[name].check(frame)
    lost = pl.concat(quality)["count"].sum() if quality else 0
    return timeline.frames["kernels"].height if "kernels" in timeline.frames else 0, lost


def test_every_place_of_a_cut(tmp_path):
    path = tmp_path / "msprof_1.json"
    ends = [TEXT.index(f'"Task Id": {number}}}}}'.encode()) + len('"Task Id": 0}}') for number in range(6)]
    first = TEXT.index(b"}}") + 2
    for size in some(range(len(TEXT)), 6):
        path.write_bytes(TEXT[:size])
        if size < first:
            with pytest.raises(CaptureError):
                read(path)
        else:
            kernels, lost = read(path)
            assert kernels == sum(end <= size for end in ends), size
            assert lost > 0, size


@pytest.mark.parametrize("junk", [b"\x00", b"\xff", b'"', b"}", b"\\", b"\n"])
def test_a_wrong_byte_keeps_the_events_before_it_and_is_counted(tmp_path, junk):
    path = tmp_path / "msprof_1.json"
    for place in some(range(TEXT.index(b"Add2"), TEXT.index(b"Add3")), 6):
        path.write_bytes(TEXT[:place] + junk + TEXT[place + 1 :])
        kernels, lost = read(path)
        assert kernels >= 2, place
        assert kernels == 6 or lost > 0, place
