# SPDX-License-Identifier: Apache-2.0
"""Rules from hardware counters, frequency and operation counts. Modelled counters of a simulated device are never asked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.analysis.roofline import tensor_bytes
from stepscope.verdict.case import Case, Draft
from stepscope.verdict.finding import CannotTell
from stepscope.verdict.rules.device import recomputed

PIPES = ("mac_ratio", "vec_ratio", "scalar_ratio", "mte1_ratio", "mte2_ratio", "mte3_ratio", "fixpipe_ratio")


def _metrics(case: Case) -> pl.DataFrame:
    """Kernels of the windows with their counters."""
    case.need_device()
    if case.kind != "npu":
        return case.kernels.clear()
    if case.simulated:
        raise CannotTell("modelled")
    metrics = case.tables.kernel_metrics
    if not metrics.height:
        raise CannotTell("metrics")
    return case.kernels.join(metrics, left_on="row", right_on="kernel", how="inner")


def _pipes(rows: pl.DataFrame) -> list[str]:
    return [name for name in rows.columns if any(name.endswith(pipe) for pipe in PIPES)]


def frequency_drop(case: Case) -> Iterator[Draft]:
    case.need_device()
    if case.kind != "npu":
        return
    if case.simulated:
        raise CannotTell("modelled")
    samples = case.tables.counters.filter((pl.col("source") == "AI Core Freq") & (pl.col("value") > 0)).sort("time_ns")
    if samples.height < 2:
        raise CannotTell("frequency")
    time, value = samples["time_ns"].to_numpy(), samples["value"].to_numpy()
    edges = np.append(time, max(case.model.end_ns, int(time[-1])))
    busy = case.model.busy[0].within(edges[:-1], edges[1:])
    if not busy.sum():
        return
    mean, best = float((busy * value).sum() / busy.sum()), float(value.max())
    if mean < case.limit("frequency-drop", "of_largest") * best:
        saved = case.parts.sum_ns("computing") * (1 - mean / best)
        yield Draft("frequency-drop", saved, "medium", "model", params={"mean": mean, "best": best})


def cache_misses(case: Case) -> Iterator[Draft]:
    case.need_device()
    if case.kind != "npu":
        return
    if case.simulated:
        raise CannotTell("modelled")
    rates = case.tables.cache_rates.filter(pl.col("kind") == "l2").drop_nulls("hit_rate")
    if not rates.height:
        raise CannotTell("l2")
    by = rates.group_by("op_name").agg(rate=pl.col("hit_rate").mean())
    rows = case.kernels.group_by("name").agg(pl.col("exclusive_ns").sum(), pl.col("row").first())
    rows = rows.join(by, left_on="name", right_on="op_name", how="inner")
    rows = rows.filter(pl.col("exclusive_ns") >= case.limit("cache-misses", "share") * case.total_ns)
    whole = int(rows["exclusive_ns"].sum())
    mean = float((rows["rate"] * rows["exclusive_ns"]).sum()) / whole if whole else 1.0
    if mean < case.limit("cache-misses", "hit_rate"):
        worst = rows.sort(pl.col("exclusive_ns") * (1 - pl.col("rate")), descending=True)
        saved = float((rows["exclusive_ns"] * (1 - rows["rate"])).sum()) * 0.5
        yield Draft(
            "cache-misses",
            saved,
            "low",
            "model",
            bound="upper",
            evidence=case.rows_of("kernels", worst["row"]),
            params={"rate": mean, "kernel": str(worst["name"][0])},
        )


def no_bound_pipe(case: Case) -> Iterator[Draft]:
    rows = _metrics(case)
    pipes = _pipes(rows)
    if case.kind != "npu":
        return
    if not pipes:
        raise CannotTell("pipes")
    limit = case.limit("no-bound-pipe", "ratio")
    rows = rows.with_columns(best=pl.max_horizontal(pipes)).filter(pl.col("best") > 0)
    rows = rows.filter((pl.col("ns") >= case.limit("no-bound-pipe", "kernel_us") * 1000) & (pl.col("best") < limit))
    heavy = pl.col("exclusive_ns").sum().over("name") >= case.limit("no-bound-pipe", "share") * case.total_ns
    rows = rows.filter(heavy)
    if rows.height:
        saved = float((rows["exclusive_ns"] * (1 - rows["best"] / limit)).sum())
        worst = rows.sort("exclusive_ns", pl.col("name").cast(pl.String), descending=[True, False])
        yield Draft(
            "no-bound-pipe",
            saved,
            "low",
            "model",
            bound="upper",
            evidence=case.rows_of("kernels", worst["row"]),
            where=case.places(rows["op"], rows["exclusive_ns"]),
            params={"kernel": str(worst["name"][0]), "count": round(rows.height / case.count)},
        )


def bound(case: Case) -> Iterator[Draft]:
    rows = _metrics(case)
    pipes = _pipes(rows)
    if case.kind != "npu":
        return
    if not pipes:
        raise CannotTell("pipes")
    top = rows.group_by("name").agg(
        pl.col("exclusive_ns").sum(), pl.col("row", "op_type", "core").first(), *(pl.col(pipe).mean() for pipe in pipes)
    )
    top = top.sort("exclusive_ns", pl.col("name").cast(pl.String), descending=[True, False]).head(1)
    if not top.height or int(top["exclusive_ns"][0]) < 0.05 * case.total_ns:
        return
    values = {pipe: float(top[pipe][0] or 0.0) for pipe in pipes}
    pipe = _bound_pipe(case, f"{top['name'][0]} {top['op_type'][0]}", str(top["core"][0] or ""), values)
    if pipe:
        yield Draft(
            "bound",
            0,
            "medium",
            "parts",
            severity="info",
            evidence=case.rows_of("kernels", top["row"]),
            params={"kernel": str(top["name"][0]), "pipe": pipe.removesuffix("_ratio"), "ratio": values[pipe]},
        )


def _bound_pipe(case: Case, name: str, core: str, values: dict[str, float]) -> str:
    """The pipe that bounds a kernel, by the limits of its kind: attention, cube or vector; empty when none does."""
    if "attention" in name.lower():
        limits = {"mac": "attention", "mte2": "attention", "fixpipe": "attention_other", "vec": "attention_other"}
    elif "VECTOR" in core or core == "AIV":
        busy = max(values, key=values.__getitem__)
        together = sum(values.values()) >= case.limit("bound", "vector_sum")
        return busy if values[busy] >= case.limit("bound", "vector") or together else ""
    else:
        limits = {"mac": "cube_mac", "mte2": "cube_mte2"}
    over = {
        pipe: values[pipe] - case.limit("bound", limit)
        for pipe in values
        for short, limit in limits.items()
        if pipe.endswith(f"{short}_ratio") and values[pipe] >= case.limit("bound", limit)
    }
    return max(over, key=over.__getitem__) if over else ""


def icache_miss(case: Case) -> Iterator[Draft]:
    rows = _metrics(case)
    columns = [name for name in rows.columns if name.endswith("icache_miss_rate")]
    if case.kind != "npu":
        return
    if not columns:
        raise CannotTell("pipes")
    rows = rows.with_columns(miss=pl.max_horizontal(columns))
    by = rows.group_by("name").agg(pl.col("exclusive_ns").sum(), pl.col("miss").mean(), pl.col("row").first())
    by = by.filter(
        (pl.col("miss") > case.limit("icache-miss", "rate"))
        & (pl.col("exclusive_ns") >= case.limit("icache-miss", "share") * case.total_ns)
    )
    if by.height:
        worst = by.sort("exclusive_ns", pl.col("name").cast(pl.String), descending=[True, False])
        yield Draft(
            "icache-miss",
            0,
            "medium",
            "parts",
            severity="info",
            evidence=case.rows_of("kernels", worst["row"]),
            params={"kernel": str(worst["name"][0]), "rate": float(worst["miss"][0])},
        )


def _peak(case: Case, dtypes: pl.Series) -> float | None:
    """Operations per second of the most common type of the products."""
    if case.chip is None or not case.chip.peak:
        raise CannotTell("chip")
    common = dtypes.drop_nulls().cast(pl.String).str.split(";").list.first().str.to_lowercase().value_counts(sort=True)
    named = str(common[common.columns[0]][0]) if common.height else ""
    aliases = {
        "float": "float32",
        "half": "float16",
        "bf16": "bfloat16",
        "dt_bf16": "bfloat16",
        "c10::half": "float16",
        "c10::bfloat16": "bfloat16",
    }
    return case.chip.peak.get(aliases.get(named, named)) or None


def _with_flops(case: Case) -> pl.DataFrame:
    """Kernels whose operator counted its floating-point operations; of an operator's kernels the heaviest stands for it."""
    case.need_device()
    flops = case.tables.ops["flops"]
    if not flops.count():
        raise CannotTell("flops")
    rows = case.kernels.drop_nulls("op")
    rows = rows.with_columns(flops=flops[rows["op"]], dtypes=case.tables.ops["dtypes"][rows["op"]]).filter(pl.col("flops") > 0)
    return rows.sort("ns", descending=True).unique("op", keep="first", maintain_order=True)


