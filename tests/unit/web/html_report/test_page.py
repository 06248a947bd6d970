# SPDX-License-Identifier: Apache-2.0
"""The report as one file: what it says, that names stay text, and that it asks nobody for anything."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from stepscope.cli import main
from stepscope.web.html_report.colours import FIXED, PALETTE, colour_of

HOSTILE = "<img src=x onerror=alert(1)>&\"'</td><script>alert(2)</script>"
COLOURS = Path(__file__).resolve().parents[4] / "web" / "src" / "colour.ts"


class AgedAnswer(HTMLParser):
    """Elements, their attributes, and the text of the cells."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("runs")
    for worker, scale in (("w0", 1), ("w1", 2)):
        spans = [("ProfilerStep#1", 0, 1000), ("outer", 10, 400 * scale), (HOSTILE, 20, 100 * scale)]
        events = [
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 1000 + at, "dur": length, "args": {}}
            for name, at, length in spans
        ]
        (folder / f"{worker}.pt.trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (folder / "broken.pt.trace.json").write_text('{"traceEvents": [{"ph": "X", "na')
    out = folder / "report.html"
    assert main(["report", str(folder), "--out", str(out)]) == 0
    return out.read_text()


def test_the_numbers_of_each_worker(report):
    operators = [row for row in AgedAnswer(report).rows if row[0] in ("outer", HOSTILE)]
    assert operators == [
        ["outer", "1", "300.000", "400.000"], [HOSTILE, "1", "100.000", "100.000"],
        ["outer", "1", "600.000", "800.000"], [HOSTILE, "1", "200.000", "200.000"],
    ]  # fmt: skip
    assert "broken" in report


def test_it_runs_and_loads_nothing(report):
    seen = AgedAnswer(report)
    assert seen.open == []
    assert not {"script", "img", "link", "iframe", "object", "embed"} & {tag for tag, _ in seen.elements}
    assert not [
        name for _, attributes in seen.elements for name in attributes if name in ("src", "srcset") or name.startswith("on")
    ]
    links = [attributes["href"] for _, attributes in seen.elements if "href" in attributes]
    places = {attributes["id"] for _, attributes in seen.elements if "id" in attributes}
    assert links
    assert {link.removeprefix("#") for link in links} <= places
    assert not re.search(r"https?:|url\(|@import", report)
    assert any("default-src 'none'" in (attributes.get("content") or "") for _, attributes in seen.elements)


def test_a_name_has_the_colour_that_it_has_on_the_page():
    source = COLOURS.read_text()
    start = source.index("PALETTE = [")
    assert tuple(re.findall(r'"(#\w{6})"', source[start : source.index("]", start)])) == PALETTE
    page = dict(re.findall(r'^  "?([^"\n]+?)"?: "(#\w{6})",$', source, re.MULTILINE))
    assert {name: page[name] for name in FIXED if name != "Other"} == {name: FIXED[name] for name in FIXED if name != "Other"}
    # The places that the page's own function gives.
    assert [PALETTE.index(colour_of(name)) for name in ("aten::mm", "卷积", "😀")] == [21, 11, 8]


@pytest.mark.parametrize(
    ("path", "out", "says"),
    [
        pytest.param("nowhere", "report.html", "no such folder", id="no-capture"),
        pytest.param("", "missing/report.html", "mkdir -p", id="no-folder-for-it"),
        pytest.param("", ".", "this is a folder", id="a-folder"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, capsys, path, out, says):
    events = [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {}}]
    (tmp_path / "w.pt.trace.json").write_text(json.dumps({"traceEvents": events}))
    assert main(["report", str(tmp_path / path), "--out", str(tmp_path / out)]) == 3
    assert says in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()
