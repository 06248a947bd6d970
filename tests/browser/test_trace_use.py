# SPDX-License-Identifier: Apache-2.0
"""Working with the Trace view: keys, search, links, tracks, theme and language."""

from __future__ import annotations

import pytest
from viewer.timeline import NPU, Timeline, npu_events, spans

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.slow  # a real browser


def test_search_counts_walks_and_fades(sample_page, samples):
    _, all_spans = spans(npu_events(samples))
    wanted = sorted(start for _, start, _, name in all_spans if "conv" in name.lower())
    page = Timeline(sample_page, NPU)
    page.press("/")
    active = page.browser.switch_to.active_element
    assert active.get_attribute("data-testid") == "trace-search"
    active.send_keys("conv")
    assert page.until(lambda: page.find("[data-testid=trace-hits]").text.replace(",", "")) == f"{len(wanted)}"
    active.send_keys(Keys.ENTER)
    page.until(lambda: page.find("[data-testid=trace-hits]").text.startswith("1 / "))
    first = page.until(lambda: page.stats["selected"])
    page.press("n")
    page.until(lambda: page.find("[data-testid=trace-hits]").text.startswith("2 / "))
    page.until(lambda: page.stats["selected"] not in (None, first))
    page.press("N")
    page.until(lambda: page.stats["selected"] == first)
    assert page.facts()["Start"] == f"{wanted[0] / 1000:,.3f} us"


def test_keys_move_the_window(sample_page):
    page = Timeline(sample_page, NPU)
    low, high = page.stats["window"]
    page.press("w")
    page.until(lambda: page.stats["window"][1] - page.stats["window"][0] < (high - low) * 0.9)
    page.settle()
    before = page.stats["window"]
    page.press("d")
    page.until(lambda: page.stats["window"][0] > before[0])
    page.settle()
    page.press("a", "a")
    page.until(lambda: page.stats["window"][0] < before[0])
    page.press("s")
    page.until(lambda: page.stats["window"][1] - page.stats["window"][0] > (before[1] - before[0]) * 1.05)
    ActionChains(page.browser).key_down(Keys.CONTROL).send_keys("0").key_up(Keys.CONTROL).perform()
    length = page.meta()["length_ns"]
    page.until(lambda: page.stats["window"][0] <= 0 and page.stats["window"][1] >= length)
    assert high - low < length, "it opened with the steps in view"
    page.press(Keys.BACKSPACE)
    page.until(lambda: page.stats["window"][0] > 0)


def test_keys_walk_mark_pin_and_fold(sample_page):
    page = Timeline(sample_page, NPU)
    page.press(".")
    page.until(lambda: page.stats["selected"] is not None)
    first = page.stats["selected"]
    live = page.find("[data-testid=trace-live]").get_attribute("textContent")
    assert live.count(",") >= 3, "name, start, duration and track are read out"
    page.press(".")
    page.until(lambda: page.stats["selected"] != first)
    page.press(",")
    page.until(lambda: page.stats["selected"] == first)
    page.press("f")
    page.settle()
    page.press("m")
    page.until(lambda: "range" in page.params)
    page.press("m")
    page.until(lambda: "range" not in page.params)
    page.press("k")
    page.until(lambda: "marks" in page.params)
    page.press("p")
    pinned = page.until(lambda: page.params.get("pins"))
    assert pinned == page.stats["lanes"][0]["key"]
    page.press("p")
    page.until(lambda: "pins" not in page.params)
    page.press("e")
    page.until(lambda: page.params.get("fold"))
    page.press("q")
    page.until(lambda: not page.find(".trace-panel").is_displayed())
    page.press(Keys.ESCAPE)
    page.until(lambda: page.stats["selected"] is None)


def test_a_link_restores_the_picture(sample_page):
    page = Timeline(sample_page, NPU)
    page.press(".")
    page.until(lambda: page.stats["selected"] is not None)
    page.press("p", "w")
    page.settle()
    page.until(lambda: page.params.get("pins") and page.params.get("slice"))
    # The address is written when the hand has come to rest.
    page.until(lambda: page.params.get("t") == "_".join(str(round(end)) for end in page.stats["window"]))
    link, stats = page.browser.current_url, page.stats
    again = Timeline(sample_page, link.partition("#/trace?")[2])
    again.until(lambda: again.stats["selected"] == stats["selected"])
    again.settle()
    assert again.stats["window"] == pytest.approx(stats["window"], abs=1)
    assert again.stats["lanes"][0]["key"] == stats["lanes"][0]["key"]
    assert again.params.get("pins") == stats["lanes"][0]["key"]


def test_an_unknown_slice_gives_a_notice(sample_page):
    page = Timeline(sample_page, f"{NPU}&slice=99999999")
    assert "slice" in page.until(lambda: page.find(".trace-message").text)
    assert page.stats["rects"] > 0


