# SPDX-License-Identifier: Apache-2.0
"""Whatever leads to a slice ends with the slice in view: links of tables and findings, addresses, clicks on the canvas."""

from __future__ import annotations

import pytest
from viewer.page import Page
from viewer.timeline import NPU, Landing, Timeline

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

from selenium.webdriver.common.action_chains import ActionChains

pytestmark = pytest.mark.slow  # a real browser

CAPTURE = {"run": "npu_level2", "worker": "0"}
SIZES = pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)], ids=["1280x720", "1920x1080"], indirect=True)


@SIZES
def test_a_finding_leads_to_its_evidence(sample_page: Page, size: tuple[int, int]) -> None:
    sample_page.open("findings", **CAPTURE)
    count = sample_page.driver.execute_script("return document.querySelectorAll('.finding').length")
    assert count > 2
    landed = 0
    for at in range(count):
        sample_page.open("findings", **CAPTURE)
        followed = sample_page.driver.execute_script(
            "const link = document.querySelectorAll('.finding')[arguments[0]].querySelector('[data-testid=evidence], button.link');"
            "link.click(); return location.hash",
            at,
        )
        if "/trace" in followed:
            Landing(sample_page).lands()
            landed += 1
    assert landed


@SIZES
@pytest.mark.parametrize("group", ["all", "statistic"])
def test_a_kernel_row_leads_to_its_slice(sample_page: Page, size: tuple[int, int], group: str) -> None:
    sample_page.open("kernel", **CAPTURE, group=group)
    row = '[data-testid^="table-kernels"] .table-layer > .table-row'
    sample_page.until(f"return document.querySelectorAll('{row}').length > 3", "rows")
    sample_page.driver.execute_script(f"document.querySelectorAll('{row}')[3].querySelector('[data-testid=show-in-trace]').click()")
    Landing(sample_page).lands()


@SIZES
def test_an_operator_row_leads_to_its_longest_slice(sample_page: Page, size: tuple[int, int]) -> None:
    sample_page.open("operator", **CAPTURE)
    row = '[data-testid="table-operators"] .table-layer > .table-row'
    sample_page.until(f"return document.querySelectorAll('{row}').length > 3", "rows")
    sample_page.driver.execute_script(f"document.querySelectorAll('{row}')[3].querySelector('[data-testid=show-in-trace]').click()")
    Landing(sample_page).lands()


@SIZES
def test_a_click_on_a_low_slice_leaves_it_in_view(sample_page: Page, size: tuple[int, int]) -> None:
    page = Timeline(sample_page, NPU)
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
    Landing(sample_page).lands()
    assert page.stats["window"] == window, "a click does not move the time"


@SIZES
def test_a_link_opens_as_it_was_left(sample_page: Page, size: tuple[int, int]) -> None:
    sample_page.open("operator", **CAPTURE)
    row = '[data-testid="table-operators"] .table-layer > .table-row'
    sample_page.until(f"return document.querySelectorAll('{row}').length > 3", "rows")
    sample_page.driver.execute_script(f"document.querySelectorAll('{row}')[3].querySelector('[data-testid=show-in-trace]').click()")
    page = Landing(sample_page)
    page.lands()
    page.until(lambda: "slice" in page.params and "y" in page.params)
    page.until(lambda: page.params.get("t") == "_".join(str(round(end)) for end in page.stats["window"]))
    stats, link = page.stats, page.browser.current_url
    page.browser.get("about:blank")
    page.browser.get(link)
    again = Landing(sample_page)
    again.lands()
    assert again.stats["selected"] == stats["selected"]
    assert again.stats["window"] == pytest.approx(stats["window"], abs=1)
    assert again.stats["canvas"]["scroll"] == pytest.approx(stats["canvas"]["scroll"], abs=1)


def test_headings_stay_while_their_tracks_are_scrolled(sample_page: Page) -> None:
    page = Timeline(sample_page, NPU, height=720)
    first = next(lane for lane in page.stats["lanes"] if lane["kind"] == "process")
    page.browser.execute_script(
        "document.querySelector('.trace-scroll').scrollTop = arguments[0]", first["y"] + first["height"] + 30
    )
    page.until(lambda: page.stats["canvas"]["scroll"] > first["y"] + first["height"])
    page.settle()
    assert first["key"] not in {lane["key"] for lane in page.stats["lanes"]}, "scrolled out"
    tops = page.browser.execute_script(
        "const heads = document.querySelector('.trace-heads').getBoundingClientRect().top;"
        "return [...document.querySelectorAll('.trace-head-process')].map((one) =>"
        " [one.dataset.key, Math.round(one.getBoundingClientRect().top - heads)])"
    )
    assert [first["key"], 0] in tops


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
