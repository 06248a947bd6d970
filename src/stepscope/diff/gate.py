# SPDX-License-Identifier: Apache-2.0
"""A budget for changes, and whether a diff keeps it: for scripts that must answer with an exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stepscope.analysis.partition.parts import HOST, PARTS
from stepscope.diff import words
from stepscope.diff.comparability import CHECKS
from stepscope.diff.noise import CANNOT_TELL, CHANGED
from stepscope.diff.result import Diff, Row
from stepscope.errors import CaptureError
from stepscope.verdict import Finding
from stepscope.verdict.catalogue import BY_NAME
from stepscope.verdict.finding import SEVERITIES
from stepscope.verdict.settings import UNREADABLE, parse_toml

WITHIN, REGRESSION, USAGE, NO_ANSWER = 0, 1, 2, 3
PASS, FAIL, UNSURE = "pass", "fail", "cannot tell"
ALLOWED = (*SEVERITIES[::-1], "none")
_FORMS = {
    "step_ms": ("max_increase", "max_ms"),
    "part": ("max_increase", "max_ms"),
    "peak_memory": ("max_increase", "max_mib"),
    "rule": ("max_severity",),
}


@dataclass(frozen=True)
class Limit:
    """How much a figure may grow, in per cent of the base or in its own unit, and how large it may be."""

    percent: float | None = None
    increase: float | None = None  # ms, or MiB of memory
    most: float | None = None


@dataclass(frozen=True)
class Budget:
    """What a user allows; see docs/diff.md."""

    step: Limit | None = None
    parts: Mapping[str, Limit] = field(default_factory=dict)
    memory: Limit | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    ignore: frozenset[str] = frozenset()
    min_steps: int = 3


def read_budget(path: Path) -> Budget:
    """A budget from a TOML file.

    Raises:
        CaptureError: the file cannot be read, or has entries that mean nothing; all of them are listed.
    """
    try:
        given = parse_toml(path)
    except UNREADABLE as problem:
        raise CaptureError("the budget cannot be read", where=str(path), cause=str(problem), fix="give a TOML file") from None
    wrong: list[str] = []
    budget = _budget(given, wrong)
    if not wrong and not (budget.step or budget.parts or budget.memory or budget.rules):
        wrong.append("there is no limit in it: give step_ms, peak_memory, part or rule")
    if wrong:
        what = f"the budget has {len(wrong)} mistake{'s' if len(wrong) > 1 else ''}"
        listed = "".join(f"\n    {number}. {text}" for number, text in enumerate(wrong, 1))
        raise CaptureError(
            what, where=str(path), cause=listed.lstrip() if len(wrong) == 1 else listed, fix="see docs/diff.md, budget"
        )
    return budget


def _budget(given: Mapping[str, Any], wrong: list[str]) -> Budget:
    known = ("step_ms", "peak_memory", "part", "rule", "ignore", "min_steps")
    wrong += [f"{name}: there is no such entry; known are {', '.join(known)}" for name in given if name not in known]
    parts = {
        name: limit
        for name, value in _table(given, "part", wrong).items()
        if _known(f"part.{name}", name, (*PARTS, *HOST), wrong) and (limit := _limit(f"part.{name}", value, "part", wrong))
    }
    rules = {}
    for name, value in _table(given, "rule", wrong).items():
        allowed = _severity(f"rule.{name}", value, wrong) if _known(f"rule.{name}", name, tuple(BY_NAME), wrong) else None
        if allowed:
            rules[name] = allowed
    step, memory = (_limit(name, given[name], name, wrong) if name in given else None for name in ("step_ms", "peak_memory"))
    return Budget(step, parts, memory, rules, _ignored(given.get("ignore", []), wrong), _least(given.get("min_steps", 3), wrong))


def _table(given: Mapping[str, Any], name: str, wrong: list[str]) -> Mapping[str, Any]:
    """A table of tables; `[part.idle.data]` without quotes is one level deeper and means the same."""
    value = given.get(name, {})
    if not isinstance(value, dict):
        wrong.append(f"{name}: not a table; write [{name}.NAME]")
        return {}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        nested = isinstance(inner, dict) and inner and all(isinstance(one, dict) for one in inner.values())
        found |= {f"{key}.{sub}": one for sub, one in inner.items()} if nested else {key: inner}
    return found


def _known(where: str, name: str, names: Sequence[str], wrong: list[str]) -> bool:
    if name not in names:
        wrong.append(f"{where}: unknown; one of {', '.join(names)}")
    return name in names


def _limit(where: str, value: Any, kind: str, wrong: list[str]) -> Limit | None:
    forms = _FORMS[kind]
    if not isinstance(value, dict) or not value:
        wrong.append(f"{where}: not a table with {' or '.join(forms)}")
        return None
    before = len(wrong)
    wrong += [f"{where}.{name}: there is no such limit; known are {', '.join(forms)}" for name in value if name not in forms]
    unit = "MiB" if kind == "peak_memory" else "ms"
    percent = increase = most = None
    if "max_increase" in value:
        percent, increase = _increase(f"{where}.max_increase", value["max_increase"], unit, wrong)
    if forms[1] in value:
        most = _number(f"{where}.{forms[1]}", value[forms[1]], wrong)
    return Limit(percent, increase, most) if len(wrong) == before else None


def _number(where: str, value: Any, wrong: list[str]) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        wrong.append(f"{where}: {value!r} is not a number of 0 or more")
        return None
    return float(value)


def _increase(where: str, value: Any, unit: str, wrong: list[str]) -> tuple[float | None, float | None]:
    if isinstance(value, str):
        match = re.fullmatch(rf"\s*(\d+(?:\.\d+)?)\s*(%|{unit})\s*", value)
        if match:
            number = float(match[1])
            return (number, None) if match[2] == "%" else (None, number)
    wrong.append(f'{where}: {value!r} is not an increase such as "3%" or "2 {unit}"')
    return None, None


def _severity(where: str, value: Any, wrong: list[str]) -> str | None:
    if not isinstance(value, dict) or not value:
        wrong.append(f"{where}: not a table with max_severity")
        return None
    wrong += [f"{where}.{name}: there is no such limit; known is max_severity" for name in value if name != "max_severity"]
    most = value.get("max_severity")
    if most is not None and most not in ALLOWED:
        wrong.append(f"{where}.max_severity: {most!r} is not one of {', '.join(ALLOWED)}")
        return None
    return most if isinstance(most, str) else None


def _ignored(value: Any, wrong: list[str]) -> frozenset[str]:
    names = (*CHECKS, *PARTS, *HOST)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        wrong.append("ignore: not a list of names")
        return frozenset()
    wrong += [f"ignore: {name} is neither a check ({', '.join(CHECKS)}) nor a part" for name in value if name not in names]
    return frozenset(value)


def _least(value: Any, wrong: list[str]) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        wrong.append(f"min_steps: {value!r} is not a whole number of 1 or more")
        return 3
    return value


# The answer


@dataclass(frozen=True)
class GateCheck:
    """One limit and whether it is kept."""

    name: str
    status: str  # pass, fail or cannot tell
    reason: str  # name of its text
    params: Mapping[str, Any] = field(default_factory=dict)

    def text(self, lang: str) -> str:
        shown = dict(self.params)
        if "samples" in shown:
            shown["samples"] = words.line(shown["samples"], lang)
        if "checks" in shown:
            shown["checks"] = ", ".join(words.texts(lang)["check"][name] for name in shown["checks"])
        return words.line(self.reason, lang, "gate", **shown)


@dataclass(frozen=True)
class Gate:
    """Whether a budget is kept."""

    exit: int
    checks: tuple[GateCheck, ...]

    def text(self, lang: str) -> str:
        return words.line(f"gate-{self.exit}", lang)

    def as_dict(self) -> dict[str, Any]:
        return {
            "exit": self.exit,
            "answer": {lang: self.text(lang) for lang in words.LANGUAGES},
            "checks": [
                {"name": one.name, "status": one.status, "text": {lang: one.text(lang) for lang in words.LANGUAGES}}
                for one in self.checks
            ],
        }


def gate(found: Diff, budget: Budget, findings: Sequence[Finding] = ()) -> Gate:
    """Hold a diff against a budget.

    Args:
        found: the diff.
        budget: what is allowed.
        findings: of the verdict on the new side, for limits of rules.
    """
    apart = [check.name for check in found.checks if check.blocks and check.name not in budget.ignore]
    if apart:
        return Gate(NO_ANSWER, (GateCheck("comparable", UNSURE, "not-comparable", {"checks": apart}),))
    checks = [*_times(found, budget), *_memory(found, budget), *_rules(budget, findings)]
    states = {one.status for one in checks}
    return Gate(REGRESSION if FAIL in states else NO_ANSWER if UNSURE in states else WITHIN, tuple(checks))


def _times(found: Diff, budget: Budget) -> Iterator[GateCheck]:
    wanted = [
        *([("step_ms", budget.step, None)] if budget.step else []),
        *((f"part.{name}", limit, name) for name, limit in budget.parts.items()),
    ]
    for name, limit, part in wanted:
        if min(found.steps) < budget.min_steps:
            params = {"base": found.steps[0], "new": found.steps[1], "least": budget.min_steps}
            yield GateCheck(name, UNSURE, "few-steps", params)
        else:
            rows = [row for row in found.parts if row.part not in budget.ignore] if part is None else [
                row for row in found.parts if row.part == part
            ]  # fmt: skip
            yield _time(found, name, limit, rows, whole=part is None and len(rows) == len(found.parts))


def _time(found: Diff, name: str, limit: Limit, rows: Sequence[Row], *, whole: bool) -> GateCheck:
    base = sum((float(row.base_ns) for row in rows), 0.0) / 1e6
    new = sum((float(row.new_ns) for row in rows), 0.0) / 1e6
    status = found.status if whole else _status(rows, new - base)
    if limit.most is not None and new > limit.most:
        return _beyond(found, name, status, f"{new:.2f} ms", f"{limit.most:g} ms", sure=_above(found, rows, limit.most))
    allowed = limit.increase if limit.increase is not None else None if limit.percent is None else base * limit.percent / 100
    delta = new - base
    said = f"{delta:+.2f} ms ({words.percent(delta, base)})"
    text = f"{limit.increase:g} ms" if limit.increase is not None else f"{limit.percent:g} %" if limit.percent is not None else ""
    if allowed is not None and delta > allowed:
        return _beyond(found, name, status, said, text, sure=status == CHANGED)
    if allowed is None:
        said, text = f"{new:.2f} ms", f"{limit.most:g} ms"
    return GateCheck(name, PASS, "within", {"new": said, "limit": text})


def _status(rows: Sequence[Row], delta: float) -> str:
    """What the tests say about a sum of parts: it has changed when a part that moved the same way has."""
    if any(row.status == CANNOT_TELL for row in rows):
        return CANNOT_TELL
    return CHANGED if any(row.real and (row.delta_ns > 0) == (delta > 0) for row in rows) else "within noise"


def _above(found: Diff, rows: Sequence[Row], most_ms: float) -> bool | None:
    """Whether the mean of the new side's samples is above a limit by more than twice its error; None with too few samples."""
    if found.sides is None:
        return None
    samples = found.sides[1].part_samples([row.part for row in rows], by_run=found.samples == "runs")
    if samples.size < 3:
        return None
    return bool(samples.mean() - 2 * samples.std(ddof=1) / np.sqrt(samples.size) > most_ms * 1e6)


