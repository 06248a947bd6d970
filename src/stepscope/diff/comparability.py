# SPDX-License-Identifier: Apache-2.0
"""Whether two sides recorded the same work under the same conditions; a difference of times means little where they did not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from stepscope.analysis import quality
from stepscope.tables import Facts, Tables

SWITCHES = (
    "aic_metrics", "record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules", "l2_cache", "mstx", "op_attr",
    "sys_io", "sys_interconnection", "data_simplification",
)  # fmt: skip
# What each check is about: other work, another way of recording (which costs time itself), or only worth knowing.
CHECKS: Mapping[str, str] = {
    "device": "workload",
    "simulated": "workload",
    "framework": "workload",
    "world_size": "workload",
    "shapes": "workload",
    "dtypes": "workload",
    "marks": "workload",
    "level": "recording",
    "switches": "recording",
    "complete": "recording",
    "steps": "note",
    "ranks": "note",
}
# Operators that both sides have and whose shapes (or types) differ, as a share of all: a change of code touches a few, a change
# of batch or precision most.
DIFFERENT = 0.2
_TYPE_WORDS = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "long int": "int64", "int": "int32"}


Uses = tuple[dict[str, Counter[str]], dict[str, Counter[str]]]  # calls by operator and value, in even and in odd steps


@dataclass(frozen=True)
class Workload:
    """What one capture recorded and how."""

    device: str
    simulated: bool
    framework: str
    world_size: int | None
    marked: bool  # its steps are marked
    level: str
    switches: tuple[str, ...]
    complete: bool
    steps: int
    rank: int | None
    peak_bytes: float | None
    shapes: Uses
    dtypes: Uses


@dataclass(frozen=True)
class Check:
    """One thing compared; `same` is None when a side does not say."""

    name: str
    base: str
    new: str
    same: bool | None

    @property
    def about(self) -> str:
        return CHECKS[self.name]

    @property
    def blocks(self) -> bool:
        return self.same is False and self.about != "note"


def workload(tables: Tables, steps: int) -> Workload:
    """Describe a capture; `steps` is the number of steps that are compared."""
    facts = tables.facts
    names = sorted({name for name in facts.device_names.values() if name})
    kind = tables.device_kind
    return Workload(
        device=" ".join([kind, *names]),
        simulated=bool(facts.modelled),
        framework=facts.framework,
        world_size=_world_size(tables, facts),
        marked=bool(tables.steps.height),
        level=facts.level,
        switches=tuple(f"{name}={_word(getattr(facts, name))}" for name in SWITCHES if getattr(facts, name)),
        complete=not any(one.issue.severity == "loss" for one in quality.occurrences(tables.quality)),
        steps=steps,
        rank=facts.rank if facts.rank >= 0 else None,
        peak_bytes=_peak(tables),
        shapes=_uses(tables, "shapes", "input_shapes"),
        dtypes=_uses(tables, "dtypes", "input_dtypes"),
    )


def _word(value: Any) -> str:
    return "on" if value is True else str(value)


def _world_size(tables: Tables, facts: Facts) -> int | None:
    for source in (facts.metadata, facts.profiler_info, facts.metadata.get("distributedInfo"), facts.metadata.get("distributed")):
        size = source.get("world_size") if isinstance(source, Mapping) else None
        if isinstance(size, int) and size > 0:
            return size
    most = tables.collectives["rank_size"].max()
    return most if isinstance(most, int) else None


def _peak(tables: Tables) -> float | None:
    """Most bytes that the framework's allocator held on a device."""
    events = tables.memory_events
    own = events.filter((pl.col("device_type") != "cpu") & pl.col("total_allocated").is_not_null())
    # Totals belong to a component; that of the framework goes before those of the vendor's libraries.
    framework = own.filter(pl.col("component") == "PTA")
    rows = framework if framework.height else own
    peak = rows["total_allocated"].max()
    return float(peak) if isinstance(peak, int | float) else None


def _uses(tables: Tables, of_ops: str, of_kernels: str) -> Uses:
    """How often each operator ran with each value, in odd and even steps; of kernels where operators do not say."""
    ops = tables.ops.filter(pl.col(of_ops).is_not_null())
    if ops.height:
        rows = ops.select(op="name", value=of_ops, time="start_ns")
    else:
        rows = tables.kernels.filter(pl.col(of_kernels).is_not_null()).select(op="op_type", value=of_kernels, time="start_ns")
    starts = tables.steps["start_ns"].drop_nulls().sort().to_numpy()
    half = (np.searchsorted(starts, rows["time"].to_numpy(), side="right") % 2).astype(np.int8)
    counted = rows.with_columns(half=pl.Series(half)).group_by("op", "value", "half").agg(calls=pl.len())
    found: Uses = ({}, {})
    for op, value, side, calls in counted.select(pl.col("op", "value").cast(pl.String), "half", "calls").iter_rows():
        if op and re.search(r"\w", value):
            found[side].setdefault(op, Counter())[value if of_ops == "shapes" else _types(value)] += calls
    return found


