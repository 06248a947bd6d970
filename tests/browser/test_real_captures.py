# SPDX-License-Identifier: Apache-2.0
"""Every view on real captures: no error, no foreign request, accessible; numbers against plain sums over the shipped files."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from viewer.page import Page, serving
from viewer.timeline import npu_events, spans

import stepscope

pytestmark = pytest.mark.slow  # a real browser

NPU = {"run": "npu_level2", "worker": "0"}
GPU = {"run": "gpu", "worker": "gpu_nccl"}


def output(samples: Path) -> Path:
    return samples / "npu_level2" / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def us(value: float) -> str:
    return f"{value:,.3f}"


@pytest.mark.parametrize(
    ("capture", "views"),
    [
        (
            NPU,
            (
                "verdict",
                "cluster",
                "overview",
                "operator",
                "kernel",
                "trace",
                "memory",
                "distributed",
                "communication",
                "module",
                "flame",
                "source",
                "findings",
                "files",
            ),
        ),
        (GPU, ("verdict", "cluster", "overview", "operator", "kernel", "trace", "distributed", "flame", "findings", "files")),
    ],
    ids=["npu", "gpu"],
)
def test_every_view_is_clean(sample_page: Page, capture: dict[str, str], views: tuple[str, ...]) -> None:
    sample_page.open("overview", **capture, theme="light")
    assert tuple(sample_page.views()) == views
    assert sample_page.flaws() == []
    assert sample_page.foreign_requests() == []


def test_control_panel(sample_page: Page) -> None:
    sample_page.open("operator", **NPU)
    options = "return [...document.querySelector(`[data-testid='select-${arguments[0]}']`).options].map(one => one.text)"
    chosen = {name: sample_page.driver.execute_script(options, name) for name in ("runs", "views", "workers")}
    assert chosen["runs"] == ["gpu", "npu_level0", "npu_level2", "odd"]
    assert chosen["workers"] == ["0", "1"]
    assert chosen["views"][:5] == ["Verdict", "Cluster", "Overview", "Operator", "NPU Kernel"]
    assert sample_page.text("[data-testid=tab-normal]") == "NORMAL"
    assert not sample_page.driver.execute_script("return document.querySelector('[data-testid=select-spans]')")


def test_operator_rows_and_pies(sample_page: Page, samples: Path) -> None:
    sample_page.open("operator", **NPU)
    calls: dict[str, int] = defaultdict(int)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    fields = ("Device Self Duration(us)", "Host Self Duration(us)", "Device Self Duration With AICore(us)")
    for row in read(output(samples) / "operator_details.csv"):
        calls[row["Name"]] += 1
        for place, field in enumerate(fields):
            sums[row["Name"]][place] += float(row[field])
    order = sorted(sums, key=lambda name: -sums[name][0])
    shown = sample_page.rows("operators", ["name", "calls", "device_self", "host_self", "core_self"])
    for (name, count, device, host, core), wanted in zip(shown[:10], order, strict=False):
        own = sums[wanted]
        assert (name, count, device, host) == (wanted, f"{calls[wanted]:,}", us(own[0]), us(own[1]))
        assert float(core) == pytest.approx(100 * own[2] / own[0] if own[0] else 0, abs=0.01)
    pie = sample_page.pie("device_self")
    assert list(pie)[:3] == order[:3]
    assert list(pie.values())[:10] == pytest.approx([sums[name][0] for name in order[:10]])
    assert sum(pie.values()) == pytest.approx(sum(one[0] for one in sums.values()))


def test_operator_call_stacks(sample_page: Page, samples: Path) -> None:
    sample_page.open("operator", **NPU, q="aclnnForeachAddListV2")
    sample_page.click("[data-testid=table-operators] [data-key=call_stack] button")
    sample_page.until("return !!document.querySelector('[data-testid=btn-frames]')", "table of stacks")
    stacks = {row["Call Stack"] for row in read(output(samples) / "operator_details.csv") if row["Name"] == "aclnnForeachAddListV2"}
    assert sample_page.driver.execute_script("return document.querySelectorAll('[data-testid=btn-frames]').length") == len(stacks)
    sample_page.click("[data-testid=btn-frames]")
    sample_page.until("return !!document.querySelector('[data-testid=frames] li')", "frames")
    first = sample_page.driver.execute_script("return document.querySelector('[data-testid=frames] li code').textContent")
    assert any(first in stack.split(";")[0] for stack in stacks)
    sample_page.choose("select-group-by", "op_shape")
    sample_page.until("return !document.querySelector('[data-testid=btn-frames]')", "closed rows")


def test_kernel_statistic_and_cores(sample_page: Page, samples: Path) -> None:
    sample_page.open("kernel", **NPU)
    times: dict[str, list[float]] = defaultdict(list)
    cores: dict[str, float] = defaultdict(float)
    for row in read(output(samples) / "kernel_details.csv"):
        times[row["Name"]].append(float(row["Duration(us)"]))
        cores[f"Using {row['Accelerator Core'].replace('_', ' ')}"] += float(row["Duration(us)"])
    headings = sample_page.headings("kernels-statistic")
    assert headings == [
        "Operator",
        "Calls",
        "Total Duration (us)",
        "Max Duration (us)",
        "Avg Duration (us)",
        "Min Duration (us)",
        "Accelerator Core",
        "Block Dim",
    ]
    keys = sample_page.keys("kernels-statistic")
    order = sorted(times, key=lambda name: -sum(times[name]))
    for row, name in zip(sample_page.rows("kernels-statistic", keys)[:8], order, strict=False):
        own = times[name]
        shown = row[0].replace("All calls", "")
        assert [shown, *row[1:6]] == [name, str(len(own)), us(sum(own)), us(max(own)), us(sum(own) / len(own)), us(min(own))]
    assert sample_page.pie("core") == pytest.approx(dict(cores))


def test_kernel_all_has_every_row(sample_page: Page, samples: Path) -> None:
    sample_page.open("kernel", **NPU, group="all")
    rows = read(output(samples) / "kernel_details.csv")
    assert sample_page.driver.execute_script(
        "return document.querySelector('[data-testid=table-kernels-all]').dataset.total"
    ) == str(len(rows))
    # What a row is about and what decides stand first, then the file's order, which can be had as a whole.
    first, titles = ["Name", "Duration(us)"], list(rows[0])[:12]
    assert sample_page.headings("kernels-all")[:12] == [*first, *(title for title in titles if title not in first)]
    sample_page.click("[data-testid=btn-columns]")
    sample_page.until("return !!document.querySelector('[data-preset=file]')", "presets")
    sample_page.click("[data-preset=file]")
    heads = "[...document.querySelectorAll('[data-testid=table-kernels-all] [role=columnheader]')]"
    sample_page.until(f"return {heads}[0].innerText.startsWith('Step')", "the order of the file")
    assert sample_page.headings("kernels-all")[:12] == titles


@pytest.mark.parametrize("size", [(1280, 720)], ids=["1280x720"], indirect=True)
def test_name_and_duration_stay_in_view_of_a_wide_table(sample_page: Page, size: tuple[int, int]) -> None:
    """At 1280 pixels the file's columns do not fit: the name, and the figure that decides, stay while the others are scrolled."""
    sample_page.open("kernel", **NPU, group="all")
    sample_page.until(
        "return document.querySelectorAll('[data-testid=table-kernels-all] .table-layer > .table-row').length > 3", "rows"
    )
    edges = (
        "const box = document.querySelector('[data-testid=table-kernels-all] .table-scroll');"
        "box.scrollLeft = arguments[0]; const around = box.getBoundingClientRect();"
        "return ['Name', 'Duration(us)'].flatMap((name) => ['columnheader', 'gridcell'].map((role) => {"
        "  const heads = [...box.querySelectorAll('[role=columnheader]')];"
        "  const at = heads.findIndex((one) => one.innerText.trim().replace(/\\s+/g, ' ').startsWith(name));"
        "  const one = role === 'columnheader' ? heads[at] : box.querySelectorAll('.table-row')[1].children[at];"
        "  const own = one.getBoundingClientRect();"
        "  return own.left >= around.left - 1 && own.right <= around.right + 1 && own.width > 40; }))"
    )
    for scrolled in (0, 300, 5000):
        assert sample_page.driver.execute_script(edges, scrolled) == [True] * 4, scrolled


