# SPDX-License-Identifier: Apache-2.0
"""The C++ kernel reads events exactly as the general parser does, or leaves them to it."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.formats.chrome import events as reading
from stepscope.formats.chrome.codec_events import EventKernel, event_kernel
from stepscope.formats.chrome.events import read_events
from stepscope.formats.chrome.typing import absent_columns

pytestmark = pytest.mark.usefixtures("kernels")

ARGS = {"t": pl.String(), "n": pl.Int64(), "u": pl.UInt32(), "f": pl.Float64(), "b": pl.Boolean()}


@pytest.fixture
def kernel(monkeypatch) -> EventKernel:
    monkeypatch.delenv("STEPSCOPE_KERNELS", raising=False)
    found = event_kernel(ARGS, absent_columns(ARGS))
    assert found is not None
    return found


def read(path, switch: str) -> tuple[object, list[object]]:
    quality: list[pl.DataFrame] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSCOPE_KERNELS", switch)
        try:
            frames = list(read_events(path, ARGS, quality=quality))
        except reading.CaptureError as problem:
            return str(problem), []
    return pl.concat(frames) if frames else None, [row for frame in quality for row in frame.rows()]


def assert_same(path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    found, said = read(path, "")
    wanted, parser_said = read(path, "0")
    if isinstance(wanted, pl.DataFrame):
        assert isinstance(found, pl.DataFrame)
        assert found.schema == wanted.schema
        assert found.rows() == wanted.rows()
    else:
        assert found == wanted
    assert said == parser_said


words = st.sampled_from(
    [
        "",
        "a",
        "aten::add",
        'q"uote',
        "back\\slash",
        "é",
        "日本語の長いテキスト",
        "x" * 40,
        "line\nend",
        "N/A",
        "nan",
        "inf",
        "1e5",
        "}, {",
    ]
)
numbers = st.one_of(
    st.integers(-5, 5),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(0, 10**15).map(lambda n: n / 1000),
)
simple = st.one_of(st.none(), st.booleans(), words, numbers, numbers.map(str), st.integers(-(10**20), 10**20).map(str))
# Not fractions: whether the text of 12.0 is `12.0` or `12` depends on which of the parser's two ways reads the event.
texts = st.one_of(st.none(), st.booleans(), words, st.integers(-(10**17), 10**18))
lists = st.recursive(
    st.lists(st.one_of(st.integers(0, 99), st.booleans(), st.none(), st.sampled_from(["a", "long int"]))), st.lists, max_leaves=5
)
times = st.one_of(
    st.integers(0, 2**62).map(lambda ns: f"{ns // 1000}.{ns % 1000:03}"),
    st.integers(0, 10**16).map(lambda n: n / 1000),
    st.integers(-(10**6), 10**12),
    simple,
)
plain = {
    "ph": st.sampled_from(["X", "M", "s"]),
    "name": words,
    "cat": words,
    "id": st.one_of(words, st.integers(0, 10**18)),
    "pid": st.one_of(st.integers(0, 2**40), words, simple),
    "tid": st.one_of(st.integers(0, 2**40), simple),
    "ts": times,
    "dur": times,
    "other": simple,
    "args": st.fixed_dictionaries(
        {},
        optional={
            "t": st.one_of(texts, lists),
            "n": simple,
            "u": simple,
            "f": simple,
            "b": simple,
            "z": st.one_of(lists, st.just({"y": [{}]})),
        },
    ),
}
event = st.fixed_dictionaries({"ph": plain["ph"], "ts": times}, optional={k: v for k, v in plain.items() if k not in ("ph", "ts")})


@pytest.mark.parametrize("value", ["inf", "-inf", "Infinity", "nan", "1e400", "1e5", "N/A"])
def test_texts_that_are_no_finite_numbers(tmp_path, value):
    path = tmp_path / "t.json"
    assert_same(path, json.dumps([{"ph": "X", "ts": "0.000", "args": {"f": value, "n": value}}]))
    found, _ = read(path, "0")
    assert found["args.f"].to_list() == [100_000.0 if value == "1e5" else None]


@pytest.mark.slow  # many values
@given(st.lists(event, min_size=1, max_size=6), st.sampled_from([(", ", ": "), (",", ":")]), st.booleans())
@settings(max_examples=150)
def test_any_values(tmp_path_factory, found, separators, ascii_only):
    # Blanks inside lists: the parser writes `[1, 2]` whatever the file has.
    separators = (
        (", ", separators[1]) if any(isinstance(v, list) for e in found for v in e.get("args", {}).values()) else separators
    )
    assert_same(tmp_path_factory.mktemp("t") / "t.json", json.dumps(found, separators=separators, ensure_ascii=ascii_only))


@pytest.mark.slow  # many values
@given(st.lists(event, min_size=1, max_size=3), st.data())
@settings(max_examples=100)
def test_any_damage(tmp_path_factory, found, data):
    text = json.dumps(found)
    at = data.draw(st.integers(0, len(text)))
    patch = data.draw(
        st.sampled_from(["", '"', "\\", "{", "}", "[", "]", ",", ":", "\\u12", "\n", "-", "0", "null", "\x01", '"ph": "X", ', " "])
    )
    assert_same(tmp_path_factory.mktemp("t") / "t.json", text[:at] + patch + text[at + data.draw(st.integers(0, 3)) :])


@pytest.mark.parametrize(
    ("text", "row"),
    [
        pytest.param(
            '{"ph":"X","ts":"1736405443871356.060","dur":3.6500000000000004}',
            {"ts_ns": 1736405443871356060, "dur_ns": 3650.0},
            id="exact-time",
        ),
        pytest.param('{"ts":0.0005,"dur":0.000000015}', {"ts_ns": 0, "dur_ns": 0.00002}, id="halves-go-to-even"),
        pytest.param(
            '{"pid":"Spans","tid":"7"}', {"pid": None, "pid_text": "Spans", "tid": 7, "tid_text": None}, id="process-with-a-name"
        ),
        pytest.param(
            '{"name":"a\\u00e9\\ud83d\\ude00\\n\\"","args":{"t":[[1,2],[ ]]}}',
            {"name": 'aé😀\n"', "args.t": "[[1, 2], []]"},
            id="escapes-and-lists",
        ),
        pytest.param(
            '{"id":1736405443876953510,"args":{"n":"N/A","f":"1e3","b":1}}',
            {"id": "1736405443876953510", "args.n": None, "args.f": 1000.0, "args.b": True},
            id="types",
        ),
        pytest.param('{"args":null,"x":{"deep":[{"a":[]}]},"s":"g"}', {"s": "g"}, id="what-nobody-asks-for"),
    ],
)
def test_values(kernel, text, row):
    frame, _ = kernel.read(text.encode())
    assert {name: frame[name][0] for name in row} == row


@pytest.mark.parametrize(
    "text",
    [
        '{"ph":"X","ph":"Y"}',
        '{"args":{},"args":{}}',
        '{"args":[1]}',
        '{"args":{"t":{"a":1}}}',
        '{"args":{"n":12.0}}',
        '{"ts":"soon"}',
        '{"ts":1e5}',
        '{"name":"\\ud800"}',
        '{"name":"a\tb"}',
        '{"name":"\\x"}',
        '{"a":01}',
        '{"a":1,}',
        '{"a":1}{"b":2}',
        '{"a":1},',
        '{"a":tru}',
        '{"a":[1,]}',
        '["a"]',
        '{"a":' + "[" * 70 + "]" * 70 + "}",
        '{"a":"\udcff"}',
    ],
)
def test_left_to_the_parser(kernel, text):
    assert kernel.read(text.encode(errors="surrogateescape")) is None


def test_every_beginning_of_an_event(kernel):
    text = b'{"ph":"X","name":"a\\u00e9","ts":"1.5","args":{"t":[1, [2.5]],"n":-12,"b":true,"f":1.5,"z":{"y":null}}}'
    assert kernel.read(text) is not None
    assert [end for end in range(len(text)) if kernel.read(text[:end]) is not None] == []


def test_whitespace_between_events_may_differ(kernel, tmp_path, monkeypatch):
    """Merged traces have other blanks where they were joined; no stretch of them goes to the slower parser."""
    events = [json.dumps({"ph": "X", "name": f"e{number}", "ts": number, "pid": 1}) for number in range(3000)]
    joined = ", ".join(events[:1000]) + ",\n" + ",".join(events[1000:2000]) + " , " + ",\n  ".join(events[2000:])
    path = tmp_path / "t.json"
    path.write_text(f"[{joined}]")
    monkeypatch.setattr(reading._Reading, "_part", lambda *_: pytest.fail("left to the parser"))
    frames = list(read_events(path, ARGS, quality=[], chunk_bytes=10_000))
    assert pl.concat(frames)["name"].to_list() == [f"e{number}" for number in range(3000)]
