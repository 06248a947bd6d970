# SPDX-License-Identifier: Apache-2.0
"""The page on a capture made by hand: shell, addresses, keys, hostile names, nothing to show."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait
from viewer.page import AXE, Page, serving
from viewer.tiny_trace import HOSTILE, write_trace

pytestmark = pytest.mark.slow  # a real browser


def test_operator_table_of_a_cpu_trace(tiny_page: Page) -> None:
    tiny_page.open("operator")
    rows = tiny_page.rows("operators", ["name", "calls", "host_self", "host_total"])
    assert rows == [
        ["outer", "2", "700.000", "1,000.000"],
        ["inner", "4", "300.000", "300.000"],
        [HOSTILE, "2", "50.000", "50.000"],
    ]
    assert "Device Self Duration (us)" not in tiny_page.headings("operators")
    assert tiny_page.errors() == []
    assert tiny_page.foreign_requests() == []


def test_names_are_text_never_html(tiny_page: Page) -> None:
    tiny_page.open("operator")
    assert tiny_page.driver.execute_script("return document.querySelectorAll('.main img, .main b.bold').length") == 0
    assert HOSTILE in tiny_page.pie("host_self")


def test_a_link_restores_group_search_and_order(tiny_page: Page) -> None:
    tiny_page.open("operator", group="op_shape", q="inner", t='{"sort":[["calls",false]],"filters":{}}')
    assert [row[0] for row in tiny_page.rows("operators", ["name"])] == ["inner"]
    assert tiny_page.driver.execute_script("return document.querySelector('[data-testid=select-group-by]').value") == "op_shape"
    assert tiny_page.driver.execute_script("return document.querySelector('[data-testid=col-calls]').ariaSort") == "ascending"


def test_sorting_asks_the_server_and_stands_in_the_address(tiny_page: Page) -> None:
    tiny_page.open("operator")
    tiny_page.click("[data-testid=col-host_self] .heading-sort")
    tiny_page.until(
        "return document.querySelector('[data-testid=table-operators] [data-key=name]').textContent.startsWith('<img')", "order"
    )
    assert "host_self" in tiny_page.driver.execute_script("return decodeURIComponent(location.hash)")


def test_unknown_run_is_said_and_the_first_is_shown(tiny_page: Page) -> None:
    tiny_page.open("operator", run="gone")
    assert "Runs gone" in tiny_page.text("[data-testid=unknown]")


def test_a_notice_takes_no_room_from_the_window(tiny_page: Page) -> None:
    """Trace fills what is left below it, to the line at its foot."""
    tiny_page.open("trace", run="gone")
    assert "Runs gone" in tiny_page.text("[data-testid=unknown]")
    foot = "const main = document.querySelector('.main'), foot = main.lastElementChild.getBoundingClientRect();"
    left = tiny_page.driver.execute_script(f"{foot} return [foot.bottom - innerHeight, main.scrollHeight - main.clientHeight]")
    assert left == [0, 0]


def test_unknown_view_is_said(tiny_page: Page) -> None:
    tiny_page.open("operator")
    tiny_page.driver.get(f"{tiny_page.address}#/nonsense")
    tiny_page.driver.refresh()
    tiny_page.until("return document.body.innerText.includes('nonsense')", "notice")


def test_missing_data_names_file_and_switch(tiny_page: Page) -> None:
    tiny_page.open("operator")
    tiny_page.driver.get(f"{tiny_page.address}#/memory")
    tiny_page.driver.refresh()
    tiny_page.until(
        "return document.querySelector('[data-testid=empty]')?.innerText.includes('profile_memory=True')", "what to switch on"
    )
    assert tiny_page.text("[data-testid=empty] h2") == "No memory events in this capture"


def test_keys_open_views_and_help(tiny_page: Page) -> None:
    tiny_page.open("operator")
    tiny_page.driver.execute_script("document.dispatchEvent(new KeyboardEvent('keydown', {key: '?', bubbles: true}))")
    tiny_page.until("return document.querySelector('dialog.help').open", "list of keys")
    tiny_page.driver.execute_script("document.querySelector('dialog.help').close()")
    tiny_page.driver.execute_script("document.dispatchEvent(new KeyboardEvent('keydown', {key: '1', bubbles: true}))")
    tiny_page.until("return !!document.querySelector('[data-testid=view-overview][data-ready=true]')", "first view")


def test_chinese_keeps_headings(tiny_page: Page) -> None:
    tiny_page.open("operator")
    english = tiny_page.headings("operators")
    tiny_page.choose("select-language", "zh")
    tiny_page.until(
        "return document.querySelector('[data-testid=radio-all]').parentElement.innerText.includes('全部算子')", "Chinese"
    )
    assert tiny_page.headings("operators") == english
    tiny_page.choose("select-language", "en")


def test_empty_folder_says_what_is_looked_for(driver: object, tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.driver.get(address)
        page.until("return !!document.querySelector('[data-testid=empty]')", "explanation")
        assert "ASCEND_PROFILER_OUTPUT" in page.text("[data-testid=empty]")
        assert page.errors() == []


def test_dark_and_light(tiny_page: Page) -> None:
    tiny_page.open("operator")
    for theme in ("dark", "light"):
        tiny_page.choose("select-theme", theme)
        tiny_page.until(f"return document.querySelector('.stepscope').dataset.theme === '{theme}'", theme)
    tiny_page.choose("select-theme", "system")


def test_arrow_keys_walk_the_table(tiny_page: Page) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    tiny_page.open("operator")
    grid = tiny_page.driver.find_element(By.CSS_SELECTOR, "[data-testid=table-operators] [role=grid]")
    grid.send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    tiny_page.until(
        "return document.querySelector('[role=grid]').getAttribute('aria-activedescendant') === 'operators-1-1'", "cursor"
    )
    grid.send_keys(Keys.END)
    tiny_page.until(
        "return document.querySelector('[role=grid]').getAttribute('aria-activedescendant') === 'operators-2-1'", "last row"
    )


def test_filter_of_a_column(tiny_page: Page) -> None:
    tiny_page.open("operator")
    tiny_page.click("[data-testid=filter-calls]")
    tiny_page.driver.execute_script(
        "const field = document.querySelector('.filter-form input'); field.value = '3';"
        "field.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    tiny_page.until("return document.querySelector('.filter-form input').value === '3'", "number")
    tiny_page.click(".filter-form button[type=submit]")
    tiny_page.until("return document.querySelector('[data-testid=table-operators]').dataset.filtered === '1'", "filtered rows")
    assert tiny_page.rows("operators", ["name", "calls"]) == [["inner", "4"]]


def test_a_view_that_fails_leaves_the_others(tiny_page: Page) -> None:
    tiny_page.open("operator")
    tiny_page.driver.execute_script(
        "const real = window.fetch, answer = () => Response.json({execution: 7});"
        "window.fetch = async (url, options) => String(url).includes('/overview') ? answer() : real(url, options)"
    )
    tiny_page.choose("select-views", "overview")
    tiny_page.until("return document.querySelector('.problem')?.innerText.includes('This view failed')", "what is wrong")
    tiny_page.choose("select-views", "operator")
    tiny_page.ready("operator")
    assert [row[0] for row in tiny_page.rows("operators", ["name"])] == ["outer", "inner", HOSTILE]


def test_report_opens_from_the_disk(tiny_page: Page, tmp_path: Path) -> None:
    """What the page offers for download is a file that needs no server."""
    tiny_page.open("operator")
    link = tiny_page.driver.execute_script("return document.querySelector('[data-testid=btn-report]').href")
    with urlopen(link) as answer:
        (tmp_path / "report.html").write_bytes(answer.read())
    tiny_page.leave()
    tiny_page.driver.get((tmp_path / "report.html").as_uri())
    cells = tiny_page.driver.execute_script("return [...document.querySelectorAll('td')].map(one => one.innerText)")
    assert HOSTILE in cells
    assert tiny_page.driver.execute_script("return document.querySelectorAll('img, script').length") == 0
    assert tiny_page.errors() == []
    tiny_page.driver.execute_script(AXE.read_text())
    assert tiny_page.accessibility() == []


def test_capture_that_changes_and_goes_while_open(driver: object, tmp_path: Path) -> None:
    trace = tmp_path / "run" / "worker0.pt.trace.json"
    write_trace(trace)
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.open("operator")
        trace.write_text(trace.read_text().replace('"outer"', '"renamed operator"'))
        page.click("[data-testid=btn-rescan]")
        page.until(
            "return document.querySelector('[data-testid=table-operators]')?.innerText.includes('renamed operator')", "new data"
        )
        trace.unlink()
        page.click("[data-testid=btn-rescan]")
        page.until("return !!document.querySelector('[data-testid=empty]')", "what is looked for")


def test_broken_capture_says_what_and_where(driver: object, tmp_path: Path) -> None:
    write_trace(tmp_path / "good" / "worker0.pt.trace.json")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "w.pt.trace.json").write_text('{"traceEvents": [{"ph": "X", "na')
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.driver.get(f"{address}#/operator?run=bad")
        page.until("return !!document.querySelector('.problem')", "problem")
        assert page.text(".problem h2") == "unreadable: bad/w.pt.trace.json"
        assert "the trace holds no whole event" in page.text(".problem")
        page.choose("select-language", "zh")
        page.until("return document.querySelector('.problem')?.innerText.includes('请重新采集')", "what to do, in Chinese")
        assert "capture again" not in page.text(".problem")
        page.choose("select-language", "en")
        page.choose("select-runs", "good")
        page.until("return !!document.querySelector('[data-testid=view-operator][data-ready=true]')", "the other run")


def test_names_are_completed_in_the_sql_box_and_examples_fill_it(tiny_page: Page) -> None:
    tiny_page.open("files")
    driver = tiny_page.driver
    box = WebDriverWait(driver, 30).until(lambda one: one.find_element("css selector", "[data-testid=sql] textarea"))
    WebDriverWait(driver, 30).until(lambda one: one.find_elements("css selector", "[data-testid=sql] option:nth-child(2)"))
    box.clear()
    box.send_keys("select count(*) as n from op")
    names = [one.text for one in driver.find_elements("css selector", "[data-testid=sql] .sql-names button")]
    assert names[0] == "ops"
    box.send_keys(Keys.TAB)
    assert box.get_property("value") == "select count(*) as n from ops"
    box.send_keys(" where na")
    assert [one.text for one in driver.find_elements("css selector", "[data-testid=sql] .sql-names button")] == ["name"]
    box.send_keys(Keys.ESCAPE)
    assert driver.find_elements("css selector", "[data-testid=sql] .sql-names button") == []
    box.clear()
    box.send_keys("select count(*) as n from ops", Keys.CONTROL + Keys.ENTER)
    WebDriverWait(driver, 60).until(lambda one: one.find_elements("css selector", "[data-testid=sql] [data-testid=col-n]"))
    Select(driver.find_element("css selector", "[data-testid=sql] select")).select_by_visible_text("v_parts")
    assert "FROM v_parts" in box.get_property("value")
    assert tiny_page.errors() == []


@pytest.mark.parametrize("size", [(1280, 720)], ids=["1280x720"], indirect=True)
def test_a_table_shows_its_figures_and_is_copied_as_markdown(tiny_page: Page, size: tuple[int, int]) -> None:
    tiny_page.open("operator")
    edges = tiny_page.driver.execute_script(
        "const box = document.querySelector('[data-testid=table-operators] .table-scroll').getBoundingClientRect();"
        "return [...document.querySelectorAll('[data-testid=table-operators] [role=columnheader]')].slice(0, 6).map("
        " (one) => one.getBoundingClientRect().right - box.right)"
    )
    assert max(edges) <= 1, "name, calls and the four durations"
    tiny_page.driver.execute_script(
        "window.copied = null; navigator.clipboard.writeText = async (text) => { window.copied = text; };"
        "document.querySelector('[data-testid=table-operators] [data-testid=btn-markdown]').click()"
    )
    copied = tiny_page.until("return window.copied", "the table as text").splitlines()
    assert copied[0].startswith("| Name | Calls |")
    assert copied[1].startswith("| --- | ---: |")
    assert len({line.count(" | ") for line in copied}) == 1


def test_flame_finds_names_and_shows_both_sides_of_one(tiny_page: Page) -> None:
    tiny_page.open("flame")
    data = tiny_page.driver.execute_async_script(
        "fetch('api/v1/flame?weight=count').then((answer) => answer.json()).then(arguments[0])"
    )
    names = [data["names"][name] for name in data["nodes"]["name"]]
    name = max(names[1:], key=names.count)
    tiny_page.open("flame", weight="count", find=name)
    shown = tiny_page.until("return document.querySelector('[data-testid=flame-hits]')?.innerText", "what was found")
    assert shown.startswith(f"{sum(name.lower() in one.lower() for one in names)} found")
    tiny_page.open("flame", weight="count", sandwich=name)

    def outer(node: int) -> bool:
        while (node := data["nodes"]["parent"][node]) >= 0:
            if names[node] == name:
                return False
        return True

    whole = sum(weight for node, weight in enumerate(data["nodes"]["weight"]) if names[node] == name and outer(node))
    for side in ("callers", "callees"):
        told = tiny_page.text(f"[data-testid=chart-{side}] [role=status]")
        assert float(told.split()[0].replace(",", "")) == whole


def test_reading_is_told_in_bytes_and_moves(driver: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk: the file comes in pieces, and the page says how many of its bytes are read."""
    from stepscope.formats.chrome import events

    write_trace(tmp_path / "run" / "worker0.pt.trace.json")
    real = events.blocks

    def slowly(path, size, note, most_bytes=None):
        for block in real(path, 400, note, most_bytes):
            time.sleep(0.25)
            yield block

    monkeypatch.setattr(events, "blocks", slowly)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.leave()
        page.driver.get(f"{address}#/operator?theme=light")
        seen: list[str] = []
        until = time.monotonic() + 20
        while time.monotonic() < until:
            text = page.text(".skeleton p")
            if " of " in text and text not in seen:
                seen.append(text)
                ground = page.driver.execute_script(
                    "return getComputedStyle(document.querySelector('.skeleton-bars i')).backgroundColor"
                )
                assert min(int(part) for part in re.findall(r"\d+", ground)[:3]) > 200, "light, as the theme"
            if len({one.split(" · ")[1] for one in seen}) > 2:
                break
        assert len({one.split(" · ")[1] for one in seen}) > 2, seen
        assert all(re.match(r"Reading worker0\.pt\.trace\.json · [\d.]+ of [\d.]+ KB", one) for one in seen), seen
        page.ready("operator")
        assert page.errors() == []


