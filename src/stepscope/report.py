# SPDX-License-Identifier: Apache-2.0
"""What a person wants to know first: what is in a capture, where its time goes, and a short verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from stepscope.analysis import quality
from stepscope.analysis.flops import flops_by_operator, flops_by_step
from stepscope.analysis.marks import mark_summary
from stepscope.analysis.operators import operator_summary
from stepscope.analysis.overlap import COMPUTING, FREE, NOT_OVERLAPPED, device_layers
from stepscope.analysis.statistics import kernel_summary
from stepscope.analysis.step_time import step_trace_time
from stepscope.analysis.views import module_view
from stepscope.capture import Capture
from stepscope.tables import Facts, Tables

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
            "rank": facts.rank if facts.rank >= 0 else None,
            "source": self.source,
            "device_kind": facts.device_kind,
            "devices": list(facts.device_ids),
            "modelled": list(facts.modelled),
            "level": facts.level or None,
            "switches": switches(facts),
            "steps": self.steps.select("step", "start_ns", "end_ns", "inflated").to_dicts(),
            "rows": self.rows,
            "source_bytes": self.source_bytes,
            "source_files": self.source_files,
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


def top(tables: Tables, *, by: str) -> pl.DataFrame:
    """Where the time goes, largest first; times in milliseconds."""
    return TOP[by](tables)


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


def _modules(tables: Tables) -> pl.DataFrame:
    frame = _milliseconds(module_view(tables)).drop("depth")
    return _without_idle_device(frame.sort("device_total_ms", "host_total_ms", descending=True, maintain_order=True), tables)


def _without_idle_device(frame: pl.DataFrame, tables: Tables) -> pl.DataFrame:
    """Device columns only where there is a device: a capture of the CPU alone would show zeros."""
    if tables.kernels.height or tables.collectives.height:
        return frame
    return frame.select(name for name in frame.columns if not name.startswith("device_"))


def _steps(tables: Tables) -> pl.DataFrame:
    host = tables.steps.select("step", host_ns=pl.col("end_ns") - pl.col("start_ns"), inflated=pl.col("inflated"))
    device = (
        step_trace_time(tables).drop_nulls("step") if tables.steps["device_start_ns"].null_count() < tables.steps.height else None
    )
    joined = host if device is None else host.join(device, on="step", how="left", maintain_order="left")
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
    "op": _operators, "kernel": _kernels, "module": _modules, "step": _steps, "mark": _marks,
}  # fmt: skip


def verdict(tables: Tables) -> pl.DataFrame:
    """The few findings that tell where to look; one row each."""
    found = [
        *_about_recording(tables),
        *_about_steps(tables),
        *_about_operators(tables),
        *_about_device(tables),
        *_about_memory(tables),
        *_about_quality(tables),
    ]
    return pl.DataFrame(found, schema={"what": pl.String, "finding": pl.String}, orient="row")


def _about_recording(tables: Tables) -> Iterable[tuple[str, str]]:
    if said := quality.headline(tables.quality):
        yield "recording", said


def _about_steps(tables: Tables) -> Iterable[tuple[str, str]]:
    steady = tables.steps.filter(~pl.col("inflated").fill_null(False))
    if not steady.height:
        return
    spans = (steady["end_ns"] - steady["start_ns"]) / 1e6
    left_out = tables.steps.height - steady.height
    aside = f" ({left_out} inflated ones left out)" if left_out else ""
    yield "step", f"{spans.mean():.1f} ms on average over {steady.height} steps{aside}"
    slowest = int(spans.arg_max() or 0)
    yield (
        "slowest step",
        f"#{steady['step'][slowest]}: {spans[slowest]:.1f} ms, {spans[slowest] / _number(spans.median()):.2f}× the median",
    )


def _about_operators(tables: Tables) -> Iterable[tuple[str, str]]:
    summary = operator_summary(tables)
    if not summary.height:
        return
    for side, label in (("device", "most device time"), ("host", "most host time")):
        if _number(summary[f"{side}_self_ns"].sum()):
            row = summary.sort(f"{side}_self_ns", descending=True).row(0, named=True)
            yield label, f"{row['name']}: {row[f'{side}_share']:.0%} in {row['calls']:,} calls"


def _about_device(tables: Tables) -> Iterable[tuple[str, str]]:
    shown = device_layers(tables, whole_device=True)
    sums = dict(shown.group_by("layer").agg((pl.col("end_ns") - pl.col("start_ns")).sum()).cast({"layer": pl.String}).iter_rows())
    computing, exposed, free = (sums.get(layer, 0) for layer in (COMPUTING, NOT_OVERLAPPED, FREE))
    whole = computing + exposed + free
    if whole:
        yield (
            "device",
            f"computing {computing / whole:.0%}, communication not hidden {exposed / whole:.0%}, free {free / whole:.0%}",
        )


def _about_memory(tables: Tables) -> Iterable[tuple[str, str]]:
    peaks = tables.memory_events.drop_nulls("total_allocated").group_by("device_type").agg(pl.col("total_allocated").max())
    for kind, peak in peaks.sort("total_allocated", descending=True).iter_rows():
        size = f"{peak / 2**20:,.1f} MiB" if peak >= 2**20 else f"{peak / 2**10:,.1f} KiB"
        yield f"memory ({kind})", f"peak {size} allocated"
    if tables.gc_pauses.height:
        pauses = (tables.gc_pauses["end_ns"] - tables.gc_pauses["start_ns"]) / 1e6
        yield "garbage collection", f"{tables.gc_pauses.height} pauses, {pauses.sum():.1f} ms"


def _about_quality(tables: Tables) -> Iterable[tuple[str, str]]:
    first = next((one for one in quality.occurrences(tables.quality) if one.issue.severity == "loss"), None)
    why = f": {first.sentence()}; see `stepscope info`" if first else ""
    yield "quality", f"{quality.summary(tables.quality)}{why}"


def _number(value: Any) -> float:
    return float(value or 0)
