# SPDX-License-Identifier: Apache-2.0
"""One rank as the rules see it: its tables, the exact partition and the replay, each computed once when first asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis import quality
from stepscope.analysis.partition import DeviceModel, Partition, device_model, exclusive_time, partition
from stepscope.analysis.partition.model import COMPUTE
from stepscope.analysis.replay import Schedule, build_schedule
from stepscope.analysis.replay.waits import callers
from stepscope.analysis.source_lines import operator_places
from stepscope.tables import TEXT, Facts, Tables
from stepscope.verdict.finding import CannotTell, Evidence, Place
from stepscope.verdict.settings import Chip, Limits, chip_of

HOST_IDLE = ("idle.operator", "idle.api", "idle.queue")


@dataclass(frozen=True)
class Draft:
    """What a rule found, before it is ranked. Times are ns over all windows of the capture."""

    rule: str
    saved_ns: float
    confidence: str = "high"
    how: str = "replay"
    bound: str = "estimate"
    upper_ns: float | None = None
    replayed_ns: float | None = None  # what the replay alone would save, where a bound made `saved_ns` less
    severity: str = ""  # set by rules without a time of their own; else the share decides
    evidence: tuple[Evidence, ...] = ()
    where: tuple[Place, ...] = ()
    steps: tuple[int, ...] = ()
    explains: tuple[str, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    variant: str = ""
    # How to take the cause out of the replay, for what all findings save together.
    host_layers: tuple[str, ...] = ()
    without_waits: npt.NDArray[np.bool_] | None = None
    duration: npt.NDArray[np.int64] | None = None


class Case:
    """Tables of one rank with what is derived from them."""

    def __init__(self, tables: Tables, limits: Limits):
        self.tables = tables
        self.limits = limits

    @cached_property
    def facts(self) -> Facts:
        return self.tables.facts

    @cached_property
    def kind(self) -> str:
        """npu, cuda, rocm, xpu or cpu."""
        return self.tables.device_kind

    @cached_property
    def simulated(self) -> bool:
        return bool(self.facts.modelled)

    @cached_property
    def incomplete(self) -> bool:
        """The recording did not end, or records were lost."""
        return any(one.issue.severity == "loss" for one in quality.occurrences(self.tables.quality))

    @cached_property
    def chip(self) -> Chip | None:
        if self.model.device is None or self.simulated:
            return None
        number = str(self.model.device)
        return chip_of(self.facts.device_names.get(number, ""), self.facts.device_properties.get(number))

    @cached_property
    def steps(self) -> pl.DataFrame:
        """Steps that count, in order, with `row`, theirs in table `steps`: neither slowed by the profiler nor warm-up."""
        return self._steady_steps[self.warm_up_steps :]

    @cached_property
    def _steady_steps(self) -> pl.DataFrame:
        rows = self.tables.steps.with_row_index("row")
        steady = rows.filter(~pl.col("inflated").fill_null(False)).drop_nulls(["start_ns", "end_ns"])
        return (steady if steady.height else rows.drop_nulls(["start_ns", "end_ns"])).sort("start_ns")

    @cached_property
    def host_lengths(self) -> npt.NDArray[np.int64]:
        """How long the steps took on the host, warm-up included, ns."""
        rows = self._steady_steps
        return np.asarray((rows["end_ns"] - rows["start_ns"]).to_numpy())

    @cached_property
    def warm_up_steps(self) -> int:
        """How many steps at the beginning took the host longer than usual, when no later one did."""
        return self.first_slow(self.host_lengths) if self.host_lengths.size >= self.limit("warm-up", "least_steps") else 0

    def first_slow(self, lengths: npt.NDArray[np.int64]) -> int:
        """How many of the first lengths are longer than usual, when no later one is."""
        slow = lengths > self.limit("warm-up", "over_median") * float(np.median(lengths))
        first = int(np.argmin(slow))
        return first if not slow[first:].any() else 0

    @cached_property
    def model(self) -> DeviceModel:
        if not self.warm_up_steps:
            return device_model(self.tables)
        counts = pl.Series(np.isin(np.arange(self.tables.steps.height), self.steps["row"].to_numpy()))
        return device_model(self.tables.replace(steps=self.tables.steps.with_columns(inflated=~counts)))

    @cached_property
    def parts(self) -> Partition:
        return partition(self.model)

    @cached_property
    def schedule(self) -> Schedule | None:
        return build_schedule(self.model) if self.model.device is not None else None

    @property
    def count(self) -> int:
        """Number of windows."""
        return self.model.count

    @cached_property
    def total_ns(self) -> int:
        """Time that is weighed against. On a simulated device, idling with work issued is the load of this machine: left out."""
        return self.parts.total_ns - (self.parts.sum_ns("idle.queued") if self.simulated else 0)

    def weight(self, cost_ns: float) -> float:
        """How much of the weighed time a cost of all windows is: decides whether it is told, and how severe it is."""
        return cost_ns / self.total_ns if self.total_ns else 0.0

    def share(self, cost_ns: float) -> float:
        """How much of the steps as they were measured a cost of all windows is: what is shown beside their length."""
        return cost_ns / self.parts.total_ns if self.parts.total_ns else 0.0

    @property
    def has_device(self) -> bool:
        return self.model.device is not None and self.model.tasks.height > 0

    def limit(self, rule: str, name: str) -> float:
        return self.limits[rule][name]

    # What rules need; each raises CannotTell when the capture lacks it.

    def need_device(self) -> None:
        if not self.has_device:
            raise CannotTell("device")

    def need_replay(self) -> Schedule:
        self.need_device()
        if self.schedule is None:
            raise CannotTell("launches")
        return self.schedule

    def need_steps(self, least: int) -> None:
        if self.tables.steps.height == 0:
            raise CannotTell("steps")
        if self.count < least:
            raise CannotTell("few-steps", steps=self.count, least=least)

    def need_api(self) -> None:
        if not self.tables.api_calls.height:
            raise CannotTell("api")

    # Savings.

    def idle_ns(self, *layers: str) -> int:
        return self.parts.sum_ns(*(f"idle.{layer}" for layer in layers))

    def saved_without_layers(self, *layers: str, over_idle: float = 1.05) -> int:
        """Saved without the host's time in some layers; no more than they were seen to idle the device."""
        idle = self.idle_ns(*layers)
        if not idle:
            return 0
        schedule = self.need_replay()
        return int(min(schedule.saved(host=schedule.without_layers(*layers)), idle * over_idle))

    def duration_without(self, mask: npt.NDArray[np.bool_], *, scale: float = 0.0) -> npt.NDArray[np.int64]:
        """Durations of the schedule's tasks, those of some tasks of the model scaled."""
        schedule = self.need_replay()
        chosen = mask[schedule.tasks["task"].to_numpy()]
        return np.where(chosen, (schedule.duration * scale).astype(np.int64), schedule.duration)

    def saved_without_tasks(self, mask: npt.NDArray[np.bool_], *, scale: float = 0.0) -> tuple[int, str]:
        """Saved if some tasks of the model took no (or `scale` of their) time, and how it is known."""
        if self.schedule is None:
            return int(self.exclusive_by_task[mask].sum() * (1 - scale)), "parts"
        saved = self.schedule.saved(duration=self.duration_without(mask, scale=scale))
        # Of tasks whose launch is not known the schedule knows nothing: they count with what they cover alone.
        unknown = mask.copy()
        unknown[self.schedule.tasks["task"].to_numpy()] = False
        alone = int(self.exclusive_by_task[unknown].sum() * (1 - scale))
        return saved + alone, "parts" if alone > saved else "replay"

    @cached_property
    def exclusive(self) -> pl.DataFrame:
        return exclusive_time(self.model)

    @cached_property
    def exclusive_by_task(self) -> npt.NDArray[np.int64]:
        """Exclusive time of each task of the model."""
        found = np.zeros(self.model.tasks.height, dtype=np.int64)
        np.add.at(found, self.exclusive["task"].to_numpy(), self.exclusive["ns"].to_numpy())
        return found

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """Computing tasks inside the windows with the columns of `kernels`, `task` (of the model), `ns` and `exclusive_ns`."""
        tasks = self.model.tasks.with_row_index("task").with_columns(
            exclusive_ns=pl.Series(self.exclusive_by_task), ns=pl.col("end_ns") - pl.col("start_ns")
        )
        inside = (pl.col("start_ns") >= self.model.start_ns) & (pl.col("start_ns") < self.model.end_ns)
        tasks = tasks.filter((pl.col("kind") == COMPUTE) & (pl.col("table") == 0) & inside)
        columns = (
            "name", "op_type", "core", "block_num", "mix_block_num", "input_shapes", "input_dtypes", "output_shapes",
            "output_dtypes", "hf32", "external_id",
        )  # fmt: skip
        rows = self.tables.kernels.select(*columns)[tasks["row"]]
        return tasks.select("task", "row", "start_ns", "end_ns", "stream", "op", "ns", "exclusive_ns").hstack(rows)

    def task_mask(self, tasks: pl.Series) -> npt.NDArray[np.bool_]:
        mask = np.zeros(self.model.tasks.height, dtype=np.bool_)
        mask[tasks.to_numpy()] = True
        return mask

    # Evidence and places.

    def longest_gaps(self, *layers: str) -> tuple[Evidence, ...]:
        """The gaps in which the layers idled the device longest: the tasks that ended them."""
        columns = [f"idle.{layer}" for layer in layers if f"idle.{layer}" in self.parts.gaps.columns]
        if not columns:
            return ()
        gaps = self.parts.gaps.with_columns(ns=pl.sum_horizontal(columns)).filter(pl.col("ns") > 0)
        gaps = gaps.sort("ns", descending=True).head(int(self.limit("general", "evidence_rows")))
        return tuple(self.gap_evidence(*row) for row in gaps.select("start_ns", "end_ns", "task").iter_rows())

    def gap_evidence(self, start: int, end: int, task: int | None) -> Evidence:
        if task is None:
            return Evidence("steps", (), "after the last task", start, end)
        table, row = self.model.tasks.select("table", "row").row(task)
        return Evidence(("kernels", "collectives")[table], (row,), "ended the gap", start, end)

    def rows_of(self, table: str, rows: Iterable[int], why: str = "longest") -> tuple[Evidence, ...]:
        chosen = tuple(int(row) for row in rows)[: int(self.limit("general", "evidence_rows"))]
        if not chosen:
            return ()
        frame = self.tables[table]
        if "start_ns" not in frame.columns:
            return (Evidence(table, chosen, why),)
        first = frame[chosen[0]]
        end = "end_ns" if "end_ns" in frame.columns else "start_ns"
        return (Evidence(table, chosen, why, first["start_ns"].item(), first[end].item()),)

    def places(self, ops: pl.Series, ns: pl.Series | npt.NDArray[Any]) -> tuple[Place, ...]:
        """Operators (rows of `ops`, null where unknown) with their share of a cost, summed by name, module and source line."""
        frame = pl.DataFrame({"op": ops, "ns": pl.Series(ns)}).drop_nulls("op")
        if not frame.height or not self.tables.ops.height:
            return ()
        rows = self.tables.ops.select("name")[frame["op"]].hstack(self.op_places[frame["op"]])
        key = ["name", "module", "line"]
        named = frame.hstack(rows).group_by(key).agg(pl.col("ns").sum()).with_columns(pl.col(key).cast(pl.String))
        named = named.sort("ns", *key, descending=[True, False, False, False])
        named = named.head(int(self.limit("general", "places")))
        return tuple(
            Place(name or "", module or "", line or "", ns / self.count)
            for name, module, line, ns in named.select(*key, "ns").iter_rows()
        )

    @cached_property
    def op_places(self) -> pl.DataFrame:
        """Module and source line of each operator; few distinct ones for many operators."""
        return operator_places(self.tables).cast(TEXT)

    def gap_places(self, *layers: str) -> tuple[Place, ...]:
        """Operators that launched the tasks after the gaps in which the layers idled the device."""
        columns = [f"idle.{layer}" for layer in layers if f"idle.{layer}" in self.parts.gaps.columns]
        gaps = self.parts.gaps.drop_nulls("task")
        if not columns or not gaps.height:
            return ()
        ops = self.model.tasks["op"][gaps["task"]]
        return self.places(ops, gaps.select(pl.sum_horizontal(columns)).to_series())

    @cached_property
    def named_waits(self) -> pl.DataFrame:
        """Waits of the schedule with the operator that made each; `number` is their row among the schedule's waits."""
        schedule = self.need_replay()
        return callers(self.tables, schedule.waits.with_row_index("number"))

    def window_numbers(self, windows: Iterable[int]) -> tuple[int, ...]:
        """Numbers of the steps of some windows."""
        numbers = (self.model.steps[window] for window in windows)
        return tuple(number for number in numbers if number is not None)
