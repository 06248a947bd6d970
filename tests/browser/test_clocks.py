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
LARGE_RUN = Plan("ddp", dp=10, layers=1, per_host=1)  # more ranks than stand on the common clock unasked


@pytest.fixture(scope="module")
def page(driver, tmp_path_factory):
    yield from opened(driver, tmp_path_factory.mktemp("runs") / "small", SMALL_RUN)


@pytest.fixture(scope="module")
def large(driver, tmp_path_factory):
    yield from opened(driver, tmp_path_factory.mktemp("runs") / "large", LARGE_RUN)


def opened(driver: object, folder: Path, plan: Plan) -> Iterator[Page]:
    folder.mkdir()
    write_captures(folder, record(plan, 3, 4, offset_ms=5.0), "kineto")
    with serving(folder) as address:
        yield Page(driver, address)


def place(shown: Timeline) -> float | None:
    """Where rank-1 begins in the timeline, ns; nothing while it is not shown."""
    at = shown.call(f"placeOf(0, 0, {OTHER})")
    low, high = shown.stats["window"]
    return at and low + at["x"] / shown.stats["canvas"]["width"] * (high - low)


def in_menu(shown: Timeline, script: str, *values: object) -> None:
    """Opens the menu of ranks, runs this on what it has, and closes it."""
    shown.browser.execute_script("document.querySelector('[data-testid=trace-menu-ranks]').parentElement.open = true")
    shown.until(lambda: shown.all(".trace-menu[open] .trace-offset"))
    shown.browser.execute_script(f"const menu = document.querySelector('.trace-menu[open]'); {script}; menu.open = false", *values)


def press(shown: Timeline, text: str) -> None:
    in_menu(shown, "[...menu.querySelectorAll('button')].find((one) => one.textContent === arguments[0]).click()", text)


def move(shown: Timeline, us: int) -> None:
    """Rank-1, by its field in the menu."""
    before = place(shown)
    in_menu(
        shown,
        "const field = menu.querySelector('.trace-offset'); field.value = arguments[0]; field.dispatchEvent(new Event('change'))",
        us,
    )
    shown.until(lambda: place(shown) == pytest.approx(before + us * 1000, abs=1000))


def free_slice(shown: Timeline, worker: str) -> dict:
    """Idle time between two steps, of some tenths of a millisecond."""
    hits = shown.call_api("trace/search", f"worker={worker}&q=%5EFree%24&mode=regex&limit=1000&px=1")["hits"]
    return max(hits, key=lambda hit: hit["duration_ns"])


def test_by_clock_puts_ranks_on_it_that_were_moved(page: Page) -> None:
    shown = Timeline(page, BOTH)
    common = place(shown)
    move(shown, 3000)
    shown.until(lambda: "shift" in shown.params)
    press(shown, "by clock")
    shown.until(lambda: place(shown) == pytest.approx(common, abs=100))
    shown.until(lambda: "shift" not in shown.params)


def test_what_the_reader_moves_before_the_clocks_are_known_stays_there(page: Page) -> None:
    common = place(Timeline(page, BOTH))
    with page.holding("cluster") as let_go:
        shown = Timeline(page, BOTH, ready=False)
        shown.until(lambda: shown.call("stats()") and place(shown) is not None)
        alone = place(shown)
        assert abs(alone - common) > 0.1 * MS, "the clocks are apart"
        move(shown, 3000)
        let_go()
        shown.settle()
        assert len(shown.all("[data-testid=rank-clock]")) == 2
        assert place(shown) == pytest.approx(alone + 3 * MS, abs=1000)
        press(shown, "Reset alignment")
        shown.until(lambda: place(shown) == pytest.approx(common, abs=100))
    # What an address says is relative to the common clock, and waits for it.
    shown = Timeline(page, f"{BOTH}&shift=rank-1%403000000")
    assert place(shown) == pytest.approx(common + 3 * MS, abs=1000)


