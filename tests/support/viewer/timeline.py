# SPDX-License-Identifier: Apache-2.0
"""The Trace view in a browser that tests drive, and the slices of a file in plain Python."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from viewer.page import Page

NPU_RUN, NPU = "npu_level2", "run=npu_level2&worker=0"
ODD_NAME = "void f<img src=x onerror=alert(1)>(float const*)"


def odd_trace() -> dict[str, Any]:
    """Slices that cross, that take no time, that stand on one instant, and one that looks like HTML."""
    spans = [("a", 0, 100), ("b", 50, 100), ("c", 200, 0), ("d", 200, 0), (ODD_NAME, 300, 50)]
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 1000 + at, "dur": length, "args": {}}
        for name, at, length in spans
    ]
    # 3,000 short ones close together: more than a tile shows one by one.
    events += [
        {"ph": "X", "cat": "cpu_op", "name": f"many{i % 3}", "pid": 1, "tid": 2, "ts": 1000 + i * 0.1, "dur": 0.05, "args": {}}
        for i in range(3000)
    ]
    return {"schemaVersion": 1, "traceEvents": events, "displayTimeUnit": "ms"}


class Timeline:
    """The Trace view of one capture, as soon as its picture is complete and all ranks are where they belong (`ready`)."""

    def __init__(self, page: Page, where: str, height: int = 1000, *, ready: bool = True):
        self.page, self.browser = page, page.driver
        page.leave(1600, height)
        page.enter(f"/trace?{where}")
        if ready:
            self.settle()

    def until(self, condition: Callable[[], Any]) -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.browser, 30, 0.03).until(lambda _: condition())

    def settle(self) -> None:
        self.until(lambda: (self.call("stats()") or {}).get("ready"))

    def call(self, code: str) -> Any:
        return self.browser.execute_script(f"return window.__stepscope?.trace?.{code}")

    @property
    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call("stats()")
        return found

    @property
    def params(self) -> dict[str, str]:
        query = self.page.state.partition("?")[2]
        return {key: values[0] for key, values in parse_qs(query, keep_blank_values=True).items()}

    def find(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.browser.find_elements("css selector", selector)
        return found

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        self.browser.execute_script("document.querySelector('[data-testid=trace-canvas]').focus()")
        for key in keys:
            ActionChains(self.browser, duration=10).send_keys(key).perform()

    def window(self, start: int, end: int) -> None:
        self.call(f"setWindow({start}, {end})")
        self.settle()

    def slices_by_lane(self) -> dict[str, int]:
        """Slices in the picture by track, all lanes being in view."""
        drawn: dict[str, int] = self.call("drawnByRow()")
        meta = self.meta()
        shown: Counter[str] = Counter()
        for key, count in drawn.items():
            row = int(key.split(":")[1])
            track = meta["tracks"][meta["rows"][row]["track"]]
            shown[f"{meta['processes'][track['process']]['name']}/{track['label']}"] += count
        return dict(shown)

    def meta(self) -> dict[str, Any]:
        wanted = {key: value for key, value in self.params.items() if key in ("run", "worker")}
        return self.call_api("trace/meta", "&".join(f"{key}={value}" for key, value in wanted.items()))

    def call_api(self, route: str, query: str) -> dict[str, Any]:
        """What the server says itself."""
        found: dict[str, Any] = self.browser.execute_async_script(
            # TensorBoard's page lies elsewhere than ours.
            "const own = document.querySelector('link[rel=stylesheet][href*=\"style.css\"]').href;"
            f"fetch(new URL('../api/v1/{route}?{query}', own)).then((r) => r.json()).then(arguments[0])"
        )
        return found

    def facts(self) -> dict[str, str]:
        """The table of Slice Detail."""
        rows = self.browser.execute_script(
            "return [...document.querySelectorAll('[data-testid=slice-detail] .trace-facts tr')]"
            ".map((row) => [row.cells[0].textContent, row.cells[1].textContent])"
        )
        return dict(rows)

    def errors(self) -> list[str]:
        return self.page.errors()


class Landing(Timeline):
    """The Trace view that another view has led to."""

    def __init__(self, page: Page):
        self.page, self.browser = page, page.driver
        self.settle()

    def lands(self) -> None:
        """The selected slice is inside of what can be seen of the canvas."""
        self.until(lambda: self.stats["selected"] is not None and self.all("[data-testid=slice-detail]"))
        self.settle()
        stats = self.stats
        at, canvas = stats["selectedAt"], stats["canvas"]
        assert at["left"] < canvas["width"] - 1, stats
        assert at["right"] > 1, stats
        assert canvas["covered"] + 8 <= at["y"] <= canvas["height"] - 8, stats
        box = self.browser.execute_script(
            "const box = document.querySelector('[data-testid=trace-canvas]').getBoundingClientRect();"
            "const panel = document.querySelector('.trace-panel').getBoundingClientRect();"
            "const beside = panel.left >= box.right - 1;"
            "return [box.top + arguments[0], panel.height && !beside ? panel.top : innerHeight, innerHeight]",
            at["y"],
        )
        assert box[0] < min(box[1:]), "the panel is not above the slice"


def ns(microseconds: object) -> int:
    whole, _, part = str(microseconds).partition(".")
    return int(whole) * 1000 + int((part + "000")[:3])


@cache
def npu_events(samples: Path, rank: int = 0, run: str = NPU_RUN) -> list[dict[str, Any]]:
    found = json.loads((samples / run / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes())
    events: list[dict[str, Any]] = found if isinstance(found, list) else found["traceEvents"]
    return events


def process_names(events: list[dict[str, Any]]) -> dict[Any, str]:
    return {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "process_name"}


def spans(events: list[dict[str, Any]]) -> tuple[int, list[tuple[str, int, int, str]]]:
    """Time zero and (process, start, end, name) of all slices, ns since then."""
    named = process_names(events)
    zero = min(ns(event["ts"]) for event in events if event["ph"] in "XC" and "ts" in event)
    found = []
    for event in events:
        if event["ph"] == "X":
            start = ns(event["ts"]) - zero
            found.append((named.get(event["pid"], ""), start, start + ns(event["dur"]), event["name"]))
    return zero, found


def by_process(lanes: dict[str, int]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for lane, count in lanes.items():
        counts[lane.split("/")[0]] += count
    return {name: count for name, count in counts.items() if count}
