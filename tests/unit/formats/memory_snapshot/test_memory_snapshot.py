# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots of PyTorch: read as plain data, never unpickled (docs/formats/memory-snapshot.md)."""

from __future__ import annotations

import pickle

import pytest
from werkzeug.test import Client

from stepscope import cli
from stepscope.capture import open_capture
from stepscope.errors import CaptureError
from stepscope.formats.discover import find
from stepscope.formats.memory_snapshot.plain_pickle import NotPlain, plain_data
from stepscope.formats.memory_snapshot.read import read
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue
from stepscope.web.request import Settings

T0 = 1_700_000_000_000_000


def entry(action, address, size, at, name=None):
    frames = (
        [{"name": "alloc", "filename": "/c10/x.cpp", "line": 1}, {"name": name, "filename": "model.py", "line": 3}] if name else []
    )
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": T0 + at, "frames": frames}


TRACE = [
    entry("segment_alloc", 4096, 2048, 0),
    entry("alloc", 4096, 1000, 1, "forward"),
    entry("alloc", 8192, 500, 2, "loss"),
    entry("free_requested", 4096, 1000, 5),
    entry("free_completed", 4096, 1000, 6),
    entry("alloc", 4096, 30, 7, "backward"),
    entry("snapshot", 0, 0, 8),
]
BLOCKS = [
    {"size": 512, "requested_size": 30, "address": 4096, "state": "active_allocated", "frames": []},
    {"size": 3584, "requested_size": 0, "address": 4608, "state": "inactive", "frames": []},
    {"size": 512, "requested_size": 500, "address": 8192, "state": "active_allocated", "frames": []},
    {"size": 512, "requested_size": 70, "address": 9000, "state": "active_awaiting_free", "frames": []},
]
SNAPSHOT = {
    "segments": [{"device": 0, "address": 4096, "total_size": 8192, "stream": 0, "blocks": BLOCKS}],
    "device_traces": [TRACE, []],
    "allocator_settings": {"expandable_segments": False, "ratio": 0.5, "pool": (0, 1)},
}


def written(folder, value=SNAPSHOT, protocol=None, name="dump_snapshot.pickle"):
    path = folder / name
    path.write_bytes(pickle.dumps(value, protocol))
    return path


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_of_every_protocol(protocol):
    shared = ["twice"]
    value = {
        "a": [1, -1, 1 << 40, 1 << 80, 1.5, True, False, None, "text", "ü" * 300],
        "t": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    }
    value |= {"same": [shared, shared], "nested": {1: {}, "x": []}}
    found = plain_data(pickle.dumps(value, protocol))
    assert found == value
    assert found["same"][0] is found["same"][1]


class Harmful:
    def __reduce__(self):
        return (pytest.fail, ("code of the file was run",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_code_in_a_pickle_is_never_run(tmp_path, protocol):
    with pytest.raises(NotPlain):
        plain_data(pickle.dumps([Harmful()], protocol))
    path = written(tmp_path, {"segments": [], "device_traces": [[Harmful()]]}, protocol)
    with pytest.raises(CaptureError, match="more than plain data") as caught:
        open_capture(path).load()
    assert "instruction" in caught.value.cause


@pytest.mark.parametrize(
    "code", [b"cos\nsystem\n.", b"\x80\x04\x8c\x02os\x8c\x06system\x93.", b"(S'x'\nios\nsystem\n.", b"\x82\x01.", b"Pid\n."]
)
def test_instructions_that_reach_outside_are_refused(code):
    with pytest.raises(NotPlain):
        plain_data(code)


def test_blocks_with_their_lives_and_totals(tmp_path):
    capture = open_capture(written(tmp_path))
    start = T0 * 1000
    found = capture.allocations.select("name", "bytes", "start_ns", "release_ns", "active_release_ns", "device", "ptr").rows()
    assert found == [
        ("forward (model.py:3)", 1000, start + 1000, start + 5000, start + 6000, 0, 4096),
        ("loss (model.py:3)", 500, start + 2000, None, None, 0, 8192),
        ("backward (model.py:3)", 30, start + 7000, None, None, 0, 4096),
    ]
    events = capture.memory_events
    # Counted back from the end: 530 bytes are in use there, and 70 from before the recording wait to be freed.
    assert events.select("action", "total_allocated", "total_active", "total_reserved").rows() == [
        ("malloc", 1000, 1070, 8192), ("malloc", 1500, 1570, 8192), ("free", 500, 1570, 8192), ("block_free", 500, 570, 8192),
        ("malloc", 530, 600, 8192),
    ]  # fmt: skip
    assert capture.quality.height == 0


def test_events_without_a_time_keep_their_order(tmp_path):
    trace = [{key: value for key, value in row.items() if key != "time_us"} for row in TRACE]
    tables = read(written(tmp_path, SNAPSHOT | {"device_traces": [trace]}))
    assert tables.allocations["start_ns"].to_list() == [1000, 2000, 5000]
    assert tables.quality["issue"].to_list() == ["incomplete-clock"]


def test_a_snapshot_without_history_shows_the_blocks_in_use(tmp_path):
    tables = read(written(tmp_path, SNAPSHOT | {"device_traces": [[]]})).check()
    assert tables.allocations.select("ptr", "bytes", "release_ns").rows() == [(4096, 30, None), (8192, 500, None), (9000, 70, None)]


def test_other_pickles(tmp_path):
    other = written(tmp_path, {"weights": [1, 2]}, name="model.pkl")
    with pytest.raises(CaptureError, match="no capture here"):
        find(other)
    with pytest.raises(CaptureError, match="not a memory snapshot"):
        read(other)
    with pytest.raises(CaptureError, match="no allocation"):
        read(written(tmp_path, {"segments": [], "device_traces": []}))


def test_on_the_page_and_in_commands(tmp_path, capsys):
    path = written(tmp_path)
    assert cli.main(["info", str(path)]) == 0
    assert "memory snapshot" in capsys.readouterr().out
    catalogue = Catalogue([tmp_path])
    client = Client(App(catalogue, Settings()))
    assert client.get("/api/v1/overview?wait=20").status_code == 200
    (run,) = client.get("/api/v1/runs").json["runs"]
    assert run["workers"][0]["spans"][0]["views"] == ["Memory", "Files"]
    catalogue.close()
