# SPDX-License-Identifier: Apache-2.0
"""The Trace view in a real browser, against numbers computed here from the files themselves."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from viewer.page import Page, serving
from viewer.timeline import NPU, ODD_NAME, Timeline, by_process, npu_events, ns, spans
from viewer.tiny_trace import write_trace

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.slow  # a real browser


def test_every_slice_of_the_file_is_in_the_picture(sample_page, samples):
    events = npu_events(samples)
    _, all_spans = spans(events)
    length = max(end for _, _, end, _ in all_spans)
    page = Timeline(sample_page, f"{NPU}&fold=&t=-1000_{length + 1000}", height=9000)
    wanted = Counter(process for process, *_ in all_spans)
    assert by_process(page.slices_by_lane()) == dict(wanted)
    status = page.find(".trace-status").text
    assert f"{sum(wanted.values()):,} slices" in status
    assert f"{sum(event['ph'] == 'C' for event in events):,} counter samples" in status
    groups = [lane["label"] for lane in page.stats["lanes"] if lane["kind"] == "process"]
    assert groups[:5] == ["Overlap Analysis", "Ascend Hardware", "HCCL", "Python", "CANN"], "what the device did, then the host"
    assert page.find(".trace-head-process .trace-badge").text == "PTA"
    # A window shows the slices that touch it: wide, near, close.
    for low, high in ((0.3, 0.6), (0.37, 0.371), (0.3801, 0.38012)):
        start, end = int(length * low), int(length * high)
        end += (end - start) % 2  # the middle of the window is then a whole number
        page.window(start, end)
        touching = Counter(process for process, begin, stop, _ in all_spans if begin < end and (begin >= start or stop > start))
        assert by_process(page.slices_by_lane()) == dict(touching), (low, high)
        assert page.stats["merged"] == 0
    assert not page.errors()


def test_kineto_threads_and_streams(sample_page, samples):
    events = json.loads(gzip.decompress((samples / "gpu" / "gpu_train_control.pt.trace.json.gz").read_bytes()))["traceEvents"]
    wanted = Counter(
        f"{'Stream' if event['cat'].startswith(('kernel', 'gpu_mem')) else 'Thread'} {event['tid']}"
        for event in events
        if event["ph"] == "X" and event["cat"] != "Trace"
    )
    page = Timeline(sample_page, "run=gpu&worker=gpu_train_control", height=3000)
    shown = {lane.split("/")[1]: count for lane, count in page.slices_by_lane().items() if not lane.startswith("Overlap Analysis/")}
    assert shown == dict(wanted)
    assert page.stats["merged"] > 0, "so many slices do not fit one by one: the tiles say how many each stands for"
    assert not page.errors()


def test_slices_that_cross_or_take_no_time_are_all_there(sample_page):
    page = Timeline(sample_page, "run=odd")
    assert page.slices_by_lane() == {"Python/Thread 1": 5, "Python/Thread 2": 3000}
    assert "overlapping slices shown on extra rows" in page.find(".trace-status").text
    meta = page.meta()
    track = next(one for one in meta["tracks"] if one.get("slices") == 5)
    assert len(track["rows"]) == 2, "b begins inside a and ends after it"


def test_a_merged_pixel_says_how_many_it_stands_for(sample_page):
    page = Timeline(sample_page, "run=odd")
    # Ten times the capture: the 3,000 slices share less than 140 pixels.
    page.window(-1_000_000, 2_000_000)
    track = next(one for one in page.meta()["tracks"] if one.get("slices") == 3000)
    place = page.call(f"placeOf({track['rows'][0]}, 100_000)")
    canvas = page.find("[data-testid=trace-canvas]")
    middle = canvas.size
    ActionChains(page.browser).move_to_element_with_offset(
        canvas, round(place["x"] - middle["width"] / 2), round(place["y"] - middle["height"] / 2)
    ).perform()
    tip = page.until(lambda: page.find(".trace-tip").text)
    assert "slices in this pixel" in tip
    assert int(tip.split(" slices")[0].replace(",", "")) > 1


def test_names_are_text_never_html(sample_page):
    page = Timeline(sample_page, "run=odd")
    search = page.find("[data-testid=trace-search]")
    search.send_keys("<img", Keys.ENTER)
    assert page.until(lambda: page.facts().get("Title")) == ODD_NAME
    assert not page.all(".trace img")


def test_slice_detail_has_the_values_of_the_file(sample_page, samples):
    zero, all_spans = spans(npu_events(samples))
    process, start, end, name = max((one for one in all_spans if one[0] == "Ascend Hardware"), key=lambda one: one[2] - one[1])
    page = Timeline(sample_page, NPU, height=9000)
    lanes = page.stats["lanes"]
    # Its lane by the file's own words: a stream of the device.
    tid = next(
        event["tid"]
        for event in npu_events(samples)
        if event["ph"] == "X" and ns(event["ts"]) - zero == start and event["name"] == name
    )
    lane = next(one for one in lanes if one["label"] == f"Stream {tid}")
    low, high = page.stats["window"]
    canvas = page.find("[data-testid=trace-canvas]")
    x = ((start + end) / 2 - low) / (high - low) * canvas.size["width"]
    # A row may lie below others of the track: try each.
    for y in range(int(lane["y"]) + 8, int(lane["y"] + lane["height"]), 18):
        ActionChains(page.browser).move_to_element_with_offset(
            canvas, round(x - canvas.size["width"] / 2), round(y - canvas.size["height"] / 2)
        ).perform()
        if page.stats["hovered"] == name:
            break
    ActionChains(page.browser).click().perform()
    facts = page.until(page.facts)
    assert facts["Title"] == name
    assert facts["Start"] == f"{start / 1000:,.3f} us"
    assert facts["Wall Duration"] == f"{(end - start) / 1000:,.3f} us"
    assert facts["Start(Raw Timestamp)"] == f"{(zero + start) // 1000}.{(zero + start) % 1000:03d}"
    assert facts["Track"] == f"{process} / Stream {tid}"
    assert not page.errors()


def test_flow_events_menu_counts_and_draws(sample_page, samples):
    events = npu_events(samples)
    wanted = Counter(event["cat"] for event in events if event["ph"] == "f")
    page = Timeline(sample_page, NPU)
    assert page.stats["flows"] == 0, "off until asked for"
    page.find("[data-testid=trace-menu-flows]").click()
    labels = page.until(lambda: [one.text for one in page.all(".trace-menu[open] .trace-check") if "(" in one.text])
    assert sorted(labels) == sorted(f"{category} ({count:,})" for category, count in wanted.items())
    next(one for one in page.all(".trace-menu[open] .trace-check") if one.text.startswith("async_npu")).click()
    assert page.until(lambda: page.stats["flows"]) == wanted["async_npu"]
    assert page.until(lambda: page.params.get("flows")) == "async_npu"


def test_a_range_is_summed_up(sample_page, samples):
    _, all_spans = spans(npu_events(samples))
    page = Timeline(sample_page, NPU)
    ruler = page.find("[data-testid=trace-ruler]")
    ActionChains(page.browser).move_to_element_with_offset(ruler, -100, 25).click_and_hold().move_by_offset(
        180, 0
    ).release().perform()
    page.until(lambda: page.all("[data-testid=table-slice-list] tbody tr"))
    low, high = (int(end) for end in page.until(lambda: page.params.get("range")).split("_"))
    inside = [one for one in all_spans if one[1] < high and (one[1] >= low or one[2] > low)]
    assert f"{len(inside):,} slices" in page.find("[data-testid=range-about]").text
    rows = page.browser.execute_script(
        "return [...document.querySelectorAll('[data-testid=table-slice-list] tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    totals: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for _, start, end, name in inside:
        totals[name] += min(end, high) - max(start, low)
        counts[name] += 1
    assert len(rows) == len(totals)
    for name, wall, *_, occurrences in rows:
        assert int(occurrences.replace(",", "")) == counts[name], name
        # The file rounds to 10 ns; a sum of n may be n times that off.
        assert float(wall.replace(",", "")) * 1000 == pytest.approx(totals[name], abs=10 * counts[name] + 1), name
    headings = [cell.text.removesuffix(" ↓").removesuffix(" (us)") for cell in page.all("[data-testid=table-slice-list] th")]
    assert headings == [
        "Name", "Wall Duration", "Self Time", "Average Wall Duration", "Max Wall Duration", "Min Wall Duration", "Occurrences",
    ]  # fmt: skip


def test_counters_have_the_peaks_of_the_file(sample_page, samples):
    peaks: dict[str, float] = {}
    for event in npu_events(samples):
        if event["ph"] == "C" and event["name"].startswith(("APP/", "Device/")):
            peaks[event["name"]] = max(peaks.get(event["name"], 0), *(float(value) for value in event["args"].values()))
    page = Timeline(sample_page, f"{NPU}&fold=", height=9000)
    shown = dict(
        page.browser.execute_script(
            "return [...document.querySelectorAll('.trace-head-counter')]"
            ".map((head) => ['.trace-name', '.trace-scale'].map((one) => head.querySelector(one).innerText))"
        )
    )
    assert peaks
    assert {name: float(shown[name].split()[1].replace(",", "")) for name in peaks} == pytest.approx(peaks, abs=0.001)


def test_two_ranks_in_one_timeline(sample_page, samples):
    counts = [len(spans(npu_events(samples, rank))[1]) for rank in (0, 1)]
    bases = [spans(npu_events(samples, rank))[0] for rank in (0, 1)]
    page = Timeline(sample_page, f"{NPU}&ranks=1", height=9000)
    page.until(lambda: f"{sum(counts):,} slices" in page.find(".trace-status").text)
    page.settle()
    ranks = [lane for lane in page.stats["lanes"] if lane["kind"] == "rank"]
    assert [lane["label"] for lane in ranks] == ["0", "1"]
    canvas = page.find("[data-testid=trace-canvas]").size["width"]
    low, high = page.stats["window"]
    places = [page.call(f"placeOf(0, 0, {lane['key']})")["x"] for lane in ranks]
    # Each clock is off by its own offset, which the calls of both ranks tell; the head says it, and how sure it is.
    clocks = page.call_api("cluster", "run=npu_level2")["clocks"]
    ahead = clocks[1]["offset_ns"] - clocks[0]["offset_ns"]
    assert ahead != 0
    assert (places[1] - places[0]) / canvas * (high - low) == pytest.approx(bases[1] - bases[0] - ahead, abs=1)
    heads = [one.text for one in page.all("[data-testid=rank-clock]")]
    unsure = (clocks[0]["sigma_ns"] ** 2 + clocks[1]["sigma_ns"] ** 2) ** 0.5
    assert heads == ["clock reference", f"{ahead / 1000:,.3f}".rstrip("0") + f" us ± {unsure / 1000:,.3f}".rstrip("0") + " us"]
    assert not page.errors()


def test_times_count_from_the_start_of_the_step(sample_page, samples):
    page = Timeline(sample_page, NPU)
    step = page.meta()["steps"][0]
    assert page.find("[data-testid=trace-origin]").text == f"since start of step {step['step']}"
    page.press("n", ".")
    page.until(lambda: page.facts().get("Title"))
    facts = page.facts()
    start = round(float(facts["Start"].removesuffix(" us").replace(",", "")) * 1000)
    assert facts[f"since start of step {step['step']}"] == f"{(start - step['start_ns']) / 1000:,.3f} us"
    told = page.find("[data-testid=trace-live]").get_attribute("textContent")
    value, unit = next(part for part in told.removeprefix(facts["Title"]).split(", ") if part).split()
    assert float(value) * {"ns": 1, "us": 1e3, "ms": 1e6}[unit] == pytest.approx(start - step["start_ns"], abs=600)
    # Idle time tells its own begin and end on that scale.
    page.press(">")
    page.until(lambda: page.all("[data-testid=cause-when]"))
    begin, end = page.find("[data-testid=cause-when]").text.split(" · ")[0].split(" – ")
    length = page.find("[data-testid=cause-when]").text.split(" · ")[1]
    scale = {"ns": 1, "us": 1e3, "ms": 1e6}
    first, last, whole = (float(text.split()[0]) * scale[text.split()[1]] for text in (begin, end, length))
    assert last - first == pytest.approx(whole, abs=1100)
    # Where nothing marks a step, times count from the first event.
    page = Timeline(sample_page, "run=odd")
    assert page.find("[data-testid=trace-origin]").text == "since the first event"


def test_ranks_are_aligned_by_a_communication_operator(sample_page, samples):
    starts = []
    for rank in (0, 1):
        zero, all_spans = spans(npu_events(samples, rank))
        starts.append({name: zero + start for _, start, _, name in all_spans if name.startswith("hcom_allReduce")})
    name = min(set(starts[0]) & set(starts[1]))
    page = Timeline(sample_page, f"{NPU}&ranks=1")
    page.until(lambda: any(lane["kind"] == "rank" for lane in page.stats["lanes"]))
    page.settle()
    page.find("[data-testid=trace-search]").send_keys(name, Keys.ENTER)
    page.until(lambda: page.facts().get("Title") == name or page.stats["selected"] is not None)
    page.find("[data-testid=trace-menu-ranks]").click()
    next(one for one in page.until(lambda: page.all(".trace-menu[open] button")) if one.text == "by start").click()
    shift = unquote(page.until(lambda: page.params.get("shift")))
    assert shift.partition("@")[0] in ("0", "1")
    clocks = page.call_api("cluster", "run=npu_level2")["clocks"]
    ahead = clocks[1]["offset_ns"] - clocks[0]["offset_ns"]  # what the common clock has moved already
    assert abs(int(shift.partition("@")[2])) == pytest.approx(abs(starts[1][name] - ahead - starts[0][name]), abs=1)


def test_of_many_ranks_those_in_view_are_asked_for(driver, tmp_path):
    names = [f"w{rank:02}" for rank in range(24)]
    for name in names:
        write_trace(tmp_path / "run" / f"{name}.pt.trace.json")
    asked = set()

    def asked_for(name):
        """Whether the shares of this rank were ever asked for."""
        for entry in driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent" and "trace/busy" in (url := message["params"]["request"]["url"]):
                asked.update(parse_qs(urlsplit(url).query)["worker"])
        return name in asked

    with serving(tmp_path) as address:
        page = Timeline(Page(driver, address), f"run=run&worker={names[0]}&ranks={','.join(names[1:])}", height=720)
        page.until(lambda: page.call(f"placeOf(0, 0, {len(names)})"))
        page.settle()
        page.until(lambda: asked_for(names[0]))
        assert not asked_for(names[-1])
        driver.execute_script("const all = document.querySelector('.trace-scroll'); all.scrollTop = all.scrollHeight")
        page.until(lambda: asked_for(names[-1]))
        assert len(asked) < len(names)
        assert not page.errors()
