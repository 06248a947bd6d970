# SPDX-License-Identifier: Apache-2.0
"""How well the devices of a capture were used, in a few figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from stepscope.analysis.kernels.tensor_cores import uses
from stepscope.analysis.overlap import computing, intersect, merge
from stepscope.analysis.step_time import device_time
from stepscope.tables import Tables, device_word

ON_CORE = ("AI_CORE", "MIX_AIC")


@dataclass(frozen=True)
class Figure:
    """One figure and what it is called."""

    name: str
    value: str | float
    unit: str = ""
    device: int | None = None  # None: of all devices


def npu_summary(tables: Tables) -> list[Figure]:
    """Names of the devices, shares of computing and of AI Cores, cube utilization, frequency and memory bandwidth.

    A figure whose source was not recorded is left out.
    """
    names = ", ".join(tables.facts.device_names.values())
    figures = [Figure("Device", names)] if names else []
    took = device_time(tables)
    if took.whole_ns:
        figures.append(Figure("Computing share", 100 * took.share(took.computing_ns), "%"))
    tasks = computing(tables.kernels)
    whole_ns = _length(tasks)
    if whole_ns:
        on_core = tasks.filter(pl.col("core").cast(pl.String).is_in(ON_CORE))
        figures.append(Figure("AI Core time share", 100 * _length(on_core) / whole_ns, "%"))
    if "cube_utilization" in tables.kernel_metrics.columns:
        used = tables.kernel_metrics.filter(pl.col("cube_utilization") > 0)["cube_utilization"]
        if len(used):
            figures.append(Figure("Mean cube_utilization", _number(used.mean()), "%"))
    return figures + _sampled(tables.counters)


def _sampled(counters: pl.DataFrame) -> list[Figure]:
    figures = []
    frequency = counters.filter(pl.col("source") == "AI Core Freq")["value"]
    if len(frequency):
        figures += [
            Figure("AI Core Freq min", _number(frequency.min()), "MHz"),
            Figure("AI Core Freq max", _number(frequency.max()), "MHz"),
        ]
    memory = counters.filter(pl.col("source") == "HBM")
    for word in ("Read", "Write"):
        rates = memory.filter(pl.col("name").cast(pl.String).str.ends_with(f"/{word}"))["value"]
        if len(rates):
            figures.append(Figure(f"HBM {word.lower()} mean", _number(rates.mean()), "MB/s"))
    return figures


def gpu_summary(tables: Tables) -> list[Figure]:
    """Of each GPU: name, hardware, busy time during the steps, and how well its kernels filled it, weighted by their time.

    Without steps the span from the first to the last kernel counts instead.
    """
    kernels, steps = tables.kernels, tables.steps
    extent = kernels.select(pl.col("start_ns").min(), pl.col("end_ns").max())
    window = merge(steps.select("start_ns", "end_ns") if steps.height else extent)
    figures: list[Figure] = []
    for device in kernels["device"].drop_nulls().unique().sort().to_list():
        own = kernels.filter(pl.col("device") == device)
        name = tables.facts.device_names.get(str(device)) or f"{device_word(tables.device_kind)} {device}"
        figures.append(Figure("Name", name, device=device))
        figures += _hardware(tables.facts.device_properties.get(str(device), {}), device)
        figures += _use(own, window, device)
    return figures


def _hardware(properties: Any, device: int) -> list[Figure]:
    known = properties if isinstance(properties, dict) else {}
    figures = []
    if isinstance(known.get("totalGlobalMem"), int):
        figures.append(Figure("Memory", known["totalGlobalMem"], "bytes", device))
    if "computeMajor" in known and "computeMinor" in known:
        figures.append(Figure("Compute Capability", f"{known['computeMajor']}.{known['computeMinor']}", "", device))
    return figures


def _use(kernels: pl.DataFrame, window: pl.DataFrame, device: int) -> list[Figure]:
    whole_ns = _length(window)
    busy_ns = _length(intersect(merge(kernels.select("start_ns", "end_ns")), window))
    figures = [Figure("GPU Utilization", 100 * busy_ns / whole_ns if whole_ns else 0.0, "%", device)]
    tasks = kernels.filter(pl.col("kind").is_in(["compute", "communication"]))
    filled = tasks.drop_nulls("blocks_per_sm")
    if filled.height and whole_ns:
        # A kernel with fewer blocks than multiprocessors leaves the others without work.
        time = filled["end_ns"] - filled["start_ns"]
        efficiency = 100 * float((filled["blocks_per_sm"].clip(0, 1) * time).sum()) / whole_ns
        figures.append(Figure("Est. SM Efficiency", efficiency, "%", device))
    known = tasks.drop_nulls("occupancy")
    time = known["end_ns"] - known["start_ns"]
    if time.sum():
        occupancy = float((known["occupancy"] * time).sum()) / int(time.sum())
        figures.append(Figure("Est. Achieved Occupancy", occupancy, "%", device))
    return [*figures, Figure("Kernel Time using Tensor Cores", _tensor_share(kernels), "%", device)]


def _tensor_share(kernels: pl.DataFrame) -> float:
    rows = kernels.filter(pl.col("kind") == "compute")
    whole_ns = _length(rows)
    return 100 * _length(rows.filter(uses(rows["name"]))) / whole_ns if whole_ns else 0.0


def _length(spans: pl.DataFrame) -> int:
    return int((spans["end_ns"] - spans["start_ns"]).sum())


def _number(value: Any) -> float:
    return float(value or 0)
