# SPDX-License-Identifier: Apache-2.0
"""Diff as a waterfall whose rows sum as they are shown, what can be compared, the steps, and the budget."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from viewer.page import Page, serving

import stepscope

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

pytestmark = pytest.mark.slow  # a real browser


def shown(page: Page) -> list[list[str]]:
    return page.driver.execute_script(
        "return [...document.querySelectorAll('[data-testid=waterfall] tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText))"
    )


def number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-").replace("+", ""))


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)], indirect=True)
def test_rows_go_from_one_step_to_the_other(sample_page: Page, samples: Path, size: tuple[int, int]) -> None:
    sample_page.open("diff", arun="npu_level0", aworker="0", brun="npu_level2", bworker="0")
    found = stepscope.diff(*(samples / level / "rank0_ascend_pt" for level in ("npu_level0", "npu_level2")))
    first, *rows, last = shown(sample_page)
    assert [number(first[1]), number(last[1])] == [round(float(ns) / 1e6, 2) for ns in (found.base_ns, found.new_ns)]
    assert sum(number(row[1]) for row in rows) == pytest.approx(number(last[1]) - number(first[1]), abs=1e-6)
    for row in rows:
        parts = [number(cell) for cell in row[2:4] if cell != "–"]
        assert sum(parts) == pytest.approx(number(row[1]), abs=1e-6)
    # Each bar begins where the one before it ends, and the last one ends where the other side's bar does.
    ends: list[list[float]] = sample_page.driver.execute_script(
        "return [...document.querySelectorAll('[data-testid=waterfall] .waterfall-bar')].map((bar) => {"
        " const box = bar.getBoundingClientRect(); return [box.left, box.right]; })"
    )
    places = ends[0][1]
    for row, (left, right) in zip(rows, ends[1:-1], strict=True):
        assert (left if number(row[1]) >= 0 else right) == pytest.approx(places, abs=1.6)
        places = right if number(row[1]) >= 0 else left
    assert ends[-1][1] == pytest.approx(places, abs=1.6)
    # Answer and waterfall are in view without scrolling.
    bottom = sample_page.driver.execute_script(
        "return document.querySelector('[data-testid=waterfall-row]').getBoundingClientRect().bottom"
    )
    assert bottom < size[1]
    assert "profiler level" in sample_page.text("[data-testid=diff-checks]")


@pytest.mark.parametrize("size", [(1280, 720)], indirect=True)
def test_both_names_have_the_room_there_is(sample_page: Page, size: tuple[int, int]) -> None:
    sample_page.open("diff", arun="gpu", aworker="gpu_nccl", brun="gpu", bworker="gpu_train_control")
    assert sample_page.text(".crumbs") == "gpu / gpu_nccl → gpu / gpu_train_control"
    hidden = "const name = document.querySelector('.crumbs > span'); return name.scrollWidth - name.clientWidth"
    assert sample_page.driver.execute_script(hidden) <= 0


def test_other_devices_cannot_be_judged(sample_page: Page) -> None:
    sample_page.open("diff", arun="gpu", aworker="gpu_nccl", brun="gpu", bworker="gpu_train_control", level="op")
    # Figures are rounded so that they sum as shown; none of them is said to be exact.
    assert shown(sample_page)[-1][5].endswith(" ms")
    assert "exactly" not in sample_page.text("[data-testid=diff-waterfall]")
    sample_page.click("[data-testid=level-part]")
    sample_page.until("return location.hash.includes('level=part')", "the other level")
    sample_page.ready("diff")
    assert sample_page.errors() == []


@pytest.fixture(scope="module")
def slower(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real capture twice; in the second, the communication kernels and all after them take longer."""
    folder = tmp_path_factory.mktemp("slower")
    trace: dict[str, Any] = json.loads(gzip.decompress((golden / "kineto" / "gpu_train_control.pt.trace.json.gz").read_bytes()))
    for run, factor in (("base", 1.0), ("new", 1.5)):
        (folder / run).mkdir()
        events = [dict(event, **stretched(event, factor)) for event in trace["traceEvents"]]
        (folder / run / "w.pt.trace.json").write_text(json.dumps({**trace, "traceEvents": events}))
    return folder


def stretched(event: dict[str, Any], factor: float) -> dict[str, float]:
    """All times: a machine that is slower as a whole."""
    return {key: float(event[key]) * factor for key in ("ts", "dur") if isinstance(event.get(key), int | float)}


def test_a_budget_is_held_against_it(driver: Any, slower: Path, tmp_path: Path) -> None:
    from stepscope.diff.gate import read_budget
    from stepscope.web.request import Settings

    budget = tmp_path / "budget.toml"
    budget.write_text('[step_ms]\nmax_increase = "5%"\n\n[peak_memory]\nmax_increase = "1%"\n')
    with serving(slower, settings=Settings(budget=read_budget(budget))) as address:
        page = Page(driver, address)
        page.open("diff", arun="base", brun="new")
        gate = page.text("[data-testid=diff-gate]")
        for said in ("Regression", "exit 1", "step_ms", "beyond the limit of 5 %"):
            assert said in gate
        assert "peak_memory not recorded" in gate
        assert "changed" in [row[5] for row in shown(page)]
        dots = page.driver.execute_script("return document.querySelectorAll('[data-testid=diff-steps] .dots-row i').length")
        assert dots == 8, "four steps a side"
        page.choose("select-language", "zh")
        page.until("return document.querySelector('[data-testid=diff-gate]').innerText.includes('回退')", "the gate in Chinese")
        assert page.errors() == []