@pytest.mark.parametrize("view", ["memory", "communication", "module"])
def test_hints_are_about_the_device_that_was_recorded(sample_page: Page, view: str) -> None:
    """A GPU's capture lacks no file that only an NPU's profiler writes."""
    sample_page.open("overview", **GPU)
    sample_page.driver.get(f"{sample_page.address}#/{view}?run=gpu&worker=gpu_nccl")
    sample_page.driver.refresh()
    sample_page.until("return !!document.querySelector('[data-testid=empty] pre, [data-testid=empty] code')", "what to collect")
    told = sample_page.text("[data-testid=empty]")
    assert not re.search(r"torch_npu|\w\.csv|communication\w*\.json|ProfilerActivity\.NPU", told), told


def test_memory_peak_and_components(sample_page: Page, samples: Path) -> None:
    sample_page.open("memory", **NPU)
    records = read(output(samples) / "memory_record.csv")
    peak = max(float(row["Total Allocated(MB)"]) for row in records if row["Component"] == "PTA+GE" and row["Total Allocated(MB)"])
    assert f"Peak Memory Usage: {peak:.1f}MB" in sample_page.text("[data-testid=chart-memory]")
    held = read(output(samples) / "operator_memory.csv")
    assert sample_page.driver.execute_script("return document.querySelector('[data-testid=table-memory]').dataset.total") == str(
        len(held)
    )
    sample_page.choose("select-group-by", "component")
    sample_page.until("return document.querySelectorAll('[data-testid=table-components] .table-row').length > 3", "components")
    peaks: dict[str, float] = defaultdict(float)
    for row in read(output(samples) / "npu_module_mem.csv"):
        column = next(name for name in row if name.startswith("Total Reserved"))
        scale = 1 if "(MB)" in column else 1 / 1024
        peaks[row["Component"]] = max(peaks[row["Component"]], float(row[column]) * scale)
    wanted = sorted(peaks, key=lambda name: -peaks[name])[:3]
    assert [row[0] for row in sample_page.rows("components", ["component"])[:3]] == wanted