def test_the_folded_panel_keeps_the_views(tiny_page: Page) -> None:
    tiny_page.open("operator")
    tiny_page.click("[aria-label='Hide panel']")
    tiny_page.until("return !!document.querySelector('.rail')", "the rail")
    assert tiny_page.driver.execute_script("return document.querySelector('.rail').getBoundingClientRect().width") == 48
    tiny_page.click("[data-testid=rail-trace]")
    tiny_page.ready("trace")
    assert tiny_page.driver.execute_script("return document.querySelector('.rail [aria-current=page]').title") == "Trace"
    tiny_page.click("[data-testid=btn-unfold]")
    tiny_page.until("return !!document.querySelector('[data-testid=select-views]')", "the panel")


def test_the_timeline_is_light_while_it_waits(driver: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A canvas without alpha begins black; what is seen before the first slices come has the ground of the theme."""
    from stepscope.formats.chrome import events

    write_trace(tmp_path / "run" / "worker0.pt.trace.json")
    read = threading.Event()
    real = events.blocks

    def held(*args, **kwargs):
        read.wait(30)
        return real(*args, **kwargs)

    monkeypatch.setattr(events, "blocks", held)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.leave()
        page.driver.get(f"{address}#/trace?theme=light")
        darkest = (
            "const canvas = document.querySelector('[data-testid=trace-canvas]');"
            "if (!canvas?.width) return null;"
            "const pen = canvas.getContext('2d'); const {width, height} = canvas;"
            "return Math.min(...[0.1, 0.5, 0.9].flatMap((at) =>"
            " [...pen.getImageData(Math.floor(width * at), Math.floor(height * at), 1, 1).data].slice(0, 3)))"
        )
        seen = page.until(darkest, "the empty timeline")
        read.set()
        assert seen > 200
        page.ready("trace")
