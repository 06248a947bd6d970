# SPDX-License-Identifier: Apache-2.0
"""Wall time, in ms, of questions in SQL over a capture of a million operators, and of other routes while queries run away.

python -m benchmarks.query [OPERATORS]
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from stepscope.query.engine import Engine, Limits, Store
from stepscope.tables import ALL_TABLES, TEXT, Facts, Tables
from stepscope.tables.store import write_store
from stepscope.web.request import Settings
from stepscope.web.server import Address, Server

LENGTH_NS, STEPS = 10**12, 300
QUESTIONS = {
    "top kernels": "SELECT name, count(*) AS n, sum(end_ns - start_ns) AS ns FROM kernels GROUP BY name ORDER BY ns DESC LIMIT 20",
    "join kernels with ops": "SELECT o.name, count(*) AS n, sum(k.end_ns - k.start_ns) AS ns FROM kernels k JOIN ops o "
    "ON k.op = o.id GROUP BY o.name ORDER BY ns DESC LIMIT 20",
    "gaps per stream": "SELECT stream, sum(gap) AS g, max(gap) AS m FROM (SELECT stream, start_ns - LAG(end_ns) OVER (PARTITION BY "
    "stream ORDER BY start_ns) AS gap FROM kernels) t WHERE gap > 0 GROUP BY stream",
    "range join with steps": "SELECT s.step, count(*) AS n, sum(k.end_ns - k.start_ns) AS ns FROM kernels k JOIN steps s "
    "ON k.start_ns >= s.start_ns AND k.start_ns < s.end_ns GROUP BY s.step ORDER BY ns DESC LIMIT 10",
    "percentiles": "SELECT name, quantile_cont(ns, 0.99) AS p99 FROM (SELECT name, end_ns - start_ns AS ns FROM kernels) t "
    "GROUP BY name ORDER BY p99 DESC LIMIT 10",
    "regular expression": "SELECT count(*) AS n FROM ops WHERE regexp_like(name, 'mat|add')",
    "recursive parents": "WITH RECURSIVE up(r, parent, depth) AS (SELECT id, parent, 0 FROM ops WHERE id = 777 UNION ALL "
    "SELECT o.id, o.parent, depth + 1 FROM ops o JOIN up ON o.id = up.parent) SELECT max(depth) AS d FROM up",
    "one row": "SELECT * FROM ops WHERE id = 500",
}
ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select sum(i) as s from n"


def tables(count: int) -> Tables:
    """Operators, kernels and steps at random times."""
    chance = np.random.default_rng(0)
    names = np.array([f"aten::op_{number}" for number in range(300)] + ["aten::matmul", "aten::add"])
    start = np.sort(chance.integers(0, LENGTH_NS, count))
    parent = np.maximum(np.arange(count) - chance.integers(1, 5, count), 0)
    ops = pl.DataFrame(
        {
            "tid": chance.integers(1, 3, count),
            "start_ns": start,
            "end_ns": start + chance.integers(1000, 10**6, count),
            "name": pl.Series(names[chance.integers(0, names.size, count)]).cast(TEXT),
            "parent": pl.Series(np.where(chance.random(count) < 0.7, parent, -1)).replace(-1, None),
        }
    )
    tasks = count * 39 // 100
    began = np.sort(chance.integers(0, LENGTH_NS, tasks))
    kernels = pl.DataFrame(
        {
            "device": np.zeros(tasks, dtype=np.int64),
            "stream": chance.integers(1, 5, tasks),
            "start_ns": began,
            "end_ns": began + chance.integers(1000, 10**6, tasks),
            "kind": pl.Series(["compute"]).new_from_index(0, tasks).cast(TEXT),
            "name": pl.Series(np.char.add("Kernel", chance.integers(0, 200, tasks).astype(str))).cast(TEXT),
            "op": chance.integers(0, count, tasks),
        }
    )
    edges = np.linspace(0, LENGTH_NS, STEPS + 1).astype(np.int64)
    steps = pl.DataFrame({"step": np.arange(STEPS), "start_ns": edges[:-1], "end_ns": edges[1:]})
    frames = {"ops": ops, "kernels": kernels, "steps": steps}
    return Tables({**{name: ALL_TABLES[name].conform(frame) for name, frame in frames.items()}, "meta": Facts(rank=0).table()})


def main(count: int) -> None:
    with TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        write_store(store.folder, tables(count), [])
        _questions(store, count)
        _others(Path(folder))


def _questions(store: Store, count: int) -> None:
    engine = Engine(Limits(seconds=120.0))
    first = _timed(lambda: engine.ask([store], "SELECT count(*) AS n FROM kernels"))
    print(f"{count:,} operators{'':14} wall ms (best of 3)")
    for name, question in QUESTIONS.items():
        print(f"{name:30} {min(_timed(lambda question=question: engine.ask([store], question)) for _ in range(3)):9.1f}")
    print(f"{'cold: first question':30} {first:9.1f}")
    engine.close()


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1000


def _others(folder: Path) -> None:
    """Other routes while 16 queries run away, and without them."""
    (folder / "run").mkdir()
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {}}
    (folder / "run" / "w.pt.trace.json").write_text(json.dumps({"traceEvents": [event]}))
    server = Server([folder / "run"], Address(), Settings())
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        urllib.request.urlopen(f"{server.url}api/v1/overview?wait=30", timeout=90).read()
        quiet = _latencies(server.url, seconds=5.0)
        with ThreadPoolExecutor(16) as pool:
            asked = [pool.submit(_post, server.url) for _ in range(16)]
            loaded = _latencies(server.url, seconds=8.0)
            states = sorted(one.result() for one in asked)
    finally:
        server.close()
        thread.join(10)
    for label, times in (("other routes, no query", quiet), ("other routes, 16 runaways", loaded)):
        print(f"{label:30} p50 {statistics.median(times):7.1f}  p95 {statistics.quantiles(times, n=20)[-1]:7.1f}  n {len(times)}")
    ended, refused = states.count(422), states.count(503)
    print(f"{'answers to the runaways':30} {ended} ended, {refused} refused, {len(states) - ended - refused} else")


def _latencies(url: str, seconds: float) -> list[float]:
    until, times = time.perf_counter() + seconds, []
    while time.perf_counter() < until:
        for route in ("runs", "overview", "files"):
            times.append(_timed(lambda route=route: urllib.request.urlopen(f"{url}api/v1/{route}", timeout=60).read()))
    return times


def _post(url: str) -> int:
    try:
        body, kind = json.dumps({"query": ENDLESS}).encode(), {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}api/v1/sql", data=body, headers=kind), timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as problem:
        with problem:
            return problem.code


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
