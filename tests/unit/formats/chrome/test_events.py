"""Chrome traces in all their layouts come out the same, with exact times."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.errors import CaptureError
from stepscope.formats.chrome.events import read_events

INT, TEXT, REAL = pl.Int64(), pl.String(), pl.Float64()


def events_of(path: Path, args: dict[str, pl.DataType] | None = None, **options: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
    quality: list[pl.DataFrame] = []
    frames = list(read_events(path, args or {}, quality=quality, **options))
    return pl.concat(frames) if frames else pl.DataFrame(), pl.concat(quality) if quality else pl.DataFrame()


@pytest.fixture
def trace(tmp_path: Path):
    def write(content: bytes | str, name: str = "trace.json") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


EVENTS = [
    {"ph": "X", "name": "aten::add", "cat": "op", "pid": 7, "ts": 10.5, "dur": 2.25, "args": {"n": 1, "list": [[1, 2], []]}},
    {"ph": "X", "name": 'a}, {"b', "cat": "op", "pid": 7, "ts": 11, "dur": 0, "args": {"n": 2, "in": [{"x": 1}, {"y": 2}]}},
    {"ph": "s", "name": "back\\", "id": 3, "pid": 7, "tid": "stream 7", "ts": 12.001, "bp": "e", "s": "g"},
    {"ph": "M", "name": "é \u4e16", "pid": "Spans", "tid": 0},
]  # fmt: skip
LAYOUTS = {
    "compact": lambda events: json.dumps(events, separators=(",", ":")),
    "blanks": lambda events: json.dumps(events),
    "raw-text": lambda events: json.dumps(events, ensure_ascii=False),
    "pretty": lambda events: json.dumps(events, indent=2),
    "windows-lines": lambda events: json.dumps(events, indent=2).replace("\n", "\r\n"),
    "tabs": lambda events: json.dumps(events, indent="\t"),
    "object": lambda events: json.dumps({"schemaVersion": 1, "traceEvents": events, "displayTimeUnit": "ms"}, indent=2),
    "object-compact": lambda events: json.dumps({"x": [{"a": 1}, {"b": 2}], "traceEvents": events}, separators=(",", ":")),
    "byte-order-mark": lambda events: "\ufeff" + json.dumps(events),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunk_bytes", [64, 300, 1 << 20])
def test_every_layout_gives_the_same_events(trace, layout, chunk_bytes):
    path = trace(LAYOUTS[layout](EVENTS * 5))
    found, quality = events_of(path, {"n": INT, "list": TEXT}, chunk_bytes=chunk_bytes)
    assert quality.height == 0
    assert found["name"].to_list() == [event["name"] for event in EVENTS] * 5
    assert found["ts_ns"].to_list() == [10500, 11000, 12001, None] * 5
    assert found["dur_ns"].to_list() == [2250.0, 0.0, None, None] * 5
    assert found["args.n"].to_list() == [1, 2, None, None] * 5
    assert found["pid"].to_list() == [7, 7, 7, None] * 5
    assert found["pid_text"].to_list() == [None, None, None, "Spans"] * 5
    assert found["tid_text"].to_list() == [None, None, "stream 7", None] * 5
    assert found["id"].to_list() == [None, None, "3", None] * 5
    assert [found[name][2] for name in ("bp", "s")] == ["e", "g"]
    assert json.loads(found["args.list"][0]) == [[1, 2], []]


def test_gzip_is_known_by_its_content(trace):
    path = trace(gzip.compress(json.dumps(EVENTS).encode()[:50]) + gzip.compress(json.dumps(EVENTS).encode()[50:]), "trace.json")
    assert events_of(path)[0].height == 4


@pytest.mark.parametrize("quoted", [True, False], ids=["text", "number"])
@pytest.mark.parametrize(
    "micros",
    [
        "1736412474714258.990",
        "1736412474714258.001",
        "1736412474714258",
        "8796093022207.999",
        "56635912240.3",
        "0.5",
        "-1.25",
        "9e3",
    ],
)
def test_times_are_exact_to_the_nanosecond(trace, micros, quoted):
    value = f'"{micros}"' if quoted else micros
    found, quality = events_of(trace(f'[{{"ts": {value}, "name": "a"}}]'))
    assert found["ts_ns"].to_list() == [int(Decimal(micros) * 1000)]
    assert quality.height == 0


def test_long_numbers_stay_exact_in_every_part_of_a_large_chunk(trace):
    stamps = [f"{1736412474714258 + number}.{number % 1000:03d}" for number in range(50_000)]
    body = ",\n".join(f'{{"ph": "X", "name": "kernel {stamp}", "ts": {stamp}, "args": {{"grid": [1, 1, 1]}}}}' for stamp in stamps)
    found, _ = events_of(trace(f"[{body}]"), {"grid": TEXT}, chunk_bytes=16 << 20)
    assert found["ts_ns"].to_list() == [int(Decimal(stamp) * 1000) for stamp in stamps]


@pytest.mark.parametrize(
    ("value", "as_integer", "as_text", "as_real"),
    [
        ("12", 12, "12", 12.0),
        ('"12"', 12, "12", 12.0),
        ("12.0", 12, None, 12.0),
        ('"x"', None, "x", None),
        ('""', None, "", None),
        ("null", None, None, None),
        ("18446744073709551615", None, "18446744073709551615", 18446744073709551615.0),
        ("123456789012345678901234567890", None, "123456789012345678901234567890", 123456789012345678901234567890.0),
        ('["a", 1]', None, '["a", 1]', None),
        ('{"b": [1]}', None, '{"b": [1]}', None),
    ],
)
def test_arguments_of_unexpected_type_are_converted_or_null(trace, value, as_integer, as_text, as_real):
    path = trace(f'[{{"ts": 1, "args": {{"v": {value}}}}}, {{"ts": 2, "args": {{"v": 5}}}}]')
    assert events_of(path, {"v": INT})[0]["args.v"].to_list() == [as_integer, 5]
    assert events_of(path, {"v": REAL})[0]["args.v"].to_list() == [as_real, 5.0]
    if as_text is not None or value == "null":
        assert events_of(path, {"v": TEXT})[0]["args.v"].to_list() == [as_text, "5"]


def test_all_arguments_as_one_text(trace):
    found, _ = events_of(trace('[{"ts": 1, "args": {"a": 1, "b": "x"}}, {"ts": 2}]'), {"*": TEXT})
    assert json.loads(found["args.*"][0]) == {"a": 1, "b": "x"}
    assert found["args.*"][1] is None


def test_a_guarded_key_is_read_where_its_guard_stands(trace):
    body = [{"ts": number, "name": "\\", "args": {"n": number} if number % 20 == 0 else {"m": 1}} for number in range(50)]
    found, _ = events_of(trace(json.dumps(body)), {"n": INT, "m": INT}, guards={"n": '"n"', "m": '"m"'}, chunk_bytes=200)
    assert found["args.n"].to_list() == [number if number % 20 == 0 else None for number in range(50)]
    assert found["args.m"].to_list() == [None if number % 20 == 0 else 1 for number in range(50)]


def test_nan_and_infinity_become_null_and_are_counted(trace):
    path = trace(
        '[{"ts": 1, "args": {"v": NaN, "l": []}}, {"ts": 2, "args": {"v": -Infinity}}, {"ts": 3, "name": "NaN", "args": {"v": 4}}]'
    )
    found, quality = events_of(path, {"v": REAL})
    assert found["args.v"].to_list() == [None, None, 4.0]
    assert found["name"][2] == "NaN"
    assert quality.filter(pl.col("issue") == "unreadable-value")["count"].sum() == 2


def test_nan_in_one_of_many_similar_events_is_counted_too(trace):
    values = ["1.5"] * 99 + ["NaN", "-Infinity"]
    found, quality = events_of(
        trace("[" + ", ".join(f'{{"ts": 1, "args": {{"v": {value}}}}}' for value in values) + "]"), {"v": REAL}
    )
    assert found["args.v"].to_list() == [1.5] * 99 + [None, None]
    assert quality["count"].sum() == 2


def test_a_time_that_is_not_a_number_is_counted(trace):
    found, quality = events_of(trace('[{"ts": "soon", "dur": "long", "l": []}, {"ts": 1, "dur": 1}]'))
    assert found["ts_ns"].to_list() == [None, 1000]
    assert quality.select("issue", "detail").rows() == [
        ("unreadable-value", "ts is not a number in range"),
        ("unreadable-value", "dur is not a number in range"),
    ]


def test_args_that_are_not_an_object_lose_only_themselves(trace):
    found, _ = events_of(trace('[{"ts": 1, "args": "x"}, {"ts": 2, "args": {"v": 1}}, {"ts": 3, "args": null}]'), {"v": INT})
    assert found["ts_ns"].to_list() == [1000, 2000, 3000]
    assert found["args.v"].to_list() == [None, 1, None]


def test_elements_that_are_not_events_are_skipped_and_counted(trace):
    found, quality = events_of(trace('[{"ts": 1}, 55, "x", [1], null, {"ts": 2}]'))
    assert found["ts_ns"].to_list() == [1000, 2000]
    assert quality.height > 0


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b"  \n ", "empty"),
        (b"no JSON at all", "no JSON"),
        (b'{"schemaVersion": 1}', "no list of events"),
        (b'{"schemaVersion": 1, "traceEv', "no list of events"),
        (b'[{"ph": "X", "na', "no whole event"),
    ],
)
def test_a_file_without_events_is_an_error_that_says_so(trace, content, what):
    path = trace(content)
    with pytest.raises(CaptureError, match=what) as caught:
        events_of(path)
    assert caught.value.where == str(path)
    assert caught.value.cause
    assert caught.value.fix


def test_an_empty_list_is_not_an_error(trace):
    assert events_of(trace("[]"))[0].height == 0


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_header_before_or_after_the_events(trace, before, packed):
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0}, {"id": 1}], "note": 'a "]" b'}
    whole = {**head, "traceEvents": EVENTS} if before else {"traceEvents": EVENTS, **head}
    content = json.dumps(whole, indent=2).encode()
    path = trace(gzip.compress(content) if packed else content)
    seen: dict[str, Any] = {}
    assert events_of(path, header=seen)[0].height == 4
    assert seen == head


def test_a_plain_list_has_no_header(trace):
    seen: dict[str, Any] = {}
    assert events_of(trace(json.dumps(EVENTS)), header=seen)[0].height == len(EVENTS)
    assert seen == {}


TEXTS = st.text(max_size=12) | st.sampled_from(['},{"', "\\", '\\"', "}, {", "]", '"ts": 5', "\n  },\n  {"])
SCALARS = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | TEXTS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6)
TIMES = st.decimals(min_value=0, max_value=4_600_000_000_000_000, places=3)
ONE = st.fixed_dictionaries(
    {"name": TEXTS, "ts": TIMES.map(str)},
    optional={"pid": st.integers(-5, 2**40), "dur": st.integers(0, 10**9), "args": st.dictionaries(TEXTS, VALUES, max_size=4)},
)


@pytest.mark.slow  # many small files
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(ONE, min_size=1, max_size=12),
    st.sampled_from([None, 1, 2]),
    st.booleans(),
    st.booleans(),
    st.integers(20, 400),
)
def test_round_trip_against_the_standard_parser(tmp_path, events, indent, wrapped, ascii_only, chunk_bytes):
    # A lone half of a character pair cannot be written as UTF-8 at all.
    text = json.dumps({"traceEvents": events} if wrapped else events, indent=indent, ensure_ascii=ascii_only)
    path = tmp_path / "trace.json"
    path.write_bytes(text.encode("utf-8", "replace"))
    expected = json.loads(path.read_text("utf-8"))
    expected = expected["traceEvents"] if wrapped else expected
    found, quality = events_of(path, {"*": TEXT}, chunk_bytes=chunk_bytes)
    assert quality.height == 0
    assert found["name"].to_list() == [event["name"] for event in expected]
    assert found["ts_ns"].to_list() == [int(Decimal(event["ts"]) * 1000) for event in expected]
    assert found["pid"].to_list() == [event.get("pid") for event in expected]
    assert found["dur_ns"].to_list() == [event["dur"] * 1000 if "dur" in event else None for event in expected]
    again, _ = events_of(path, {}, chunk_bytes=1 << 20)
    assert again.equals(found.drop("args.*"))


@pytest.mark.parametrize("ts", ["4700000000000000", "9" * 30, "-9223372036854775807", "1e300"])
def test_times_that_no_clock_shows_are_counted(trace, ts):
    """Sums of them would not fit 64 bits."""
    path = trace(f'[{{"ph": "X", "name": "a", "ts": 5, "dur": 1}}, {{"ph": "X", "name": "b", "ts": {ts}, "dur": 1{"0" * 30}}}]')
    found, quality = events_of(path)
    assert found.select("name", "ts_ns", "dur_ns").rows() == [("a", 5000, 1000.0), ("b", None, None)]
    assert quality.select("issue", "count").rows() == [("unreadable-value", 1)] * 2


def test_bytes_of_a_compressed_file_inside_a_list_are_events_that_cannot_be_read(trace):
    """The parser takes text that begins like a compressed file for one."""
    path = trace("[]")
    path.write_bytes(b'[\x1f\x8b\x08x, {"ts": 1, "dur": 1, "name": "a"}]')
    found, quality = events_of(path)
    assert found["name"].to_list() == ["a"]
    assert quality["count"].sum() >= 1