def test_distributed_stats(sample_page: Page, samples: Path) -> None:
    sample_page.open("distributed", **NPU)
    document = json.loads((output(samples) / "communication.json").read_text())
    total = next(iter(document.values()))["collective"]["Total Op Info"]["Communication Bandwidth Info"]
    wanted = round((total["RDMA"]["Transit Size(MB)"] + total["SDMA"]["Transit Size(MB)"]) * 1e6)
    rows = sample_page.rows("distributed-ops", ["name", "calls", "size"])
    assert sum(int(row[2].replace(",", "").split(".")[0]) for row in rows) == pytest.approx(wanted, abs=len(rows))


def test_distributed_without_communication_files_says_how_to_get_them(sample_page: Page) -> None:
    sample_page.open("distributed", run="npu_level0")
    assert "Level1" in sample_page.text("[data-testid=empty]")
    assert sample_page.errors() == []


def test_diff_shows_what_the_command_says(sample_page: Page, samples: Path) -> None:
    sample_page.open("diff", arun="npu_level0", aworker="0", brun="npu_level2", bworker="0")
    sides = (samples / level / "rank0_ascend_pt" for level in ("npu_level0", "npu_level2"))
    found = stepscope.diff(*sides)
    assert sample_page.text("[data-testid=diff-answer] h2") == found.as_dict()["answer"]["en"]
    assert "profiler level" in sample_page.text("[data-testid=diff-answer]")  # they were recorded at different levels
    shown = sample_page.rows("diff-kernel", sample_page.keys("diff-kernel"))
    assert [row[3:5] for row in shown[:5]] == [
        [f"{float(ns) / 1e6:,.3f}" for ns in (row.base_ns, row.new_ns)] for row in found.rows[:5]
    ]
    assert sample_page.errors() == []


def test_diff_of_two_levels(sample_page: Page, samples: Path) -> None:
    sample_page.open("diff", arun="npu_level0", aworker="0", brun="npu_level2", bworker="0", level="operator")

    def calls(level: str) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for row in read(samples / level / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "operator_details.csv"):
            found[row["Name"]] += 1
        return found

    before, after = calls("npu_level0"), calls("npu_level2")
    keys = sample_page.keys("diff-operator")
    shown = sample_page.rows("diff-operator", keys)
    assert len(shown) > 10
    for row in shown[:10]:
        assert [row[1], row[2]] == [f"{before[row[0]]:,}", f"{after[row[0]]:,}"]


