# SPDX-License-Identifier: Apache-2.0
"""The rules: each looks at the tables of one capture and yields what it found.

Shares of device time are those of `analysis.step_time.DeviceTime`: parts of computing + exposed communication + free, summed
over the steps of all devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from stepscope.analysis import quality
from stepscope.analysis.overlap import FREE, NOT_OVERLAPPED
from stepscope.analysis.step_parts import LOADER
from stepscope.analysis.step_time import DeviceTime, device_time
from stepscope.tables import Tables
from stepscope.verdict.finding import SEVERITIES, Finding, NotApplicable, Silent, Verdict, percent, severity

Rule = Callable[[Tables], Iterator[Finding]]

MOST_ROWS = 3  # of evidence
SHORT_US = 10.0  # about what the host needs to launch a kernel


def verdict(tables: Tables) -> Verdict:
    """What all rules find in linked tables."""
    found: list[Finding] = []
    silent = []
    for name, rule in RULES.items():
        try:
            found += [replace(finding, rule=name) for finding in rule(tables)]
        except NotApplicable as reason:
            silent.append(Silent(name, str(reason)))
    found.sort(key=lambda finding: (SEVERITIES.index(finding.severity), -finding.gain_us))
    return Verdict(tuple(found), tuple(silent))


def _on_device(tables: Tables) -> DeviceTime:
    if not (tables.kernels.height or tables.collectives.height or tables.step_times.height):
        raise NotApplicable("no device data: step_trace_time.csv and trace_view.json are missing")
    took = device_time(tables)
    if not took.whole_ns:
        raise NotApplicable("nothing ran on the device")
    return took


def _free_device(tables: Tables) -> Iterator[Finding]:
    took = _on_device(tables)
    share, free_us = took.share(took.free_ns), took.free_ns / 1000.0
    if share >= 0.1:
        yield Finding(
            severity(share),
            f"The device is free {percent(share)} of step time",
            f"Free {free_us:,.0f} us of {took.whole_ns / 1000.0:,.0f} us over {took.rows} steps",
            free_us,
            "look for host work before the gaps: data loading, synchronisation, slow launches",
            "Trace",
            *_longest(tables, "overlap", pl.col("layer") == FREE),
        )


def _exposed_communication(tables: Tables) -> Iterator[Finding]:
    took = _on_device(tables)
    if not took.communication_ns:
        raise NotApplicable("no communication in this capture")
    share, exposed_us = took.exposed_share, took.exposed_ns / 1000.0
    if share >= 0.05:
        yield Finding(
            severity(share),
            f"{percent(share)} of step time is exposed (non-overlapped) communication",
            f"{NOT_OVERLAPPED} {exposed_us:,.0f} us, overlapped {took.overlapped_ns / 1000.0:,.0f} us",
            exposed_us,
            "overlap gradients with backward (bucket size), or look for a slow rank in Distributed",
            "Distributed",
            *_longest(tables, "overlap", pl.col("layer") == NOT_OVERLAPPED),
        )


def _longest(tables: Tables, name: str, which: pl.Expr) -> tuple[str, tuple[int, ...]]:
    """The table and the longest of its rows that pass."""
    rows = tables[name].with_row_index("row").filter(which)
    rows = rows.with_columns(length=pl.col("end_ns") - pl.col("start_ns")).sort("length", descending=True)
    return name, tuple(rows["row"].head(MOST_ROWS).to_list())


def _slow_steps(tables: Tables) -> Iterator[Finding]:
    steps = tables.steps.filter(~pl.col("inflated").fill_null(False))
    if steps.height < 3:
        raise NotApplicable("fewer than three steps")
    length = (steps["end_ns"] - steps["start_ns"]).to_numpy() / 1000.0
    median = float(np.median(length))
    mad = float(np.median(np.abs(length - median)))
    slow = np.flatnonzero((length > median + 3 * mad) & (length > 1.1 * median))
    if slow.size:
        lost = float((length[slow] - median).sum())
        numbers = ", ".join(str(steps["step"][int(place)]) for place in slow[:10])
        yield Finding(
            severity(lost / float(length.sum())),
            f"{slow.size} of {steps.height} steps are slow",
            f"steps {numbers} take more than median {median:,.0f} us + 3 MAD",
            lost,
            "compare a slow step with its neighbour",
            "Overview",
        )


def _data_loading(tables: Tables) -> Iterator[Finding]:
    if not tables.ops.height:
        raise NotApplicable("no operators: collect with activity CPU")
    rows = tables.ops.with_row_index("row").filter(pl.col("name").cat.starts_with(LOADER))
    waited = float((rows["end_ns"] - rows["start_ns"]).sum()) / 1000.0
    recorded = tables.ops.select(pl.col("end_ns").max() - pl.col("start_ns").min()).item() or 0
    whole = (float((tables.steps["end_ns"] - tables.steps["start_ns"]).sum()) or float(recorded)) / 1000.0
    if whole and waited / whole >= 0.05:
        yield Finding(
            severity(waited / whole),
            f"The training loop waits {percent(waited / whole)} of the time for data",
            f"{rows.height} waits, {waited:,.0f} us",
            waited,
            "more loader workers, pinned memory, cheaper transforms",
            "Trace",
            "ops",
            tuple(rows["row"].head(MOST_ROWS).to_list()),
        )


def _ai_cpu(tables: Tables) -> Iterator[Finding]:
    if tables.device_kind != "npu":
        raise NotApplicable("no NPU")
    kernels = tables.kernels
    if not kernels["core"].count():
        raise NotApplicable("accelerator cores unknown: collect with profiler level 1 or higher")
    rows = kernels.filter((pl.col("core") == "AI_CPU") & (pl.col("kind") == "compute"))
    spent = float((rows["end_ns"] - rows["start_ns"]).sum()) / 1000.0
    whole = float((kernels["end_ns"] - kernels["start_ns"]).sum()) / 1000.0
    if rows.height and spent / whole >= 0.02:
        names = (
            rows.group_by(pl.col("name").cast(pl.String))
            .agg(us=(pl.col("end_ns") - pl.col("start_ns")).sum())
            .sort("us", descending=True)
        )
        yield Finding(
            severity(spent / whole),
            f"{rows.height} kernels run on AI CPU",
            f"{spent:,.0f} us, mostly {', '.join(names['name'].to_list()[:3])}",
            spent,
            "use types and operators that AI Cores support (int64 and double are the usual cause)",
            "NPU Kernel",
            *_longest(tables, "kernels", pl.col("core") == "AI_CPU"),
        )


def _small_kernels(tables: Tables) -> Iterator[Finding]:
    rows = tables.kernels.filter(pl.col("kind") == "compute")
    if rows.height < 100:
        raise NotApplicable("fewer than 100 kernels")
    on_npu = tables.device_kind == "npu"
    length = (rows["end_ns"] - rows["start_ns"]).to_numpy() / 1000.0
    short = length < SHORT_US
    share = float(short.mean())
    if share >= 0.6:
        yield Finding(
            "medium" if share >= 0.8 else "low",
            f"{percent(share)} of the kernels take less than {SHORT_US:.0f} us",
            f"{int(short.sum()):,} of {rows.height:,} kernels; launching one costs the host about as much",
            device_time(tables).free_ns / 1000.0 if on_npu else 0.0,
            "fuse operators (compile, fused optimizers), or use larger batches",
            "NPU Kernel" if on_npu else "GPU Kernel",
        )


def _lost_data(tables: Tables) -> Iterator[Finding]:
    losses = [one for one in quality.occurrences(tables.quality) if one.issue.severity == "loss"]
    if losses:
        yield Finding(
            "info",
            quality.summary(tables.quality),
            "; ".join(one.sentence() for one in losses[:5]),
            0.0,
            losses[0].issue.advice,
            "Files",
        )


RULES: dict[str, Rule] = {
    "free-device": _free_device,
    "exposed-communication": _exposed_communication,
    "slow-steps": _slow_steps,
    "data-loading": _data_loading,
    "ai-cpu": _ai_cpu,
    "small-kernels": _small_kernels,
    "lost-data": _lost_data,
}
