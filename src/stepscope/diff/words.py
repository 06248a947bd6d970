# SPDX-License-Identifier: Apache-2.0
"""A diff in words, English and Chinese, from `texts/`; names of a capture are put in as plain text, cut at 200 characters."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.diff.noise import CANNOT_TELL, FLOOR, RATE, WITHIN_NOISE
from stepscope.language import language
from stepscope.verdict.settings import parse_toml
from stepscope.verdict.words import LANGUAGES, fill, part_name, plain

if TYPE_CHECKING:
    from stepscope.diff.result import Diff, Row

__all__ = ["LANGUAGES", "answer", "language", "line", "notes", "part_name", "plain", "row_name", "texts"]

HERE = Path(__file__).parent
MOST_CAUSES = 3
LEAST_RUNS = 3


@cache
def texts(lang: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = parse_toml(HERE / "texts" / f"{lang}.toml")
    return found


def line(which: str, lang: str, group: str = "line", /, **params: Any) -> str:
    return fill(texts(lang)[group][which], params)


def status(found: str, lang: str) -> str:
    return line(found.replace(" ", "-"), lang)


def percent(delta: Fraction | float, base: Fraction | float) -> str:
    """A change in per cent of the base; what began at nothing has none."""
    if not base:
        return "–"
    text = f"{float(delta / base) * 100:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text


def answer(found: Diff, lang: str) -> str:
    """The answer in one line: how the step changed and what did."""
    said = status(found.status, lang)
    if found.status == CANNOT_TELL:
        said = line("too-few", lang, verdict=said, samples=line(found.samples, lang))
    unit = Fraction(1_000_000, 10 ** digits(found))
    causes = [
        line("cause", lang, name=row_name(row, lang), delta=figure(found, round(row.delta_ns / unit), sign=True))
        for row in found.rows
        if row.real
    ]
    if causes:
        said = line("causes", lang, verdict=said, causes=", ".join(causes[:MOST_CAUSES]))
    base, new = round(found.base_ns / unit), round(found.new_ns / unit)
    return line(
        "answer" if found.marked else "answer-run",
        lang,
        base=figure(found, base),
        new=figure(found, new),
        delta=figure(found, new - base, sign=True),
        percent=percent(found.delta_ns, found.base_ns),
        verdict=said,
    )


def digits(found: Diff) -> int:
    """Digits after the point of a millisecond that the sentence and the tables of a diff show."""
    longest = max(found.base_ns, found.new_ns)
    return 2 if longest >= 10_000_000 else 3 if longest >= 1_000_000 else 4


def figure(found: Diff, units: int, *, sign: bool = False) -> str:
    """Units of the last shown digit as milliseconds."""
    shown = digits(found)
    return f"{units / 10**shown:{'+' if sign and units else ''}.{shown}f}"


def row_status(found: Diff, row: Row, lang: str) -> str:
    """What the tests say of a row; a small change that ranks and the band agree on is not called noise."""
    low, high, q = row.noise.low_ns, row.noise.high_ns, row.noise.q
    beyond_zero = low is not None and high is not None and (low > 0 or high < 0)
    small = abs(row.delta_ns) < Fraction(FLOOR) * found.base_ns
    if row.status == WITHIN_NOISE and small and beyond_zero and q is not None and q < RATE:
        return line("below-floor", lang, floor=f"{100 * FLOOR:g} %")
    return status(row.status, lang)


def row_name(row: Row, lang: str) -> str:
    """A row in the words of its finest name; what was replaced shows both."""
    old, new = (row.base_kernel, row.kernel) if row.match == "implementation" else (row.base_op, row.op)
    if row.match in ("implementation", "replaced") and old != new:
        return line("replaced", lang, base=old, new=new)
    return row.op or row.kernel or row.module or part_name(row.part, lang)


def differences(found: Diff, lang: str) -> list[str]:
    """What makes the sides differ before any time is looked at: other work first, then other ways of recording."""
    said = []
    for about, name in (("workload", "not-comparable"), ("recording", "not-comparable-recording")):
        checks = [check for check in found.checks if check.blocks and check.about == about]
        if checks:
            unknown = line("unknown", lang)
            each = [
                line("check", lang, name=texts(lang)["check"][one.name], base=one.base or unknown, new=one.new or unknown)
                for one in checks
            ]
            said.append(line(name, lang, checks="; ".join(each)))
    return said


def notes(found: Diff, lang: str) -> list[str]:
    """What a reader must know of the samples and of the comparison."""
    said = differences(found, lang)
    said.append(line("samples", lang, base=found.steps[0], new=found.steps[1], base_runs=found.runs[0], new_runs=found.runs[1]))
    if not found.marked:
        said.append(line("no-steps", lang))
    if any(found.warm_up):
        said.append(line("warm-up", lang, base=found.warm_up[0], new=found.warm_up[1]))
    if found.samples == "steps":
        said.append(line("one-run", lang) if found.runs == (1, 1) else line("few-runs", lang, least=LEAST_RUNS))
    if found.simulated:
        said.append(line("simulated", lang))
    return said
