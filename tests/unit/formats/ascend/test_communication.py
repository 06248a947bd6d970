"""The vendor's own analysis of communication, in both of its forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stepscope.formats.ascend.communication.read import placed, read_extremes, recorded
from stepscope.tables import ALL_TABLES

INFO = {
    "Communication Time Info": {
        "Start Timestamp(us)": 5.5,
        "Elapse Time(ms)": 10.0,
        "Transit Time(ms)": 4.0,
        "Wait Time(ms)": 3.0,
        "Synchronization Time(ms)": 2.0,
        "Idle Time(ms)": 3.0,
        "Wait Time Ratio": 0.4286,
    },
    "Communication Bandwidth Info": {
        "HCCS": {
            "Transit Size(MB)": 28.6,
            "Transit Time(ms)": 1.8,
            "Bandwidth(GB/s)": 15.7,
            "Large Packet Ratio": 0.0,
            "Size Distribution": {"2.064384": [12, 1.5], "1.937312": [2, 0.3]},
        },
        "SDMA": {
            "Transit Size(MB)": 28.6,
            "Transit Time(ms)": 1.8,
            "Bandwidth(GB/s)": 15.7,
            "Large Packet Ratio": 0,
            "Size Distribution": {},
        },
    },
}  # fmt: skip
PER_CAPTURE = {"hcom_allReduce__271_0_1@11022204950826225271": INFO}
PER_STEP = {
    "step50": {"p2p": {}, "collective": {**PER_CAPTURE, "Total Op Info": {**INFO}}},
    "step51": {"p2p": {"hcom_send__271_0_1@11022204950826225271": INFO, "Total Op Info": INFO}, "collective": {}},
}


def operators(*rows: tuple[str, int, str | None]) -> pl.DataFrame:
    names, starts, groups = zip(*rows, strict=True)
    frame = pl.DataFrame(
        {"device": [0] * len(rows), "name": names, "start_ns": starts, "group": groups}, schema_overrides={"group": pl.String}
    )
    return ALL_TABLES["collectives"].conform(frame)


def save(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def test_capture_form(tmp_path):
    there = operators(("other", 1, None), ("hcom_allReduce__271_0_1", 5400, None))
    found = placed(recorded(save(tmp_path, "c.json", PER_CAPTURE), None), there, quality=[])
    op = (1, "hcom_allReduce__271_0_1", "11022204950826225271")
    assert found.times.rows() == [(*op, 5.5, 10.0, 4.0, 3.0, 2.0, 3.0)]
    assert found.packets.rows() == [
        (*op, "HCCS", 28.6, 1.8, 15.7, 0.0, 2.064384, 12, 1.5),
        (*op, "HCCS", 28.6, 1.8, 15.7, 0.0, 1.937312, 2, 0.3),
        (*op, "SDMA", 28.6, 1.8, 15.7, 0.0, None, None, None),
    ]
    assert found.links.height == 0
    assert found.collectives["group"].to_list() == [None, "11022204950826225271"]


def test_step_form_leaves_sums_out(tmp_path):
    found = placed(recorded(save(tmp_path, "c.json", PER_STEP), None), ALL_TABLES["collectives"].empty(), quality=[])
    assert found.times.select("name", "collective").rows() == [("hcom_allReduce__271_0_1", None), ("hcom_send__271_0_1", None)]


def test_known_group_stays_and_tells_equal_names_apart(tmp_path):
    # Two groups whose hashes end in the same digits give their operators the same names.
    content = {"op__271_0_1@1271": INFO, "op__271_0_1@2271": INFO}
    there = operators(("op__271_0_1", 5500, "2271"), ("op__271_0_1", 9000, "1271"))
    found = placed(recorded(save(tmp_path, "c.json", content), None), there, quality=[])
    assert found.times.select("group", "collective").rows() == [("1271", 1), ("2271", 0)]
    assert found.collectives["group"].to_list() == ["2271", "1271"]


def test_of_equal_names_the_one_that_starts_nearest(tmp_path):
    there = operators(("hcom_allReduce__271_0_1", 100, None), ("hcom_allReduce__271_0_1", 5501, None))
    found = placed(recorded(save(tmp_path, "c.json", PER_CAPTURE), None), there, quality=[])
    assert found.times["collective"].to_list() == [1]
    assert found.collectives["group"].to_list() == [None, "11022204950826225271"]


def test_links_of_each_operator(tmp_path):
    link = {"Transport Type": "HCCS", "Transit Size(MB)": 37.7, "Transit Time(ms)": 2.2, "Bandwidth(GB/s)": 16.8}
    matrix = save(tmp_path, "m.json", {"hcom_allReduce__271_0_1@11": {"0-1": link, "0-0": {**link, "Transport Type": "LOCAL"}}})
    found = placed(recorded(None, matrix), operators(("hcom_allReduce__271_0_1", 1, None)), quality=[])
    assert found.links.rows() == [
        (0, "hcom_allReduce__271_0_1", "11", 0, 1, "HCCS", 37.7, 2.2, 16.8),
        (0, "hcom_allReduce__271_0_1", "11", 0, 0, "LOCAL", 37.7, 2.2, 16.8),
    ]
    assert found.collectives["group"].to_list() == ["11"]


@pytest.mark.parametrize("pair", ["0-118446744073709551615", "118446744073709551615-0", "0-1000000000", "0-"])
def test_links_of_numbers_that_are_no_ranks_are_left_out(tmp_path, pair):
    link = {"Transport Type": "HCCS", "Transit Time(ms)": 1, "Transit Size(MB)": 2, "Bandwidth(GB/s)": 2, "Op Name": "x"}
    extremes = save(tmp_path, "e.json", {"step50": {"p2p": {}, "collective": {"allreduce-top1@11": {pair: link, "0-1": link}}}})
    assert read_extremes(extremes, quality=[]).select("src_rank", "dst_rank").rows() == [(0, 1)]
    matrix = save(tmp_path, "m.json", {"hcom_allReduce__271_0_1@11": {pair: link, "0-1": link}})
    found = placed(recorded(None, matrix), operators(("hcom_allReduce__271_0_1", 1, None)), quality=[])
    assert found.links.select("src_rank", "dst_rank").rows() == [(0, 1)]


def test_extremes_of_a_matrix_are_no_operators(tmp_path):
    link = {"Transport Type": "HCCS", "Transit Size(MB)": 1, "Transit Time(ms)": 1, "Bandwidth(GB/s)": 1, "Op Name": "x"}
    matrix = save(tmp_path, "m.json", {"step50": {"p2p": {}, "collective": {"allreduce-top1@11": {"0-1": link}}}})
    assert placed(recorded(None, matrix), ALL_TABLES["collectives"].empty(), quality=[]).links.height == 0


@pytest.mark.parametrize(
    ("text", "issue"),
    [
        pytest.param("", "unreadable-file", id="empty"),
        pytest.param('{"op@1": {"Communication', "unreadable-file", id="cut-off"),
        pytest.param("[1, 2]", "unreadable-file", id="no-object"),
        pytest.param('{"op@1": 3, "hcom@2": {}}', "not-understood", id="no-operator"),
        pytest.param("\udcff\udcfe", "unreadable-file", id="no-text"),
    ],
)
def test_damage_is_counted(tmp_path, text, issue):
    path = tmp_path / "communication.json"
    path.write_bytes(text.encode("utf-8", errors="surrogateescape"))
    quality: list[pl.DataFrame] = []
    placed(recorded(path, None), ALL_TABLES["collectives"].empty(), quality=quality)
    assert pl.concat(quality)["issue"].to_list() == [issue]


def test_values_that_are_no_numbers_are_missing(tmp_path):
    path = tmp_path / "communication.json"
    times = '{"Elapse Time(ms)": NaN, "Wait Time(ms)": "N/A", "Transit Time(ms)": [1]}'
    packets = '{"HCCS": {"Size Distribution": {"x": [1]}}, "PCIE": 3}'
    path.write_text(f'{{"op@1": {{"Communication Time Info": {times}, "Communication Bandwidth Info": {packets}}}}}')
    found = placed(recorded(path, None), ALL_TABLES["collectives"].empty(), quality=[])
    assert found.times.rows() == [(None, "op", "1", None, None, None, None, None, None)]
    assert found.packets.rows() == [(None, "op", "1", "HCCS", None, None, None, None, None, None, None)]
