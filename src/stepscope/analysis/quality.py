# SPDX-License-Identifier: Apache-2.0
"""What table `quality` says, in words: the same for the command line, the page, the report and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from stepscope.tables.issues import HEADLINES, RECORDING_UNFINISHED, REGISTER, SEVERITIES, UNITS, Issue, Language

_PLACES_SHOWN = 3
_LANGUAGES: tuple[Language, ...] = ("en", "zh")


@dataclass(frozen=True)
class Place:
    """Where an issue was met, and how often."""

    source: str
    count: int
    detail: str


@dataclass(frozen=True)
class Occurrence:
    """All rows of one issue."""

    issue: Issue
    places: tuple[Place, ...]

    @property
    def count(self) -> int:
        return sum(place.count for place in self.places)

    def sentence(self, language: Language = "en") -> str:
        return self.issue.sentence_for(self.count, len({place.source for place in self.places}), language)

    def where(self) -> str:
        """The first places in one line."""
        shown = [
            f"{place.source.rpartition('/')[2]}: {place.detail}" if place.detail else place.source.rpartition("/")[2]
            for place in self.places[:_PLACES_SHOWN]
        ]
        left = len(self.places) - len(shown)
        return "; ".join([*shown, *([f"{left} more"] if left else [])])

    def as_dict(self) -> dict[str, Any]:
        return {
            "issue": self.issue.name,
            "severity": self.issue.severity,
            "unit": self.issue.unit,
            "count": self.count,
            "sentence": {language: self.sentence(language) for language in _LANGUAGES},
            "advice": {language: self.issue.advice_for(language) for language in _LANGUAGES},
            "places": [{"source": place.source, "count": place.count, "detail": place.detail} for place in self.places],
        }


def occurrences(quality: pl.DataFrame) -> list[Occurrence]:
    """One entry per issue of table `quality`: losses, then warnings, then notes, each in the order of the table."""
    places: dict[str, list[Place]] = {}
    for source, name, count, detail in quality.select("source", pl.col("issue").cast(pl.String), "count", "detail").iter_rows():
        places.setdefault(name, []).append(Place(source, count, detail or ""))
    found = [Occurrence(REGISTER[name], tuple(rows)) for name, rows in places.items()]
    return sorted(found, key=lambda one: SEVERITIES.index(one.issue.severity))


def lost_by_unit(quality: pl.DataFrame) -> dict[str, int]:
    """How much was lost, per unit; units are never added to each other, and what is not a loss does not count."""
    losses = quality.filter(pl.col("severity") == "loss").group_by(pl.col("unit").cast(pl.String)).agg(pl.col("count").sum())
    sums = dict(losses.iter_rows())
    return {unit: sums[unit] for unit in UNITS if unit in sums}


def complete(quality: pl.DataFrame) -> bool:
    """Whether the recording ended by itself: False when its process was killed, or is still recording."""
    return not quality.filter(pl.col("issue").cast(pl.String) == RECORDING_UNFINISHED.name).height


def headline(quality: pl.DataFrame, language: Language = "en") -> str:
    """What must be said before anything else: the recording did not end as planned. Empty when it did."""
    found = {one.issue: one for one in occurrences(quality)}
    return next((found[issue].sentence(language) for issue in HEADLINES if issue in found), "")


def summary(quality: pl.DataFrame, language: Language = "en") -> str:
    """One line: what was lost in each unit, and how many warnings and notes there are."""
    severities = [one.issue.severity for one in occurrences(quality)]
    sums = [_amount(count, unit, language) for unit, count in lost_by_unit(quality).items()]
    warnings, notes = severities.count("warning"), severities.count("note")
    if language == "zh":
        lost = f"丢失 {'、'.join(sums)}" if sums else "没有丢失数据"
        parts = [lost, *([f"{warnings} 条警告"] if warnings else []), *([f"{notes} 条说明"] if notes else [])]
        return "；".join(parts)
    lost = f"{', '.join(sums)} lost" if sums else "nothing lost"
    counted = [f"{count} {word}{'s' if count > 1 else ''}" for count, word in ((warnings, "warning"), (notes, "note")) if count]
    return "; ".join([lost, *([", ".join(counted)] if counted else [])])


def _amount(count: int, unit: str, language: Language) -> str:
    one, many, chinese = next(words for name, words in UNITS.items() if name == unit)
    return f"{count:,} {chinese}" if language == "zh" else f"{count:,} {one if count == 1 else many}"


def as_dict(quality: pl.DataFrame) -> dict[str, Any]:
    """Everything above for JSON, sentences in each language."""
    return {
        "complete": complete(quality),
        "summary": {language: summary(quality, language) for language in _LANGUAGES},
        "headline": {language: headline(quality, language) for language in _LANGUAGES},
        "lost": lost_by_unit(quality),
        "issues": [one.as_dict() for one in occurrences(quality)],
    }
