# SPDX-License-Identifier: Apache-2.0
"""The first screen answers: words of `stepscope verdict`, bars that sum to the step, evidence that opens in the timeline."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from viewer.page import Page, serving
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
    saved = sample_page.driver.execute_script(
        "return [...document.querySelectorAll('.verdict-saved b')].map((one) => one.innerText)"
    )
    assert [text.removeprefix("≤ ") for text in saved] == [
        f"{one.saved_ms:,.1f} ms" for one in found.findings if one.severity != "info"
    ]
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


def test_what_if_asks_the_rank_that_the_finding_is_about(driver: Any, samples: Path, tmp_path: Path) -> None:
    """Ranks of one job carry the time of their start in their names: the span of one is not that of another."""
    for rank in (0, 1):
        shutil.copytree(
            samples / "npu_level2" / f"rank{rank}_ascend_pt", tmp_path / "run" / f"host_{rank}_2026111901575769{rank}_ascend_pt"
        )
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.open("verdict", run="run", worker="1")
        page.until("return document.querySelector('[data-testid=whatif-result] b')?.textContent === '148.8 ms'", "the replay")
        assert not page.errors()


def test_all_figures_are_of_the_step_of_the_slowest_rank(driver: Any, samples: Path, tmp_path: Path) -> None:
    """One base: findings of a rank with shorter steps, and what is replayed of it, have no other."""
    shutil.copytree(samples / "npu_level2" / "rank0_ascend_pt", tmp_path / "run" / "rank0_ascend_pt")
    shutil.copytree(samples / "npu_level0" / "rank1_ascend_pt", tmp_path / "run" / "rank1_ascend_pt")
    ranks = stepscope.verdict(tmp_path / "run").ranks
    assert len({round(one.partition["total"] / 1e6, 1) for one in ranks}) == 2
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.open("verdict", run="run")
        result = "return document.querySelector('[data-testid=whatif-result]')?.innerText"
        told = page.until(result, "the replay")
        step = page.text("[data-testid=verdict-answer] dd")
        assert "step, slowest rank" in page.text("[data-testid=verdict-answer] dl")
        assert told.startswith(f"{step} a step, now {step.removesuffix(' ms')} ")
        assert "saved on the rank that was replayed" in told
        shares = page.driver.execute_script("return [...document.querySelectorAll('.verdict-saved')].map((one) => one.innerText)")
        for text in shares:
            saved, share = (float(number) for number in re.findall(r"[\d.]+", text)[:2])
            assert share == pytest.approx(100 * saved / float(step.removesuffix(" ms")), abs=0.1)


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


def test_evidence_of_one_name_is_told_apart(sample_page: Page) -> None:
    sample_page.open("verdict", **CAPTURE)
    chips = sample_page.driver.execute_script(
        "return [...document.querySelectorAll('[data-rule=peer-wait] [data-testid=evidence] span')].map((one) => one.textContent)"
    )
    assert len({chip.split(", ")[0] for chip in chips}) == 1, "waits have one name"
    assert {chip.split(", ")[1].split()[0] for chip in chips} == {"Plane"}
    assert len(set(chips)) > 2, "and the planes differ"


def test_views_have_counts_that_follow_the_data(sample_page: Page) -> None:
    shown = (
        "return Object.fromEntries([...document.querySelectorAll('[data-testid=select-views] option[data-count]')]"
        ".map((one) => [one.value, Number(one.dataset.count)]))"
    )
    sample_page.open("verdict", run="npu_level2")
    found = sample_page.driver.execute_script("return document.querySelectorAll('[data-testid=verdict-finding]').length")
    assert sample_page.driver.execute_script(shown) == {"verdict": found, "cluster": 2}
    sample_page.choose("select-views", "memory")
    sample_page.ready("memory")
    assert sample_page.driver.execute_script(shown) == {"verdict": found, "cluster": 2}, "in the other views, too"
    sample_page.choose("select-runs", "odd")
    sample_page.until(f"{shown}.verdict === undefined", "no count of another run")


def test_figures_of_the_answer_open_their_tables(sample_page: Page) -> None:
    for at, view in enumerate(("overview", "findings", "distributed")):
        sample_page.open("verdict", run="npu_level2")
        sample_page.driver.execute_script(
            "document.querySelectorAll('[data-testid=verdict-answer] .figure')[arguments[0]].click()", at
        )
        sample_page.ready(view)


def test_parts_have_patterns_where_something_waits_or_is_not_known(sample_page: Page) -> None:
    """Never colour alone: what waits is striped in one of three directions, what was not recorded is dotted."""
    sample_page.open("verdict", **CAPTURE)
    grounds: dict[str, str] = sample_page.driver.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('.part-bar .part')].map((one) =>"
        " [one.dataset.testid.slice(5), getComputedStyle(one).backgroundImage]))"
    )
    solid = {family for family, image in grounds.items() if image == "none"}
    assert solid == {"computing", "communication", "copy", "dispatch", "python"}
    patterns = [grounds[family] for family in ("wait", "sync", "preparing", "unknown")]
    assert len(set(patterns)) == 4
    assert {text.split("(")[0] for text in patterns} == {"repeating-linear-gradient", "radial-gradient"}


def test_what_is_about_all_ranks_says_so(sample_page: Page) -> None:
    sample_page.open("verdict", run="npu_level2", worker="1")
    assert sample_page.text(".crumbs").split() == ["npu_level2", "all", "ranks"]
    assert sample_page.text("[data-testid=select-workers]").strip() == "All"
    state = sample_page.text(".capture-state")
    assert "2 ranks" in state
    assert "rank 0" not in state
    assert sample_page.text(".capture-state .path") == "npu_level2"
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


def write_steps(path: Path, lengths: Sequence[int], rank: int = 0) -> None:
    """A trace of the host with steps of so many ms, an operator in each."""
    events, at = [], 1_000_000
    for step, length in enumerate(lengths):
        common = {"ph": "X", "pid": 1, "tid": 1}
        events.append({**common, "name": f"ProfilerStep#{step}", "cat": "user_annotation", "ts": at, "dur": length * 1000})
        events.append({**common, "name": "aten::mm", "cat": "cpu_op", "ts": at + 500, "dur": length * 900})
        at += length * 1000
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": 2, "backend": "gloo"}, "traceEvents": events}))


def test_of_many_steps_all_are_drawn_and_each_can_be_opened(driver: Any, tmp_path: Path) -> None:
    """Three of them as bars, and all in their order as columns, as high as the step is long."""
    lengths = [10, 10, 14, 10, 10, 12, 10]
    write_steps(tmp_path / "run" / "w.pt.trace.json", lengths)
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.open("verdict")
        columns: list[list[Any]] = driver.execute_script(
            "return [...document.querySelectorAll('[data-testid=all-steps] i')]"
            ".map((one) => [one.title, parseFloat(one.style.height)])"
        )
        first = int(columns[0][0].split()[1])
        counted = lengths[first : first + len(columns)]  # without steps that the profiler slowed down or cut
        assert len(counted) > 4
        assert [title.split(" · ")[1] for title, _ in columns] == [f"{length}.0 ms" for length in counted]
        assert [height for _, height in columns] == pytest.approx([100 * length / 14 for length in counted], abs=0.5)
        driver.execute_script("document.querySelectorAll('[data-testid=all-steps] i')[arguments[0]].click()", 2 - first)
        page.until("return document.querySelectorAll('.step-row').length === 1", "the step that was clicked")
        assert "Step 2" in page.text(".step-row .step-name")
        assert page.errors() == []


@pytest.mark.parametrize("size", [(1280, 720)], ids=["1280x720"], indirect=True)
def test_many_steps_of_several_ranks_leave_the_findings_in_view(driver: Any, tmp_path: Path, size: tuple[int, int]) -> None:
    for rank in (0, 1):
        write_steps(tmp_path / "run" / f"rank{rank}.pt.trace.json", [10, 10, 14, 10, 10, 12, 10, 10], rank)
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.open("verdict")
        assert driver.execute_script("return document.querySelectorAll('.step-row').length") == 4, "slowest and median of each"
        assert driver.execute_script("return document.querySelectorAll('[data-testid=all-steps]').length") == 2
        top = "return document.querySelector('[data-testid=verdict-findings] p, .verdict-list > li').getBoundingClientRect().bottom"
        assert driver.execute_script(top) <= size[1]


def test_nothing_found_leads_to_a_view_that_is_there(driver: Any, tmp_path: Path) -> None:
    """A capture of device tasks alone has no operators to open."""
    common = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7}
    events = [{**common, "name": f"kernel{at % 3}", "ts": 1000 + at * 100, "dur": 100} for at in range(40)]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "w.pt.trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.open("verdict")
        assert not page.text("[data-testid=to-operator]")
        page.click("[data-testid=to-kernel]")
        page.ready("kernel")
        assert page.errors() == []