def below_roofline(case: Case) -> Iterator[Draft]:
    rows = _with_flops(case)
    peak = _peak(case, rows["dtypes"])
    if peak is None:
        raise CannotTell("chip")
    # ns at peak, 1e12 operations per second; a kernel that moves much takes at least the time of its bytes
    rows = rows.with_columns(ideal=pl.max_horizontal(pl.col("flops") / (peak * 1e3), _memory_ns(case, rows)))
    rows = rows.filter(pl.col("ideal") / pl.col("ns") < case.limit("below-roofline", "reached"))
    heavy = pl.col("exclusive_ns").sum().over("name") >= case.limit("below-roofline", "share") * case.total_ns
    rows = rows.filter(heavy)
    saved = (
        float((rows["exclusive_ns"] - rows["ideal"] / case.limit("below-roofline", "target")).clip(0, None).sum())
        if rows.height
        else 0.0
    )
    if saved:
        worst = rows.sort("exclusive_ns", pl.col("name").cast(pl.String), descending=[True, False])
        yield Draft(
            "below-roofline",
            saved,
            "low",
            "model",
            bound="upper",
            evidence=case.rows_of("kernels", worst["row"]),
            where=case.places(rows["op"], rows["exclusive_ns"]),
            params={"kernel": str(worst["name"][0]), "reached": float(rows["ideal"].sum()) / int(rows["ns"].sum())},
        )


