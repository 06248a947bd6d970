# SPDX-License-Identifier: Apache-2.0
"""Who allocated which block, for how long, and how full the device was after every event."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.link.groups import group_numbers, last_started
from stepscope.tables import ALL_TABLES, TEXT, in_order, issues, lost

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_NONE = -1  # row number that stands for "no row" inside this module

# Ranges the runtime wraps around every allocation; they name no operator of the user (docs/formats/outputs.md 8.2).
_ALLOCATION_RANGES = ("empty_tensor", "malloc_workspace")
MALLOC, FREE, BLOCK_FREE, UNKNOWN = 0, 1, 2, 3  # what an allocator event does, as `actions` gives it
_TOTALS = ("total_allocated", "total_reserved", "total_active")


def allocations(events: pl.DataFrame, ops: pl.DataFrame, queue: pl.DataFrame) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Pair allocator events to blocks and name the operator that asked for each.

    A block lasts from its malloc to the first free and block_free of its address; the next malloc of the
    address starts a new block (docs/formats/outputs.md 8.1). In host and CUDA events the sign of `bytes`
    tells a release from an allocation.

    Args:
        events: table `memory_events`; events without address or of a foreign allocator are left out.
        ops: table `ops` with `parent` filled.
        queue: table `queue`.

    Returns:
        Table `allocations`, and what was left out as frames of `quality`.
    """
    usable = events.filter(pl.col("ptr").is_not_null() & pl.col("inner").fill_null(True))
    action = actions(usable)
    malloc, free, block_free, quality = _paired(usable, action)
    if not malloc.size:
        return ALL_TABLES["allocations"].empty(), quality
    mallocs = usable[malloc]
    owner = _owners(mallocs, ops, queue)
    released = np.where(free != _NONE, free, block_free)
    frame = mallocs.select(
        "pid", "tid", "component", "device_type", "device", "ptr", "stream_ptr",
        pl.coalesce("op_name", ops["name"].cast(TEXT).gather(_nullable(owner)).rename("owner")).alias("name"),
        _nullable(owner).alias("op"),
        pl.col("bytes").abs(),
        pl.col("time_ns").alias("start_ns"),
        usable["time_ns"].gather(_nullable(free)).alias("release_ns"),
        usable["time_ns"].gather(_nullable(block_free)).alias("active_release_ns"),
        *(pl.col(total).alias(f"alloc_{total}") for total in _TOTALS),
        *(usable[total].gather(_nullable(released)).alias(f"release_{total}") for total in _TOTALS),
    )  # fmt: skip
    return ALL_TABLES["allocations"].conform(frame), quality


def record_rows(events: pl.DataFrame) -> pl.DataFrame:
    """Totals after every event, in the order of memory_record.csv (docs/formats/outputs.md 8.4).

    Every PTA and GE record of an NPU is followed by a `PTA+GE` row: the record plus the last record of the
    other component on the same device. WORKSPACE and unknown components stand alone. Host events are shown
    only when there is no device event at all.

    Returns:
        Columns component, time_ns, total_allocated, total_reserved, total_active (bytes), stream_ptr,
        device_type, device.
    """
    shown = ["component", "time_ns", *_TOTALS, "stream_ptr", "device_type", "device"]
    chosen = events.select(shown).filter(pl.col("component").ne_missing("PTA+GE"))
    on_device = chosen.filter(pl.col("device_type").ne_missing("cpu"))
    chosen = on_device if on_device.height else chosen
    sampled = chosen.filter(pl.col("component") == "APP")
    records = chosen.filter(pl.col("component").ne_missing("APP"))
    is_ge = (pl.col("component") == "GE").fill_null(False).cast(pl.UInt8).alias("is_ge")
    records = in_order(records.with_columns(is_ge), ["time_ns", "is_ge"])[shown]
    sums = _with_other_component(records)
    both = pl.concat([records, sums.select(shown)])
    # A record and its sum share the position of the record; the stable sort keeps the record first.
    position = np.concatenate([np.arange(records.height), sums["position"].to_numpy()])
    return pl.concat([sampled, both[np.argsort(position, kind="stable")]])


