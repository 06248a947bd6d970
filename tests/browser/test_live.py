# SPDX-License-Identifier: Apache-2.0
"""A run that grows while its page is open: new steps and ranks come by themselves, and the reader's place stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from viewer.page import Page, serving

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

pytestmark = pytest.mark.slow  # a real browser

STEP_US = 10_000


def write(path: Path, steps: int, rank: int) -> None:
    """A trace of so many steps, an operator in each."""
    events = []
    for step in range(steps):
        at = 1_000_000 + step * STEP_US
        common = {"ph": "X", "pid": 1, "tid": 1}
        events.append({**common, "name": f"ProfilerStep#{step}", "cat": "user_annotation", "ts": at, "dur": STEP_US - 100})
        events.append({**common, "name": "aten::mm", "cat": "cpu_op", "ts": at + 500, "dur": 7000})
        events.append({**common, "name": f"aten::only_in_{step}", "cat": "cpu_op", "ts": at + 8000, "dur": 900})
    about = {"distributedInfo": {"rank": rank, "world_size": 2, "backend": "nccl"}}
    written = path.with_suffix(".tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(json.dumps({**about, "traceEvents": events}))
    written.rename(path)


def test_new_steps_and_ranks_come_and_nothing_moves(driver: object, tmp_path: Path) -> None:
    trace = tmp_path / "run" / "rank0.pt.trace.json"
    write(trace, 3, 0)
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.open("trace", t="10500000_17500000")
        place = "const trace = window.__stepscope.trace; return trace ? trace.stats().window ?? location.hash : null"
        page.until("return !!window.__stepscope?.trace", "the timeline")
        before = page.driver.execute_script("return new URLSearchParams(location.hash.split('?')[1]).get('t')")
        write(trace, 5, 0)
        write(tmp_path / "run" / "rank1.pt.trace.json", 5, 1)
        # No click: the page looks by itself.
        page.until("return document.querySelector('[data-testid=live]')?.innerText.includes('1 new rank')", "the new rank", 40)
        page.until("return document.querySelector('[data-testid=live]')?.innerText.includes('2 new steps')", "the new steps", 40)
        page.ready("trace")
        assert page.driver.execute_script("return new URLSearchParams(location.hash.split('?')[1]).get('t')") == before
        assert page.driver.execute_script(place) is not None
        page.choose("select-views", "operator")
        page.ready("operator")
        assert "aten::only_in_4" in page.text("[data-testid=table-operators]"), "of the last step"
        page.click("[data-testid=live]")
        page.until("return !document.querySelector('[data-testid=live]')", "the pill is gone")
        assert page.errors() == []


def test_a_rank_that_comes_joins_the_verdict(driver: object, tmp_path: Path) -> None:
    write(tmp_path / "run" / "rank0.pt.trace.json", 5, 0)
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.open("verdict")
        bars = "return [...document.querySelectorAll('.step-row .step-name b')].map((one) => one.textContent)"
        assert "rank 1" not in page.driver.execute_script(bars)
        write(tmp_path / "run" / "rank1.pt.trace.json", 5, 1)
        # No click: the page looks by itself.
        page.until(f"return (() => {{ {bars} }})().includes('rank 1')", "the bars of the new rank", 60)
        assert page.driver.execute_script(
            "return document.querySelector('[data-testid=select-views] option[value=cluster]')?.dataset.count"
        ) in ("2", None)
        assert page.errors() == []
