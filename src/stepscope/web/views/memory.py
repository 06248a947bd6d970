# SPDX-License-Identifier: Apache-2.0
"""The Memory view: totals over time, every block, and what components hold (docs/reference/viewer.md 4.5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.memory.blocks import record_rows
from stepscope.analysis.memory.kept import kept_over_steps
from stepscope.analysis.memory.owners import BEFORE, NAMELESS, UNKNOWN, Tree, owners, tree, with_operators
from stepscope.analysis.memory.usage import component_peaks, held_at, operator_changes, shown_blocks, touched_between
from stepscope.analysis.source_lines import lines_with_backward, operator_places
from stepscope.export.memory_csv import app_samples
from stepscope.formats.ascend.memory import MODULE_MEM, with_tag
from stepscope.tables import in_order
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, Shown
from stepscope.web.parameters import Query
from stepscope.web.problems import bad_parameter, missing

KB, MB = 1024.0, 1048576.0
WHOLE = "PTA+GE"
MOST_OWNERS = 50
LEAST_STEPS = 4  # from which a rise is more than a start
TOTALS = ("allocated", "reserved", "active")


def records(capture: LoadedCapture) -> pl.DataFrame:
    """Totals after every event: tag (`NPU:0`), component, time_ns, allocated, reserved, active in MB; by time."""
    return capture.once("memory records", lambda: _records(capture))


def _records(capture: LoadedCapture) -> pl.DataFrame:
    tables = capture.tables
    rows = with_tag(record_rows(tables.memory_events))
    if not (rows["component"] == "APP").any():
        rows = pl.concat([app_samples(tables.counters), rows], how="diagonal_relaxed")
    totals = [(pl.col(f"total_{name}").cast(pl.Float64) / MB).alias(name) for name in TOTALS]
    text = pl.col("tag", "component").cast(pl.String)
    return in_order(rows.select(text, "time_ns", *totals), ["time_ns"])


def _recorded_tags(capture: LoadedCapture) -> set[str]:
    """The tags of `records`, without making all of them."""
    rows = with_tag(record_rows(capture.tables.memory_events.unique(["component", "device_type", "device"])))
    sampled = rows if (rows["component"] == "APP").any() else app_samples(capture.tables.counters)
    return {tag for frame in (rows, sampled) for tag in frame["tag"].cast(pl.String).drop_nulls().unique()}


def blocks(capture: LoadedCapture) -> pl.DataFrame:
    """Table `allocations` with the tag of the device; blocks of the host only where there are no others."""
    return capture.once("memory blocks", lambda: _blocks(capture))


def _blocks(capture: LoadedCapture) -> pl.DataFrame:
    return with_tag(shown_blocks(capture.tables.allocations)).with_columns(pl.col("tag").cast(pl.String))


def modules(capture: LoadedCapture) -> pl.DataFrame:
    """Samples of what the runtime's components hold: tag, component, time_ns, mb."""
    rows = capture.tables.counters.filter(pl.col("source") == MODULE_MEM).with_columns(pl.lit("npu").alias("device_type"))
    return with_tag(rows).select(
        pl.col("tag").cast(pl.String), pl.col("name").cast(pl.String).alias("component"), "time_ns", mb=pl.col("value") / KB
    )


def _device(capture: LoadedCapture, query: Query) -> tuple[str, list[str]]:
    tags = capture.once("memory tags", lambda: _tags(capture))
    if not tags:
        raise missing("memory", "this capture has no memory data")
    device = query.text("device") or min(tags)
    if device not in tags:
        raise bad_parameter("device", f"one of {', '.join(sorted(tags))}")
    return device, sorted(tags)


def _tags(capture: LoadedCapture) -> set[str]:
    held = {tag for frame in (blocks(capture), modules(capture)) for tag in frame["tag"].drop_nulls().unique()}
    return _recorded_tags(capture) | held


