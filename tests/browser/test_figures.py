# SPDX-License-Identifier: Apache-2.0
"""Figures that are seen: with their unit, not rounded to nothing, inside their box."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from viewer.page import Page, serving

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

pytestmark = pytest.mark.slow  # a real browser

NPU = {"run": "npu_level2", "worker": "0"}

# Of each text of a canvas: the text, its right end, and the right end of the box that was drawn before it.
RECORD = """
  const rect = CanvasRenderingContext2D.prototype.fillRect, text = CanvasRenderingContext2D.prototype.fillText;
  let edge = 0;
  window.written = [];
  CanvasRenderingContext2D.prototype.fillRect = function (x, y, w, h) { edge = x + w; return rect.call(this, x, y, w, h); };
  CanvasRenderingContext2D.prototype.fillText = function (one, x, y) {
    window.written.push([one, x + this.measureText(one).width, edge]);
    return text.call(this, one, x, y);
  };
"""


@pytest.mark.parametrize("size", [(1280, 720)], indirect=True)
def test_names_in_boxes_end_inside_them(sample_page: Page, size: tuple[int, int]) -> None:
    added = sample_page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": RECORD})
    try:
        sample_page.open("module", **NPU)
        written: list[tuple[str, float, float]] = sample_page.until("return window.written.length > 8 && window.written", "names")
    finally:
        sample_page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": added["identifier"]})
    assert any(name.endswith("…") for name, _, _ in written)
    assert [one for one in written if one[1] > one[2]] == []


def test_bandwidth_has_its_reference_and_a_finding_its_share(sample_page: Page) -> None:
    """Two bars that are not the same: one holds a figure, the other is a line of the share."""
    sample_page.open("communication", **NPU)
    seen = "return [...document.querySelectorAll('.reached')].map((one) => [one.textContent, one.clientHeight])"
    ((text, height),) = sample_page.until(f"{seen}", "the reference")
    assert text.endswith(" GB/s")
    assert height >= 14
    sample_page.open("verdict", run="npu_level2")
    meter = "const line = document.querySelector('.meter'), part = line.firstElementChild;"
    wide, told = sample_page.driver.execute_script(
        f"{meter} return [part.offsetWidth / line.offsetWidth, parseFloat(part.style.width) / 100]"
    )
    assert wide == pytest.approx(told, abs=0.02)
    assert sample_page.driver.execute_script(f"{meter} return getComputedStyle(part).opacity") == "1"


def test_few_operations_are_not_none(driver: Any, recorded: Path) -> None:
    with serving(recorded) as address:
        page = Page(driver, address)
        page.open("roofline")
        cells = page.driver.execute_script(
            "return [...document.querySelectorAll('[data-testid=roofline-table] td.number')].map((one) => one.textContent)"
        )
        counted = [cell for cell in cells if cell.endswith(("FLOP", "FLOP/s"))]
        assert len(counted) >= 6
        assert [cell for cell in counted if cell.startswith("0 ")] == []


def test_times_of_modules_have_their_unit(sample_page: Page) -> None:
    sample_page.open("module", **NPU)
    heads = "return [...document.querySelectorAll('.tree th')].map((one) => one.innerText.replace(/\\s+/g, ' '))"
    assert sample_page.driver.execute_script(heads)[3:] == [
        "Host Total Time (us)", "Host Self Time (us)", "Device Total Time (us)", "Device Self Time (us)"
    ]  # fmt: skip
    sample_page.choose("select-units", "auto")
    sample_page.until(f"{heads.replace('return ', 'return !')}.join().includes('(us)')", "each time with its own unit")
    sample_page.choose("select-units", "heading")


def test_causes_of_slow_ranks_are_chinese_too(sample_page: Page) -> None:
    sample_page.open("distributed", run="npu_level2")
    causes = "return [...document.querySelectorAll('[data-testid=table-slow] td:nth-child(4)')].map((one) => one.textContent)"
    before = sample_page.driver.execute_script(causes)
    sample_page.choose("select-language", "zh")
    after = sample_page.until(f"const now = (() => {{ {causes} }})(); return now.join() !== {','.join(before)!r} && now", "Chinese")
    assert all(one == "–" or not one.isascii() for one in after)
    sample_page.choose("select-language", "en")
