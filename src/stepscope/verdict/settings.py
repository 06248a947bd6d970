# SPDX-License-Identifier: Apache-2.0
"""Limits of the rules and what chips can do, as data; a user's file may override any limit."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from stepscope.errors import CaptureError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

HERE = Path(__file__).parent
UNREADABLE = (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError)
Limits = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Chip:
    """What one kind of device can do at best; None where no source says it."""

    name: str
    source: Mapping[str, str]  # of each figure
    cube_cores: int | None = None
    vector_cores: int | None = None
    memory_gib: float | None = None
    bandwidth: float | None = None  # of its memory, 1e9 bytes per second
    peak: Mapping[str, float] = field(default_factory=dict)  # by type, 1e12 operations per second
    per_cycle: Mapping[str, int] = field(default_factory=dict)  # operations of one cube core in a cycle, by type

    def as_recorded(self, properties: Mapping[str, Any]) -> Chip:
        """With what a capture says about its own device in place of what the table says."""
        cube = _positive(properties.get("ai_core_num")) or _positive(properties.get("numSms")) or self.cube_cores
        vector = _positive(properties.get("aiv_num")) or _positive(properties.get("numSms")) or self.vector_cores
        memory = _positive(properties.get("totalGlobalMem"))
        clock = _positive(properties.get("aic_frequency"))  # MHz
        peak = {name: count * cube * clock / 1e6 for name, count in self.per_cycle.items()} if cube and clock else self.peak
        return replace(
            self,
            cube_cores=None if cube is None else int(cube),
            vector_cores=None if vector is None else int(vector),
            memory_gib=memory / 2**30 if memory else self.memory_gib,
            peak=peak or self.peak,
        )


def limits(config: Path | None = None) -> Limits:
    """The limits of all rules, with those of a user's file in place of ours.

    Raises:
        CaptureError: the file cannot be read, or names a rule or a limit that does not exist; all mistakes are listed.
    """
    ours: Limits = load_toml("thresholds.toml")
    if config is None:
        return ours
    try:
        given = parse_toml(config)
    except UNREADABLE as problem:
        raise CaptureError("the limits cannot be read", where=str(config), cause=str(problem), fix="give a TOML file") from None
    wrong = [mistake for rule, values in given.items() for mistake in _mistakes(rule, values, ours)]
    if wrong:
        raise CaptureError(
            f"{len(wrong)} entries are not limits of a rule", where=str(config), cause="; ".join(wrong), fix="see docs/rules"
        )
    return {rule: {**values, **given.get(rule, {})} for rule, values in ours.items()}


def severity_of(share: float, given: Limits) -> str:
    """How bad it is to lose this share of the step; empty when steps vary by as much."""
    return next((level for level in ("high", "medium", "low") if share >= given["severity"][level]), "")


def _mistakes(rule: str, values: Any, ours: Limits) -> list[str]:
    if rule not in ours:
        return [f"there is no rule {rule}"]
    if not isinstance(values, dict):
        return [f"{rule} is not a table"]
    wrong = [f"{rule} has no limit {name}" for name in values if name not in ours[rule]]
    numbers = [
        f"{rule}.{name} is not a number"
        for name, value in values.items()
        if isinstance(value, bool) or not isinstance(value, int | float)
    ]
    return wrong + [mistake for mistake in numbers if mistake.split(".")[1].split()[0] in ours[rule]]


def chip_of(device_name: str, properties: Any = None) -> Chip | None:
    """The chip of this name, with what the capture says about its own device; None when neither tells anything."""
    known = properties if isinstance(properties, Mapping) else {}
    for entry in load_toml("chips.toml")["chip"]:
        if device_name and re.search(entry["pattern"], device_name, re.IGNORECASE):
            return Chip(**{key: value for key, value in entry.items() if key != "pattern"}).as_recorded(known)
    if any(_positive(known.get(name)) for name in ("ai_core_num", "numSms")):
        return Chip(device_name or "?", {}).as_recorded(known)
    return None


def _positive(value: Any) -> float | None:
    """A number that a capture states, as number or as text."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number < 1e18 else None


@cache
def schema() -> Any:
    """JSON Schema of `Verdict.as_dict()`."""
    return orjson.loads((HERE / "verdict.schema.json").read_bytes())


@cache
def load_toml(name: str) -> Any:
    """A data file of this package."""
    return parse_toml(HERE / name)


def parse_toml(path: Path) -> Any:
    """A TOML file; a mark of the byte order at its begin is left out."""
    return tomllib.loads(path.read_text(encoding="utf-8-sig"))


def fused_optimizers() -> list[dict[str, str]]:
    """Optimizers that have a fused form."""
    entries: list[dict[str, str]] = load_toml("fusible.toml")["optimizer"]
    return entries


def fusible_patterns() -> list[dict[str, str]]:
    """Sequences of operators that a fused operator can replace."""
    patterns: list[dict[str, str]] = load_toml("fusible.toml")["pattern"]
    return patterns
