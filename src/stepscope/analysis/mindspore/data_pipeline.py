# SPDX-License-Identifier: Apache-2.0
"""How busy the operators of an input pipeline were, and which of them holds the others up (docs/formats/mindspore.md 9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl

NONE = -1  # what the files say for "not known"
_SINGLE_THREADED = ("Barrier", "Concat", "EpochCtrl", "Rename", "Repeat", "Shuffle", "Skip", "Take", "Zip")
_DEVICE_QUEUE = "DeviceQueue"
_HIGH_CPU, _LOW_CPU = 75, 20  # per cent of a processor, per worker
_LEAF_QUEUE, _DEVICE_EMPTY, _QUEUE_GAP, _LOW_QUEUE = 50, 60, 50, 10  # per cent


@dataclass(frozen=True)
class Operator:
    """One operator with its averages; NONE where nothing was sampled."""

    number: int
    kind: str
    workers: int
    children: tuple[int, ...]
    queue_length: int | None
    queue_sizes: tuple[int, ...] | None
    cpu: float = NONE

    @property
    def name(self) -> str:
        return self.kind[:-2]  # without "Op"

    @property
    def label(self) -> str:
        return f"{self.name}(id={self.number})"

    @property
    def queue_average(self) -> float:
        return round(sum(self.queue_sizes) / len(self.queue_sizes), 2) if self.queue_sizes else NONE

    @property
    def queue_use(self) -> float:
        if self.queue_average == NONE or not self.queue_length:
            return NONE
        return round(100 * self.queue_average / self.queue_length, 2)

    @property
    def queue_empty(self) -> float:
        return round(100 * self.queue_sizes.count(0) / len(self.queue_sizes), 2) if self.queue_sizes else NONE

    @property
    def cpu_per_worker(self) -> float:
        return round(self.cpu / self.workers if self.workers and self.cpu >= 0 else NONE, 2)


@dataclass(frozen=True)
class Advice:
    """What is worth a word, as sentences; and the operator to look at first."""

    cpu: list[str] = field(default_factory=list)
    queue: list[str] = field(default_factory=list)
    bottleneck: str = ""
    suggestion: str = ""


def operators(pipelines: pl.DataFrame, number: int) -> dict[int, Operator]:
    """The operators of one pipeline by number."""
    found = {}
    for row in pipelines.filter(pl.col("pipeline") == number).sort("op_id").iter_rows(named=True):
        cpu = row["cpu_pct"]
        found[row["op_id"]] = Operator(
            row["op_id"],
            row["op_type"],
            row["workers"] or 0,
            tuple(row["children"] or ()),
            row["queue_length"],
            None if row["queue_sizes"] is None else tuple(row["queue_sizes"]),
            NONE if cpu is None else round(sum(cpu) / len(cpu), 2) if cpu else 0.0,
        )
    return found


def queued_children(operators: dict[int, Operator], number: int) -> list[int]:
    """The nearest operators below that have a queue; those without pass rows on at once."""
    waiting, found, seen = list(operators[number].children), [], {number}
    while waiting:
        child = waiting.pop(0)
        if child in seen or child not in operators:
            continue
        seen.add(child)
        if operators[child].queue_sizes is None:
            waiting += operators[child].children
        else:
            found.append(child)
    return found


def batch_times(batches: pl.DataFrame, number: int) -> tuple[float, float, float]:
    """Mean times of pipeline, push and batch in ms, the first batch left out; NONE where there is no further one."""
    rows = batches.filter(pl.col("pipeline") == number)
    to_device = bool(rows["to_device"].any())
    rows = rows.filter(pl.col("to_device") == to_device)
    times: dict[str, list[int]] = {"pipeline": [], "push": [], "batch": []}
    before = 0
    for kind, batch, value, moment in rows.select("kind", "batch", "value", "time_ms").iter_rows():
        if batch < 2:
            before = moment
        elif kind != "queue":
            times[kind].append(value)
        elif not to_device:
            # An iterator is asked for batches; how far they lie apart says more than how long each took.
            times["batch"].append(moment - before)
            before = moment
    pipeline, push, whole = (round(sum(values) / len(values), 3) if values else float(NONE) for values in times.values())
    return pipeline, push, whole


def advice(operators: dict[int, Operator]) -> Advice:
    """By the thresholds of docs/formats/mindspore.md 9."""
    bottleneck, suggestion = _bottleneck(operators)
    return Advice(list(_about_cpu(operators)), list(_about_queues(operators)), bottleneck, suggestion)


def _input(operators: dict[int, Operator], number: int) -> Operator | None:
    """The operator whose queue this one reads, following first children."""
    seen = {number}
    while number in operators and operators[number].children:
        number = operators[number].children[0]
        if number in seen or number not in operators:
            return None
        seen.add(number)
        if operators[number].queue_average != NONE:
            return operators[number]
    return None


def _busy(one: Operator) -> str:
    share = one.cpu_per_worker
    more = f"Setting num_parallel_workers>{one.workers} might bring extra performance."
    return f"{one.label} is using {share}% CPU per worker. {more}"


def _about_cpu(operators: dict[int, Operator]) -> Iterator[str]:
    for one in operators.values():
        if one.name in _SINGLE_THREADED:
            continue
        if one.cpu_per_worker > _HIGH_CPU:
            yield _busy(one)
        elif one.cpu_per_worker < _LOW_CPU and one.workers > 1:
            less = f"Using num_parallel_workers={one.workers} might not bring as much benefit due to low CPU usage per worker."
            yield f"{one.label} is using {one.cpu_per_worker}% CPU per worker. {less}"


def _about_queues(operators: dict[int, Operator]) -> Iterator[str]:
    for one in operators.values():
        if one.name in (*_SINGLE_THREADED, "Batch"):
            continue
        source = _input(operators, one.number)
        if source is None:
            if one.queue_use != NONE and one.queue_use <= _LEAF_QUEUE:
                more = f"Setting num_parallel_workers>{one.workers} might speed up I/O."
                yield f"Leaf op {one.label} is using {one.queue_use}% of its output queue. {more}"
        elif one.name == _DEVICE_QUEUE:
            if source.queue_empty > _DEVICE_EMPTY:
                yield f"{one.label} finds its input queue empty {source.queue_empty}% of the time: the device waits for data."
        elif one.queue_use != NONE and source.queue_use != NONE and source.queue_use - one.queue_use > _QUEUE_GAP:
            yield (
                f"{one.label} has {source.queue_use}% of its input queue and {one.queue_use}% of its output queue in use: "
                f"{source.label} gives rows faster than it takes them. Try a larger prefetch_size or more workers."
            )


def _bottleneck(operators: dict[int, Operator]) -> tuple[str, str]:
    """The operator nearest to the consumer that is short of processors, or that waits."""
    for one in operators.values():
        if one.name in (*_SINGLE_THREADED, _DEVICE_QUEUE):
            continue
        if one.cpu_per_worker > _HIGH_CPU:
            return one.label, _busy(one)
        source = _input(operators, one.number)
        if source is None or one.cpu_per_worker >= _LOW_CPU:
            continue
        if source.queue_use < _LOW_QUEUE or one.queue_use - source.queue_use > _QUEUE_GAP:
            low = f"low CPU utilization per worker of {one.cpu_per_worker}%"
            return one.label, f"{one.label} has {low} and abnormal queue usage. Try increasing prefetch_size."
    return "", ""
