# SPDX-License-Identifier: Apache-2.0
"""The Trace view against trace_view.json, computed here in plain Python (docs/reference/viewer.md 11)."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from viewer.numbers import Viewer, each_capture, first_event, folder, ns, timeline, where

from stepscope.web.timeline.binary_columns import decode
from stepscope.web.views.verdict import FAMILIES, family_of


@each_capture
def test_trace_loses_no_slice(npu, golden, level, rank):
    """Every slice of the file is in exactly one row, none overlaps another in its row, times and names are those of the file."""
    events = [event for event in timeline(folder(golden, level, rank) / "trace_view.json") if event["ph"] == "X"]
    meta = npu.get("trace/meta", **where(level, rank))
    assert meta["slices"] == len(events)
    base = first_event(golden, level, rank)
    assert meta["base_ns"] == str(base)
    names = npu.get("trace/names", **where(level, rank))["names"]
    layers = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
    found: Counter[tuple[str, int]] = Counter()
    for row in meta["rows"]:
        slices = exact_row(npu, row["id"], meta["length_ns"], where(level, rank))
        assert len(slices["start"]) == row["slices"]
        assert (slices["start"][1:] >= (slices["start"] + slices["dur"])[:-1]).all()
        found.update((names[int(name)], int(start)) for name, start in zip(slices["name"], slices["start"], strict=True))
    expected = Counter((event["name"], ns(event["ts"]) - base) for event in events)
    assert {key: count for key, count in found.items() if key[0] not in layers} == {
        key: count for key, count in expected.items() if key[0] not in layers
    }
    # Layers of the overlap analysis are computed anew; the file's are off by the last digit of a float.
    for layer in layers:
        starts = [sorted(start for name, start in counts.elements() if name == layer) for counts in (found, expected)]
        assert starts[0] == pytest.approx(starts[1], abs=2)


def exact_row(viewer: Viewer, row: int, length: int, place: dict[str, str]) -> dict[str, np.ndarray]:
    """All slices of a row, by descending into tiles until every entry stands for one slice."""
    top = max(0, (length // 512).bit_length())
    waiting, slices = [(top, 0)], {}
    while waiting:
        batch, waiting = waiting[:256], waiting[256:]
        answer = viewer.post("trace/tiles", [[row, level, index] for level, index in batch], **place)
        assert answer.mimetype == "application/x-cols"
        for (level, index), tile in zip(batch, decode(answer.data), strict=True):
            if (tile["count"] > 1).any():
                waiting += [(level - 1, 2 * index), (level - 1, 2 * index + 1)]
            else:
                for start, dur, name, number in zip(tile["start"], tile["dur"], tile["name"], tile["id"], strict=True):
                    slices[int(number)] = (start, dur, name)
    ordered = np.array([slices[number] for number in sorted(slices)])
    return {"start": ordered[:, 0], "dur": ordered[:, 1], "name": ordered[:, 2]}


@each_capture
def test_trace_counts_overlapping_and_zero_length_slices(npu, golden, level, rank):
    tracks = defaultdict(list)
    for event in timeline(folder(golden, level, rank) / "trace_view.json"):
        if event["ph"] == "X":
            start = ns(event["ts"])
            tracks[event["pid"], event["tid"]].append((start, -(start + ns(event["dur"]))))
    crossing = 0
    for events in tracks.values():
        spans = [(start, max(-negative, start + 1)) for start, negative in sorted(events)]
        for place, (start, end) in enumerate(spans):
            crossing += any(start < other_end < end for other, other_end in spans[:place])
    assert npu.get("trace/meta", **where(level, rank))["overlapping"] == crossing


@each_capture
def test_trace_counters_and_flows(npu, golden, level, rank):
    events = timeline(folder(golden, level, rank) / "trace_view.json")
    meta = npu.get("trace/meta", **where(level, rank))
    assert meta["counters"] == sum(
        len(event["args"]) if "acc_id" not in event["args"] else 1 for event in events if event["ph"] == "C"
    )
    arrows = Counter(event["cat"] for event in events if event["ph"] == "f")
    assert {flow["category"]: flow["count"] for flow in meta["flows"]} == dict(arrows)
    answer = npu.get("trace/flows", cats=",".join(arrows), limit=20000, **where(level, rank))
    assert answer["count"] == sum(arrows.values())
    ends = Counter(ns(event["ts"]) for event in events if event["ph"] == "f")
    assert Counter(time + int(meta["base_ns"]) for time in answer["arrows"]["to_ns"]) == ends


@each_capture
def test_counter_tiles_hold_every_sample(npu, golden, level, rank):
    meta = npu.get("trace/meta", **where(level, rank))
    track = next(track for track in meta["tracks"] if track["kind"] == "counter" and track["label"].startswith("HBM 0/Read"))
    expected = [
        (ns(event["ts"]) - int(meta["base_ns"]), next(iter(event["args"].values())))
        for event in timeline(folder(golden, level, rank) / "trace_view.json")
        if event["ph"] == "C" and event["name"] == "HBM 0/Read"
    ]
    (tile,) = decode(npu.post("trace/counters", [[track["id"], 40, 0]], **where(level, rank)).data)
    assert list(zip(tile["time"], tile["first"], strict=True)) == [
        (time, pytest.approx(float(value))) for time, value in sorted(expected)
    ]


@each_capture
def test_busy_shares_of_a_window(npu, golden, level, rank):
    meta = npu.get("trace/meta", **where(level, rank))
    base, low, high = int(meta["base_ns"]), meta["length_ns"] // 3, meta["length_ns"] // 2
    spans = defaultdict(list)
    for event in timeline(folder(golden, level, rank) / "trace_view.json"):
        if event["ph"] == "X":
            start = ns(event["ts"]) - base
            spans[event["tid"], event["pid"]].append((max(start, low), min(start + ns(event["dur"]), high)))
    expected = []
    for pieces in spans.values():
        covered, reach = 0, low
        for start, end in sorted(piece for piece in pieces if piece[0] < piece[1]):
            covered, reach = covered + max(0, end - max(start, reach)), max(reach, end)
        expected.append(covered / (high - low))
    answer = npu.get("trace/busy", **{"from": low, "to": high}, **where(level, rank))
    assert sorted(share for share in answer["tracks"] if share is not None) == pytest.approx(sorted(expected), abs=1e-6)
    for process in meta["processes"]:
        own = [answer["tracks"][track["id"]] for track in meta["tracks"] if track["process"] == process["id"] and track.get("rows")]
        if own:
            assert max(own) <= answer["processes"][process["id"]] + 1e-12 <= sum(own) + 1e-9


@each_capture
def test_the_critical_path_tiles_the_time(npu, level, rank):
    answer = npu.get("trace/path", **where(level, rank))
    pieces = answer["pieces"]
    assert pieces["end"][:-1] == pieces["start"][1:]
    assert sum(answer["shares"].values()) == pytest.approx(1)
    whole = pieces["end"][-1] - pieces["start"][0]
    for kind, share in answer["shares"].items():
        own = (end - start for start, end, one in zip(pieces["start"], pieces["end"], pieces["kind"], strict=True) if one == kind)
        assert sum(own) / whole == pytest.approx(share)
    # The times are those of the replay: nearly all of the path lies where its task was recorded.
    inside = ran = 0
    for start, end, kind, number in zip(*pieces.values(), strict=True):
        if kind in ("computing", "communication", "copy"):
            task = npu.get("trace/slice", id=number, **where(level, rank))
            recorded = task["start_ns"] + task["duration_ns"]
            inside += max(0, min(end, recorded) - max(start, task["start_ns"]))
            ran += end - start
    assert inside > 0.95 * ran


@each_capture
def test_range_statistics_of_everything(npu, golden, level, rank):
    sums: defaultdict[str, list[float]] = defaultdict(list)
    for event in timeline(folder(golden, level, rank) / "trace_view.json"):
        if event["ph"] == "X":
            sums[event["name"]].append(int(ns(event["dur"])) / 1000)
    meta = npu.get("trace/meta", **where(level, rank))
    body = {"tracks": None, "from": 0, "to": meta["length_ns"] + 1, "limit": 20000}
    answer = npu.post("trace/range", body, **where(level, rank)).json
    assert answer["slices"] == meta["slices"]
    shown = {row[0]: row for row in answer["rows"]}
    assert shown.keys() == sums.keys()
    for name, durations in sums.items():
        _, wall, own, average, most, least, count = shown[name]
        assert count == len(durations)
        assert wall == pytest.approx(sum(durations), abs=0.002 * count)
        assert average == pytest.approx(wall / count)
        assert (most, least) == (pytest.approx(max(durations), abs=0.002), pytest.approx(min(durations), abs=0.002))
        assert own <= wall + 1e-9


def test_search_counts_slices(npu, golden):
    expected = sum(
        "conv" in event["name"].lower() for event in timeline(folder(golden, "level2", 0) / "trace_view.json") if event["ph"] == "X"
    )
    answer = npu.get("trace/search", q="CONV", **where("level2", 0))
    assert answer["count"] == expected == sum(answer["density"]["counts"])
    starts = [hit["start_ns"] for hit in answer["hits"]]
    assert starts == sorted(starts)
    assert npu.get("trace/search", q="CONV", case=1, **where("level2", 0))["count"] == 0


@pytest.mark.parametrize("rank", [0, 1])
def test_idle_time_has_the_cause_that_the_panel_tells(npu, rank):
    gaps = npu.get("trace/path", **where("level2", rank))["gaps"]
    assert gaps["start"] == sorted(gaps["start"])
    free = npu.get("trace/search", q="^Free$", mode="regex", limit=1000, **where("level2", rank))["hits"]
    longest = sorted(zip(*gaps.values(), strict=True), key=lambda gap: gap[0] - gap[1])[:5]
    told = 0
    for start, end, kind in longest:
        own = [one for one in free if one["start_ns"] <= start and end <= one["start_ns"] + one["duration_ns"]]
        for one in own:
            parts = npu.get("trace/slice", id=one["id"], **where("level2", rank))["cause"]["parts"]
            assert family_of(parts[0]["part"]) == kind
            told += 1
    assert told > 2
    assert "dispatch" in gaps["kind"]
    assert set(gaps["kind"]) <= {*FAMILIES, "unknown"}