def test_two_captures_of_a_diff_in_one_timeline(sample_page: Page, samples: Path) -> None:
    """Their first steps stand below each other, although they were recorded at different times."""
    sample_page.open("diff", arun="npu_level0", aworker="0", brun="npu_level2", bworker="0", timelines="1")
    sample_page.until("return document.querySelector('[data-testid=view-trace]')?.dataset.ready === 'true'", "timeline")
    sample_page.click("[data-testid=view-trace] [aria-label='Fold all']")  # so that both can be seen
    shown = "return window.__stepscope?.trace?.stats().lanes.filter(lane => lane.kind === 'rank').map(lane => lane.label) ?? []"
    sample_page.until(f"return (() => {{ {shown} }})().length === 2", "both timelines")
    assert sample_page.driver.execute_script(shown) == ["Baseline: npu_level0 / 0", "Experimental: npu_level2 / 0"]
    places = []
    for level, source in (("npu_level0", 0), ("npu_level2", 2)):
        _, all_spans = spans(npu_events(samples, 0, level))
        start = min(start for _, start, _, name in all_spans if name.startswith("ProfilerStep#"))
        places.append(sample_page.driver.execute_script(f"return window.__stepscope.trace.placeOf(0, {start}, {source}).x"))
    assert places[0] == pytest.approx(places[1], abs=0.01)
    assert sample_page.errors() == []


def test_bars_of_a_difference_can_be_seen(sample_page: Page) -> None:
    """All accumulated differences are negative here: the zero line then stood at the top of an axis of seconds."""
    sample_page.open("diff", run="npu_level2")
    tall = sample_page.driver.execute_script(
        "return [...document.querySelectorAll('.grid2 > *:nth-child(2) svg path')]"
        ".filter((one) => /z$/.test(one.getAttribute('d'))).map((one) => one.getBoundingClientRect().height)"
    )
    assert max(tall, default=0) > 30


@pytest.mark.parametrize("capture", [NPU, GPU], ids=["npu", "gpu"])
def test_shares_of_the_overview_are_of_its_step(sample_page: Page, capture: dict[str, str]) -> None:
    sample_page.open("overview", **capture)
    # The table has the means of all marks; where the mean step of the verdict is another, the page says both.
    both = sample_page.driver.find_elements("css selector", "[data-testid=mean-of-marks], [data-testid=mean-step]")
    number, unit = re.findall(r"([\d.,]+) (us|ms|s)\b", both[-1].text)[-1]
    length = float(number.replace(",", "")) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]
    assert sum(sample_page.pie("execution").values()) == pytest.approx(length, rel=1e-3)


def test_preparing_is_in_the_pictures_of_the_overview(sample_page: Page, samples: Path) -> None:
    sample_page.open("overview", **NPU)
    (row,) = read(output(samples) / "step_trace_time.csv")
    # The file is made of floats: moments since 1970 are off by up to a quarter of a microsecond.
    assert sample_page.pie("execution")["Preparing"] == pytest.approx(float(row["Preparing"]), abs=0.5)
    legend = sample_page.driver.execute_script(
        "return [...document.querySelectorAll('[data-testid=chart-steps] .chart-legend button')].map((one) =>"
        " [one.innerText.trim(), one.querySelector('.swatch').style.background])"
    )
    colour = dict(legend)["Preparing"]
    tall = sample_page.driver.execute_script(
        "const like = document.createElement('i'); return [...document.querySelectorAll('[data-testid=chart-steps] svg path')]"
        ".filter((one) => (like.style.background = one.getAttribute('fill'), like.style.background === arguments[0]))"
        ".map((one) => one.getBoundingClientRect().height)",
        colour,
    )
    assert max(tall, default=0) > 10


def test_a_damaged_file_is_unreadable_and_what_is_left_is_partial(driver: Any, samples: Path, tmp_path: Path) -> None:
    shutil.copytree(samples / "npu_level2" / "rank0_ascend_pt", tmp_path / "run" / "rank0_ascend_pt")
    files = tmp_path / "run" / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    (files / "operator_memory.csv").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00" * 50)
    (files / "kernel_details.csv").write_bytes((files / "kernel_details.csv").read_bytes()[:20_000])
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.open("memory")
        assert page.text(".problem h2") == "unreadable: operator_memory.csv"
        assert "no single blocks" not in page.text("[data-testid=view-memory]")
        page.choose("select-views", "kernel")
        page.ready("kernel")
        assert "1 row" in page.driver.execute_script("return document.querySelector('[data-testid=header-partial]').title")
        page.click("[data-testid=header-partial]")
        page.ready("files")


def test_notes_of_the_mean_step_stand_below_it(sample_page: Page) -> None:
    sample_page.open("overview", run="gpu", worker="gpu_train_control")
    left = (
        "return ['mean-step', 'mean-of-marks'].map((name) => { const range = document.createRange();"
        " range.selectNodeContents(document.querySelector(`[data-testid=${name}]`)); return range.getBoundingClientRect().left; })"
    )
    first, second = sample_page.driver.execute_script(left)
    assert second == pytest.approx(first, abs=2)
