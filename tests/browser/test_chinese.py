# SPDX-License-Identifier: Apache-2.0
"""The page in Chinese: no English sentence is left. Names of views, columns, files, operators and switches stay as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from viewer.page import Page, serving
from viewer.timeline import NPU, Timeline

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

pytestmark = pytest.mark.slow  # a real browser

HEADINGS = {"AI Core Freq max", "AI Core Freq min", "AI Core time share"}

# What people read besides the text itself: tooltips, labels for screen readers, fields that are empty.
TEXTS = """
  const found = [document.querySelector('.shell').innerText];
  for (const name of ['title', 'aria-label', 'placeholder', 'aria-valuetext'])
    for (const one of document.querySelectorAll(`.shell [${name}]`)) found.push(one.getAttribute(name));
  return found.join('\\n');
"""


def english(text: str) -> list[str]:
    """Lines with four English words in a row, the last in small letters: names are shorter, or have other marks."""
    lines = [line for line in text.splitlines() if line not in HEADINGS and not re.search(r"[<*]|::", line)]  # names of kernels
    return sorted({line for line in lines if re.search(r"(?:\b[A-Za-z]{2,}\b[ ,;:]+){3}[a-z]{2,}\b", line)})


@pytest.mark.parametrize(
    "capture", [{"run": "npu_level2", "worker": "0"}, {"run": "gpu", "worker": "gpu_train_control"}], ids=["npu", "gpu"]
)
def test_no_english_sentence_is_left(sample_page: Page, capture: dict[str, str]) -> None:
    sample_page.open("verdict", **capture)
    sample_page.choose("select-language", "zh")
    left = {}
    for view in sample_page.views():
        sample_page.choose("select-views", view)
        sample_page.ready(view)
        left[view] = english(sample_page.driver.execute_script(TEXTS))
    sample_page.click("[data-testid=tab-diff]")
    sample_page.ready("diff")
    left["diff"] = english(sample_page.driver.execute_script(TEXTS))
    assert {view: lines for view, lines in left.items() if lines} == {}


def test_what_is_said_of_a_simulated_capture_is_chinese_too(driver: Any, recorded: Path) -> None:
    with serving(recorded) as address:
        page = Page(driver, address)
        page.open("overview")
        assert "recorded on the simulated NPU" in page.text("[data-testid=overview-simulated]")
        page.choose("select-language", "zh")
        page.until("return document.querySelector('[data-testid=overview-simulated]').innerText.includes('模拟')", "Chinese")
        assert english(page.driver.execute_script(TEXTS)) == []
        assert english(page.driver.execute_script("return document.querySelector('[data-testid=simulated]').title")) == []
        page.choose("select-language", "en")


def test_rows_that_are_drawn_change_their_language_too(sample_page: Page) -> None:
    sample_page.open("kernel", run="npu_level2", worker="0")
    tools = "return document.querySelector('[data-testid=view-kernel] .row-tools')?.textContent"
    for language, word in (("zh", "全部调用"), ("en", "All calls")):
        sample_page.choose("select-language", language)
        sample_page.until(f"{tools} === '{word}'", word)


def test_notices_of_the_timeline_are_chinese_too(sample_page: Page) -> None:
    """What comes up while one works: a slice that is not there, the last one of its track, no arrow, no gap."""
    page = Timeline(sample_page, NPU)
    sample_page.choose("select-language", "zh")
    page.until(lambda: sample_page.text("[data-testid=trace-menu-processes]") == "进程")
    sample_page.enter(f"/trace?{NPU}&slice=99999999")
    sample_page.driver.refresh()

    def says() -> str:
        return str(page.browser.execute_script("return document.querySelector('.trace-message')?.textContent ?? ''"))

    page.until(lambda: "切片" in says())
    assert english(says()) == []
    page.settle()
    page.press(">")
    page.until(lambda: page.stats["selected"] is not None)
    page.press("<")
    page.until(lambda: "空闲" in says())
    assert english(says()) == []
    page.press("G")
    page.until(lambda: "连线" in says())
    assert english(says()) == []
    assert english(sample_page.driver.execute_script(TEXTS)) == []
    sample_page.choose("select-language", "en")
