# SPDX-License-Identifier: Apache-2.0
"""A diff in words, English and Chinese, from `texts/`; names of a capture are put in as plain text, cut at 200 characters."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.diff.noise import CANNOT_TELL
from stepscope.verdict.settings import parse_toml
from stepscope.verdict.words import LANGUAGES, fill, language, part_name, plain

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
    return f"{float(delta / base) * 100:+.1f} %" if base else "–"


def answer(found: Diff, lang: str) -> str:
    """The answer in one line: how the step changed and what did."""
    said = status(found.status, lang)
    if found.status == CANNOT_TELL:
        said = line("too-few", lang, verdict=said, samples=line(found.samples, lang))
    causes = [line("cause", lang, name=row_name(row, lang), delta=_ms(row.delta_ns)) for row in found.rows if row.real]
    if causes:
        said = line("causes", lang, verdict=said, causes=", ".join(causes[:MOST_CAUSES]))
    return line(
        "answer" if found.marked else "answer-run",
        lang,
        base=_ms(found.base_ns),
        new=_ms(found.new_ns),
        delta=_ms(found.delta_ns),
        percent=percent(found.delta_ns, found.base_ns),
        verdict=said,
    )


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


def _ms(ns: Fraction) -> float:
    return float(ns) / 1e6