def _with_other_component(records: pl.DataFrame) -> pl.DataFrame:
    merging = records.select(
        pl.int_range(pl.len()).alias("position"),
        pl.all(),
    ).filter((pl.col("device_type") == "npu") & pl.col("component").is_in(["PTA", "GE"]))
    row = pl.int_range(pl.len())
    last_pta = pl.when(pl.col("component") == "PTA").then(row).forward_fill().over("device")
    last_ge = pl.when(pl.col("component") == "GE").then(row).forward_fill().over("device")
    other = merging.select(pl.when(pl.col("component") == "PTA").then(last_ge).otherwise(last_pta)).to_series()
    if other.null_count() == merging.height:
        return merging.with_columns(pl.lit("PTA+GE", dtype=TEXT).alias("component"))
    return merging.with_columns(
        pl.lit("PTA+GE", dtype=TEXT).alias("component"),
        *(_sum(pl.col(total), merging[total].gather(other)).alias(total) for total in _TOTALS),
        pl.coalesce("stream_ptr", merging["stream_ptr"].gather(other).rename("other")).alias("stream_ptr"),
    )


def _sum(one: pl.Expr, other: pl.Series) -> pl.Expr:
    """Sum that is null only when both sides are."""
    return pl.when(one.is_null()).then(other).when(other.is_null()).then(one).otherwise(one + other)


def actions(events: pl.DataFrame) -> npt.NDArray[np.int8]:
    """What each event does: MALLOC, FREE, BLOCK_FREE or UNKNOWN."""
    named = pl.col("action")
    signed = pl.col("device_type").ne_missing("npu") & pl.col("op_name").is_null()
    code = (
        # docs/formats/framework.md 4.3: host records say malloc in both directions, only the sign tells.
        pl.when(signed & (pl.col("bytes") > 0)).then(MALLOC)
        .when(signed & (pl.col("bytes") < 0) & (named.is_null() | (named == "malloc"))).then(FREE)
        .when(named == "malloc").then(MALLOC)
        .when(named == "free").then(FREE)
        .when(named == "block_free").then(BLOCK_FREE)
        .otherwise(UNKNOWN)
    )  # fmt: skip
    return events.select(code.cast(pl.Int8)).to_series().to_numpy()


def _paired(events: pl.DataFrame, action: npt.NDArray[np.int8]) -> tuple[Rows, Rows, Rows, list[pl.DataFrame]]:
    """Rows of malloc, free and block_free per block, in malloc order; -1 where there is none."""
    known = np.flatnonzero(action != UNKNOWN)
    # Runtime (GE) records reuse addresses between operators: there the operator belongs to the key (docs/formats/outputs.md 8.3).
    place = group_numbers([events], ["pid", "device_type", "device", "op_name"])[0][known]
    ptr = events["ptr"].to_numpy()[known]
    order = np.lexsort((ptr, place)) if place.size and place.max() > 0 else np.argsort(ptr, kind="stable")
    row, ptr, place = known[order], ptr[order], place[order]
    kind = action[row]
    position = np.arange(row.size)
    new_key = np.ones(row.size, dtype=bool)
    new_key[1:] = (ptr[1:] != ptr[:-1]) | (place[1:] != place[:-1])
    key_start = np.maximum.accumulate(np.where(new_key, position, 0))
    block_start = np.maximum.accumulate(np.where(kind == MALLOC, position, _NONE))
    stray = block_start < key_start
    depth = position - block_start
    # At most one free and one block_free belong to a block, so its second release must differ from the first.
    differs = np.zeros(row.size, dtype=bool)
    differs[1:] = kind[1:] != kind[:-1]
    member = ~stray & ((depth <= 1) | ((depth == 2) & differs))
    # A workspace that grows is given back to the device after its last user gave it back.
    repeated = ~stray & ~member & ~(events["component"] == "WORKSPACE").fill_null(False).to_numpy()[row]
    quality = [
        lost(issues.UNKNOWN_KIND, "memory_events", int(action.size - known.size), "neither malloc nor free nor block_free"),
        lost(issues.ALLOCATED_BEFORE_RECORDING, "memory_events", int(stray.sum())),
        lost(issues.REPEATED_RELEASE, "memory_events", int(repeated.sum())),
    ]
    releases = {}
    for release in (FREE, BLOCK_FREE):
        of_kind = member & (kind == release)
        rows = np.full(row.size, _NONE, dtype=np.int64)
        rows[block_start[of_kind]] = row[of_kind]
        releases[release] = rows
    starts = np.flatnonzero(kind == MALLOC)
    starts = starts[np.argsort(row[starts], kind="stable")]
    return row[starts], releases[FREE][starts], releases[BLOCK_FREE][starts], [frame for frame in quality if frame.height]


