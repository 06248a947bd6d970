# SPDX-License-Identifier: Apache-2.0
"""Source, Roofline, the colours of a compared flame graph, presets of columns, and what steps leave behind in memory."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from viewer.page import AXE, Page, serving

from stepscope.web.request import Settings

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

from selenium.webdriver.common.action_chains import ActionChains

pytestmark = pytest.mark.slow  # a real browser

CAPTURES = Path(__file__).resolve().parents[1] / "captures"


@pytest.fixture(scope="module")
def page(driver: Any, recorded: Path) -> Iterator[Page]:
    with serving(recorded, settings=Settings(source_root=CAPTURES)) as address:
        yield Page(driver, address)


def test_time_stands_beside_the_code(page: Page) -> None:
    page.open("source")
    page.until("return document.querySelectorAll('[data-testid=source-lines] tr.timed').length > 0", "lines with times")
    lines: list[list[Any]] = page.driver.execute_script(
        "return [...document.querySelectorAll('[data-testid=source-lines] tr.timed')].map((row) =>"
        " [Number(row.dataset.line), row.cells[4].textContent])"
    )
    code = (CAPTURES / "train.py").read_text().splitlines()
    assert [text for _, text in lines] == [code[line - 1] for line, _ in lines], "each time beside its own line"
    page.driver.execute_script(AXE.read_text())
    assert page.accessibility() == []
    assert page.errors() == []


def test_lines_without_code_where_no_folder_is_given(sample_page: Page, samples: Path) -> None:
    sample_page.open("source", run="npu_level2")
    sample_page.until("return !!document.querySelector('[data-line=\"354\"]')", "the line of the forward pass")
    assert "--source-root" in sample_page.text("[data-testid=source-lines]")
    # Device time of all lines is that of all operators with a stack, by the vendor's own file.
    total: dict[str, float] = defaultdict(float)
    with (samples / "npu_level2" / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "operator_details.csv").open() as file:
        for row in csv.DictReader(file):
            total["all"] += float(row["Device Self Duration(us)"])
    shown = sample_page.driver.execute_script(
        "return fetch(document.querySelector('script[src]').src.replace(/static.*/, 'api/v1/source/files?run=npu_level2&worker=0'))"
        ".then((answer) => answer.json()).then((answer) => answer.files.reduce((sum, one) => sum + one.device_us, 0))"
    )
    assert 0 < shown <= total["all"] * 1.001


def test_counted_operators_have_a_place_in_the_roofline(page: Page) -> None:
    page.open("roofline")
    points = page.driver.execute_script("return document.querySelectorAll('[data-testid=roofline-chart] circle').length")
    rows: list[list[str]] = page.driver.execute_script(
        "return [...document.querySelectorAll('[data-testid=roofline-table] tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    assert points == len([row for row in rows if row[6] != "?"]) > 0
    assert any(row[0].startswith("aten::") for row in rows)
    assert "simulated" in page.text("[data-testid=roofline-chart]"), "no roof is invented for it"
    named = page.driver.execute_script("return [...document.querySelectorAll('.point-name')].map((one) => one.textContent)")
    assert rows[0][0] in named, "points are told by name, not by colour alone"
    apart = page.driver.execute_script(
        "const boxes = [...document.querySelectorAll('.point-name')].map((one) => one.getBoundingClientRect());"
        "const clear = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;"
        "return boxes.every((a, i) => boxes.every((b, j) => i === j || clear(a, b)))"
    )
    assert apart, "no name covers another"
    page.driver.execute_script(AXE.read_text())
    assert page.accessibility() == []


def test_what_steps_leave_behind(page: Page) -> None:
    page.open("memory")
    page.until("return !!document.querySelector('[data-testid=memory-kept]')", "leaks")
    assert "tep" in page.text("[data-testid=memory-kept]")


def test_a_flame_graph_shows_what_grew(sample_page: Page) -> None:
    other = '["npu_level0","0","1"]'
    sample_page.open("flame", run="npu_level2", source="op", against=other)
    sample_page.until("return !!document.querySelector('[data-testid=flame-legend]')", "the comparison")
    assert "%" in sample_page.text("[data-testid=flame-legend]")
    hues: list[int] = sample_page.driver.execute_script(
        """
        const canvas = document.querySelector('[data-testid=chart-flame] canvas');
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        let [warm, cold] = [0, 0];
        for (let at = 0; at < data.length; at += 4) {
          if (data[at + 3] < 40) continue;
          if (data[at] > data[at + 2] + 40) warm++;
          else if (data[at + 2] > data[at] + 40) cold++;
        }
        return [warm, cold];
        """
    )
    assert min(hues) > 50, "some grew, some shrank"
    sample_page.open("flame", run="npu_level2", source="op", against='["npu_level2","0","1"]')
    assert not sample_page.text("[data-testid=flame-legend]") or "0.1" not in sample_page.text("[data-testid=flame-legend]")


def test_presets_choose_columns(sample_page: Page) -> None:
    sample_page.open("kernel", run="npu_level2", group="all")
    before = sample_page.headings("kernels-all")
    sample_page.click("[data-testid=btn-columns]")
    sample_page.until("return !!document.querySelector('[data-preset=Counters]')", "presets")
    sample_page.click("[data-preset=Counters]")
    sample_page.until(
        "return [...document.querySelectorAll('[role=columnheader]')].some((one) => one.innerText.includes('ratio'))", "counters"
    )
    counters = sample_page.headings("kernels-all")
    assert counters != before
    assert any("Duration" in name for name in counters)
    assert not any("Shapes" in name for name in counters)


def test_modules_own_the_peak_as_well(sample_page: Page) -> None:
    """By source line and by module the owners hold all that is alive at the peak; what was held before is a part of its own."""
    together = []
    for by, name in (("line", "Source line"), ("module", "Module")):
        sample_page.open("memory", run="npu_level2", worker="0", peak="1", by=by)
        sample_page.until("return !!document.querySelector('[data-testid=table-owners] tbody tr')", "owners")
        assert sample_page.text("[data-testid=memory-peak] [aria-pressed=true]") == name
        assert sample_page.text("[data-testid=chart-peak] [role=status]")
        rows: list[list[str]] = sample_page.driver.execute_script(
            "return [...document.querySelectorAll('[data-testid=table-owners] tbody tr')].map((row) =>"
            " [...row.cells].map((cell) => cell.innerText.trim()))"
        )
        assert rows[0][0] == "held before the capture"
        chart = sample_page.driver.find_element("css selector", "[data-testid=chart-peak] canvas")
        ActionChains(sample_page.driver).move_to_element_with_offset(
            chart, 30 - chart.size["width"] // 2, 32 - chart.size["height"] // 2
        ).perform()
        told = sample_page.until(
            "const text = document.querySelector('[data-testid=chart-peak] [role=status]').innerText;"
            "return text.startsWith('held before') && text",
            "the part under the pointer",
        )
        assert f"{float(told.split(' · ')[2].removesuffix(' %')):.1f}" == rows[0][3], "the picture and the table say the same"
        together.append(sum(float(row[2].replace(",", "")) for row in rows if len(row) > 2 and row[2]))
    assert together[0] == pytest.approx(together[1], rel=0.01)


def test_what_to_do_about_the_peak(sample_page: Page) -> None:
    sample_page.open("memory", run="npu_level2", worker="0")
    sample_page.until("return !!document.querySelector('[data-testid=memory-next] b')", "the next step")
    told = sample_page.text("[data-testid=memory-next]")
    assert "MiB without main.py(" in told
    assert "the next peak is" in told
    assert "Leaks" in told, "what it cannot tell"
