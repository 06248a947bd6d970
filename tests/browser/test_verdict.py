# SPDX-License-Identifier: Apache-2.0
"""The first screen answers: words of `stepscope verdict`, bars that sum to the step, evidence that opens in the timeline."""

from __future__ import annotations

from pathlib import Path

import pytest
from viewer.page import Page
from viewer.timeline import Landing

import stepscope
from stepscope.verdict import words

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

pytestmark = pytest.mark.slow  # a real browser

CAPTURE = {"run": "npu_level2", "worker": "0"}
SIZES = pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)], ids=["1280x720", "1920x1080"], indirect=True)
BARS = (
    "return [...document.querySelectorAll('.part-bar')].map((bar) =>"
    " [bar.closest('.step-row').querySelector('.step-total').textContent, [...bar.children].map((one) => Number(one.dataset.ms))])"
)


@SIZES
def test_the_first_screen_is_the_verdict(sample_page: Page, samples: Path, size: tuple[int, int]) -> None:
    found = stepscope.verdict(samples / "npu_level2")
    sample_page.leave()
    sample_page.driver.get(f"{sample_page.address}#/?run=npu_level2")
    sample_page.ready("verdict")
    assert sample_page.text("[data-testid=verdict-answer] h2") == words.answer(found, "en")
    shown = sample_page.driver.execute_script(
        "return [...document.querySelectorAll('.verdict-title')].map((one) => one.firstChild.data)"
    )
    assert shown == [one.text("title") for one in found.findings if one.severity != "info"]
    # Answer, picture and first finding need no scrolling.
    lowest = sample_page.driver.execute_script("return document.querySelector('.verdict-list > li').getBoundingClientRect().bottom")
    assert lowest <= size[1]
    assert not sample_page.errors()


def test_bars_sum_to_the_step(sample_page: Page) -> None:
    sample_page.open("verdict", **CAPTURE)
    bars = sample_page.driver.execute_script(BARS)
    assert len(bars) == 4, "device and host of two ranks"
    for total, pieces in bars:
        assert sum(pieces) == pytest.approx(float(total.removesuffix(" ms")), abs=0.06)
    assert any(
        "preparing" in one
        for one in sample_page.driver.execute_script(
            "return [...document.querySelectorAll('.part-bar .part')].map((one) => one.dataset.testid)"
        )
    )


@SIZES
@pytest.mark.parametrize("run", ["npu_level2", "gpu"])
def test_evidence_opens_selected_in_the_timeline(sample_page: Page, size: tuple[int, int], run: str) -> None:
    sample_page.open("verdict", run=run, **({"worker": "gpu_train_control"} if run == "gpu" else {}))
    count = sample_page.driver.execute_script("return document.querySelectorAll('[data-testid=evidence]').length")
    assert count
    for at in range(count):
        sample_page.open("verdict", run=run, **({"worker": "gpu_train_control"} if run == "gpu" else {}))
        sample_page.driver.execute_script("document.querySelectorAll('[data-testid=evidence]')[arguments[0]].click()", at)
        Landing(sample_page).lands()


@pytest.mark.parametrize("part", ["computing", "wait", "communication", "copy"])
def test_a_part_of_a_bar_opens_its_longest_piece(sample_page: Page, part: str) -> None:
    sample_page.open("verdict", **CAPTURE)
    sample_page.click(f"[data-testid=part-{part}]")
    Landing(sample_page).lands()


def test_idle_time_of_a_bar_opens_its_longest_gap(sample_page: Page) -> None:
    sample_page.open("verdict", **CAPTURE)
    sample_page.click("[data-testid=part-dispatch]")
    page = Landing(sample_page)
    page.until(lambda: "range" in page.params or "slice" in page.params)


def test_what_if_replays(sample_page: Page, samples: Path) -> None:
    sample_page.open("verdict", **CAPTURE)
    sample_page.until("return document.querySelector('[data-testid=whatif-result] b')", "the step as it is")
    now = sample_page.text("[data-testid=whatif-result] b")
    assert now == "148.8 ms"
    sample_page.driver.execute_script(
        "const box = document.querySelector('[data-testid=whatif-peer-wait]'); box.value = 100;"
        "box.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    sample_page.until(
        "return document.querySelector('[data-testid=whatif-result] b').textContent !== '148.8 ms'", "the step without the wait"
    )
    then = float(sample_page.text("[data-testid=whatif-result] b").removesuffix(" ms"))
    (finding,) = [one for one in stepscope.verdict(samples / "npu_level2").findings if one.rule == "peer-wait"]
    assert then <= 148.8 - finding.saved_ms + 0.1
    assert "remove=peer-wait" in sample_page.driver.current_url, "the link holds it"


@SIZES
def test_texts_have_the_room_they_need(sample_page: Page, size: tuple[int, int]) -> None:
    """Long kernel names leave their times in view, and pieces of short steps are labelled only where the label fits."""
    sample_page.open("verdict", run="gpu")
    cut = sample_page.driver.execute_script(
        """
        const inside = (one, around) => one.getBoundingClientRect().right <= around.getBoundingClientRect().right + 1;
        const narrow = (one) => one.scrollWidth > one.clientWidth + 1;
        return [
          ...[...document.querySelectorAll('[data-testid=evidence]')].filter((chip) => !inside(chip.querySelector('b'), chip)),
          ...[...document.querySelectorAll('.part-bar .part span, .step-name')].filter(narrow),
        ].map((one) => one.textContent);
        """
    )
    assert cut == []
    assert sample_page.driver.execute_script("return document.querySelectorAll('[data-testid=evidence]').length")


def test_what_is_about_all_ranks_says_so(sample_page: Page) -> None:
    sample_page.open("verdict", run="npu_level2", worker="1")
    assert sample_page.text(".crumbs").split() == ["npu_level2", "all", "ranks"]
    assert sample_page.text("[data-testid=select-workers]").strip() == "All"
    sample_page.open("verdict", run="odd")
    assert sample_page.text(".crumbs").split() == ["odd", "w"]


def test_a_switch_that_was_missing_is_copied_by_a_click(sample_page: Page) -> None:
    sample_page.open("verdict", run="npu_level2")
    sample_page.driver.execute_script(
        "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); };"
        "[...document.querySelectorAll('[data-testid=verdict-limits] .switch')]"
        ".find((one) => one.textContent === 'gc_detect_threshold').click()"
    )
    sample_page.until("return window.copied === 'gc_detect_threshold'", "the copied switch")
