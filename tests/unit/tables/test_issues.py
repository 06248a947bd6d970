# SPDX-License-Identifier: Apache-2.0
"""The register of issues: complete, in two languages, and the only source of what `quality` says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_trees import SOURCE, modules, nodes

from stepscope.tables import issues
from stepscope.tables.issue_reference import page
from stepscope.tables.issues import REGISTER, SEVERITIES, UNITS, Issue

CONSTANTS = {name: value for name, value in vars(issues).items() if isinstance(value, Issue)}
PLACEHOLDERS = re.compile(r"\{(\w+)\}")


def test_each_constant_is_named_as_its_issue():
    assert {name: issue.name for name, issue in CONSTANTS.items()} == {
        issue.name.upper().replace("-", "_"): issue.name for issue in REGISTER.values()
    }


@pytest.mark.parametrize("issue", REGISTER.values(), ids=lambda issue: issue.name)
def test_an_issue_is_complete_in_both_languages(issue: Issue):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", issue.name)
    assert issue.severity in SEVERITIES
    assert issue.unit in UNITS
    assert sorted(PLACEHOLDERS.findall(issue.sentence)) == sorted(PLACEHOLDERS.findall(issue.sentence_zh))
    assert set(PLACEHOLDERS.findall(issue.sentence)) <= {"count", "sources"}
    assert not issue.sentence.endswith(".")
    assert issue.advice.endswith(".")
    for text in (issue.sentence_zh, issue.advice_zh):
        assert re.search("[\u4e00-\u9fff]", text)
    for language in ("en", "zh"):
        assert not re.search(r"[{}|]", issue.sentence_for(1, 1, language) + issue.sentence_for(2, 3, language))


def test_words_agree_with_the_number_before_them():
    assert issues.ALLOCATED_BEFORE_RECORDING.sentence_for(1) == "1 block was allocated before recording began (normal)"
    assert issues.ALLOCATED_BEFORE_RECORDING.sentence_for(58) == "58 blocks were allocated before recording began (normal)"
    assert issues.UNKNOWN_FILE.sentence_for(1_000_000, 1) == "1,000,000 bytes in 1 file not understood"
    assert issues.UNKNOWN_FILE.sentence_for(1, 2) == "1 byte in 2 files not understood"
    assert issues.UNKNOWN_FILE.sentence_for(1_000_000, 1, "zh") == "1 个文件中有 1,000,000 字节无法解析"


def calls() -> Iterator[tuple[str, ast.expr]]:
    """The issue of every call that adds a row to `quality`."""
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.Call) and node.args and _name(node.func) == "lost":
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node.args[0]


def _name(called: ast.expr) -> str:
    """A function, or a method that adds to the losses of its own file."""
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""


def named(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return named(value.body) and named(value.orelse)
    if isinstance(value, ast.Attribute):
        return isinstance(value.value, ast.Name) and value.value.id == "issues" and value.attr in CONSTANTS
    return isinstance(value, ast.Name) and value.id == "issue"  # passed on; its type is checked by mypy


def test_every_row_of_quality_names_an_issue_of_the_register():
    found = dict(calls())
    assert len(found) > 100
    assert [place for place, value in found.items() if not named(value)] == []


def test_every_issue_is_used():
    used = {name for path in modules() for name in re.findall(r"\bissues\.(\w+)", path.read_text())}
    assert sorted(CONSTANTS.keys() - used) == []


def test_the_page_of_issues_is_up_to_date():
    assert (Path(__file__).parents[3] / "docs" / "issues.md").read_text() == page(), "run `make docs`"
