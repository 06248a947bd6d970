# SPDX-License-Identifier: Apache-2.0
"""Whatever leads to a slice ends with the slice in view: links of tables and findings, addresses, clicks on the canvas."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from viewer.page import Page, serving
from viewer.timeline import NPU, Landing, Timeline

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

from selenium.webdriver.common.action_chains import ActionChains

pytestmark = pytest.mark.slow  # a real browser

CAPTURE = {"run": "npu_level2", "worker": "0"}
SIZES = pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)], ids=["1280x720", "1920x1080"], indirect=True)


ROW = '[data-testid^="table-"] .table-layer > .table-row'


def follow(page: Page, at: int = 3) -> None:
    """ "Show in Trace" of a row."""
    page.until(f"return document.querySelectorAll('{ROW}').length > {at}", "rows")
    page.driver.execute_script(f"document.querySelectorAll('{ROW}')[{at}].querySelector('[data-testid=show-in-trace]').click()")


@SIZES
def test_a_finding_leads_to_its_evidence(door_page: Page, size: tuple[int, int]) -> None:
    door_page.open("findings", **CAPTURE)
    count = door_page.driver.execute_script("return document.querySelectorAll('.finding').length")
    assert count > 2
    landed = 0
    for at in range(count):
        if at:
            door_page.choose("select-views", "findings")
            door_page.ready("findings")
        door_page.driver.execute_script(
            "document.querySelectorAll('.finding')[arguments[0]].querySelector('[data-testid=evidence], button.link').click()", at
        )
        if door_page.state.startswith("/trace"):
            Landing(door_page).lands()
            landed += 1
    assert landed


@SIZES
@pytest.mark.parametrize("group", ["all", "statistic"])
def test_a_kernel_row_leads_to_its_slice(door_page: Page, size: tuple[int, int], group: str) -> None:
    door_page.open("kernel", **CAPTURE, group=group)
    follow(door_page)
    Landing(door_page).lands()


@SIZES
def test_an_operator_row_leads_to_its_longest_slice(door_page: Page, size: tuple[int, int]) -> None:
    door_page.open("operator", **CAPTURE)
    follow(door_page)
    Landing(door_page).lands()


@SIZES
def test_a_click_on_a_low_slice_leaves_it_in_view(door_page: Page, size: tuple[int, int]) -> None:
    page = Timeline(door_page, NPU)
    canvas = page.find("[data-testid=trace-canvas]")
    box = canvas.size
    # A slice near the lower edge, where the panel is going to be.
    low = page.browser.execute_script(
        "const canvas = document.querySelector('[data-testid=trace-canvas]');"
        "return [innerHeight - canvas.getBoundingClientRect().top - 60]"
    )[0]
    lanes = [lane for lane in page.stats["lanes"] if lane["kind"] == "slices" and lane["y"] + 12 < low]
    drawn = page.call("drawnByRow()")
    meta = page.meta()
    for lane in reversed(lanes):
        track = meta["tracks"][int(lane["key"].split("t")[1])]
        if drawn.get(f"0:{track['rows'][0]}"):
            break
    first = meta["rows"][track["rows"][0]]["first_ns"]
    place = page.call(f"placeOf({track['rows'][0]}, {first})")
    ActionChains(page.browser).move_to_element_with_offset(
        canvas, round(place["x"] + 1 - box["width"] / 2), round(place["y"] - box["height"] / 2)
    ).click().perform()
    window = page.stats["window"]
    Landing(door_page).lands()
    assert page.stats["window"] == window, "a click does not move the time"


@SIZES
def test_an_arrow_leads_to_its_other_end(door_page: Page, size: tuple[int, int]) -> None:
    page = Timeline(door_page, f"{NPU}&find=aclnnAddmm_MatMulCommon_MatMulV2")
    Landing(door_page).lands()
    kernel = page.stats["selected"]
    page.press("G")
    page.until(lambda: page.stats["selected"] not in (None, kernel))
    Landing(door_page).lands()
    launch = page.stats["selected"]
    page.press("g")
    page.until(lambda: page.stats["selected"] not in (None, launch))
    Landing(door_page).lands()


@SIZES
def test_an_arrow_leads_to_its_other_end_when_the_panel_was_folded(sample_page: Page, size: tuple[int, int]) -> None:
    """The panel opens again for what is selected: below or beside the canvas, which is then smaller than before."""
    page = Timeline(sample_page, f"{NPU}&find=aclnnAddmm_MatMulCommon_MatMulV2")
    Landing(sample_page).lands()
    folded = "return document.querySelector('.trace-panel').getBoundingClientRect().height === 0"
    for key in "Gg":
        before = page.stats["selected"]
        page.press("q")
        page.until(lambda: page.browser.execute_script(folded))
        page.press(key)
        page.until(lambda before=before: page.stats["selected"] not in (None, before))
        page.until(lambda: not page.browser.execute_script(folded))
        Landing(sample_page).lands()


@SIZES
def test_a_link_opens_as_it_was_left(door_page: Page, size: tuple[int, int]) -> None:
    door_page.open("operator", **CAPTURE)
    follow(door_page)
    page = Landing(door_page)
    page.lands()
    folded = next(lane["key"] for lane in page.stats["lanes"] if lane["kind"] == "process" and not lane["folded"])
    page.browser.execute_script("document.querySelector(`.trace-head[data-key='${arguments[0]}'] .trace-fold`).click()", folded)
    page.until(lambda: folded in page.params.get("fold", ""))
    page.settle()
    page.until(lambda: "slice" in page.params)
    page.until(lambda: page.params.get("t") == "_".join(str(round(end)) for end in page.stats["window"]))
    stats, link = page.stats, page.browser.current_url
    door_page.choose("select-theme", "dark")
    assert "theme" not in door_page.state, "who follows the link has a theme of their own"
    door_page.enter_again(link)
    again = Landing(door_page)
    again.settle()
    again.until(lambda: again.stats["selected"] == stats["selected"])
    again.settle()
    assert again.stats["window"] == pytest.approx(stats["window"], abs=1)
    assert again.stats["canvas"]["scroll"] == pytest.approx(stats["canvas"]["scroll"], abs=1)
    assert [(lane["key"], lane["folded"]) for lane in again.stats["lanes"]] == [
        (lane["key"], lane["folded"]) for lane in stats["lanes"]
    ]


@SIZES
def test_an_address_with_a_window_shows_its_slice_too(door_page: Page, size: tuple[int, int]) -> None:
    """Written by hand, or by another tool: a time and a slice, and nothing about how far the tracks were scrolled."""
    page = Timeline(door_page, f"{NPU}&find=aclnnAddmm_MatMulCommon_MatMulV2")
    Landing(door_page).lands()
    slice_id, window = page.stats["selected"], "_".join(str(round(end)) for end in page.stats["window"])
    again = Timeline(door_page, f"{NPU}&slice={slice_id}&t={window}")
    Landing(door_page).lands()
    assert again.stats["selected"] == slice_id
    assert "_".join(str(round(end)) for end in again.stats["window"]) == window


def test_headings_stay_while_their_tracks_are_scrolled(sample_page: Page) -> None:
    page = Timeline(sample_page, NPU, height=720)
    first = next(lane for lane in page.stats["lanes"] if lane["kind"] == "process")
    page.browser.execute_script(
        "document.querySelector('.trace-scroll').scrollTop = arguments[0]", first["y"] + first["height"] + 30
    )
    page.until(lambda: page.stats["canvas"]["scroll"] > first["y"] + first["height"])
    page.settle()
    assert first["key"] not in {lane["key"] for lane in page.stats["lanes"]}, "scrolled out"
    tops = (
        "const heads = document.querySelector('.trace-heads').getBoundingClientRect().top;"
        "return [...document.querySelectorAll('.trace-head-process')].map((one) =>"
        " [one.dataset.key, Math.round(one.getBoundingClientRect().top - heads)])"
    )
    page.until(lambda: [first["key"], 0] in page.browser.execute_script(tops))


def test_headings_of_ranks_stay_too(sample_page: Page) -> None:
    page = Timeline(sample_page, f"{NPU}&ranks=1", height=720)
    page.until(lambda: [lane["label"] for lane in page.call("stats()")["lanes"] if lane["kind"] == "rank"] == ["0"])
    page.browser.execute_script("const all = document.querySelector('.trace-scroll'); all.scrollTop = all.scrollHeight")
    tops = (
        "const heads = document.querySelector('.trace-heads').getBoundingClientRect().top;"
        "return [...document.querySelectorAll('.trace-head-rank, .trace-head-process')].map((one) => [one.dataset.key,"
        " one.classList.contains('trace-head-rank'), Math.round(one.getBoundingClientRect().top - heads),"
        " Math.round(one.getBoundingClientRect().height)])"
    )

    def both_stay() -> bool:
        """The rank's heading at the top, and that of one of its processes right below it."""
        heads = page.browser.execute_script(tops)
        ranks = [one for one in heads if one[1] and one[2] == 0]
        return any(not one[1] and one[2] == rank[3] and one[0].startswith(f"{rank[0]}.p") for rank in ranks for one in heads)

    page.until(both_stay)


