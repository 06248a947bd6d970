"""Rows, clusters, tiles and the binary frame of the timeline."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.web.timeline import levels
from stepscope.web.timeline.binary_columns import decode, encode
from stepscope.web.timeline.depth_rows import depth_rows


def rows(*spans):
    start, end = (np.array(column, dtype=np.int64) for column in zip(*spans, strict=True))
    depth, crossing = depth_rows(start, end)
    return depth.tolist(), crossing


@pytest.mark.parametrize(
    ("spans", "expected", "crossing"),
    [
        pytest.param([(0, 10), (1, 5), (2, 3), (5, 9), (10, 12)], [0, 1, 2, 1, 0], 0, id="nested"),
        pytest.param([(0, 10), (5, 15), (12, 14)], [0, 1, 0], 1, id="crossing-goes-to-an-extra-row"),
        pytest.param([(0, 10), (5, 15), (10, 20), (15, 25)], [0, 1, 0, 1], 3, id="stairs-need-two-rows"),
        pytest.param([(0, 5), (5, 5), (5, 5)], [0, 0, 1], 0, id="zero-length-takes-one-ns"),
        pytest.param([(0, 5), (0, 5), (0, 2)], [0, 1, 2], 0, id="equal-spans-below-each-other"),
        pytest.param([(0, 4), (2, 6), (20, 30), (21, 22)], [0, 1, 0, 1], 1, id="crossing-in-one-place-only"),
    ],
)
def test_depth_rows(spans, expected, crossing):
    assert rows(*spans) == (expected, crossing)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=40))
def test_depth_rows_are_the_first_free_ones(pairs):
    spans = sorted(((start, start + length) for start, length in pairs), key=lambda span: (span[0], -span[1]))
    free_at: list[int] = []
    expected = []
    for start, end in spans:
        row = next((row for row, until in enumerate(free_at) if until <= start), len(free_at))
        free_at[row : row + 1] = [max(end, start + 1)]
        expected.append(row)
    assert rows(*spans)[0] == expected


def some(count, length=3, gap=10):
    start = np.arange(count, dtype=np.int64) * gap
    return start, start + length, np.arange(count, dtype=np.uint32) % 5


def test_a_tile_with_few_slices_holds_them_all():
    start, end, name = some(100)
    tile = levels.tile(start, end, name, 1000, {}, 0, 1)  # 512 to 1024 ns; the slice from 510 to 513 reaches in
    assert tile["start"].tolist() == list(range(510, 1000, 10))
    assert tile["id"].tolist() == list(range(1051, 1100))
    assert set(tile["count"]) == set(tile["busy"]) == {1}


def test_a_slice_that_reaches_in_comes_first():
    start, end = np.array([0, 600], dtype=np.int64), np.array([513, 601], dtype=np.int64)
    tile = levels.tile(start, end, np.array([7, 8], dtype=np.uint32), 0, {}, 0, 1)
    assert (tile["start"].tolist(), tile["dur"].tolist(), tile["name"].tolist()) == ([0, 600], [513, 1], [7, 8])
    ends_there = levels.tile(start, np.array([512, 601], dtype=np.int64), np.array([7, 8], dtype=np.uint32), 0, {}, 0, 1)
    assert ends_there["start"].tolist() == [600]


def test_many_slices_become_one_cluster_per_bin():
    start = np.arange(2048, dtype=np.int64) * 4  # level 4: bins of 16 ns hold four slices
    end = start + np.tile([1, 3, 2, 3], 512)
    name = np.arange(2048, dtype=np.uint32)
    tile = levels.tile(start, end, name, 0, {}, 4, 0)
    assert len(tile["start"]) == 512
    assert {key: tile[key][1].item() for key in tile} == {
        "start": 16.0, "dur": 15.0, "name": 5, "id": 5, "count": 4, "busy": pytest.approx(9 / 15)
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_prepared_clusters_give_the_same_tiles(seed):
    random = np.random.default_rng(seed)
    dense = random.integers(0, 200_000, 15_000)
    start = np.unique(np.concatenate((dense, random.integers(0, 10**9, 15_000))))
    end = np.minimum(start + random.integers(0, 5000, start.size), np.append(start[1:], 10**10))
    name = random.integers(0, 50, start.size).astype(np.uint32)
    made = levels.prepared(start, end, 500)
    assert made
    for level in range(31):
        for index in {0, 1, int(start[-1]) >> (level + 9), int(start[start.size // 2]) >> (level + 9)}:
            quick, slow = (levels.tile(start, end, name, 500, given, level, index) for given in (made, {}))
            assert all(np.array_equal(quick[key], slow[key]) for key in slow)
            inside = (start >= index << (level + 9)) & (start < (index + 1) << (level + 9))
            reaching = ((start < index << (level + 9)) & (end > index << (level + 9))).sum()
            assert quick["count"].sum() == inside.sum() + reaching
            assert len(quick["start"]) <= levels.EXACT + 1


def test_small_rows_need_nothing_prepared():
    start, end, _ = some(levels.HEAVY)
    assert levels.prepared(start, end, 0) == {}


def test_frame_layout():
    data = encode(
        [{"a": np.array([1, 2, 3], dtype="<u4"), "b": np.array([0.5], dtype="<f8").repeat(3)}, {"a": np.zeros(0, dtype="<u4")}]
    )
    assert data[:4] == b"COLS"
    (length,) = struct.unpack("<I", data[4:8])
    header = json.loads(data[8 : 8 + length])
    assert header == {"frames": [{"n": 3, "cols": [["a", "u32"], ["b", "f64"]]}, {"n": 0, "cols": [["a", "u32"]]}]}
    first = 8 + length + -length % 8
    assert first % 8 == 0
    assert data[first : first + 16] == struct.pack("<3I", 1, 2, 3) + bytes(4)
    assert data[first + 16 :] == struct.pack("<3d", 0.5, 0.5, 0.5)
    assert [{key: column.tolist() for key, column in frame.items()} for frame in decode(data)] == [
        {"a": [1, 2, 3], "b": [0.5, 0.5, 0.5]},
        {"a": []},
    ]


def test_decode_refuses_other_data():
    with pytest.raises(ValueError, match="x-cols"):
        decode(b"nothing")
