# SPDX-License-Identifier: Apache-2.0
"""What is in a capture, and where its time goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from stepscope.analysis import quality
from stepscope.analysis.flops import flops_by_operator, flops_by_step
from stepscope.analysis.marks import mark_summary
from stepscope.analysis.operators import operator_summary
from stepscope.analysis.statistics import api_statistic, kernel_summary
from stepscope.analysis.step_time import DeviceTime, device_time, step_times
from stepscope.analysis.views import module_view
from stepscope.analysis_queue import AnalysisState, describe, state_of
from stepscope.capture import Capture
from stepscope.tables import Facts, Tables
from stepscope.verdict import Verdict, verdict

SWITCHES = (
    "record_shapes",
    "profile_memory",
    "with_stack",
    "with_modules",
    "with_flops",
    "l2_cache",
    "mstx",
    "sys_io",
    "sys_interconnection",
)


@dataclass(frozen=True)
class Overview:
    """One capture in a few lines."""

    path: str
    source: str
    facts: Facts
    steps: pl.DataFrame
    rows: dict[str, int]
    source_bytes: int
    source_files: int
    quality: pl.DataFrame
    device_time: DeviceTime
    verdict: Verdict
    analysis: AnalysisState | None = None  # in the background

    def lines(self) -> Iterable[tuple[str, str]]:
        facts = self.facts
        devices = ", ".join(
            f"{number} ({facts.device_names[str(number)]})" if str(number) in facts.device_names else str(number)
            for number in facts.device_ids
        )
        yield "rank", str(facts.rank) if facts.rank >= 0 else "none"
        yield "read from", self.source
        yield "device", " ".join(part for part in (facts.device_kind, devices) if part) or "none"
        if facts.modelled:
            yield "modelled", f"{', '.join(facts.modelled)}; all other times are measured"
        if self.analysis is not None and (said := describe(self.analysis)):
            yield "analysis", said
        yield "steps", self.steps_text()
        yield "switches", ", ".join(switches(facts)) or "none known"
        versions = [
            f"{name} {value}" for name, value in (("torch_npu", facts.torch_npu_version), ("CANN", facts.cann_version)) if value
        ]
        if versions:
            yield "versions", ", ".join(versions)

    def steps_text(self) -> str:
        if not self.steps.height:
            return "none marked"
        spans = (self.steps["end_ns"] - self.steps["start_ns"]) / 1e6
        first, last = self.steps["step"].item(0), self.steps["step"].item(-1)
        numbers = str(first) if first == last else f"{first}–{last}"
        return f"{self.steps.height} ({numbers}), host {spans.mean():.3f} ms on average, {spans.min():.3f} to {spans.max():.3f}"

    def as_dict(self) -> dict[str, Any]:
        facts = self.facts
        return {
            "path": self.path,
            "complete": quality.complete(self.quality),
            "rank": facts.rank if facts.rank >= 0 else None,
            "source": self.source,
            "analysis": None if self.analysis is None else self.analysis.state,
            "device_kind": facts.device_kind,
            "devices": list(facts.device_ids),
            "modelled": list(facts.modelled),
            "level": facts.level or None,
            "switches": switches(facts),
            "steps": self.steps.select("step", "start_ns", "end_ns", "inflated").to_dicts(),
            "rows": self.rows,
            "source_bytes": self.source_bytes,
            "source_files": self.source_files,
            "device_time": self.device_time.as_dict(),
            "verdict": self.verdict.as_dict(),
            "quality": quality.as_dict(self.quality),
        }


def overview(capture: Capture) -> Overview:
    tables = capture.tables
    files = capture.source_files()
    return Overview(
        path=str(capture.path),
        source=tables.facts.source or capture.source,
        facts=tables.facts,
        steps=tables.steps,
        rows={name: tables[name].height for name in tables.filled() if name not in ("meta", "quality")},
        source_bytes=sum(path.stat().st_size for path in files),
        source_files=len(files),
        quality=tables.quality,
        device_time=device_time(tables),
        verdict=verdict(tables),
        analysis=state_of(capture.path),
    )


def switches(facts: Facts) -> list[str]:
    named = [name for name in SWITCHES if getattr(facts, name)]
    return [*([facts.level] if facts.level else []), *facts.activities, *named]


def same_ranks(overviews: Iterable[Overview]) -> dict[int, list[str]]:
    """Ranks that occur more than once, with their captures."""
    by_rank: dict[int, list[str]] = {}
    for item in overviews:
        if item.facts.rank >= 0:
            by_rank.setdefault(item.facts.rank, []).append(item.path)
    return {rank: paths for rank, paths in by_rank.items() if len(paths) > 1}


def top(tables: Tables, *, by: str, all_tasks: bool = False) -> pl.DataFrame:
    """Where the time goes, largest first; times in milliseconds. `all_tasks`: see `statistics.kernel_summary`."""
    return _milliseconds(kernel_summary(tables, all_tasks=True)) if by == "kernel" and all_tasks else TOP[by](tables)


def tasks_left_out(tables: Tables) -> int:
    """How many tasks of streams `top` by kernel leaves out: waits, notifications, parts of communication operators."""
    every, shown = (kernel_summary(tables, all_tasks=all_tasks)["calls"].sum() for all_tasks in (True, False))
    return int(every) - int(shown)


def _milliseconds(frame: pl.DataFrame) -> pl.DataFrame:
    times = [name for name in frame.columns if name.endswith("_ns")]
    return frame.with_columns(pl.col(times) / 1e6).rename({name: f"{name.removesuffix('_ns')}_ms" for name in times})


def _operators(tables: Tables) -> pl.DataFrame:
    frame = _milliseconds(operator_summary(tables)).with_columns(pl.col("host_share", "device_share") * 100)
    frame = _without_idle_device(frame, tables).rename({"host_share": "host_%", "device_share": "device_%"}, strict=False)
    if not tables.ops["flops"].count():
        return frame
    counted = flops_by_operator(tables).select("name", "flops", _giga())
    return frame.join(counted, on="name", how="left", maintain_order="left")


def _kernels(tables: Tables) -> pl.DataFrame:
    return _milliseconds(kernel_summary(tables))


def _api_calls(tables: Tables) -> pl.DataFrame:
    frame = api_statistic(tables).rename({"count": "calls"}).drop("variance_us2")
    return _milliseconds(frame.sort("total_ns", pl.col("name").cast(pl.String), descending=[True, False]))


def _modules(tables: Tables) -> pl.DataFrame:
    frame = _milliseconds(module_view(tables)).drop("depth")
    return _without_idle_device(frame.sort("device_total_ms", "host_total_ms", descending=True, maintain_order=True), tables)


def _without_idle_device(frame: pl.DataFrame, tables: Tables) -> pl.DataFrame:
    """Device columns only where there is a device: a capture of the CPU alone would show zeros."""
    if tables.kernels.height or tables.collectives.height or tables.op_times.height:
        return frame
    return frame.select(name for name in frame.columns if not name.startswith("device_"))


def _steps(tables: Tables) -> pl.DataFrame:
    host = tables.steps.select("step", host_ns=pl.col("end_ns") - pl.col("start_ns"), inflated=pl.col("inflated"))
    device = step_times(tables).drop_nulls("step")
    if not host.height and device.height:  # the vendor's figures are all that is left
        return _milliseconds(device)
    joined = host if not device.height else host.join(device, on="step", how="left", maintain_order="left")
    if tables.ops["flops"].count():
        counted = flops_by_step(tables).select("step", "flops", _giga()).unique("step", keep="first", maintain_order=True)
        joined = joined.join(counted, on="step", how="left", maintain_order="left")
    return _milliseconds(joined)


def _giga() -> pl.Expr:
    return (pl.col("flops_per_s") / 1e9).alias("GFLOP/s")


def _marks(tables: Tables) -> pl.DataFrame:
    frame = mark_summary(tables)
    return _milliseconds(frame if frame["device_calls"].sum() else frame.drop("device_calls", "device_ns"))


TOP: dict[str, Callable[[Tables], pl.DataFrame]] = {
    "op": _operators, "kernel": _kernels, "api": _api_calls, "module": _modules, "step": _steps, "mark": _marks,
}  # fmt: skip