def _memory_ns(case: Case, rows: pl.DataFrame) -> pl.Series:
    """How long the inputs and outputs of each kernel take at the chip's bandwidth; 0 where that is not known."""
    if case.chip is None or not case.chip.bandwidth:
        return pl.Series(np.zeros(rows.height))
    sides = (("input_shapes", "input_dtypes"), ("output_shapes", "output_dtypes"))
    sizes = {}
    distinct = rows.select(pl.col(name).cast(pl.String) for side in sides for name in side).unique()
    for texts in distinct.iter_rows():
        sizes[texts] = tensor_bytes(*texts[:2]) + tensor_bytes(*texts[2:])
    keys = rows.select(pl.col(name).cast(pl.String) for side in sides for name in side).iter_rows()
    return pl.Series([sizes[key] / case.chip.bandwidth for key in keys], dtype=pl.Float64)


def mfu(case: Case) -> Iterator[Draft]:
    """Model FLOPs utilisation leaves out what is computed again; hardware FLOPs utilisation counts it."""
    if case.simulated:
        raise CannotTell("modelled")
    rows = _with_flops(case)
    peak = _peak(case, rows["dtypes"])
    if peak is None:
        raise CannotTell("chip")
    try:
        again = recomputed(case)["op"].unique()
    except CannotTell:
        again, known = None, False
    else:
        known = True
    possible = peak * 1e12 * case.parts.total_ns / 1e9
    every = float(rows["flops"].sum()) / possible
    model = every if again is None else float(rows.filter(~pl.col("op").is_in(again.implode()))["flops"].sum()) / possible
    yield Draft(
        "mfu",
        0,
        "medium",
        "model",
        severity="info",
        params={"mfu": model, "hfu": every, "chip": case.chip.name if case.chip else ""},
        variant="" if known else "hardware",
    )
