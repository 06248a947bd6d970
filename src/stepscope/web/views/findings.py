# SPDX-License-Identifier: Apache-2.0
"""The Findings view: rules that hit, what they cost, where to look; and rules that could not be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl

from stepscope.analysis import quality
from stepscope.web.loaded import LoadedCapture
from stepscope.web.views.steps import npu_steps, other_steps

SEVERITIES = ("high", "medium", "low", "info")
Rule = Callable[[LoadedCapture], Iterator[dict[str, Any]]]


class NotApplicable(Exception):
    """The capture lacks what the rule needs."""


def findings(opened: LoadedCapture) -> dict[str, Any]:
    """All hits, the most serious and costly first."""
    return opened.once("findings", lambda: _findings(opened))


def _findings(opened: LoadedCapture) -> dict[str, Any]:
    hits: list[dict[str, Any]] = []
    silent = []
    for name, rule in RULES.items():
        try:
            hits += [{"rule": name, **hit} for hit in rule(opened)]
        except NotApplicable as reason:
            silent.append({"rule": name, "because": str(reason)})
    hits.sort(key=lambda hit: (SEVERITIES.index(hit["severity"]), -hit["gain_us"]))
    return {"findings": hits, "not_applicable": silent}


def _hit(severity: str, title: str, detail: str, gain_us: float, action: str, view: str, slices: list[int]) -> dict[str, Any]:
    return {
        "severity": severity,
        "title": title,
        "detail": detail,
        "gain_us": gain_us,
        "action": action,
        "view": view,
        "slices": slices,
    }


def _severity(share: float) -> str:
    return "high" if share >= 0.3 else "medium" if share >= 0.1 else "low"


def _device_steps(opened: LoadedCapture) -> pl.DataFrame:
    if not opened.has_device and not opened.tables.step_times.height:
        raise NotApplicable("no device data: step_trace_time.csv and trace_view.json are missing")
    frame = npu_steps(opened)
    whole = pl.col("Computing") + pl.col("Communication(Not Overlapped)") + pl.col("Free")
    frame = frame.with_columns(whole=whole).filter(pl.col("whole") > 0)
    if not frame.height:
        raise NotApplicable("nothing ran on the device")
    return frame


def _free_device(opened: LoadedCapture) -> Iterator[dict[str, Any]]:
    frame = _device_steps(opened)
    free, whole = float(frame["Free"].sum()), float(frame["whole"].sum())
    if free / whole >= 0.1:
        yield _hit(
            _severity(free / whole),
            f"The device is idle {free / whole:.0%} of the time",
            f"Free {free:,.0f} us of {whole:,.0f} us over {frame.height} steps",
            free,
            "look for host work before the gaps: data loading, synchronisation, slow launches",
            "Trace",
            _longest(opened, "overlap", pl.col("layer") == "Free"),
        )


def _exposed_communication(opened: LoadedCapture) -> Iterator[dict[str, Any]]:
    frame = _device_steps(opened)
    exposed, whole = float(frame["Communication(Not Overlapped)"].sum()), float(frame["whole"].sum())
    if not float(frame["Communication"].sum()):
        raise NotApplicable("no communication in this capture")
    if exposed / whole >= 0.05:
        yield _hit(
            _severity(exposed / whole),
            f"{exposed / whole:.0%} of the time is communication that hides behind nothing",
            f"Communication(Not Overlapped) {exposed:,.0f} us, overlapped {float(frame['Overlapped'].sum()):,.0f} us",
            exposed,
            "overlap gradients with backward (bucket size), or look for a slow rank in Distributed",
            "Distributed",
            _longest(opened, "overlap", pl.col("layer") == "Communication(Not Overlapped)"),
        )


def _longest(opened: LoadedCapture, source: str, which: pl.Expr) -> list[int]:
    """Slices of the three longest rows of a table that pass."""
    rows = opened.tables[source].with_row_index("row").filter(which)
    rows = rows.with_columns(length=pl.col("end_ns") - pl.col("start_ns")).sort("length", descending=True).head(3)
    return [number for number in (opened.trace.id_of(source, row) for row in rows["row"].to_list()) if number is not None]


def _slow_steps(opened: LoadedCapture) -> Iterator[dict[str, Any]]:
    steps = opened.tables.steps.filter(~pl.col("inflated").fill_null(False))
    if steps.height < 3:
        raise NotApplicable("fewer than three steps")
    length = (steps["end_ns"] - steps["start_ns"]).to_numpy() / 1000.0
    median = float(np.median(length))
    mad = float(np.median(np.abs(length - median)))
    slow = np.flatnonzero((length > median + 3 * mad) & (length > 1.1 * median))
    if slow.size:
        lost = float((length[slow] - median).sum())
        numbers = ", ".join(str(steps["step"][int(place)]) for place in slow[:10])
        yield _hit(
            _severity(lost / float(length.sum())),
            f"{slow.size} of {steps.height} steps are slow",
            f"steps {numbers} take more than median {median:,.0f} us + 3 MAD",
            lost,
            "compare a slow step with its neighbour",
            "Overview",
            [],
        )


def _data_loading(opened: LoadedCapture) -> Iterator[dict[str, Any]]:
    if not opened.tables.ops.height:
        raise NotApplicable("no operators: collect with activity CPU")
    rows = opened.tables.ops.with_row_index("row").filter(pl.col("name").cat.starts_with("enumerate(DataLoader)"))
    waited = float((rows["end_ns"] - rows["start_ns"]).sum()) / 1000.0
    whole = (
        float((opened.tables.steps["end_ns"] - opened.tables.steps["start_ns"]).sum()) / 1000.0 or opened.trace.length_ns / 1000.0
    )
    if whole and waited / whole >= 0.05:
        slices = [opened.trace.id_of("ops", row) for row in rows["row"].to_list()[:3]]
        yield _hit(
            _severity(waited / whole),
            f"The training loop waits {waited / whole:.0%} of the time for data",
            f"{rows.height} waits, {waited:,.0f} us",
            waited,
            "more loader workers, pinned memory, cheaper transforms",
            "Trace",
            [number for number in slices if number is not None],
        )


def _ai_cpu(opened: LoadedCapture) -> Iterator[dict[str, Any]]:
    kernels = opened.tables.kernels.with_row_index("row")
    if not opened.is_npu:
        raise NotApplicable("no NPU")
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
        yield _hit(
            _severity(spent / whole),
            f"{rows.height} kernels run on AI CPU",
            f"{spent:,.0f} us, mostly {', '.join(names['name'].to_list()[:3])}",
            spent,
            "use types and operators that AI Cores support (int64 and double are the usual cause)",
            "NPU Kernel",
            _longest(opened, "kernels", pl.col("core") == "AI_CPU"),
        )


def _small_kernels(opened: LoadedCapture) -> Iterator[dict[str, Any]]:
    rows = opened.tables.kernels.filter(pl.col("kind") == "compute")
    if rows.height < 100:
        raise NotApplicable("fewer than 100 kernels")
    length = (rows["end_ns"] - rows["start_ns"]).to_numpy() / 1000.0
    share = float((length < 10).mean())
    steps = npu_steps(opened) if opened.is_npu else other_steps(opened)
    free = float(steps["Free"].sum()) if "Free" in steps.columns else 0.0
    if share >= 0.6:
        yield _hit(
            "medium" if share >= 0.8 else "low",
            f"{share:.0%} of the kernels take less than 10 us",
            f"{int((length < 10).sum()):,} of {rows.height:,} kernels; launching one costs the host about as much",
            free,
            "fuse operators (compile, fused optimizers), or use larger batches",
            "NPU Kernel" if opened.is_npu else "GPU Kernel",
            [],
        )


def _lost_data(opened: LoadedCapture) -> Iterator[dict[str, Any]]:
    losses = [one for one in quality.occurrences(opened.tables.quality) if one.issue.severity == "loss"]
    if losses:
        yield _hit(
            "info",
            quality.summary(opened.tables.quality),
            "; ".join(one.sentence() for one in losses[:5]),
            0.0,
            losses[0].issue.advice,
            "Files",
            [],
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
