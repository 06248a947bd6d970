# SPDX-License-Identifier: Apache-2.0
"""The Trace view in a real browser, against numbers computed here from the files themselves."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402
from waitress.server import create_server  # noqa: E402

from stepscope.web.app import STATIC, App  # noqa: E402
from stepscope.web.asked import Settings  # noqa: E402
from stepscope.web.library import Library  # noqa: E402

# Each test opens pages in a browser; starting it alone takes more than a second.
pytestmark = pytest.mark.slow

CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-device-scale-factor=1",
)  # fmt: skip
# A bundle that is not built into the package yet.
BUNDLE = Path(os.environ.get("STEPSCOPE_TEST_BUNDLE", STATIC))
NPU, GPU, ODD = "npu", "gpu", "odd"
ODD_NAME = "void f<img src=x onerror=alert(1)>(float const*)"


def odd_trace() -> dict[str, Any]:
    """Slices that cross, that take no time, that stand on one instant, and one that looks like HTML."""
    spans = [("a", 0, 100), ("b", 50, 100), ("c", 200, 0), ("d", 200, 0), (ODD_NAME, 300, 50)]
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 1000 + at, "dur": length, "args": {}}
        for name, at, length in spans
    ]
    # 3,000 short ones close together: more than a tile shows one by one.
    events += [
        {"ph": "X", "cat": "cpu_op", "name": f"many{i % 3}", "pid": 1, "tid": 2, "ts": 1000 + i * 0.1, "dur": 0.05, "args": {}}
        for i in range(3000)
    ]
    return {"schemaVersion": 1, "traceEvents": events, "displayTimeUnit": "ms"}


@pytest.fixture(scope="module")
def logs(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("logs")
    for rank in (0, 1):
        shutil.copytree(golden / "ascend_pt" / "text" / "level2" / f"rank{rank}_ascend_pt", root / NPU / f"rank{rank}_ascend_pt")
    for folder in (GPU, ODD):
        (root / folder).mkdir()
    # File by file: the real captures are read-only, and the tests' folders are to be removable.
    shutil.copyfile(golden / "kineto" / "gpu_train_control.pt.trace.json.gz", root / GPU / "w.pt.trace.json.gz")
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (root / ODD / "w.pt.trace.json").write_text(json.dumps(odd_trace()))
    return root


@pytest.fixture(scope="module")
def address(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    library = Library([logs])
    library.scan()
    for entry in library.entries():
        library.load(entry).result()
    server = create_server(App(library, Settings(), static=BUNDLE), host="127.0.0.1", port=0, threads=8, ident=None)
    running = Thread(target=server.run, daemon=True)
    running.start()
    yield f"http://127.0.0.1:{server.effective_port}/"
    server.close()
    library.close()
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Any]:  # closed before the server is
    if not CHROMIUM or not DRIVER:
        pytest.skip("no chromium with chromedriver here")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        yield driver
        driver.quit()


class Page:
    """The Trace view of one capture."""

    def __init__(self, browser: Any, address: str, where: str, height: int = 1000):
        self.browser = browser
        browser.set_window_size(1600, height)
        browser.get("about:blank")
        browser.get_log("browser")
        browser.get(f"{address}#/trace?{where}")
        self.settle()

    def until(self, condition: Callable[[], Any]) -> Any:
        return WebDriverWait(self.browser, 30, 0.03).until(lambda _: condition())

    def settle(self) -> None:
        self.until(lambda: (self.call("stats()") or {}).get("ready"))

    def call(self, code: str) -> Any:
        return self.browser.execute_script(f"return window.__stepscope?.trace?.{code}")

    @property
    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call("stats()")
        return found

    @property
    def params(self) -> dict[str, str]:
        query = urlsplit(self.browser.current_url).fragment.partition("?")[2]
        return {key: values[0] for key, values in parse_qs(query, keep_blank_values=True).items()}

    def find(self, selector: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.browser.find_elements(By.CSS_SELECTOR, selector)
        return found

    def press(self, *keys: str) -> None:
        self.browser.execute_script("document.querySelector('[data-testid=trace-canvas]').focus()")
        for key in keys:
            ActionChains(self.browser, duration=10).send_keys(key).perform()

    def window(self, start: int, end: int) -> None:
        self.call(f"setWindow({start}, {end})")
        self.settle()

    def slices_by_lane(self) -> dict[str, int]:
        """Slices in the picture by track, all lanes being in view."""
        drawn: dict[str, int] = self.call("drawnByRow()")
        meta = self.meta()
        shown: Counter[str] = Counter()
        for key, count in drawn.items():
            row = int(key.split(":")[1])
            track = meta["tracks"][meta["rows"][row]["track"]]
            shown[f"{meta['processes'][track['process']]['name']}/{track['label']}"] += count
        return dict(shown)

    def meta(self) -> dict[str, Any]:
        wanted = {key: value for key, value in self.params.items() if key in ("run", "worker")}
        query = "&".join(f"{key}={value}" for key, value in wanted.items())
        found: dict[str, Any] = self.browser.execute_async_script(
            f"fetch('api/v1/trace/meta?{query}').then((r) => r.json()).then(arguments[0])"
        )
        return found

    def facts(self) -> dict[str, str]:
        """The table of Slice Detail."""
        rows = self.browser.execute_script(
            "return [...document.querySelectorAll('[data-testid=slice-detail] .trace-facts tr')]"
            ".map((row) => [row.cells[0].textContent, row.cells[1].textContent])"
        )
        return dict(rows)

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]


def ns(microseconds: object) -> int:
    whole, _, part = str(microseconds).partition(".")
    return int(whole) * 1000 + int((part + "000")[:3])


def npu_events(logs: Path, rank: int = 0) -> list[dict[str, Any]]:
    found = json.loads((logs / NPU / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes())
    events: list[dict[str, Any]] = found if isinstance(found, list) else found["traceEvents"]
    return events


def process_names(events: list[dict[str, Any]]) -> dict[Any, str]:
    return {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "process_name"}


def spans(events: list[dict[str, Any]]) -> tuple[int, list[tuple[str, int, int, str]]]:
    """Time zero and (process, start, end, name) of all slices, ns since then."""
    named = process_names(events)
    zero = min(ns(event["ts"]) for event in events if event["ph"] in "XC" and "ts" in event)
    found = []
    for event in events:
        if event["ph"] == "X":
            start = ns(event["ts"]) - zero
            found.append((named.get(event["pid"], ""), start, start + ns(event["dur"]), event["name"]))
    return zero, found


def by_process(lanes: dict[str, int]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for lane, count in lanes.items():
        counts[lane.split("/")[0]] += count
    return {name: count for name, count in counts.items() if count}


def test_every_slice_of_the_file_is_in_the_picture(browser, address, logs):
    events = npu_events(logs)
    page = Page(browser, address, "run=npu&worker=0", height=9000)
    wanted = Counter(process for process, *_ in spans(events)[1])
    assert by_process(page.slices_by_lane()) == dict(wanted)
    status = page.find(".trace-status").text
    assert f"{sum(wanted.values()):,} slices" in status
    assert f"{sum(event['ph'] == 'C' for event in events):,} counter samples" in status
    assert not page.errors()


def test_layers_stand_in_the_order_that_users_know(browser, address):
    page = Page(browser, address, "run=npu&worker=0", height=9000)
    groups = [lane["label"] for lane in page.stats["lanes"] if lane["kind"] == "process"]
    assert groups[:3] == ["Python", "CANN", "Ascend Hardware"]
    assert page.find(".trace-head-process .trace-badge").text == "PTA"


@pytest.mark.parametrize(("low", "high"), [(0.3, 0.6), (0.37, 0.371), (0.3801, 0.38012)], ids=["wide", "near", "close"])
def test_a_window_shows_the_slices_that_touch_it(browser, address, logs, low, high):
    _, all_spans = spans(npu_events(logs))
    length = max(end for _, _, end, _ in all_spans)
    start, end = int(length * low), int(length * high)
    end += (end - start) % 2  # the middle of the window is then a whole number
    page = Page(browser, address, "run=npu&worker=0", height=9000)
    page.window(start, end)
    wanted = Counter(process for process, begin, stop, _ in all_spans if begin < end and (begin >= start or stop > start))
    assert by_process(page.slices_by_lane()) == dict(wanted)
    assert page.stats["merged"] == 0


def test_kineto_threads_and_streams(browser, address, logs):
    events = json.loads(gzip.decompress((logs / GPU / "w.pt.trace.json.gz").read_bytes()))["traceEvents"]
    wanted = Counter(
        f"{'Stream' if event['cat'].startswith(('kernel', 'gpu_mem')) else 'Thread'} {event['tid']}"
        for event in events
        if event["ph"] == "X" and event["cat"] != "Trace"
    )
    page = Page(browser, address, "run=gpu", height=3000)
    shown = {lane.split("/")[1]: count for lane, count in page.slices_by_lane().items() if not lane.startswith("Overlap Analysis/")}
    assert shown == dict(wanted)
    assert page.stats["merged"] > 0, "so many slices do not fit one by one: the tiles say how many each stands for"
    assert not page.errors()


def test_slices_that_cross_or_take_no_time_are_all_there(browser, address):
    page = Page(browser, address, "run=odd")
    assert page.slices_by_lane() == {"Python/Thread 1": 5, "Python/Thread 2": 3000}
    assert "overlapping slices shown on extra rows" in page.find(".trace-status").text
    meta = page.meta()
    track = next(one for one in meta["tracks"] if one.get("slices") == 5)
    assert len(track["rows"]) == 2, "b begins inside a and ends after it"


def test_a_merged_pixel_says_how_many_it_stands_for(browser, address):
    page = Page(browser, address, "run=odd")
    # Ten times the capture: the 3,000 slices share less than 140 pixels.
    page.window(-1_000_000, 2_000_000)
    track = next(one for one in page.meta()["tracks"] if one.get("slices") == 3000)
    place = page.call(f"placeOf({track['rows'][0]}, 100_000)")
    canvas = page.find("[data-testid=trace-canvas]")
    middle = canvas.size
    ActionChains(browser).move_to_element_with_offset(
        canvas, round(place["x"] - middle["width"] / 2), round(place["y"] - middle["height"] / 2)
    ).perform()
    tip = page.until(lambda: page.find(".trace-tip").text)
    assert "slices in this pixel" in tip
    assert int(tip.split(" slices")[0].replace(",", "")) > 1


def test_names_are_text_never_html(browser, address):
    page = Page(browser, address, "run=odd")
    search = page.find("[data-testid=trace-search]")
    search.send_keys("<img", Keys.ENTER)
    assert page.until(lambda: page.facts().get("Title")) == ODD_NAME
    assert not page.all(".trace img")


def test_slice_detail_has_the_values_of_the_file(browser, address, logs):
    zero, all_spans = spans(npu_events(logs))
    process, start, end, name = max((one for one in all_spans if one[0] == "Ascend Hardware"), key=lambda one: one[2] - one[1])
    page = Page(browser, address, "run=npu&worker=0", height=9000)
    lanes = page.stats["lanes"]
    # Its lane by the file's own words: a stream of the device.
    tid = next(
        event["tid"]
        for event in npu_events(logs)
        if event["ph"] == "X" and ns(event["ts"]) - zero == start and event["name"] == name
    )
    lane = next(one for one in lanes if one["label"] == f"Stream {tid}")
    low, high = page.stats["window"]
    canvas = page.find("[data-testid=trace-canvas]")
    x = ((start + end) / 2 - low) / (high - low) * canvas.size["width"]
    # A row may lie below others of the track: try each.
    for y in range(int(lane["y"]) + 8, int(lane["y"] + lane["height"]), 18):
        ActionChains(browser).move_to_element_with_offset(
            canvas, round(x - canvas.size["width"] / 2), round(y - canvas.size["height"] / 2)
        ).perform()
        if page.stats["hovered"] == name:
            break
    ActionChains(browser).click().perform()
    facts = page.until(page.facts)
    assert facts["Title"] == name
    assert facts["Start"] == f"{start / 1000:,.3f} us"
    assert facts["Wall Duration"] == f"{(end - start) / 1000:,.3f} us"
    assert facts["Start(Raw Timestamp)"] == f"{(zero + start) // 1000}.{(zero + start) % 1000:03d}"
    assert facts["Track"] == f"{process} / Stream {tid}"
    assert not page.errors()


def test_flow_events_menu_counts_and_draws(browser, address, logs):
    events = npu_events(logs)
    wanted = Counter(event["cat"] for event in events if event["ph"] == "f")
    page = Page(browser, address, "run=npu&worker=0")
    assert page.stats["flows"] == 0, "off until asked for"
    page.find("[data-testid=trace-menu-flows]").click()
    labels = page.until(lambda: [one.text for one in page.all(".trace-menu[open] .trace-check") if "(" in one.text])
    assert sorted(labels) == sorted(f"{category} ({count:,})" for category, count in wanted.items())
    next(one for one in page.all(".trace-menu[open] .trace-check") if one.text.startswith("async_npu")).click()
    assert page.until(lambda: page.stats["flows"]) == wanted["async_npu"]
    assert page.until(lambda: page.params.get("flows")) == "async_npu"


def test_a_range_is_summed_up(browser, address, logs):
    _, all_spans = spans(npu_events(logs))
    page = Page(browser, address, "run=npu&worker=0")
    ruler = page.find("[data-testid=trace-ruler]")
    ActionChains(browser).move_to_element_with_offset(ruler, -100, 25).click_and_hold().move_by_offset(180, 0).release().perform()
    page.until(lambda: page.all("[data-testid=table-slice-list] tbody tr"))
    low, high = (int(end) for end in page.until(lambda: page.params.get("range")).split("_"))
    inside = [one for one in all_spans if one[1] < high and (one[1] >= low or one[2] > low)]
    assert f"{len(inside):,} slices" in page.find("[data-testid=range-about]").text
    rows = browser.execute_script(
        "return [...document.querySelectorAll('[data-testid=table-slice-list] tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    totals: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for _, start, end, name in inside:
        totals[name] += end - start
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


def test_search_counts_walks_and_fades(browser, address, logs):
    _, all_spans = spans(npu_events(logs))
    wanted = sorted(start for _, start, _, name in all_spans if "conv" in name.lower())
    page = Page(browser, address, "run=npu&worker=0")
    page.press("/")
    active = browser.switch_to.active_element
    assert active.get_attribute("data-testid") == "trace-search"
    active.send_keys("conv")
    assert page.until(lambda: page.find("[data-testid=trace-hits]").text.replace(",", "")) == f"{len(wanted)}"
    active.send_keys(Keys.ENTER)
    page.until(lambda: page.find("[data-testid=trace-hits]").text.startswith("1 / "))
    first = page.until(lambda: page.stats["selected"])
    page.press("n")
    page.until(lambda: page.find("[data-testid=trace-hits]").text.startswith("2 / "))
    page.until(lambda: page.stats["selected"] not in (None, first))
    page.press("N")
    page.until(lambda: page.stats["selected"] == first)
    assert page.facts()["Start"] == f"{wanted[0] / 1000:,.3f} us"


def test_keys_move_the_window(browser, address):
    page = Page(browser, address, "run=npu&worker=0")
    low, high = page.stats["window"]
    page.press("w")
    page.until(lambda: page.stats["window"][1] - page.stats["window"][0] < (high - low) * 0.9)
    page.settle()
    before = page.stats["window"]
    page.press("d")
    page.until(lambda: page.stats["window"][0] > before[0])
    page.settle()
    page.press("a", "a")
    page.until(lambda: page.stats["window"][0] < before[0])
    page.press("s")
    page.until(lambda: page.stats["window"][1] - page.stats["window"][0] > (before[1] - before[0]) * 1.05)
    ActionChains(browser).key_down(Keys.CONTROL).send_keys("0").key_up(Keys.CONTROL).perform()
    page.until(lambda: page.stats["window"] == [low, high])
    page.press(Keys.BACKSPACE)
    page.until(lambda: page.stats["window"] != [low, high])


def test_keys_walk_mark_pin_and_fold(browser, address):
    page = Page(browser, address, "run=npu&worker=0")
    page.press(".")
    page.until(lambda: page.stats["selected"] is not None)
    first = page.stats["selected"]
    live = page.find("[data-testid=trace-live]").get_attribute("textContent")
    assert live.count(",") >= 3, "name, start, duration and track are read out"
    page.press(".")
    page.until(lambda: page.stats["selected"] != first)
    page.press(",")
    page.until(lambda: page.stats["selected"] == first)
    page.press("f")
    page.settle()
    page.press("m")
    page.until(lambda: "range" in page.params)
    page.press("m")
    page.until(lambda: "range" not in page.params)
    page.press("k")
    page.until(lambda: "marks" in page.params)
    page.press("p")
    pinned = page.until(lambda: page.params.get("pins"))
    assert pinned == page.stats["lanes"][0]["key"]
    page.press("p")
    page.until(lambda: "pins" not in page.params)
    page.press("e")
    page.until(lambda: page.params.get("fold"))
    page.press("q")
    page.until(lambda: not page.find(".trace-panel").is_displayed())
    page.press(Keys.ESCAPE)
    page.until(lambda: page.stats["selected"] is None)


def test_a_link_restores_the_picture(browser, address):
    page = Page(browser, address, "run=npu&worker=0")
    page.press(".")
    page.until(lambda: page.stats["selected"] is not None)
    page.press("p", "w")
    page.settle()
    page.until(lambda: page.params.get("pins") and page.params.get("slice"))
    # The address is written when the hand has come to rest.
    page.until(lambda: page.params.get("t") == "_".join(str(round(end)) for end in page.stats["window"]))
    link, stats = browser.current_url, page.stats
    again = Page(browser, address, link.partition("#/trace?")[2])
    again.until(lambda: again.stats["selected"] == stats["selected"])
    again.settle()
    assert again.stats["window"] == pytest.approx(stats["window"], abs=1)
    assert again.stats["lanes"][0]["key"] == stats["lanes"][0]["key"]
    assert again.params.get("pins") == stats["lanes"][0]["key"]


def test_an_unknown_slice_gives_a_notice(browser, address):
    page = Page(browser, address, "run=npu&worker=0&slice=99999999")
    assert "slice" in page.until(lambda: page.find(".trace-message").text)
    assert page.stats["rects"] > 0


def test_two_ranks_in_one_timeline(browser, address, logs):
    counts = [len(spans(npu_events(logs, rank))[1]) for rank in (0, 1)]
    bases = [spans(npu_events(logs, rank))[0] for rank in (0, 1)]
    page = Page(browser, address, "run=npu&worker=0&ranks=1", height=9000)
    page.until(lambda: f"{sum(counts):,} slices" in page.find(".trace-status").text)
    page.settle()
    ranks = [lane for lane in page.stats["lanes"] if lane["kind"] == "rank"]
    assert [lane["label"] for lane in ranks] == ["0", "1"]
    canvas = page.find("[data-testid=trace-canvas]").size["width"]
    low, high = page.stats["window"]
    places = [page.call(f"placeOf(0, 0, {lane['key']})")["x"] for lane in ranks]
    assert (places[1] - places[0]) / canvas * (high - low) == pytest.approx(bases[1] - bases[0], abs=1)
    assert not page.errors()


def test_processes_can_be_hidden_and_come_back(browser, address):
    page = Page(browser, address, "run=npu&worker=0", height=9000)
    page.find("[data-testid=trace-menu-processes]").click()
    page.until(lambda: page.all(".trace-menu[open] .trace-check"))
    next(one for one in page.all(".trace-menu[open] button") if one.text == "None").click()
    page.until(lambda: not page.stats["lanes"])
    next(one for one in page.until(lambda: page.all(".trace-menu[open] .trace-check")) if one.text.startswith("CANN")).click()
    page.until(lambda: {lane["label"] for lane in page.stats["lanes"] if lane["kind"] == "process"} == {"CANN"})


def test_slices_in_view_are_a_list_for_the_keyboard(browser, address):
    page = Page(browser, address, "run=npu&worker=0")
    browser.execute_script("document.querySelector('[data-testid=trace-slices-in-view]').focus()")
    options = page.until(lambda: page.all("[data-testid=trace-slices-in-view] [role=option]"))
    text = options[0].text
    ActionChains(browser).send_keys(Keys.ARROW_DOWN).perform()
    page.until(lambda: page.stats["selected"] is not None)
    assert page.until(lambda: page.facts().get("Title")) == text.split(",")[0]


def test_counters_have_the_peaks_of_the_file(browser, address, logs):
    peaks: dict[str, float] = {}
    for event in npu_events(logs):
        if event["ph"] == "C" and event["name"].startswith(("APP/", "Device/")):
            peaks[event["name"]] = max(peaks.get(event["name"], 0), *(float(value) for value in event["args"].values()))
    page = Page(browser, address, "run=npu&worker=0&fold=", height=9000)
    shown = {
        head.find_element(By.CSS_SELECTOR, ".trace-name").text: head.find_element(By.CSS_SELECTOR, ".trace-scale").text.split()[1]
        for head in page.all(".trace-head-counter")
    }
    assert peaks
    assert {name: float(shown[name].replace(",", "")) for name in peaks} == pytest.approx(peaks, abs=0.001)


def test_ranks_are_aligned_by_a_communication_operator(browser, address, logs):
    starts = []
    for rank in (0, 1):
        zero, all_spans = spans(npu_events(logs, rank))
        starts.append({name: zero + start for _, start, _, name in all_spans if name.startswith("hcom_allReduce")})
    name = min(set(starts[0]) & set(starts[1]))
    page = Page(browser, address, "run=npu&worker=0&ranks=1")
    page.until(lambda: any(lane["kind"] == "rank" for lane in page.stats["lanes"]))
    page.settle()
    page.find("[data-testid=trace-search]").send_keys(name, Keys.ENTER)
    page.until(lambda: page.facts().get("Title") == name or page.stats["selected"] is not None)
    page.find("[data-testid=trace-menu-ranks]").click()
    next(one for one in page.until(lambda: page.all(".trace-menu[open] button")) if one.text == "by start").click()
    shift = unquote(page.until(lambda: page.params.get("shift")))
    assert shift.partition("@")[0] in ("0", "1")
    assert abs(int(shift.partition("@")[2])) == pytest.approx(abs(starts[0][name] - starts[1][name]), abs=1)


def test_theme_and_language_change_in_place(browser, address):
    page = Page(browser, address, "run=npu&worker=0")
    page.press(".", "w")
    page.until(lambda: page.stats["selected"] is not None and page.params.get("slice") is not None)
    page.settle()
    ground = "return [...document.querySelector('[data-testid=trace-canvas]').getContext('2d').getImageData(2, 60, 1, 1).data]"
    before = sum(browser.execute_script(ground)[:3])
    window = page.stats["window"]
    choose = (
        "const box = [...document.querySelectorAll('select')]"
        ".find((one) => [...one.options].some((it) => it.value === arguments[0]));"
        "box.value = arguments[0]; box.dispatchEvent(new Event('change', {bubbles: true}));"
    )
    browser.execute_script(choose, "dark")
    page.until(lambda: abs(sum(browser.execute_script(ground)[:3]) - before) > 300)
    browser.execute_script(choose, "light")
    page.until(lambda: sum(browser.execute_script(ground)[:3]) == before)
    browser.execute_script(choose, "zh")
    page.until(lambda: page.find("[data-testid=trace-menu-processes]").text == "进程")
    page.settle()
    assert page.stats["window"] == pytest.approx(window, abs=1)
    browser.execute_script(choose, "en")
    page.until(lambda: page.find("[data-testid=trace-menu-processes]").text == "Processes")
    assert not page.errors()


def test_tracks_can_be_moved(browser, address):
    page = Page(browser, address, "run=npu&worker=0", height=9000)

    def labels() -> list[str]:
        return [lane["label"] for lane in page.stats["lanes"] if lane["label"].startswith("Stream")]

    assert labels() == ["Stream 0", "Stream 2", "Stream 3", "Stream 4"]
    page.browser.execute_script("document.querySelector('[aria-label=\"Move down: Stream 0\"]').click()")
    page.until(lambda: labels() == ["Stream 2", "Stream 0", "Stream 3", "Stream 4"])
    groups = [lane["label"] for lane in page.stats["lanes"] if lane["kind"] == "process"]
    page.browser.execute_script("document.querySelector('[aria-label=\"Move up: CANN\"]').click()")
    page.until(lambda: next(lane["label"] for lane in page.stats["lanes"]) == "CANN")
    assert page.until(lambda: page.params.get("order"))
    again = Page(browser, address, browser.current_url.partition("#/trace?")[2], height=9000)
    assert [lane["label"] for lane in again.stats["lanes"] if lane["kind"] == "process"] == ["CANN", "Python", *groups[2:]]