def _owners(mallocs: pl.DataFrame, ops: pl.DataFrame, queue: pl.DataFrame) -> Rows:
    """Row of the operator that asked for each allocation, -1 where none did (docs/formats/outputs.md 8.2)."""
    owner = np.full(mallocs.height, _NONE, dtype=np.int64)
    if not ops.height:
        return owner
    enqueues, dequeues = (queue.filter(pl.col("kind") == kind) for kind in ("enqueue", "dequeue"))
    op_thread, at_thread, enq_thread, deq_thread = group_numbers([ops, mallocs, enqueues, dequeues], ["pid", "tid"])
    tree = _OpTree(ops, op_thread)
    time = mallocs["time_ns"].to_numpy()
    by_framework = mallocs["op_name"].is_null().to_numpy()
    queued = np.isin(at_thread, np.flatnonzero(np.bincount(deq_thread)))

    direct = np.flatnonzero(by_framework & ~queued)
    owner[direct] = tree.covering(at_thread[direct], time[direct])

    indirect = np.flatnonzero(by_framework & queued)
    interval = last_started(deq_thread, dequeues["start_ns"].to_numpy(), at_thread[indirect], time[indirect])
    inside = interval != _NONE
    inside[inside] = time[indirect[inside]] < dequeues["end_ns"].to_numpy()[interval[inside]]
    indirect, enqueue = indirect[inside], _enqueues_of(dequeues[interval[inside]], enqueues)
    indirect, enqueue = indirect[enqueue != _NONE], enqueue[enqueue != _NONE]
    owner[indirect] = tree.launching(enq_thread[enqueue], enqueues["end_ns"].to_numpy()[enqueue])
    return owner


def _enqueues_of(dequeues: pl.DataFrame, enqueues: pl.DataFrame) -> Rows:
    """Row of the last enqueue with the task number of each dequeue; -1 where there is none."""
    key = ["pid", "correlation_id"]
    wanted = dequeues.select(key)
    found = (
        enqueues.select(*key, pl.int_range(pl.len()).alias("enqueue"))
        .join(wanted, on=key, how="semi", nulls_equal=True)
        .unique(key, keep="last", maintain_order=True)
    )
    rows = wanted.join(found, on=key, how="left", nulls_equal=True, maintain_order="left")["enqueue"]
    return rows.fill_null(_NONE).to_numpy()


class _OpTree:
    """Operators of all threads as arrays, to find the one that stands for a moment."""

    def __init__(self, ops: pl.DataFrame, thread: Rows):
        self.end = ops["end_ns"].to_numpy()
        self.parent = ops["parent"].fill_null(_NONE).to_numpy()
        self.skipped = _by_name(ops["name"], pl.col("name").is_in(_ALLOCATION_RANGES))
        self.of_library = _by_name(ops["name"], pl.col("name").str.contains("^(aten|npu)"))
        kept = np.flatnonzero(~self.skipped)
        self._kept, self._thread, self._start = kept, thread[kept], ops["start_ns"].to_numpy()[kept]

    def covering(self, thread: Rows, time: Rows) -> Rows:
        """Innermost operator of the thread that is open at the time."""
        return self._climb(self._started(thread, time), lambda node, rows: (self.end[node] < time[rows]) | self.skipped[node])

    def launching(self, thread: Rows, time: Rows) -> Rows:
        """Innermost library operator around the last operator that started by the time."""
        return self._climb(self._started(thread, time), lambda node, rows: ~self.of_library[node])

    def _started(self, thread: Rows, time: Rows) -> Rows:
        found = last_started(self._thread, self._start, thread, time)
        return np.where(found != _NONE, self._kept[found], _NONE) if self._kept.size else found

    def _climb(self, node: Rows, unfit: _Unfit) -> Rows:
        rows = np.flatnonzero(node != _NONE)
        while rows.size:  # one round per level of nesting, not per allocation
            rows = rows[unfit(node[rows], rows)]
            node[rows] = self.parent[node[rows]]
            rows = rows[node[rows] != _NONE]
        return node


def _by_name(names: pl.Series, test: pl.Expr) -> Flags:
    """Whether the name of each row passes a test, false without a name; each different name is tested once."""
    different = names.unique().drop_nulls()
    passing = different.cast(pl.String).to_frame("name").select(test).to_series().to_numpy()
    number = different.to_physical().to_numpy()
    known = np.zeros(number.max(initial=0) + 1, dtype=np.bool_)
    known[number] = passing
    flags: Flags = known[names.to_physical().fill_null(0).to_numpy()]
    return flags & names.is_not_null().to_numpy() if names.null_count() else flags


class _Unfit(Protocol):
    """Type of the tests that `_climb` takes."""

    def __call__(self, node: Rows, rows: Rows, /) -> Flags: ...


def _nullable(rows: Rows) -> pl.Series:
    """Row numbers with -1 as null."""
    series = pl.Series("row", rows)
    return series.set(series == _NONE, None)