def test_the_rank_that_came_late_is_a_click_away(driver: Any, samples: Path, tmp_path: Path) -> None:
    """Two ranks whose numbers the capture tells; what waits for one of them leads to its timeline at the same time."""
    for rank, number in ((0, 0), (1, 5)):
        own = tmp_path / "run" / f"rank{number}_ascend_pt"
        shutil.copytree(samples / "npu_level2" / f"rank{rank}_ascend_pt", own, copy_function=shutil.copyfile)
        shutil.rmtree(own / "ASCEND_PROFILER_OUTPUT" / ".stepscope", ignore_errors=True)
        if rank != number:
            (own / f"profiler_info_{rank}.json").rename(own / f"profiler_info_{number}.json")
        # Newer versions of the vendor's profiler write which ranks a group has; here it is all eight.
        told = json.loads((own / "ASCEND_PROFILER_OUTPUT" / "communication.json").read_text())
        groups = {name.partition("@")[2] for step in told.values() for name in step["collective"] if "@" in name}
        about = {group: {"group_name": "default_group", "group_rank": number, "global_ranks": list(range(8))} for group in groups}
        (own / "profiler_metadata.json").write_text(json.dumps({"parallel_group_info": about}))
    with serving(tmp_path) as address:
        page = Timeline(Page(driver, address), "run=run&worker=0&find=hcom_allReduce__271_0_1", height=720)
        Landing(page.page).lands()
        window, base = page.stats["window"], int(page.meta()["base_ns"])
        page.until(lambda: page.all("[data-testid=open-rank]"))[0].click()
        page.until(lambda: page.params.get("worker") == "5")
        page.settle()
        page.until(lambda: "t" in page.params)
        later = int(page.meta()["base_ns"]) - base
        assert [end + later for end in page.stats["window"]] == pytest.approx(window, abs=2), (
            "the same time, by the clock of the day"
        )
        assert later != 0, "though each timeline begins with its own first event"
        assert not page.errors()