def curve(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """The line chart in a window, thinned to what the pixels can show."""
    device, devices = _device(capture, query)
    group = query.choice("group", ("operator", "component"))
    lines = capture.once(f"memory lines {device}", lambda: _lines(capture, device))
    low, high = query.window(capture.trace.length_ns)
    px = query.number("px", 1600, least=1, most=10_000)
    there = list(dict.fromkeys(component for component, _ in lines))
    if group == "operator":
        chosen = [next((name for name in (WHOLE, "PTA") if name in there), there[0])] if there else []
    else:
        chosen = [name for name in there if name != WHOLE]
    titles, series = [], []
    for component in chosen:
        known = lines[component, "allocated"][1] if lines[component, "allocated"][1].size else lines[component, "reserved"][1]
        peak = float(known.max(initial=0.0))
        label = "" if group == "operator" else f"{component} "
        titles.append(f"{label}Peak Memory Usage: {peak:.1f}MB")
        for name in TOTALS:
            time, value = lines[component, name]
            if time.size and (name != "active" or group == "operator"):
                at = thinned(time, value, low, high, px)
                series.append(
                    {
                        "name": f"{label}{name.title()} (MB)",
                        "component": component,
                        "peak": float(value.max()),
                        "samples": int(time.size),
                        "x_ms": (time[at] / 1e6).tolist(),
                        "y": value[at].tolist(),
                    }
                )
    groups = (["operator"] if lines or blocks(capture).height else []) + (["component"] if lines or modules(capture).height else [])
    tables = {"blocks": blocks(capture).height > 0, "statistics": _changes(capture, device).height > 0}
    window = {"from": low, "to": high}
    return {"devices": devices, "device": device, "groups": groups, **window, **tables, "titles": titles, "series": series}


def _lines(capture: LoadedCapture, device: str) -> dict[tuple[str, str], tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]:
    """Time since the begin and MB of every total of every component of a device."""
    lines = {}
    rows = records(capture).filter(pl.col("tag") == device)
    for (component,), part in rows.drop_nulls("component").group_by("component", maintain_order=True):
        for name in TOTALS:
            known = part.select("time_ns", value=pl.col(name)).drop_nulls()
            lines[str(component), name] = (known["time_ns"].to_numpy() - capture.base_ns, known["value"].to_numpy())
    return lines


def thinned(time: npt.NDArray[np.int64], value: npt.NDArray[np.float64], low: int, high: int, px: int) -> npt.NDArray[np.int64]:
    """Positions of the first, least, greatest and last sample of each pixel, and of the one in force at the left edge."""
    first, last = (int(place) for place in np.searchsorted(time, (low, high)))
    before = np.array([first - 1], dtype=np.int64)[: 1 if first > 0 else 0]
    if last - first <= 4 * px:
        return np.concatenate((before, np.arange(first, last)))
    pixel = (time[first:last] - low) * px // max(1, high - low)
    edges = np.flatnonzero(np.concatenate(([True], pixel[1:] != pixel[:-1])))
    counts = np.diff(np.append(edges, pixel.size))
    part = value[first:last]
    picked = [edges, edges + counts - 1]
    for extreme in (np.minimum, np.maximum):
        best = np.repeat(extreme.reduceat(part, edges), counts)
        hits = np.flatnonzero(part == best)
        picked.append(hits[np.searchsorted(hits, edges)])
    return np.concatenate((before, np.unique(np.concatenate(picked)) + first))


def events(capture: LoadedCapture, query: Query) -> Listing:
    """Every block from its allocation to its release."""
    device, _ = _device(capture, query)
    rows = blocks(capture).filter(pl.col("tag") == device)
    base = capture.base_ns
    if query.optional("from") or query.optional("to"):
        rows = touched_between(rows, *(bound + base for bound in query.window(capture.trace.length_ns)))
    if query.flag("held"):
        rows = rows.filter(pl.col("release_ns").is_null())
    totals = {
        f"{when}_total_{name}": f"{title} Total {name.title()} (MB)"
        for when, title in (("alloc", "Allocation"), ("release", "Release"))
        for name in TOTALS
    }
    frame = rows.select(
        name="name",
        size=pl.col("bytes").abs() / KB,
        allocation=(pl.col("start_ns") - base) / 1e6,
        release=(pl.col("release_ns") - base) / 1e6,
        duration=(pl.col("release_ns") - pl.col("start_ns")) / 1e6,
        active_release=(pl.col("active_release_ns") - base) / 1e6,
        active_duration=(pl.col("active_release_ns") - pl.col("start_ns")) / 1e6,
        **{key: pl.col(key) / MB for key in totals},
        stream=pl.col("stream_ptr"),
    )
    columns = (
        Shown("name", "Name" if capture.is_npu else "Operator", "Operator that asked for the block."),
        Shown("size", "Size (KB)", "Size of the block.", summed=True),
        Shown("allocation", "Allocation Time (ms)", "Since the first event of the capture."),
        Shown("release", "Release Time (ms)", "Empty: still held at the end."),
        Shown("duration", "Duration (ms)", "From allocation to release."),
        Shown("active_release", "Active Release Time (ms)", "When it really returned to the pool.", shown=False),
        Shown("active_duration", "Active Duration (ms)", "From allocation to the return to the pool.", shown=False),
        *(Shown(key, title, shown=False) for key, title in totals.items()),
        Shown("stream", "Stream Ptr", "Stream of the block.", shown=False),
    )
    held = int(rows["release_ns"].null_count())
    notes = (f"{held} blocks still held at the end",) if held else ()
    return Listing(frame, columns, (("allocation", False),), notes)


def components(capture: LoadedCapture, query: Query) -> Listing:
    """Peak of every component and when it was first reached."""
    device, _ = _device(capture, query)
    samples = modules(capture).filter(pl.col("tag") == device).drop("tag")
    if not samples.height:
        whole = records(capture).filter((pl.col("tag") == device) & (pl.col("component") != WHOLE))
        samples = whole.select("component", "time_ns", mb=pl.coalesce("reserved", "allocated"))
    frame = component_peaks(samples).with_columns(time=(pl.col("time_ns") - capture.base_ns) / 1e6)
    columns = (
        Shown("component", "Component", "Part of the runtime."),
        Shown("peak", "Peak Memory Usage (MB)", "Largest amount reserved."),
        Shown("time", "Time (ms)", "When the peak was first reached."),
    )
    none = int((frame["peak"] == 0).sum())
    notes = (f"{none} of {frame.height} components never held anything",) if none else ()
    return Listing(frame, columns, (("peak", True),), notes, search="component")


def _changes(capture: LoadedCapture, device: str) -> pl.DataFrame:
    """Memory events that changed something on the device, where there are operators to have done it."""
    events = capture.tables.memory_events if capture.tables.ops.height else capture.tables.memory_events.clear()
    return with_tag(events).filter((pl.col("tag").cast(pl.String) == device) & pl.col("bytes").is_not_null())


def statistics(capture: LoadedCapture, query: Query) -> Listing:
    """What operators allocated and gave back while they ran, themselves and with operators called inside."""
    device, _ = _device(capture, query)
    tables = capture.tables
    rows = _changes(capture, device)
    if not rows.height:
        raise missing("memory", "no memory events of operators in this capture")
    frame = operator_changes(tables.ops, rows)
    frame = frame.with_columns(pl.col("increase", "self_increase", "size", "self_size") / KB)
    columns = (
        Shown("name", "Operator Name"),
        Shown("calls", "Calls", summed=True),
        Shown("increase", "Size Increase (KB)", "Allocated minus given back, with operators called inside."),
        Shown("self_increase", "Self Size Increase (KB)", "Allocated minus given back by itself.", summed=True),
        Shown("count", "Allocation Count"),
        Shown("self_count", "Self Allocation Count", summed=True),
        Shown("size", "Allocation Size (KB)"),
        Shown("self_size", "Self Allocation Size (KB)", summed=True),
    )
    return Listing(frame, columns, (("self_size", True),))


def alive(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """Blocks that are held at one instant, largest first."""
    device, _ = _device(capture, query)
    at = query.number("at", 0)
    limit = query.number("limit", 200, least=1, most=5000)
    moment = at + capture.base_ns
    rows = held_at(blocks(capture).filter(pl.col("tag") == device), moment)
    shown = rows.head(limit).select(
        name="name",
        size_kb=pl.col("bytes").abs() / KB,
        allocation_ms=(pl.col("start_ns") - capture.base_ns) / 1e6,
        release_ms=(pl.col("release_ns") - capture.base_ns) / 1e6,
    )
    return {"at": at, "count": rows.height, "bytes": int(rows["bytes"].abs().sum()), "rows": shown.to_dicts()}


def peak(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """The instant at which most is allocated, and who owns that: lines or modules, then operators."""
    device, _ = _device(capture, query)
    by = query.choice("by", ("line", "module"))
    held, moment, total = _at_peak(capture, device)
    known = int(held["bytes"].abs().sum())
    parts = owners(with_operators(held, capture.tables.ops), _places(capture), by, max(0, total - known))
    rows = (
        parts.group_by("owner", maintain_order=True)
        .agg(
            pl.col("bytes").sum(),
            pl.col("count").sum(),
            operators=pl.col("operator").unique(maintain_order=True).head(3),
            kept=pl.col("released_ns").null_count() > 0,
            until=pl.col("released_ns").max() - moment,
        )
        .head(MOST_OWNERS)
    )
    whole = max(total, known, 1)
    totals = records(capture).filter((pl.col("tag") == device) & (pl.col("time_ns") <= moment))["reserved"].drop_nulls()
    return {
        "device": device, "by": by, "at": moment - capture.base_ns, "bytes": whole, "blocks": held.height,
        "before": max(0, total - known),
        "reserved_mb": totals[-1] if totals.len() else None,
        "tree": _boxes(tree(parts)),
        "owners": [
            {
                "owner": row["owner"], "operators": row["operators"], "bytes": row["bytes"], "share": row["bytes"] / whole,
                "count": row["count"], "held_ns": None if row["kept"] else row["until"],
            }
            for row in rows.to_dicts()
        ],
        "count": parts["owner"].n_unique(),
        "without": _without_first(capture, device, by, rows["owner"].to_list(), whole),
    }  # fmt: skip


def _boxes(found: Tree) -> dict[str, Any]:
    """The tree as it is drawn: a single block is named by its size."""
    number = {name: place for place, name in enumerate(found.names)}
    name = [
        number.setdefault(f"{weight / MB:,.1f} MiB", len(number)) if place == NAMELESS else place
        for place, weight in zip(found.name, found.weight, strict=True)
    ]
    return {"names": [*number], "name": name, "parent": found.parent, "weight": found.weight}


def _without_first(capture: LoadedCapture, device: str, by: str, ranked: list[str], whole: int) -> dict[str, Any] | None:
    """The next peak, had the largest owner that can be named held nothing; None where nobody is named."""
    owner = next((name for name in ranked if name not in (BEFORE, UNKNOWN)), None)
    totals = _totals(capture, device)
    if owner is None or not totals.height:
        return None
    own = with_operators(blocks(capture).filter(pl.col("tag") == device), capture.tables.ops)
    known = _places(capture).with_row_index("op").select(pl.col("op").cast(pl.Int64), owner=pl.col(by).cast(pl.String))
    rows = own.select(pl.col("op").cast(pl.Int64), pl.col("bytes").abs(), "start_ns", "release_ns").join(known, on="op", how="left")
    rows = rows.filter(pl.col("owner") == owner)
    time = totals["time_ns"].to_numpy()
    held = np.zeros(time.size, np.float64)
    for edge, sign in (("start_ns", 1), ("release_ns", -1)):
        moves = rows.drop_nulls(edge).sort(edge)
        sums = np.concatenate(([0], moves["bytes"].cast(pl.Int64).to_numpy().cumsum()))
        held += sign * sums[np.searchsorted(moves[edge].to_numpy(), time, side="right")]
    left = totals["allocated"].to_numpy() * MB - held
    at = int(left.argmax())
    return {
        "owner": owner,
        "bytes": round(float(left[at])),
        "saved": whole - round(float(left[at])),
        "at": int(time[at]) - capture.base_ns,
    }


def _places(capture: LoadedCapture) -> pl.DataFrame:
    """Where operators were called; those that backward runs, where their forward operator was."""

    def found() -> pl.DataFrame:
        places = capture.once("operator places", lambda: operator_places(capture.tables))
        return places.with_columns(lines_with_backward(capture.tables, places["line"]).alias("line"))

    return capture.once("memory places", found)


def kept(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """What steps leave behind: blocks that outlive the next step, by line and operator, and the least held in each step."""
    device, _ = _device(capture, query)
    steps = capture.tables.steps.drop_nulls(["start_ns", "end_ns"]).sort("start_ns")
    own = with_operators(blocks(capture).filter(pl.col("tag") == device), capture.tables.ops)
    known = _places(capture).with_row_index("op").select(pl.col("op").cast(pl.Int64), owner=pl.col("line").cast(pl.String))
    rows = own.select(
        pl.col("op").cast(pl.Int64),
        pl.col("bytes").abs(),
        "start_ns",
        "release_ns",
        operator=pl.col("name").cast(pl.String).fill_null("?"),
    ).join(known, on="op", how="left", maintain_order="left")
    found = kept_over_steps(rows.with_columns(pl.col("owner").fill_null(UNKNOWN)), steps)
    return {
        "device": device,
        "steps": steps["step"].to_list(),
        "judged": found.judged,
        "least": LEAST_STEPS,
        "lows_mb": _lows(capture, device, steps),
        "count": found.rows.height,
        "rows": found.rows.head(MOST_OWNERS).to_dicts(),
    }


def _lows(capture: LoadedCapture, device: str, steps: pl.DataFrame) -> list[float | None]:
    """The least that is allocated in each step, MB: what stays from step to step."""
    totals = _totals(capture, device)
    place = np.searchsorted(steps["start_ns"].to_numpy(), totals["time_ns"].to_numpy(), side="right") - 1
    least = totals.select("allocated", place=pl.Series(place, dtype=pl.Int64)).group_by("place").agg(pl.col("allocated").min())
    by_place = dict(least.iter_rows())
    return [by_place.get(at) for at in range(steps.height)]


def _totals(capture: LoadedCapture, device: str) -> pl.DataFrame:
    """What the framework held over time, by the component that stands for the whole."""
    totals = records(capture).filter(pl.col("tag") == device).drop_nulls("allocated")
    names = totals["component"].unique().to_list()
    return totals.filter(pl.col("component") == next((name for name in (WHOLE, "PTA") if name in names), names[0] if names else ""))


def _at_peak(capture: LoadedCapture, device: str) -> tuple[pl.DataFrame, int, int]:
    """Blocks held when most was allocated, when that was, and how many bytes."""
    own = blocks(capture).filter(pl.col("tag") == device)
    totals = _totals(capture, device)
    if totals.height:
        top = totals.row(int(totals["allocated"].arg_max() or 0), named=True)
        return held_at(own, top["time_ns"]), top["time_ns"], round(top["allocated"] * MB)
    if not own.height:
        raise missing("memory", "memory_record.csv or operator_memory.csv")
    starts = own.select("start_ns", pl.col("bytes").abs())
    ends = own.drop_nulls("release_ns").select(pl.col("release_ns").alias("start_ns"), -pl.col("bytes").abs())
    level = pl.concat([starts, ends]).sort("start_ns", "bytes").with_columns(held=pl.col("bytes").cum_sum())
    top = level.row(int(level["held"].arg_max() or 0), named=True)
    return held_at(own, top["start_ns"]), top["start_ns"], top["held"]
