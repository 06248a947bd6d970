# SPDX-License-Identifier: Apache-2.0
"""Rules about steps and memory over time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.verdict.case import Case, Draft
from stepscope.verdict.finding import CannotTell, Evidence

TO_SIGMA = 1.4826  # of the median absolute deviation


def _lengths(case: Case) -> npt.NDArray[np.int64]:
    """Lengths of the windows; on a simulated device without the load of this machine."""
    lengths = case.parts.windows["total"].to_numpy()
    if case.simulated and "idle.queued" in case.parts.windows.columns:
        return np.asarray(lengths - case.parts.windows["idle.queued"].to_numpy())
    return np.asarray(lengths)


def slow_steps(case: Case) -> Iterator[Draft]:
    case.need_steps(int(case.limit("slow-steps", "least_steps")))
    for on_host, lengths in enumerate((_lengths(case), case.host_lengths[case.warm_up_steps :])):
        slow, median = _outliers(case, lengths)
        slow = slow[slow >= case.first_slow(lengths)]  # a start that only the device shows
        if not slow.size:
            continue
        excess = int((lengths[slow] - median).sum())
        if on_host and case.has_device:
            excess = min(excess, _idle_around(case, slow))  # what the device hides costs nothing
        cause, cause_ns = _difference(case, slow) if lengths.size == case.count else ("", 0.0)
        yield Draft(
            "slow-steps",
            excess,
            "high",
            "parts",
            evidence=case.rows_of("steps", case.steps["row"][slow], "slow"),
            steps=case.window_numbers(slow.tolist()) if lengths.size == case.count else (),
            params={
                "slow": int(slow.size),
                "steps": int(lengths.size),
                "factor": float(np.median(lengths[slow]) / median),
                "part": cause,
                "part_ms": cause_ns / 1e6,
            },
            variant="because" if cause else "",
            explains=("host-python",) if cause in ("idle.python", "idle.other") else (),
        )
        return


def _idle_around(case: Case, slow: npt.NDArray[np.int64]) -> int:
    """How long the device idled in some steps and in those before: a pause at the start of a step idles it in the one before."""
    windows = case.parts.windows
    parts = [name for name in case.parts.parts if name.startswith("idle.") and not (case.simulated and name == "idle.queued")]
    if not parts or windows.height != case.steps.height:
        return 0
    idle = windows.select(pl.sum_horizontal(parts)).to_series().to_numpy()
    near = np.union1d(slow, slow - 1)
    return int(idle[near[near >= 0]].sum())


def _outliers(case: Case, lengths: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], float]:
    median = float(np.median(lengths))
    spread = TO_SIGMA * float(np.median(np.abs(lengths - median)))
    far = lengths > median + case.limit("slow-steps", "mads") * spread
    slow = np.flatnonzero(far & (lengths > case.limit("slow-steps", "over_median") * median))
    return (slow if slow.size <= case.limit("slow-steps", "at_most") * lengths.size else slow[:0]), median


def _difference(case: Case, slow: npt.NDArray[np.int64]) -> tuple[str, float]:
    """The part that slow steps have most more of than the others, and how much."""
    rest = np.setdiff1d(np.arange(case.count), slow)
    best, most = "", 0.0
    for part in case.parts.parts:
        values = case.parts.windows[part].to_numpy()
        more = float(np.mean(values[slow]) - np.median(values[rest]))
        if more > most:
            best, most = part, more
    return best, most


def variance(case: Case) -> Iterator[Draft]:
    case.need_steps(int(case.limit("variance", "least_steps")))
    lengths = _lengths(case)
    slow, median = _outliers(case, lengths)
    spread = TO_SIGMA * float(np.median(np.abs(lengths - median))) / median if median else 0.0
    if spread > case.limit("variance", "spread") and not slow.size:
        yield Draft("variance", 0, "medium", "parts", severity="info", params={"spread": spread})


def warm_up(case: Case) -> Iterator[Draft]:
    least = int(case.limit("warm-up", "least_steps"))
    if case.host_lengths.size < least:
        case.need_steps(least)
    first = case.warm_up_steps
    if first:
        factor = float(case.host_lengths[0] / np.median(case.host_lengths))
        yield Draft("warm-up", 0, "medium", "parts", severity="info", params={"steps": first, "factor": factor})


def drift(case: Case) -> Iterator[Draft]:
    case.need_steps(int(case.limit("drift", "least_steps")))
    lengths = _lengths(case).astype(np.float64)[:2000]
    first, second = np.triu_indices(lengths.size, 1)
    slope = float(np.median((lengths[second] - lengths[first]) / (second - first)))
    score = float(np.sign(lengths[second] - lengths[first]).sum())
    count = lengths.size
    sigma = np.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    from math import erfc, sqrt

    p = erfc(abs(score) / sigma / sqrt(2))
    per_ten = 10 * slope / float(np.median(lengths))
    if per_ten > case.limit("drift", "per_ten_steps") and p < case.limit("drift", "p"):
        yield Draft("drift", 0, "medium", "parts", severity="info", params={"per_ten": per_ten})


# Memory


def _device_memory(case: Case, total: str) -> pl.DataFrame:
    """Events of the framework's own allocator; totals of different components do not belong together."""
    events = case.tables.memory_events
    rows = events.filter((pl.col("device_type") != "cpu") & (pl.col("component") == "PTA") & pl.col(total).is_not_null())
    if not rows.height:
        raise CannotTell("memory")
    return rows.sort("time_ns", maintain_order=True)