def test_free_time_says_why(sample_page: Page) -> None:
    page = Timeline(sample_page, f"{NPU}&find=%5EFree%24&findmode=r", height=720)
    Landing(sample_page).lands()
    assert page.find("[data-testid=cause] .trace-why").text.startswith(("The host", "The next task"))
    ended = page.all("[data-testid=cause] > p .trace-link")
    page.browser.execute_script("arguments[0].click()", ended[0])
    page.until(lambda: not page.all("[data-testid=cause]"))
    Landing(sample_page).lands()


def test_idle_time_has_the_colour_of_its_cause(sample_page: Page) -> None:
    page = Timeline(sample_page, NPU, height=900)
    page.until(lambda: "%" in page.find(".trace-head-path .trace-busy").text)
    page.settle()
    lane = next(one for one in page.stats["lanes"] if one["kind"] == "slices" and one["label"] == "Free")
    colours = page.browser.execute_script(
        "const canvas = document.querySelector('[data-testid=trace-canvas]'), pen = canvas.getContext('2d');"
        "const data = pen.getImageData(0, Math.round(arguments[0]), canvas.width, 1).data, found = {};"
        "for (let x = 0; x < canvas.width; x++) {"
        "  const key = data.slice(4 * x, 4 * x + 3).join(); found[key] = (found[key] ?? 0) + 1; }"
        "return found",
        lane["y"] + 9,
    )
    assert colours.get("227,177,34", 0) > 20, "the host was issuing operators, and it is the colour of the host"
    # Its length is read on every pattern and in both themes: the ink of the page on the ground of the page.
    page.press(">")
    page.until(lambda: page.stats["selected"] is not None)
    page.press("f")
    page.settle()
    for theme, ink, ground in (("light", 80, 240), ("dark", 180, 60)):
        sample_page.choose("select-theme", theme)
        page.until(
            lambda theme=theme: (theme == "dark") == page.browser.execute_script("return !!document.querySelector('.trace-dark')")
        )
        page.settle()
        lane = next(one for one in page.stats["lanes"] if one["kind"] == "slices" and one["label"] == "Free")
        left = max(0, page.stats["selectedAt"]["left"])
        least, most = page.browser.execute_script(
            "const pen = document.querySelector('[data-testid=trace-canvas]').getContext('2d'), [x, y] = arguments;"
            "const data = pen.getImageData(Math.round(x) + 4, Math.round(y) + 5, 40, 10).data, tones = [];"
            "for (let i = 0; i < data.length; i += 4) tones.push((data[i] + data[i + 1] + data[i + 2]) / 3);"
            "return [Math.min(...tones), Math.max(...tones)]",
            left,
            lane["y"],
        )
        assert (least < ink and most >= ground) if theme == "light" else (most > ink and least < ground), (theme, least, most)
    sample_page.choose("select-theme", "light")


