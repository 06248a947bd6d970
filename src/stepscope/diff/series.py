# SPDX-License-Identifier: Apache-2.0
"""From which run on the step time is another one: change points over a series of runs, by E-divisive (Matteson and James).

A series is split where the energy distance of both sides is largest; a permutation test with a fixed seed says whether an order
without a change would split as well. Both halves are then searched in turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stepscope.diff import words
from stepscope.diff.engine import Side
from stepscope.diff.noise import FLOOR, Floats

LEAST_RUNS = 20
SHORTEST = 3  # runs between two change points: fewer are outliers, not a new level
PERMUTATIONS = 999
LEVEL = 0.01
SCHEMA = "stepscope.diff.series/1"


@dataclass(frozen=True)
class Run:
    """Mean step of one run by part, in ns."""

    name: str
    parts: dict[str, float]
    time_ns: int | None = None

    @property
    def step_ns(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True)
class ChangePoint:
    """The first run of a new level, with the means of the runs before and after up to the next change point."""

    place: int
    name: str
    before_ns: float
    after_ns: float
    p: float
    parts: dict[str, float]  # change of each part; they sum to that of the step

    def text(self, lang: str) -> list[str]:
        delta = self.after_ns - self.before_ns
        told = words.line(
            "point", lang, "series", run=self.place + 1, name=self.name, before=self.before_ns / 1e6, after=self.after_ns / 1e6,
            percent=words.percent(delta, self.before_ns), p=self.p,
        )  # fmt: skip
        most = sorted(self.parts.items(), key=lambda item: -abs(item[1]))[:3]
        named = [f"{words.part_name(part, lang)} {ns / 1e6:+.2f} ms" for part, ns in most if ns]
        return [told, words.line("parts", lang, "series", parts=", ".join(named))]


@dataclass(frozen=True)
class Series:
    """Runs in order of time and where they change."""

    runs: tuple[Run, ...]
    points: tuple[ChangePoint, ...]

    @property
    def enough(self) -> bool:
        return len(self.runs) >= LEAST_RUNS

    def text(self, lang: str) -> Iterator[str]:
        if not self.enough:
            yield words.line("few", lang, "series", runs=len(self.runs), least=LEAST_RUNS)
        elif not self.points:
            yield words.line("none", lang, "series", runs=len(self.runs))
        else:
            yield words.line("answer", lang, "series", runs=len(self.runs), points=len(self.points))
            for point in self.points:
                first, second = point.text(lang)
                yield f"  {first}"
                yield f"    {second}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "enough": self.enough,
            "runs": [{"name": run.name, "step_ms": round(run.step_ns / 1e6, 6)} for run in self.runs],
            "points": [
                {
                    "run": point.place,
                    "name": point.name,
                    "before_ms": round(point.before_ns / 1e6, 6),
                    "after_ms": round(point.after_ns / 1e6, 6),
                    "p": point.p,
                    "parts_ms": {part: round(ns / 1e6, 6) for part, ns in point.parts.items()},
                    "text": {lang: point.text(lang) for lang in words.LANGUAGES},
                }
                for point in self.points
            ],
        }


def series(runs: Sequence[Run]) -> Series:
    """Change points of the mean step over runs, which are put in order of time, or of name where a run has no time."""
    timed = all(run.time_ns is not None for run in runs)
    ordered = sorted(runs, key=lambda run: ((run.time_ns or 0) if timed else 0, _natural(run.name)))
    if len(ordered) < LEAST_RUNS:
        return Series(tuple(ordered), ())
    values = np.array([run.step_ns for run in ordered])
    found = change_points(values)
    borders = [0, *(place for place, _ in found), len(ordered)]
    points = []
    for number, (place, p) in enumerate(found):
        before, after = ordered[borders[number] : place], ordered[place : borders[number + 2]]
        names = dict.fromkeys(name for run in (*before, *after) for name in run.parts)
        means = [{name: float(np.mean([run.parts.get(name, 0.0) for run in side])) for name in names} for side in (before, after)]
        change = {name: means[1][name] - means[0][name] for name in names}
        points.append(ChangePoint(place, ordered[place].name, sum(means[0].values()), sum(means[1].values()), p, change))
    return Series(tuple(ordered), tuple(points))


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def change_points(values: Floats) -> list[tuple[int, float]]:
    """Places at which a new level begins, with the probability that chance splits as well."""
    random = np.random.default_rng(0)
    found: list[tuple[int, float]] = []
    segments = [(0, values.size)]
    while segments:
        first, beyond = segments.pop()
        part = values[first:beyond]
        if part.size < 2 * SHORTEST:
            continue
        place, size = _best_split(part)
        if abs(part[place:].mean() - part[:place].mean()) < FLOOR * abs(part[:place].mean()):
            continue
        better = sum(_best_split(random.permutation(part))[1] >= size for _ in range(PERMUTATIONS))
        p = (better + 1) / (PERMUTATIONS + 1)
        if p <= LEVEL:
            found.append((first + place, p))
            segments += [(first, first + place), (first + place, beyond)]
    return sorted(found)


def _best_split(values: Floats) -> tuple[int, float]:
    """Where the energy distance between both sides is largest, and how large it is."""
    distance = np.abs(values[:, None] - values[None, :])
    table = np.zeros((values.size + 1, values.size + 1))
    table[1:, 1:] = distance.cumsum(axis=0).cumsum(axis=1)
    place = np.arange(SHORTEST, values.size - SHORTEST + 1)
    left, right = place, values.size - place
    inside_left = table[place, place]
    across = table[place, -1] - inside_left
    inside_right = table[-1, -1] - 2 * table[place, -1] + inside_left
    energy = 2 * across / (left * right) - inside_left / left**2 - inside_right / right**2
    size = left * right / values.size * energy
    best = int(np.argmax(size))
    return int(place[best]), float(size[best])


def run_of(name: str, side: Side, time_ns: int | None) -> Run:
    """A run from its captures."""
    parts = dict.fromkeys(side.keys["part"].unique(maintain_order=True).to_list(), 0.0)
    sums = side.cells.with_columns(part=side.keys["part"].gather(side.cells["key"])).group_by("part").sum()
    parts |= {part: ns / side.count for part, ns in sums.select("part", "ns").iter_rows()}
    return Run(name, parts, time_ns)


def run_of_verdict(path: Path) -> Run | None:
    """A run from what `stepscope verdict --format json` wrote; None when the file holds something else."""
    with path.open("rb") as file:
        if b"stepscope.verdict/1" not in file.read(200):
            return None
    try:
        ranks = orjson.loads(path.read_bytes())["ranks"]
        rows = [row for rank in ranks for row in rank["by_step"]]
        names = dict.fromkeys(name for row in rows for name in row if name != "total")
        return Run(path.stem, {name: 1e6 * sum(row.get(name, 0.0) for row in rows) / len(rows) for name in names})
    except (ValueError, KeyError, TypeError, ZeroDivisionError):
        return None