def _beyond(found: Diff, name: str, status: str, new: str, limit: str, *, sure: bool | None) -> GateCheck:
    """Beyond the limit: a failure only when it is beyond noise too."""
    params = {"new": new, "limit": limit}
    if status == CANNOT_TELL or sure is None:
        return GateCheck(name, UNSURE, "few-samples", {"samples": found.samples})
    return GateCheck(name, FAIL, "beyond", params) if sure else GateCheck(name, UNSURE, "beyond-noise", params)


def _memory(found: Diff, budget: Budget) -> Iterator[GateCheck]:
    """Peaks are the largest of all captures of a side. Equal programs have equal peaks, so there is no noise to allow for."""
    limit = budget.memory
    if limit is None:
        return
    if not found.peak_bytes[0] or not found.peak_bytes[1]:
        yield GateCheck("peak_memory", UNSURE, "not-recorded")
        return
    base, new = (max(peaks) / 2**20 for peaks in found.peak_bytes)
    allowed = limit.increase if limit.increase is not None else None if limit.percent is None else base * limit.percent / 100
    said = f"{new:.1f} MiB ({words.percent(new - base, base)})"
    text = ", ".join(
        word
        for word, given in (
            (f"{limit.most:g} MiB" if limit.most is not None else "", limit.most),
            (f"+{limit.increase:g} MiB" if limit.increase is not None else "", limit.increase),
            (f"+{limit.percent:g} %" if limit.percent is not None else "", limit.percent),
        )
        if given is not None
    )
    beyond = (limit.most is not None and new > limit.most) or (allowed is not None and new - base > allowed)
    yield GateCheck("peak_memory", FAIL if beyond else PASS, "beyond" if beyond else "within", {"new": said, "limit": text})


def _rules(budget: Budget, findings: Sequence[Finding]) -> Iterator[GateCheck]:
    order = (*SEVERITIES, "none")
    for rule, most in budget.rules.items():
        worst = min((one.severity for one in findings if one.rule == rule), key=order.index, default="none")
        if worst == "none":
            yield GateCheck(f"rule.{rule}", PASS, "absent")
        else:
            kept = order.index(worst) >= order.index(most)
            yield GateCheck(f"rule.{rule}", PASS if kept else FAIL, "severity", {"new": worst, "limit": most})