def _types(text: str) -> str:
    """Types in one spelling: `c10::Half` and `FLOAT16` are the same."""
    return ";".join(_type_word(word) for word in text.split(";"))


def _type_word(word: str) -> str:
    short = re.sub(r"^(c10::|torch\.|dt_)", "", word.strip().lower())
    return _TYPE_WORDS.get(short, short)


def compare(base: Sequence[Workload], new: Sequence[Workload]) -> list[Check]:
    """All checks, those that differ first."""

    def each(name: str, words: Mapping[bool, Iterable[str]], *, unknown: Iterable[str] = ("",)) -> Check:
        one, other = ("; ".join(dict.fromkeys(words[side])) for side in (False, True))
        same = None if one in unknown or other in unknown else one == other
        return Check(name, one, other, same)

    def of(attribute: str) -> dict[bool, list[str]]:
        return {side: [_said(getattr(one, attribute)) for one in ones] for side, ones in ((False, base), (True, new))}

    sides = {False: base, True: new}
    switches = {side: [", ".join(one.switches) for one in ones] for side, ones in sides.items()}
    ranks = {
        side: [", ".join(str(rank) for rank in sorted({one.rank for one in ones if one.rank is not None}))]
        for side, ones in sides.items()
    }
    steps = [sum(one.steps for one in ones) for ones in sides.values()]
    complete = [all(one.complete for one in ones) for ones in sides.values()]
    found = [
        _device(base, new),
        each("simulated", of("simulated")),
        each("framework", of("framework")),
        each("world_size", of("world_size")),
        _values("shapes", [one.shapes for one in base], [one.shapes for one in new]),
        _values("dtypes", [one.dtypes for one in base], [one.dtypes for one in new]),
        each("marks", of("marked")),
        each("level", of("level")),
        each("switches", switches, unknown=()),
        Check("complete", _said(complete[0]), _said(complete[1]), all(complete)),
        Check("steps", str(steps[0]), str(steps[1]), steps[0] == steps[1]),
        each("ranks", ranks),
    ]
    return sorted(found, key=lambda check: not check.blocks)


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _device(base: Sequence[Workload], new: Sequence[Workload]) -> Check:
    one, other = ("; ".join(dict.fromkeys(side.device for side in sides)) for sides in (base, new))
    kinds = [{side.device.split(" ")[0] for side in sides} for sides in (base, new)]
    # A source that does not name the chip is not another device.
    named = all(" " in text for text in (one, other))
    return Check("device", one, other, one == other if named else kinds[0] == kinds[1])


def _values(name: str, base: Sequence[Uses], new: Sequence[Uses]) -> Check:
    """Compare what operators that both sides have worked on; sides whose steps differ among themselves may differ more."""
    one, other = (_sum(half for uses in side for half in uses) for side in (base, new))
    overlap = _overlap(one, other)
    if not overlap:
        return Check(name, _example(one), _example(other), None)
    between = _difference(overlap)
    same = between <= DIFFERENT
    if not same:
        within = (_overlap(*(_sum(uses[half] for uses in side) for half in (0, 1))) for side in (base, new))
        same = between <= DIFFERENT + max(_difference(halves) if halves else 0.0 for halves in within)
    if same:
        return Check(name, _example(one), _example(other), True)
    most = min(overlap, key=lambda op: (overlap[op], op))
    return Check(name, _example({most: one[most]}), _example({most: other[most]}), False)


def _sum(parts: Iterable[Mapping[str, Counter[str]]]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for part in parts:
        for op, values in part.items():
            found.setdefault(op, Counter()).update(values)
    return found


def _overlap(base: Mapping[str, Counter[str]], new: Mapping[str, Counter[str]]) -> dict[str, float]:
    """For each operator of both sides: how much of its calls is on the same values."""
    found = {}
    for op in base.keys() & new.keys():
        one, other = base[op], new[op]
        whole = one.total(), other.total()
        found[op] = sum(min(one[value] / whole[0], other[value] / whole[1]) for value in one.keys() & other.keys())
    return found


def _difference(overlap: Mapping[str, float]) -> float:
    return 1 - sum(overlap.values()) / len(overlap)


def _example(uses: Mapping[str, Counter[str]]) -> str:
    """The most usual value, to show which."""
    calls = [(-count, op, value) for op, values in uses.items() for value, count in values.items()]
    return "{1}({2})".format(*min(calls)) if calls else ""
