# SPDX-License-Identifier: Apache-2.0
"""Ranks in one timeline: on the common clock of their run, moved by the reader, and back; simulated clocks are far apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from viewer.page import Page, serving
from viewer.timeline import Timeline

from stepscope.cluster.simulate import Plan, record
from stepscope.cluster.simulate.captures import write_captures

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

from selenium.webdriver.common.action_chains import ActionChains

pytestmark = pytest.mark.slow  # a real browser

BOTH = "worker=rank-0&ranks=rank-1"
OTHER = 2  # number of rank-1 among the captures of the run
MS = 1e6
SMALL_RUN = Plan("megatron", tp=2, pp=2, dp=2, micro=2, layers=1, per_host=1)


@pytest.fixture(scope="module")
def page(driver, tmp_path_factory):
    yield from opened(driver, tmp_path_factory.mktemp("runs") / "small", SMALL_RUN)


def opened(driver: object, folder: Path, plan: Plan) -> Iterator[Page]:
    folder.mkdir()
    write_captures(folder, record(plan, 3, 4, offset_ms=5.0), "kineto")
    with serving(folder) as address:
        yield Page(driver, address)


@pytest.mark.parametrize("worker", ["rank-0", "rank-1"])
def test_times_in_the_panel_are_on_the_scale_of_the_ruler(page: Page, worker: str) -> None:
    """All steps are shown, then the last: both count from the same moment, which for another rank is not one of its own."""
    shown = Timeline(page, BOTH)
    hits = shown.call_api("trace/search", f"worker={worker}&q=%5EFree%24&mode=regex&limit=1000&px=1")["hits"]
    steps = shown.meta()["steps"]
    free = max((hit for hit in hits if hit["start_ns"] > steps[1]["start_ns"]), key=lambda hit: hit["duration_ns"])
    low, high = (round(end) for end in shown.stats["window"])
    source = 0 if worker == "rank-0" else OTHER
    shown = Timeline(page, f"{BOTH}&slice={source}:{free['id']}&t={low}_{high}", height=3000)
    assert shown.find("[data-testid=trace-step]").text == "All steps"

    def both() -> tuple[str, str]:
        """The slice's begin as the panel tells it, and under the pointer."""
        canvas, at = shown.find("[data-testid=trace-canvas]"), shown.stats["selectedAt"]
        middle = (max(0, at["left"]) + min(canvas.size["width"], at["right"])) / 2
        ActionChains(shown.browser).move_to_element_with_offset(
            canvas, round(middle - canvas.size["width"] / 2), round(at["y"] - canvas.size["height"] / 2)
        ).perform()
        tip = shown.until(lambda: shown.all(".trace-tip small"))[0].text
        return shown.find("[data-testid=cause-when]").text.split(" – ")[0], tip.split(" · ")[0]

    panel, tip = both()
    assert panel == tip
    # The last of three steps: the ruler counts from its start, and so does the panel that is open.
    for _ in steps:
        shown.find("[data-testid=trace-step] + button").click()
    shown.until(lambda: shown.find("[data-testid=trace-origin]").text == f"since start of step {steps[-1]['step']}")
    shown.call(f"setWindow({steps[-1]['start_ns'] - MS}, {steps[-1]['end_ns']})")
    shown.settle()
    assert shown.find("[data-testid=trace-origin]").text == f"since start of step {steps[-1]['step']}"
    assert both()[0] != panel
    assert both()[0] == both()[1]