def test_processes_can_be_hidden_and_come_back(sample_page):
    page = Timeline(sample_page, NPU)
    page.find("[data-testid=trace-menu-processes]").click()
    page.until(lambda: page.all(".trace-menu[open] .trace-check"))
    next(one for one in page.all(".trace-menu[open] button") if one.text == "None").click()
    page.until(lambda: [lane["kind"] for lane in page.stats["lanes"]] == ["path"])
    next(one for one in page.until(lambda: page.all(".trace-menu[open] .trace-check")) if one.text.startswith("CANN")).click()
    page.until(lambda: {lane["label"] for lane in page.stats["lanes"] if lane["kind"] == "process"} == {"CANN"})


def test_slices_in_view_are_a_list_for_the_keyboard(sample_page):
    page = Timeline(sample_page, NPU)
    page.browser.execute_script("document.querySelector('[data-testid=trace-slices-in-view]').focus()")
    first = "return document.querySelector('[data-testid=trace-slices-in-view] [role=option]')?.textContent"
    text = page.until(lambda: page.browser.execute_script(first))
    ActionChains(page.browser).send_keys(Keys.ARROW_DOWN).perform()
    page.until(lambda: page.stats["selected"] is not None)
    assert page.until(lambda: page.facts().get("Title")) == text.split(",")[0]


def test_theme_and_language_change_in_place(sample_page):
    page = Timeline(sample_page, NPU)
    page.press(".", "w")
    page.until(lambda: page.stats["selected"] is not None and page.params.get("slice") is not None)
    page.settle()
    ground = "return [...document.querySelector('[data-testid=trace-canvas]').getContext('2d').getImageData(2, 60, 1, 1).data]"
    before = sum(page.browser.execute_script(ground)[:3])
    window = page.stats["window"]
    choose = (
        "const box = [...document.querySelectorAll('select')]"
        ".find((one) => [...one.options].some((it) => it.value === arguments[0]));"
        "box.value = arguments[0]; box.dispatchEvent(new Event('change', {bubbles: true}));"
    )
    page.browser.execute_script(choose, "dark")
    page.until(lambda: abs(sum(page.browser.execute_script(ground)[:3]) - before) > 300)
    page.browser.execute_script(choose, "light")
    page.until(lambda: sum(page.browser.execute_script(ground)[:3]) == before)
    page.browser.execute_script(choose, "zh")
    page.until(lambda: page.find("[data-testid=trace-menu-processes]").text == "进程")
    page.settle()
    assert page.stats["window"] == pytest.approx(window, abs=1)
    page.browser.execute_script(choose, "en")
    page.until(lambda: page.find("[data-testid=trace-menu-processes]").text == "Processes")
    # Reading pixels is what this test does, not the page.
    assert not [error for error in page.errors() if "willReadFrequently" not in error]


def test_tracks_can_be_moved(sample_page):
    page = Timeline(sample_page, NPU, height=9000)

    def labels() -> list[str]:
        return [lane["label"] for lane in page.stats["lanes"] if lane["label"].startswith("Stream")]

    assert labels() == ["Stream 0", "Stream 2", "Stream 3", "Stream 4"]
    page.browser.execute_script("document.querySelector('[aria-label=\"Move down: Stream 0\"]').click()")
    page.until(lambda: labels() == ["Stream 2", "Stream 0", "Stream 3", "Stream 4"])
    streams = page.until(lambda: page.params.get("order"))
    groups = [lane["label"] for lane in page.stats["lanes"] if lane["kind"] == "process"]
    page.browser.execute_script("document.querySelector('[aria-label=\"Move up: Ascend Hardware\"]').click()")
    page.until(lambda: next(lane["label"] for lane in page.stats["lanes"] if lane["kind"] == "process") == "Ascend Hardware")
    page.until(lambda: page.params.get("order") != streams)  # the address follows a moment later
    again = Timeline(sample_page, page.browser.current_url.partition("#/trace?")[2], height=9000)
    assert [lane["label"] for lane in again.stats["lanes"] if lane["kind"] == "process"] == [groups[1], groups[0], *groups[2:]]


def open_menu(page: Timeline) -> None:
    page.press()
    ActionChains(page.browser).key_down(Keys.SHIFT).send_keys(Keys.F10).key_up(Keys.SHIFT).perform()


def test_the_menu_at_a_slice(sample_page):
    page = Timeline(sample_page, f"{NPU}&find=aclnnAddmm_MatMulCommon_MatMulV2", height=720)
    page.until(lambda: page.stats["selected"] is not None)
    first = page.stats["selected"]
    open_menu(page)
    items = page.until(lambda: page.all("[data-testid=trace-context]:not([hidden]) [role=menuitem]"))
    words = ["Follow launch", "Select same name", "Show in table", "Pin this track", "Hide this track", "Pin communication group"]
    assert [word for word in words if word in " ".join(one.text for one in items)] == words
    page.find("[data-testid=menu-pin]").click()
    page.until(lambda: page.params.get("pins"))
    canvas = page.find("[data-testid=trace-canvas]")
    at = page.stats["selectedAt"]
    ActionChains(page.browser).move_to_element_with_offset(
        canvas,
        round(min(at["right"], canvas.size["width"]) - 2 - canvas.size["width"] / 2),
        round(at["y"] - canvas.size["height"] / 2),
    ).context_click().perform()
    page.until(lambda: page.all("[data-testid=trace-context]:not([hidden])"))
    page.find("[data-testid=menu-same]").click()
    page.until(lambda: "/" not in (count := page.find("[data-testid=trace-hits]").text) and int(count) > 1)
    open_menu(page)
    page.until(lambda: page.all("[data-testid=trace-context]:not([hidden])"))
    page.find("[data-testid=menu-table]").click()
    sample_page.ready("kernel")
    assert "aclnnAddmm_MatMulCommon_MatMulV2" in sample_page.text("[data-testid^=table-kernels]").replace("\n", "")
    assert first is not None
    assert not page.errors()