def leak(case: Case) -> Iterator[Draft]:
    events = _device_memory(case, "total_allocated")
    steps = case.tables.steps.sort("start_ns")
    case.need_steps(int(case.limit("memory-leak", "least_steps")))
    window = np.searchsorted(steps["start_ns"].to_numpy(), events["time_ns"].to_numpy(), side="right") - 1
    lows = (
        events.select("total_allocated", window=pl.Series(window))
        .filter(pl.col("window") >= 0)
        .group_by("window")
        .agg(low=pl.col("total_allocated").min())
        .sort("window")["low"]
        .to_numpy()
    )
    if lows.size < case.limit("memory-leak", "least_steps"):
        return
    rises = np.diff(lows)
    if (rises > 0).mean() < case.limit("memory-leak", "rising"):
        return
    if rises.sum() <= max(case.limit("memory-leak", "bytes"), case.limit("memory-leak", "share") * lows[0]):
        return
    per_step = float(np.median(rises))
    size = (case.chip.memory_gib or 0) * 2**30 if case.chip else 0
    left = (size - float(events["total_allocated"].to_numpy().max())) / per_step if size else None
    soon = left is not None and left < case.limit("memory-leak", "full_within_steps")
    kept = case.tables.allocations.with_row_index("row").filter(
        pl.col("release_ns").is_null() & (pl.col("start_ns") >= case.model.start_ns)
    )
    owners = kept.group_by("op").agg(pl.col("bytes").sum()).drop_nulls().sort("bytes", "op", descending=[True, False])
    yield Draft(
        "memory-leak",
        0,
        "high",
        "parts",
        severity="high" if soon else "medium",
        params={"mib": per_step / 2**20, "steps": int(lows.size)},
        where=case.places(owners["op"], np.zeros(owners.height, dtype=np.int64)),
        evidence=case.rows_of("allocations", kept.sort("bytes", descending=True)["row"], "not released"),
    )


