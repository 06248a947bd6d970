# SPDX-License-Identifier: Apache-2.0
"""A diff in words: shown figures add up, both languages say the same, JSON keeps its schema."""

from __future__ import annotations

import string
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import orjson
import pytest
from json_schema import mistakes
from verdict_simulator import Loop

import stepscope.diff
from stepscope.diff import words
from stepscope.diff.engine import diff
from stepscope.diff.gate import Budget, Limit, gate
from stepscope.diff.html import page
from stepscope.diff.noise import Noise
from stepscope.diff.text import lines, markdown, named_first, shown

SCHEMA = orjson.loads((Path(stepscope.diff.__file__).parent / "schema.json").read_bytes())
BASE = Loop(seed=1).run().tables()
NEW = Loop(seed=2, slower={"Add": 1.3}, communication=50.0).run().tables()


@pytest.fixture(scope="module")
def found():
    one = diff([BASE], [NEW])
    return one.with_gate(gate(one, Budget(step=Limit(percent=3.0))))


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
    only_signs = {"{verdict}；{causes}", "{mark} {name}：{text}"}
    assert [
        key for key, text in leaves(words.texts("zh")) if text not in only_signs and not any("一" <= char <= "鿿" for char in text)
    ] == []


@pytest.mark.parametrize("top", [1, 3, 100])
@pytest.mark.parametrize("by", ["part", "op", "kernel"])
def test_shown_figures_add_up(found, by, top):
    one = found.at(by)
    table = shown(one, one.rows, "en", top)
    for line in (*(line.figures for line in table.lines), table.whole):
        base, new, delta, calls, price = line
        assert new - base == delta == calls + price
    for place, whole in enumerate(table.whole):
        assert sum(line.figures[place] for line in table.lines) == whole
    assert table.whole[2] / 10**table.digits == pytest.approx(float(one.delta_ns) / 1e6, abs=1.5 / 10**table.digits)


@pytest.mark.parametrize(
    ("base_ns", "new_ns", "said"),
    [
        pytest.param(17_786_000, 17_764_900, "17.79 → 17.76 ms (-0.03 ms", id="the-change-is-that-of-the-shown-figures"),
        pytest.param(6_788_000, 6_804_000, "6.788 → 6.804 ms (+0.016 ms", id="a-short-step-has-more-digits"),
        pytest.param(6_746_000, 6_744_000, "6.746 → 6.744 ms (-0.002 ms, 0.0 %)", id="no-negative-zero"),
        pytest.param(204_100, 204_100, "0.2041 → 0.2041 ms (0.0000 ms, 0.0 %)", id="no-change-has-no-sign"),
    ],
)
def test_the_sentence_adds_up_and_has_the_digits_of_the_tables(found, base_ns, new_ns, said):
    one = replace(found, base_ns=Fraction(base_ns), new_ns=Fraction(new_ns))
    assert said in words.answer(one, "en")


@pytest.mark.parametrize(
    ("delta_ns", "band", "q", "said"),
    [
        pytest.param(-20_000, (-24_000.0, -18_000.0), 1e-8, "below 1 % of the step", id="small-but-no-noise"),
        pytest.param(-20_000, (-24_000.0, 2_000.0), 1e-8, "within noise", id="band-with-zero"),
        pytest.param(-20_000, (-24_000.0, -18_000.0), 0.4, "within noise", id="ranks-are-not-sure"),
        pytest.param(-200_000, (-240_000.0, -180_000.0), 1e-8, "within noise", id="not-small"),
    ],
)
def test_a_small_change_that_is_sure_is_not_called_noise(found, delta_ns, band, q, said):
    whole = replace(found, base_ns=Fraction(10_000_000))
    row = replace(found.rows[0], new_ns=found.rows[0].base_ns + delta_ns, noise=Noise("within noise", *band, p=q, q=q))
    assert words.row_status(whole, row, "en") == said
    assert not row.real


@pytest.mark.parametrize("lang", words.LANGUAGES)
def test_every_form_has_the_answer_and_the_cause(found, lang):
    answer = words.answer(found, lang)
    text = "\n".join(lines(found, lang))
    assert "aten::Add" in answer
    for form in (text, "\n".join(markdown(found, lang)), page(found, lang)):
        assert "aten::Add" in form.replace("\\", "")
        assert found.gate.text(lang) in form
    assert "<script" not in page(found, lang)


def test_lines_fit_a_terminal(found):
    assert max(map(len, lines(found, "en", width=100))) <= 100


def test_json_keeps_its_schema(found):
    written = orjson.loads(orjson.dumps(found.as_dict()))
    assert mistakes(written, SCHEMA) == []
    assert written["gate"]["exit"] == 1
    few = diff([Loop(steps=1).run().tables()], [NEW])
    assert mistakes(orjson.loads(orjson.dumps(few.as_dict())), SCHEMA) == []


def test_the_check_of_the_schema_finds_mistakes(found):
    written = orjson.loads(orjson.dumps(found.as_dict()))
    written["rows"][0]["status"] = "maybe"
    del written["answer"]["zh"]
    written["exact_ns"]["base"] = 1.5
    assert len(mistakes(written, SCHEMA)) == 3


def test_names_of_a_capture_stay_text(found):
    """A kernel may be called anything; it becomes neither markup nor a mention nor a second line."""
    bad = "<img src=x onerror=alert(1)>|@everyone\n[x](http://y)"
    kernels = NEW.kernels.with_columns(name=NEW.kernels["name"].cast(str).replace("Add", bad).cast(NEW.kernels["name"].dtype))
    one = diff([BASE], [NEW.replace(kernels=kernels)])
    assert "<img" not in page(one, "en")
    told = "\n".join(markdown(one, "en"))
    assert "<img" not in told.replace("\\<img", "")
    assert "@everyone" not in told.replace("\\@everyone", "")
    assert "](http" not in told.replace("\\](http", "")


def test_what_has_no_line_of_its_own_is_smaller_than_what_has(found):
    """Rows stand by how sure they are; the line that folds the rest must not hide the largest of them."""
    one = found.rows[0]

    def row(place: int, us: int):
        return replace(one, op=f"op{place}", base_ns=Fraction(0), new_ns=Fraction(us * 1000), noise=Noise("cannot tell"))

    rows = [row(place, us) for place, us in enumerate([1, 2, 1, 900, 3, -700])]
    assert [float(one.delta_ns) for one in named_first(rows, 3)] == [900_000.0, 3000.0, -700_000.0, 1000.0, 2000.0, 1000.0]
    assert named_first(named_first(rows, 3), 3) == named_first(rows, 3)
    assert sorted(named_first(found.rows, 5), key=id) == sorted(found.rows, key=id), "none is lost"