def test_a_link_has_the_first_rank_where_it_was_moved(page: Page) -> None:
    """By start with a slice of another rank selected it is the first that moves."""
    shown = Timeline(page, BOTH)
    free = free_slice(shown, "rank-1")
    shown = Timeline(page, f"{BOTH}&slice={OTHER}:{free['id']}&shift=rank-1%403000000")
    shown.until(lambda: shown.facts().get("Title"))
    press(shown, "by start")
    shift = shown.until(lambda: "rank-0" in shown.params.get("shift", "") and shown.params["shift"])
    first = shown.call("placeOf(0, 0, 0)")["x"] - shown.call(f"placeOf(0, 0, {OTHER})")["x"]
    again = Timeline(page, page.state.partition("?")[2])
    assert again.params["shift"] == shift
    assert again.call("placeOf(0, 0, 0)")["x"] - again.call(f"placeOf(0, 0, {OTHER})")["x"] == pytest.approx(first, abs=1)


def test_ranks_of_a_large_run_go_to_the_common_clock_and_back(large: Page) -> None:
    shown = Timeline(large, BOTH)
    bases = [int(shown.call_api("trace/meta", f"worker=rank-{rank}")["base_ns"]) for rank in (0, 1)]
    assert place(shown) == pytest.approx(bases[1] - bases[0], abs=100), "each by its own clock"
    assert not shown.all("[data-testid=rank-clock]")
    move(shown, 3000)
    press(shown, "by clock")
    shown.until(lambda: shown.all("[data-testid=rank-clock]"))
    clocks = shown.call_api("cluster", "run=large")["clocks"]
    ahead = clocks[1]["offset_ns"] - clocks[0]["offset_ns"]
    shown.until(lambda: place(shown) == pytest.approx(bases[1] - bases[0] - ahead, abs=100))
    shown.until(lambda: shown.params.get("clock") == "1")
    press(shown, "Reset alignment")
    shown.until(lambda: place(shown) == pytest.approx(bases[1] - bases[0], abs=100))
    shown.until(lambda: not shown.all("[data-testid=rank-clock]"))
    shown.until(lambda: "clock" not in shown.params)


def test_a_link_is_restored_before_the_clocks_are_known(page: Page) -> None:
    shown = Timeline(page, BOTH)
    free = free_slice(shown, "rank-1")
    begin = round(place(shown)) + free["start_ns"]
    window = [begin - 100_000, begin + 200_000]
    link = f"{BOTH}&slice={OTHER}:{free['id']}&find=AllReduce&t={window[0]}_{window[1]}"
    with page.holding("cluster") as let_go:
        shown = Timeline(page, link, ready=False)
        shown.until(lambda: shown.call("stats()") and shown.stats["selected"] == free["id"])
        shown.until(lambda: shown.find("[data-testid=trace-hits]").text)
        assert not shown.all("[data-testid=rank-clock]")
        assert not shown.stats["ready"]
        assert shown.stats["window"] == pytest.approx(window, abs=1)
        let_go()
        shown.settle()
    assert shown.stats["window"] == pytest.approx(window, abs=1)
    width = shown.stats["canvas"]["width"]
    assert shown.stats["selectedAt"]["left"] == pytest.approx(width / 3, abs=2)
    assert not page.errors()


def test_the_clocks_do_not_take_away_what_the_reader_selected(page: Page) -> None:
    with page.holding("cluster") as let_go:
        shown = Timeline(page, BOTH, ready=False)
        shown.until(lambda: shown.call("stats()") and place(shown) is not None)
        free = free_slice(shown, "rank-1")
        shown = Timeline(page, f"{BOTH}&slice={OTHER}:{free['id']}", ready=False)
        shown.until(lambda: shown.call("stats()") and shown.stats["selected"] == free["id"])
        begin = round(place(shown)) + free["start_ns"]
        shown.call(f"setWindow({begin - 100_000}, {begin + 200_000})")
        before = shown.stats["selectedAt"]["left"]
        let_go()
        shown.settle()
    assert len(shown.all("[data-testid=rank-clock]")) == 2
    assert shown.stats["selectedAt"]["left"] == pytest.approx(before, abs=2)
    assert round(place(shown)) + free["start_ns"] != pytest.approx(begin, abs=10_000), "though it has another place now"
    assert shown.facts()["Start"] == f"{(round(place(shown)) + free['start_ns']) / 1000:,.3f} us"


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
