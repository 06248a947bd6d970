# SPDX-License-Identifier: Apache-2.0
"""CPU time, in ms, of the viewer's server for a timeline of millions of slices (budgets: docs/reference/viewer.md 7).

python -m benchmarks.viewer_server [SLICES]
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from stepscope.formats.reader import CaptureFiles
from stepscope.tables import ALL_TABLES, TEXT, Facts, Tables
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import page
from stepscope.web.parameters import Query
from stepscope.web.timeline import index as trace_index
from stepscope.web.timeline.index import TraceIndex
from stepscope.web.views import arrows, slices, trace
from stepscope.web.views import kernels as kernel_view
from stepscope.web.views import memory as memory_view

BEGIN = 1_736_000_000_000_000_000
THREADS, DEPTH, STREAMS, NAMES = 4, 4, 8, 2000
PERIOD = 24_000  # ns from one call of a thread to the next


def capture(count: int) -> Tables:
    """Threads of nested operators and streams of kernels, 24 rows in all."""
    per_row = count // (THREADS * DEPTH + STREAMS)
    chance = np.random.default_rng(0)
    words = np.array([f"aten::operator_{number}" for number in range(NAMES)])
    calls = np.arange(per_row) * PERIOD
    start = np.tile(np.concatenate([calls + depth * 100 for depth in range(DEPTH)]), THREADS)
    end = np.tile(np.concatenate([calls + PERIOD - 1000 - depth * 100 for depth in range(DEPTH)]), THREADS)
    thread = np.repeat(np.arange(THREADS), per_row * DEPTH)
    order = np.lexsort((-end, start))
    names = pl.Series("name", words[chance.integers(0, NAMES, start.size)]).cast(TEXT)
    ops = pl.DataFrame(
        {
            "pid": np.ones(start.size, dtype=np.int64),
            "tid": thread[order],
            "start_ns": start[order] + BEGIN,
            "end_ns": end[order] + BEGIN,
        }
    )
    begins = np.sort(chance.integers(0, per_row * PERIOD, (STREAMS, per_row)), axis=1)
    ends = np.minimum(
        begins + chance.integers(100, 9000, begins.shape), np.concatenate((begins[:, 1:], begins[:, -1:] + 9000), axis=1)
    )
    by_start = np.argsort(begins.ravel(), kind="stable")
    tasks = pl.DataFrame(
        {
            "device": np.zeros(begins.size, dtype=np.int64),
            "stream": np.repeat(np.arange(STREAMS), per_row)[by_start],
            "start_ns": begins.ravel()[by_start] + BEGIN,
            "end_ns": ends.ravel()[by_start] + BEGIN,
            "op": np.arange(begins.size),
        }
    )
    kernels = tasks.with_columns(pl.lit("compute").alias("kind"), pl.Series("name", words[chance.integers(0, NAMES, begins.size)]))
    frames = {"ops": ops.with_columns(names), "kernels": kernels}
    built = {name: ALL_TABLES[name].conform(frame) for name, frame in frames.items()}
    return Tables({**built, "meta": Facts(device_kind="npu").table()})


def timed(what: str, work: Callable[[], object], times: int = 1) -> None:
    began = time.process_time()
    for _ in range(times):
        work()
    print(f"{what:<28}{(time.process_time() - began) / times * 1e3:10.1f}", flush=True)


def tiles(index: TraceIndex) -> None:
    """One tile of every row at random places of every level."""
    places = random.Random(0)
    for level in range(int(index.length_ns // 1600).bit_length(), -1, -1):
        at = places.randrange((index.length_ns >> (level + 9)) + 1)
        trace.tiles(index, [[row, level, at] for row in range(len(index.row_track))])


def table_of_kernels(count: int) -> None:
    """A table of a million rows: first page, another order, a filter, a search (300 ms each)."""
    tables = capture(3 * count)  # a third of its rows are kernels
    loaded = LoadedCapture(tables, CaptureFiles(Path("benchmark")), Path("."), "1")
    queries = {
        "first rows": Query(group="all"),
        "sorted by duration": Query(group="all", sort="Duration(us)", desc="1"),
        "sorted by name": Query(group="all", sort="Name"),
        "filtered by duration": Query(group="all", filter='{"Duration(us)": {"min": 8.5}}'),
        "searched": Query(group="all", q="operator_12"),
        "statistic": Query(group="statistic"),
    }
    print(f"{tables.kernels.height:,} kernels")
    timed("prepared", lambda: page(kernel_view.kernels(loaded, Query(group="all")), Query(limit=0)))
    for what, query in queries.items():
        wall(what, lambda query=query: page(kernel_view.kernels(loaded, query), query))


def memory_curve(count: int) -> None:
    """A curve of millions of records, zoomed (300 ms)."""
    time_ns = BEGIN + np.arange(count) * 1000
    total = np.abs(np.random.default_rng(0).normal(0, 1, count).cumsum()) * 2**20
    frame = pl.DataFrame(
        {
            "time_ns": time_ns,
            "component": ["PTA"] * count,
            "device": [0] * count,
            "device_type": ["npu"] * count,
            "action": ["malloc"] * count,
            "inner": [True] * count,
        }
    )
    frame = frame.with_columns(
        total_allocated=pl.Series(total.astype(np.int64)), total_reserved=pl.Series((total * 1.1).astype(np.int64))
    )
    built = Tables({"memory_events": ALL_TABLES["memory_events"].conform(frame), "meta": Facts(device_kind="npu").table()})
    loaded = LoadedCapture(built, CaptureFiles(Path("benchmark")), Path("."), "1")
    print(f"{count:,} memory records")
    timed("prepared", lambda: memory_view.curve(loaded, Query()))
    length = count * 1000
    for share in (1, 10, 1000):
        window = Query({"from": [str(length // 3)], "to": [str(length // 3 + length // share)]})
        wall(f"curve, 1/{share} of the time", lambda window=window: memory_view.curve(loaded, window))


def wall(what: str, work: Callable[[], object]) -> None:
    """Best of three: by the clock, and processor time of all threads."""
    times = []
    for _ in range(3):
        began, busy = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - began, time.process_time() - busy))
    clock, processor = (min(one[kind] for one in times) * 1e3 for kind in (0, 1))
    print(f"{what:<28}{processor:10.1f} ({clock:.1f} by the clock)", flush=True)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    tables = capture(count)
    built: list[TraceIndex] = []
    timed("build", lambda: built.append(trace_index.build(tables)))
    with TemporaryDirectory() as folder:
        timed("save", lambda: trace_index.save(built[0], Path(folder) / "index", "key"))
        timed("open", lambda: built.append(trace_index.load(Path(folder) / "index", "key") or built[0]))
        index = built[-1]
        levels = int(index.length_ns // 1600).bit_length() + 1
        print(f"{index.count:,} slices in {len(index.row_track)} rows, {levels} levels")
        timed("meta", lambda: trace.meta(index, tables))
        timed(f"all rows at {levels} places", lambda: tiles(index))
        everything = {"tracks": None, "from": 0, "to": index.length_ns}
        timed("range, everything", lambda: slices.range_statistics(index, everything), 3)
        middle = {"tracks": None, "from": index.length_ns // 2, "to": index.length_ns // 2 + index.length_ns // 100}
        timed("range, 1 %", lambda: slices.range_statistics(index, middle), 3)
        timed("search", lambda: slices.search(index, Query(q="operator_12")), 3)
        timed("arrows", lambda: arrows.flows(index, Query(cats="async_npu")), 3)
        timed("slice", lambda: slices.slice_detail(index, tables, Query(id=12345)), 3)
    table_of_kernels(1_000_000)
    memory_curve(3_000_000)


if __name__ == "__main__":
    main()
