# SPDX-License-Identifier: Apache-2.0
"""The Overview: what was captured, where the time went, step by step, and what to look at first (docs/reference/viewer.md 4.1)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl

from stepscope.analysis import quality
from stepscope.analysis.kernels.tensor_cores import uses
from stepscope.analysis.overlap import computing, intersect, merge
from stepscope.report import switches
from stepscope.tables import device_word
from stepscope.web.loaded import LoadedCapture
from stepscope.web.views.findings import findings
from stepscope.web.views.steps import NPU, OTHER, npu_steps, other_steps

SIMULATED = "recorded on the simulated NPU: what ran and how long it took is real; modelled, not measured, are "
COUNTERS = ("counters of cores and caches",)
SLOW = 3.0  # median absolute deviations above the median


def overview(capture: LoadedCapture, workers: int = 1) -> dict[str, Any]:
    npu = capture.is_npu
    categories, rows, average = _npu(capture) if npu else _other(capture)
    notes = [simulated(capture)] if capture.simulated else []
    if not capture.tables.steps.height:
        notes.append("no steps in this capture: use a schedule and call prof.step() after every step")
    return {
        "complete": quality.complete(capture.tables.quality),
        "headline": quality.as_dict(capture.tables.quality)["headline"],
        "configuration": _configuration(capture, workers),
        "device_summary": _device_summary(capture) if npu else [],
        "gpu_summary": _gpu_summary(capture) if capture.kind not in ("npu", "cpu") and capture.has_device else [],
        "execution": {"columns": ["Category", "Time Duration (us)", "Percentage (%)"], "rows": _execution(categories, rows, npu)},
        "average_step_us": average,
        "steps": _steps(categories, rows),
        "findings": findings(capture)["findings"][:3],
        "notes": notes,
    }


def simulated(capture: LoadedCapture) -> str:
    """What a reader of a simulated capture has to know."""
    return SIMULATED + ", ".join(capture.facts.modelled or COUNTERS)


def _configuration(capture: LoadedCapture, workers: int) -> list[dict[str, Any]]:
    facts, tables = capture.facts, capture.tables
    named = Counter(facts.device_names.values())
    devices = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in named.items())
    devices = devices or ", ".join(map(str, facts.device_ids))
    steps = tables.steps["step"].drop_nulls().to_list()
    values = {
        "Number of Worker(s)": workers,
        "Device Type": "GPU (ROCm)" if capture.kind == "rocm" else device_word(capture.kind),
        "Device": devices or None,
        "Rank": facts.rank if facts.rank >= 0 else None,
        "Framework": facts.framework,
        "torch_npu": facts.torch_npu_version or None,
        "CANN": facts.cann_version or None,
        "Profiler Level": facts.level or None,
        "AI Core Metrics": facts.aic_metrics or None,
        "Switches": ", ".join(switches(facts)) or None,
        "Steps": ", ".join(map(str, steps[:20])) + (" …" if len(steps) > 20 else "") if steps else None,
        "Captured (ms)": capture.trace.length_ns / 1e6,
        "Read from": facts.source or None,
    }
    return [{"name": name, "value": value} for name, value in values.items() if value is not None]


def _npu(capture: LoadedCapture) -> tuple[list[str], list[dict[str, Any]], float | None]:
    frame = npu_steps(capture)
    rows = [
        {"step": row["step"], "device": row["device"], "values": [row[name] for name in NPU], "total": _whole(row)}
        for row in frame.iter_rows(named=True)
    ]
    return list(NPU), rows, sum(row["total"] for row in rows) / len(rows) if rows else None


def _whole(row: dict[str, Any]) -> float:
    return float(row["Computing"] + row["Communication(Not Overlapped)"] + row["Free"])


def _other(capture: LoadedCapture) -> tuple[list[str], list[dict[str, Any]], float | None]:
    frame = other_steps(capture)
    rows = [
        {"step": row["step"], "device": None, "values": [row[name] for name in OTHER], "total": row["total"]}
        for row in frame.iter_rows(named=True)
    ]
    return list(OTHER), rows, sum(row["total"] for row in rows) / len(rows) if rows else None


def _execution(categories: list[str], rows: list[dict[str, Any]], npu: bool) -> list[list[Any]]:
    """Means over the steps."""
    if not rows:
        return []
    means = [sum(row["values"][place] for row in rows) / len(rows) for place in range(len(categories))]
    whole = sum(row["total"] for row in rows) / len(rows)
    table = [] if npu else [["Average Step Time", whole, 100.0 if whole else 0.0]]
    return table + [[name, mean, 100 * mean / whole if whole else 0.0] for name, mean in zip(categories, means, strict=True)]


def _steps(categories: list[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    totals = pl.Series([row["total"] for row in rows], dtype=pl.Float64)
    median = float(_number(totals.median()))
    mad = float(_number((totals - median).abs().median())) if rows else 0.0
    shown = [{**row, "slow": bool(mad and row["total"] > median + SLOW * mad)} for row in rows]
    return {"categories": categories, "rows": shown, "median_us": median, "mad_us": mad}


def _device_summary(capture: LoadedCapture) -> list[dict[str, Any]]:
    tables = capture.tables
    found: list[tuple[str, Any, str]] = []
    frame = npu_steps(capture)
    whole = sum(_whole(row) for row in frame.iter_rows(named=True))
    if whole:
        found.append(("Computing share", 100 * float(frame["Computing"].sum()) / whole, "%"))
    tasks = computing(tables.kernels)
    length = (tasks["end_ns"] - tasks["start_ns"]).sum()
    on_core = tasks.filter(pl.col("core").cast(pl.String).is_in(["AI_CORE", "MIX_AIC"]))
    if length:
        found.append(("AI Core time share", 100 * int((on_core["end_ns"] - on_core["start_ns"]).sum()) / int(length), "%"))
    if "cube_utilization" in tables.kernel_metrics.columns:
        used = tables.kernel_metrics.filter(pl.col("cube_utilization") > 0)["cube_utilization"]
        if len(used):
            found.append(("Mean cube_utilization", float(_number(used.mean())), "%"))
    frequency = tables.counters.filter(pl.col("source") == "AI Core Freq")["value"]
    if len(frequency):
        found += [("AI Core Freq min", frequency.min(), "MHz"), ("AI Core Freq max", frequency.max(), "MHz")]
    memory = tables.counters.filter(pl.col("source") == "HBM")
    for word in ("Read", "Write"):
        rows = memory.filter(pl.col("name").cast(pl.String).str.ends_with(f"/{word}"))["value"]
        if len(rows):
            found.append((f"HBM {word.lower()} mean", float(_number(rows.mean())), "MB/s"))
    names = ", ".join(capture.facts.device_names.values())
    first: list[tuple[str, Any, str]] = [("Device", names, "")] if names else []
    return [{"name": name, "value": value, "unit": unit} for name, value, unit in first + found]


def _gpu_summary(capture: LoadedCapture) -> list[dict[str, Any]]:
    """Busy time of each GPU, and occupancy of its kernels weighted by their time."""
    kernels = capture.tables.kernels
    span = kernels.select("start_ns", "end_ns")
    steps = capture.tables.steps
    window = steps.select("start_ns", "end_ns") if steps.height else span.select(pl.col("start_ns").min(), pl.col("end_ns").max())
    whole = merge(window)
    length = int((whole["end_ns"] - whole["start_ns"]).sum())
    found = []
    for device in kernels["device"].drop_nulls().unique().sort().to_list():
        own = kernels.filter(pl.col("device") == device)
        busy = intersect(merge(own.select("start_ns", "end_ns")), whole)
        rows: list[tuple[str, Any, str]] = [
            ("Name", capture.facts.device_names.get(str(device)) or f"{device_word(capture.kind)} {device}", ""),
            *_hardware(capture.facts.device_properties.get(str(device), {})),
            ("GPU Utilization", 100 * int((busy["end_ns"] - busy["start_ns"]).sum()) / length if length else 0.0, "%"),
        ]
        tasks = own.filter(pl.col("kind").is_in(["compute", "communication"]))
        filled = tasks.drop_nulls("blocks_per_sm")
        if filled.height and length:
            # A kernel with fewer blocks than multiprocessors leaves the others without work.
            time = filled["end_ns"] - filled["start_ns"]
            rows.append(("Est. SM Efficiency", 100 * float((filled["blocks_per_sm"].clip(0, 1) * time).sum()) / length, "%"))
        known = tasks.drop_nulls("occupancy")
        time = known["end_ns"] - known["start_ns"]
        if time.sum():
            rows.append(("Est. Achieved Occupancy", float((known["occupancy"] * time).sum()) / int(time.sum()), "%"))
        rows.append(("Kernel Time using Tensor Cores", _tensor_share(own), "%"))
        found += [{"name": name, "value": value, "unit": unit, "device": device} for name, value, unit in rows]
    return found


def _hardware(properties: Any) -> list[tuple[str, Any, str]]:
    known = properties if isinstance(properties, dict) else {}
    found: list[tuple[str, Any, str]] = []
    if isinstance(known.get("totalGlobalMem"), int):
        found.append(("Memory", known["totalGlobalMem"], "bytes"))
    if "computeMajor" in known and "computeMinor" in known:
        found.append(("Compute Capability", f"{known['computeMajor']}.{known['computeMinor']}", ""))
    return found


def _tensor_share(kernels: pl.DataFrame) -> float:
    rows = kernels.filter(pl.col("kind") == "compute")
    time = rows["end_ns"] - rows["start_ns"]
    return 100 * int(time.filter(uses(rows["name"])).sum()) / int(time.sum()) if time.sum() else 0.0


def _number(value: Any) -> float:
    return float(value or 0)