def test_dragging_an_area_sums_it_up(sample_page):
    page = Timeline(sample_page, NPU, height=900)
    page.find("[data-testid=trace-mode-area]").click()
    canvas = page.find("[data-testid=trace-canvas]")
    window = page.stats["window"]
    lane = next(one for one in page.stats["lanes"] if one["label"] == "Computing")
    ActionChains(page.browser).move_to_element_with_offset(
        canvas, -300, round(lane["y"] + lane["height"] / 2 - canvas.size["height"] / 2)
    ).click_and_hold().move_by_offset(400, 2).release().perform()
    page.until(lambda: page.all("[data-testid=table-slice-list] tbody tr"))
    low, high = (int(end) for end in page.until(lambda: page.params.get("range")).split("_"))
    wall = sum(
        float(row.text.split("\t")[0].replace(",", "")) for row in page.all("[data-testid=table-slice-list] tbody td:nth-child(2)")
    )
    names = [row.text for row in page.all("[data-testid=table-slice-list] tbody td:nth-child(1)")]
    assert names == ["Computing"], "only the track that the area covers"
    assert 0 < wall * 1000 <= high - low, "cut to the area"
    assert page.stats["window"] == window


def test_shares_steps_and_the_critical_path_are_told(sample_page):
    page = Timeline(sample_page, "run=gpu&worker=gpu_train_control", height=900)
    assert page.find("[data-testid=trace-step]").text == "All steps"
    page.until(lambda: any("%" in one.text for one in page.all(".trace-busy")))
    page.until(lambda: "%" in page.find(".trace-head-path .trace-busy").text)
    steps = page.meta()["steps"]
    page.find("[aria-label='Next step']").click()
    page.until(lambda: page.find("[data-testid=trace-step]").text == f"Step {steps[0]['step']}")
    low, high = page.stats["window"]
    assert low <= steps[0]["start_ns"] < steps[0]["end_ns"] <= high < steps[1]["end_ns"]
    # A click on the path selects the task that was running.
    page.settle()
    page.find("[aria-label='Next step']").click()
    page.until(lambda: page.find("[data-testid=trace-step]").text == f"Step {steps[1]['step']}")
    page.settle()
    lane = next(one for one in page.stats["lanes"] if one["kind"] == "path")
    canvas = page.find("[data-testid=trace-canvas]")
    ActionChains(page.browser).move_to_element_with_offset(
        canvas, 0, round(lane["y"] + lane["height"] / 2 - canvas.size["height"] / 2)
    ).click().perform()
    page.until(lambda: page.stats["selected"] is not None or page.params.get("range"))


def test_it_opens_at_its_steps_with_the_groups_in_order(sample_page):
    page = Timeline(sample_page, NPU, height=4000)
    meta = page.meta()
    low, high = page.stats["window"]
    begin, end = meta["steps"][0]["start_ns"], meta["steps"][-1]["end_ns"]
    assert low <= begin < end <= high
    assert high - low < 1.1 * (end - begin) < meta["length_ns"]
    groups = {process["name"]: process["group"] for process in meta["processes"]}
    shown = [lane for lane in page.stats["lanes"] if lane["kind"] == "process"]
    order = [groups[lane["label"]] for lane in shown]
    places = ["overlap", "device", "communication", "host", "counters"]
    assert set(order) <= set(places), order
    assert order == sorted(order, key=places.index)
    assert {lane["folded"] for lane, group in zip(shown, order, strict=True) if group == "counters"} == {True}


def test_the_menu_follows_launches_pins_groups_hides_and_copies(sample_page):
    page = Timeline(sample_page, f"{NPU}&find=aclnnAddmm_MatMulCommon_MatMulV2", height=900)
    kernel = page.until(lambda: page.stats["selected"])

    def choose(item: str) -> None:
        open_menu(page)
        page.until(lambda: page.all(f"[data-testid=trace-context]:not([hidden]) [data-testid={item}]"))[0].click()

    choose("menu-back")
    launch = page.until(lambda: page.stats["selected"] not in (None, kernel) and page.stats["selected"])
    page.settle()
    choose("menu-follow")
    page.until(lambda: page.stats["selected"] not in (None, launch))
    page.settle()
    choose("menu-group")
    page.until(lambda: [lane for lane in page.stats["lanes"] if lane["key"] in page.params.get("pins", "")])
    sample_page.driver.execute_script(
        "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"
    )
    choose("menu-link")
    page.until(lambda: "pins=" in (sample_page.driver.execute_script("return window.copied") or ""))
    choose("menu-hide")
    page.until(lambda: page.params.get("hide"))
    assert not page.errors()
