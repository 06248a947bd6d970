# SPDX-License-Identifier: Apache-2.0
"""Every rule has a page in both languages with a picture, and every finding leads to it."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from verdict_simulator import Loop

from stepscope.verdict import verdict
from stepscope.verdict.catalogue import RULES

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "rules"


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_a_page_in_each_language_with_a_picture(rule):
    english, chinese = ((FOLDER / f"{rule}{ending}.md").read_text(encoding="utf-8") for ending in ("", ".zh"))
    assert [english.count(f"## {part}") for part in ("What it means", "Example", "How it is computed", "What to do")] == [1] * 4
    assert [chinese.count(f"## {part}") for part in ("含义", "示例", "计算方法", "怎么做")] == [1] * 4
    assert f"(images/{rule}.svg)" in english
    assert f"(images/{rule}.svg)" in chinese
    shapes = ElementTree.fromstring((FOLDER / "images" / f"{rule}.svg").read_text(encoding="utf-8"))
    assert len(shapes) > 3


def test_no_page_is_left_of_a_rule_that_is_gone():
    names = {path.name.removesuffix(".md").removesuffix(".zh") for path in FOLDER.glob("*.md")}
    assert names == {rule.name for rule in RULES} | {"README"}
    assert {path.stem for path in (FOLDER / "images").glob("*.svg")} == {rule.name for rule in RULES}


def test_a_finding_leads_to_its_page():
    found = verdict(Loop(seed=1, steps=4, host=60.0, at_layer=lambda machine, layer: machine.wait()).run().tables())
    for one in found.as_dict()["findings"]:
        assert (ROOT / one["doc"]).is_file()


@pytest.mark.slow  # simulates and draws a run for every rule
def test_pages_are_those_of_the_code(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import rule_pages

    stale = [path.name for path, text in rule_pages.pages() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    sys.modules.pop("rule_pages")
    assert not stale, f"run `make docs`: {stale}"
