# SPDX-License-Identifier: Apache-2.0
"""The six questions that a profile is opened for, each answered at most three clicks away from the first screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from viewer.page import Page
from viewer.timeline import Landing

import stepscope
from stepscope.diff import words

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

pytestmark = pytest.mark.slow  # a real browser

RUN = "npu_level2"
MOST_CLICKS = 3


class Reader:
    """Begins at the first screen and counts every click."""

    def __init__(self, page: Page, run: str = RUN):
        self.page, self.clicks = page, 0
        page.leave(1280, 860)
        page.driver.get(f"{page.address}#/?run={run}")
        page.ready("verdict")

    def click(self, selector: str) -> None:
        """As a reader clicks: on what is drawn, and not covered by something else."""
        self.page.until(f"return !!document.querySelector({json.dumps(selector)})", selector)
        hit = self.page.driver.execute_script(
            """
            const one = document.querySelector(arguments[0]);
            one.scrollIntoView({block: 'nearest'});
            const box = one.getBoundingClientRect();
            return one.contains(document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2));
            """,
            selector,
        )
        assert hit, f"{selector} is covered or not drawn"
        self.page.click(selector)
        self._count()

    def choose(self, hook: str, value: str) -> None:
        self.page.choose(hook, value)
        self._count()

    def _count(self) -> None:
        self.clicks += 1
        assert self.clicks <= MOST_CLICKS

    def reads(self, selector: str) -> str:
        self.page.until(f"return document.querySelector({json.dumps(selector)})?.innerText", selector)
        return self.page.text(selector)


@pytest.fixture
def reader(sample_page: Page) -> Reader:
    return Reader(sample_page)


def test_where_does_the_step_go(reader: Reader) -> None:
    assert "148.8 ms" in reader.reads("[data-testid=verdict-answer] h2")
    shown = reader.page.driver.execute_script(
        "return [...document.querySelectorAll('.part-bar')].map((bar) =>"
        " [...bar.children].reduce((sum, one) => sum + Number(one.dataset.ms), 0))"
    )
    assert shown[0] == pytest.approx(148.8, abs=0.1), "all of it, without a click"
    assert reader.clicks == 0


def test_which_operator_and_which_line(reader: Reader) -> None:
    reader.click("[data-rule=host-dispatch] .verdict-head")
    reader.click("[data-rule=host-dispatch] [data-testid=evidence]")
    Landing(reader.page).lands()
    # The operator and the line of the program, of the gap or of the operator itself.
    told = reader.reads("[data-testid=origin]")
    assert "aclnn" in told or "aten::" in told
    assert "main.py(" in told


def test_why_is_the_device_idle(reader: Reader) -> None:
    reader.click("[data-testid=part-dispatch]")
    Landing(reader.page).lands()
    why = reader.reads("[data-testid=cause] .trace-why")
    assert why.startswith(("The host", "The next task"))
    assert "main.py(" in reader.reads("[data-testid=cause-place]")


def test_what_makes_the_memory_peak(reader: Reader, samples: Path) -> None:
    reader.choose("select-views", "memory")
    reader.click("[data-testid=btn-peak]")
    answer = reader.reads("[data-testid=memory-answer] h2")
    record = samples / RUN / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "memory_record.csv"
    head, *lines = record.read_text().splitlines()
    columns = head.split(",")
    rows = [dict(zip(columns, line.split(","), strict=True)) for line in lines]
    most = max(float(row["Total Allocated(MB)"]) for row in rows if row["Component"] == "PTA+GE")
    assert f"{most:,.1f} MiB" in answer
    owners: list[Any] = reader.page.driver.execute_script(
        "return [...document.querySelectorAll('[data-testid=table-owners] tbody tr')].map((row) =>"
        " [row.cells[0].innerText.trim(), Number(row.cells[2]?.innerText)])"
    )
    assert owners[0][0] == "held before the capture", "a row of its own"
    assert any("main.py(" in owner for owner, _ in owners), "lines of the program"
    assert sum(size for _, size in owners if size == size) <= most * 1.001


def test_which_rank_waits_for_which(reader: Reader) -> None:
    reader.click("[data-rule=peer-wait] [data-testid=evidence]")
    Landing(reader.page).lands()
    assert "rank 5" in reader.reads("[data-testid=cause] .trace-why")


def test_the_run_as_a_whole_is_a_click_away(reader: Reader) -> None:
    reader.click("[data-testid=to-cluster]")
    reader.page.ready("cluster")
    assert "2" in reader.reads("[data-testid=cluster-answer] dl")
    assert reader.reads("[data-testid=rank-1]") == "rank 1"


def test_what_changed(reader: Reader, samples: Path) -> None:
    found = stepscope.diff(*(samples / level / "rank0_ascend_pt" for level in ("npu_level0", RUN)))
    reader.click("[data-testid=tab-diff]")
    reader.page.ready("diff")
    reader.choose("select-runs-a", "npu_level0")
    answer = words.answer(found, "en")
    reader.page.until(
        f"return document.querySelector('[data-testid=diff-answer] h2')?.innerText === {json.dumps(answer)}", f"{answer!r}"
    )
    shown = reader.page.driver.execute_script(
        "return [...document.querySelectorAll('[data-testid=waterfall-row]')].map((row) => row.cells[1].innerText)"
    )
    most = max((float(row.delta_ns) / 1e6 for row in found.rows), key=abs)
    assert max((float(text.replace("−", "-")) for text in shown), key=abs) == pytest.approx(most, abs=0.011), "rounded to a sum"
    assert reader.clicks == 2
    assert not reader.page.errors()