def test_gaps_are_walked_by_keys_and_buttons(sample_page: Page) -> None:
    page = Timeline(sample_page, NPU, height=720)
    page.press(">")
    page.until(lambda: page.stats["selected"] is not None)
    Landing(sample_page).lands()
    first = page.stats["selected"]
    assert page.facts()["Title"] == "Free"
    window = page.stats["window"]
    assert float(page.facts()["Wall Duration"].removesuffix(" us").replace(",", "")) * 400_000 >= window[1] - window[0], (
        "it can be seen"
    )
    page.find("[data-testid=gap-after]").click()
    page.until(lambda: page.stats["selected"] not in (None, first))
    assert page.facts()["Title"] == "Free"
    Landing(sample_page).lands()
    page.press("<")
    page.until(lambda: page.stats["selected"] == first)
    page.press("<")
    page.until(lambda: "No further gap" in page.find(".trace-message").text)
    assert page.stats["selected"] == first
    assert not page.errors()


def test_gaps_of_one_kind_are_listed(sample_page: Page) -> None:
    page = Timeline(sample_page, f"{NPU}&find=%5EFree%24&findmode=r", height=720)
    Landing(sample_page).lands()
    longest = page.stats["selected"]
    page.find("[data-testid=alike] summary").click()
    lengths = [row.text for row in page.all("[data-testid=alike] li b")]
    assert len(lengths) > 2
    page.all("[data-testid=alike] li button")[1].click()
    page.until(lambda: page.stats["selected"] not in (None, longest))
    Landing(sample_page).lands()
    assert page.facts()["Title"] == "Free"