def peak_owners(case: Case) -> Iterator[Draft]:
    rows = case.tables.allocations.with_row_index("row").filter(pl.col("device_type") != "cpu")
    if not rows.height:
        raise CannotTell("memory")
    start = rows["start_ns"].to_numpy()
    end = rows["release_ns"].fill_null(np.iinfo(np.int64).max).to_numpy()
    size = rows["bytes"].to_numpy()
    at, peak = _peak(start, end, size)
    held = rows.filter(pl.Series((start <= at) & (end > at)))
    owners = held.drop_nulls("op").group_by("op").agg(pl.col("bytes").sum()).sort("bytes", "op", descending=[True, False])
    by = held.group_by(pl.col("name").cast(pl.String)).agg(pl.col("bytes").sum()).sort("bytes", "name", descending=[True, False])
    if not by.height or peak < case.limit("peak-owners", "bytes"):
        return
    owner = by["name"][0]
    mine = rows["name"].cast(pl.String).eq_missing(owner).to_numpy()
    _, without = _peak(start[~mine], end[~mine], size[~mine])
    yield Draft(
        "peak-owners",
        0,
        "high",
        "parts",
        severity="info",
        evidence=(
            Evidence("allocations", tuple(held.sort("bytes", descending=True)["row"].head(5).to_list()), "largest", at, at + 1),
        ),
        where=case.places(owners["op"], np.zeros(owners.height, dtype=np.int64)),
        params={
            "owner": str(owner or "?"),
            "owner_mib": int(by["bytes"][0]) / 2**20,
            "peak_mib": peak / 2**20,
            "lower_mib": (peak - without) / 2**20,
        },
    )


def _peak(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], size: npt.NDArray[np.int64]) -> tuple[int, int]:
    """When most was held, and how much; what is released at a moment is gone before anything else comes."""
    if not start.size:
        return 0, 0
    moments = np.concatenate((start, end))
    change = np.concatenate((size, -size))
    order = np.lexsort((change, moments))
    level = np.cumsum(change[order])
    best = int(np.argmax(level))
    return int(moments[order][best]), int(level[best])


def fragmentation(case: Case) -> Iterator[Draft]:
    # GPUs tell what is allocated, not what is still in use by a stream; the rule takes that in its place.
    events = _device_memory(case, "total_reserved").with_columns(total_active=pl.coalesce("total_active", "total_allocated"))
    events = events.drop_nulls("total_active")
    if not events.height:
        raise CannotTell("memory")
    # As long as it holds the most, what it uses most of that is the peak.
    most = events.filter(pl.col("total_reserved") == pl.col("total_reserved").max()).sort("total_active", descending=True)
    row = most.row(0, named=True)
    unused = row["total_reserved"] - row["total_active"]
    if unused > max(case.limit("fragmentation", "bytes"), case.limit("fragmentation", "share") * row["total_reserved"]):
        yield Draft(
            "fragmentation",
            0,
            "medium",
            "parts",
            severity="info",
            params={"gib": unused / 2**30, "share": unused / row["total_reserved"]},
        )


def near_full(case: Case) -> Iterator[Draft]:
    events = _device_memory(case, "total_reserved")
    properties = case.facts.device_properties.get(str(case.model.device), {})
    size = properties.get("totalGlobalMem") if isinstance(properties, dict) else None
    size = size or (case.chip.memory_gib * 2**30 if case.chip and case.chip.memory_gib else None)
    if not size:
        raise CannotTell("chip")
    used = float(events["total_reserved"].max()) / size  # type: ignore[arg-type]
    if used > case.limit("near-full", "warning"):
        critical = used > case.limit("near-full", "critical")
        yield Draft("near-full", 0, "high", "parts", severity="medium" if critical else "info", params={"used": used})


def workspace(case: Case) -> Iterator[Draft]:
    reserved = float(_device_memory(case, "total_reserved")["total_reserved"].max() or 0)  # type: ignore[arg-type]
    events = case.tables.memory_events
    rows = events.filter(pl.col("component").is_in(["WORKSPACE", "GE"]) & pl.col("total_reserved").is_not_null())
    most = float(rows["total_reserved"].max() or 0)  # type: ignore[arg-type]
    if reserved and most > case.limit("workspace", "share") * reserved:
        yield Draft("workspace", 0, "medium", "parts", severity="info", params={"share": most / reserved})
