# SPDX-License-Identifier: Apache-2.0
"""What rings count, as metrics: one list of families, written as Prometheus text, OpenMetrics text or OTLP JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stepscope.formats.ring.layout import BOUNDS_SECONDS, PHASES, REASONS
from stepscope.watch.rings import RankState

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


@dataclass(frozen=True)
class Point:
    """One value of one rank; a histogram has buckets (each its own count), their number and their sum."""

    of: RankState
    value: float = 0
    label: tuple[str, str] | None = None
    buckets: tuple[int, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        return self.of.labels() | (dict([self.label]) if self.label else {})


@dataclass(frozen=True)
class Family:
    """A metric: `name` and `unit` as OpenTelemetry has them, `text` as Prometheus does."""

    name: str
    unit: str
    kind: str
    text: str
    help: str
    whole: bool = False  # values are whole numbers
    points: list[Point] = field(default_factory=list)


def families(states: Sequence[RankState], *, histogram: bool = True) -> list[Family]:
    """All metrics of some ranks; those without a value are left out."""
    every = [_duration(states)] if histogram else []
    every += [_phases(states), *_steps(states), _captures(states), *_memory(states)]
    return [family for family in every if family.points]


def _duration(states: Sequence[RankState]) -> Family:
    made = Family(
        "stepscope.step.duration", "s", HISTOGRAM, "stepscope_step_duration_seconds", "Duration of steps, from end to end."
    )
    for each in _stepped(states):
        buckets = tuple(each.last[f"bucket_{number}"] for number in range(len(BOUNDS_SECONDS) + 1))
        made.points.append(Point(each, each.last["total_step"] / 1e9, buckets=buckets))
    return made


def _phases(states: Sequence[RankState]) -> Family:
    made = Family(
        "stepscope.step.phase", "s", COUNTER, "stepscope_step_phase_seconds", "Time of steps in phases that the loop waits for."
    )
    for each in _stepped(states):
        made.points.extend(Point(each, each.last[f"total_{phase}"] / 1e9, ("phase", phase)) for phase in PHASES)
    return made


def _steps(states: Sequence[RankState]) -> Iterator[Family]:
    stepped = list(_stepped(states))
    last = Family("stepscope.step.last", "{step}", GAUGE, "stepscope_step_last", "Number of the last step.", whole=True)
    last.points.extend(Point(each, each.last["step"]) for each in stepped)
    yield last
    # The clock of the process is not ours; what is compared with time() must be epoch seconds.
    end = Family(
        "stepscope.step.last.timestamp",
        "s",
        GAUGE,
        "stepscope_step_last_timestamp_seconds",
        "Unix time at which the last step ended.",
    )
    end.points.extend(Point(each, (each.last["end"] + each.epoch_offset) / 1e9) for each in stepped)
    yield end
    outliers = Family(
        "stepscope.step.outliers",
        "{step}",
        COUNTER,
        "stepscope_step_outliers",
        "Steps much slower than those before them.",
        whole=True,
    )
    outliers.points.extend(Point(each, each.last["total_outliers"]) for each in stepped)
    yield outliers
    collections = Family(
        "cpython.gc.collections",
        "{collection}",
        COUNTER,
        "cpython_gc_collections",
        "Garbage collections of Python since the watch began.",
        whole=True,
    )
    collections.points.extend(Point(each, each.last["total_collections"]) for each in stepped)
    yield collections


def _captures(states: Sequence[RankState]) -> Family:
    made = Family(
        "stepscope.captures",
        "{capture}",
        COUNTER,
        "stepscope_captures",
        "Captures that this rank requested because of a slow step.",
        whole=True,
    )
    for each in _stepped(states):
        made.points.extend(Point(each, each.last[f"total_captures_{reason}"], ("reason", reason)) for reason in REASONS)
    return made


def _memory(states: Sequence[RankState]) -> Iterator[Family]:
    device = Family(
        "hw.gpu.memory.usage", "By", GAUGE, "hw_gpu_memory_usage_bytes", "Device memory that the process holds.", whole=True
    )
    device.points.extend(Point(each, each.last["device_bytes"]) for each in _stepped(states) if each.last["device_bytes"] >= 0)
    yield device
    resident = Family(
        "process.memory.usage", "By", GAUGE, "process_memory_usage_bytes", "Resident memory of the process.", whole=True
    )
    resident.points.extend(Point(each, each.resident_bytes) for each in states if each.resident_bytes is not None)
    yield resident


def _stepped(states: Sequence[RankState]) -> Iterator[RankState]:
    return (each for each in states if each.last)
