# SPDX-License-Identifier: Apache-2.0
"""Columns by template against a parser, and the lines that must be left to one."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.formats.chrome.borders import Events
from stepscope.formats.chrome.columns import TextColumns, text_columns
from stepscope.formats.chrome.templates import Templates

WANTED = ["name", "ts", "dur", "args.a", "args.b"]


def frame_of(found: TextColumns) -> pl.DataFrame:
    return pl.DataFrame([found.text(key) for key in found.names()])


def read(*lines: str) -> tuple[list[dict], list[int]]:
    """Rows without their nulls, and the numbers of the lines left out."""
    found = text_columns(Events.of_lines("\n".join(lines).encode()), WANTED, Templates())
    assert found is not None
    rows = frame_of(found).to_dicts() or [{} for _ in lines]
    return [{key: value for key, value in row.items() if value is not None} for row in rows], found.odd.tolist()


@pytest.mark.parametrize(
    ("line", "row"),
    [
        pytest.param('{"name":"x","ts":"1.5"}', {"name": "x", "ts": "1.5"}, id="compact"),
        pytest.param(' { "name" : "x" , "dur" : 2.50 } ', {"name": "x", "dur": "2.50"}, id="blanks-anywhere"),
        pytest.param('{"dur": -1e3, "name": ""}', {"dur": "-1e3", "name": ""}, id="numbers-as-written-and-empty-text"),
        pytest.param('{"name": null, "dur": true}', {"dur": "true"}, id="null-is-none"),
        pytest.param('{"args": {"a": 1, "b": "t"}, "name": "n"}', {"args.a": "1", "args.b": "t", "name": "n"}, id="arguments"),
        pytest.param('{"args": {}, "name": "n"}', {"name": "n"}, id="no-arguments"),
        pytest.param('{"other": {"a": 1}, "args": {"name": "m"}}', {}, id="same-key-elsewhere"),
        pytest.param('{"name": "thirteen chars"}', {"name": "thirteen chars"}, id="text-outside-the-view"),
        pytest.param('{"name": "twelve chars"}', {"name": "twelve chars"}, id="longest-text-inside-the-view"),
        pytest.param('{"name": "{a: 1, b}"}', {"name": "{a: 1, b}"}, id="braces-in-text"),
        pytest.param('{"name": "Größe"}', {"name": "Größe"}, id="not-ascii"),
        pytest.param('{"args": {"a": [1, ["x"]]}, "name": "n"}', {"args.a": '[1, ["x"]]', "name": "n"}, id="list-as-its-json"),
    ],
)
def test_one_object(line, row):
    assert read(line) == ([row], [])


@pytest.mark.parametrize(
    "line",
    [
        pytest.param('{"name": "a\\"b"}', id="backslash"),
        pytest.param('{"args": {"a": {"x": 1}}}', id="object-as-argument"),
        pytest.param('{"name": "x"', id="not-closed"),
        pytest.param('{"name": "x"}}', id="closed-twice"),
        pytest.param("nonsense", id="no-object"),
        pytest.param("", id="blank"),
        pytest.param('["x"]', id="a-list"),
    ],
)
def test_lines_left_to_a_parser(line):
    assert read('{"name": "y"}', line, '{"name": "z"}') == ([{"name": "y"}, {}, {"name": "z"}], [1])


@pytest.mark.parametrize(
    "line",
    [
        pytest.param('{"name": "x", "dur": 1}}', id="value-swallows-a-brace"),
        pytest.param('{"name": "x", "dur": 1,}', id="value-swallows-a-comma"),
        pytest.param('{"name": "x", "dur":  }', id="no-value"),
        pytest.param('{"nome": "x", "dur": 1}', id="other-key"),
        pytest.param('{"name": "x"; "dur": 1}', id="other-punctuation"),
    ],
)
def test_a_line_that_only_looks_like_the_template_is_not_of_it(line):
    rows, odd = read('{"name": "y", "dur": 1}', line)
    assert rows[1] == {} or (rows[1] == {"dur": "1"} and "nome" in line)
    assert odd == ([] if "nome" in line else [1])


def test_templates_of_one_page_serve_the_next_and_hide_nothing_new():
    templates = Templates()
    page = "\n".join(f'{{"name": "same", "dur": {number}}}' for number in range(100))
    other = '{"name": "other", "dur": 1}\n{"name": "same", "dur": 2}\n{"nome": "same", "dur": 3}'
    for lines in (page, other, page):
        found = text_columns(Events.of_lines(lines.encode()), WANTED, templates)
        assert found is not None
        assert found.odd.tolist() == []
        expected = [json.loads(line) for line in lines.split("\n")]
        assert frame_of(found)["name"].to_list() == [event.get("name") for event in expected]
        assert frame_of(found)["dur"].to_list() == [str(event["dur"]) for event in expected]


def test_no_utf8_is_refused():
    assert text_columns(Events.of_lines(b'{"name": "a"}\n{"name": "\xff"}'), WANTED, Templates()) is None


def test_many_templates_keep_their_lines():
    lines = [json.dumps({"name": f"n{number}", f"k{number % 7}": number, "dur": number}) for number in range(200)]
    rows, odd = read(*lines)
    assert rows == [{"name": f"n{number}", "dur": str(number)} for number in range(200)]
    assert odd == []


texts = st.text(st.characters(codec="utf-8", exclude_characters='"\\[', exclude_categories=("Cc", "Cs")))
scalars = texts | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False)
keys = st.sampled_from(["name", "ts", "dur", "a", "b", "x"])
objects = st.builds(lambda plain, args: plain | ({"args": args} if args is not None else {}), *(
    st.dictionaries(keys, scalars, max_size=4), st.none() | st.dictionaries(keys, scalars, max_size=3)))  # fmt: skip


@settings(deadline=None)  # the first call imports
@given(st.lists(objects, min_size=1, max_size=8), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_values_equal_those_of_a_parser(events, separators):
    lines = [json.dumps(event, separators=separators, ensure_ascii=False) for event in events]
    rows, odd = read(*lines)
    assert [number for number in odd if '"' in lines[number]] == []
    for number, event in enumerate(events):
        if number not in odd:
            flat = {key: value for key, value in event.items() if key in WANTED}
            flat |= {f"args.{key}": value for key, value in event.get("args", {}).items() if f"args.{key}" in WANTED}
            shown = {
                key: value if isinstance(value, str) else json.dumps(value) for key, value in flat.items() if value is not None
            }
            assert rows[number] == shown
