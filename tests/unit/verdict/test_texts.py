# SPDX-License-Identifier: Apache-2.0
"""Both languages say the same things with the same parameters."""

from __future__ import annotations

import ast
import string
from pathlib import Path

import pytest

import stepscope
from stepscope.verdict import words
from stepscope.verdict.catalogue import RULES
from stepscope.verdict.settings import fusible_patterns, limits, load_toml

SOURCE = Path(stepscope.__file__).parent / "verdict"


def leaves(entry, path=()):
    for key, value in entry.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def parameters(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_the_same_keys_and_parameters():
    english, chinese = (dict(leaves(words.texts(lang))) for lang in words.LANGUAGES)
    assert english.keys() == chinese.keys()
    assert [key for key in english if parameters(english[key]) != parameters(chinese[key])] == []


def test_chinese_is_chinese():
    names = {"MFU", "Python", "SyncBN", "SyncBatchNorm", "{share:.0%} {what}", "{sequence}"}
    untranslated = [
        key for key, text in leaves(words.texts("zh")) if text not in names and not any("一" <= char <= "鿿" for char in text)
    ]
    assert untranslated == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_has_words(rule):
    for lang in words.LANGUAGES:
        assert {"title", "detail", "next"} <= words.texts(lang)["rule"][rule.name].keys()
        assert words.texts(lang)["short"][rule.name]


def test_nothing_has_words_that_no_rule_uses():
    assert set(words.texts("en")["rule"]) == {rule.name for rule in RULES} == set(words.texts("en")["short"])


def literal_calls(name: str) -> set[str]:
    """First arguments of all calls of a function in the package."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == name and node.args:
                place = 1 if name == "Lack" else 0
                if len(node.args) > place and isinstance(node.args[place], ast.Constant):
                    found.add(node.args[place].value)
    return found


def test_every_lack_has_words_and_every_word_a_lack():
    assert literal_calls("CannotTell") | literal_calls("Lack") == set(words.texts("en")["lack"])


def test_every_limit_is_used():
    code = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    every = [(rule, name) for rule, values in limits().items() for name in values]
    assert [entry for entry in every if any(f'"{word}"' not in code for word in entry)] == []


def test_texts_of_captures_are_one_line_and_not_without_end():
    shown = words.finding_text("logging", "detail", "en", {"frame": "a\nb\x1b[31m" + "x" * 500})
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert len(shown) < 300


def test_chips_name_their_source():
    for chip in load_toml("chips.toml")["chip"]:
        figures = set(chip) - {"pattern", "name", "source"}
        assert figures
        assert set(chip["source"]) == figures, chip["name"]
        assert all(chip["source"].values())


def test_patterns_name_an_operator_for_each_device():
    for pattern in fusible_patterns():
        assert pattern["npu"]
        assert pattern["gpu"]
        assert pattern["needs"] in pattern["match"]
