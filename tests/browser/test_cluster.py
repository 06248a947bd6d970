# SPDX-License-Identifier: Apache-2.0
"""The page about all ranks of a run, over simulated captures whose slow rank is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from viewer.page import Page, serving
from viewer.timeline import Timeline

from stepscope.cluster.simulate import Fault, Plan, record
from stepscope.cluster.simulate.captures import write_captures

pytest.importorskip("selenium.webdriver", reason="the browser tests drive Chromium with selenium")

pytestmark = pytest.mark.slow  # a real browser

SLOW = 3
STEPS = 3


@pytest.fixture(scope="module")
def page(driver, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "sim"
    folder.mkdir()
    plan = Plan("megatron", tp=2, pp=2, dp=2, micro=3, layers=1, per_host=4)
    write_captures(folder, record(plan, STEPS, 4, Fault("data_loading", SLOW, ns=6e6), offset_ms=5.0), "kineto")
    with serving(folder) as address:
        yield Page(driver, address)


def test_the_slow_rank_is_named_drawn_and_led_to(page: Page) -> None:
    page.open("cluster")
    assert f"rank {SLOW}" in page.text("[data-testid=cluster-answer] h2")
    darkest = page.driver.execute_script(
        """
        const canvas = document.querySelector('[data-testid=cluster-heat]');
        const pen = canvas.getContext('2d');
        return [...Array(8).keys()].map((row) => {
          const [r, g, b] = pen.getImageData(Math.floor(canvas.width / 2), Math.floor((row + 0.5) * canvas.height / 8), 1, 1).data;
          return r + g + b;
        });
        """
    )
    assert darkest.index(min(darkest)) == SLOW
    assert page.text("[data-testid=cluster-pipeline] p").startswith("not computing")
    # Stages are headed, steps and times have a scale, and the rank says how sure its clock is.
    drawn = page.driver.execute_script(
        "const texts = (one) => [...document.querySelectorAll(one)].map((element) => element.innerText);"
        "return [texts('.cluster-band span'), texts('.cluster-ticks i')]"
    )
    assert drawn[0] == ["Stage 0", "Stage 1"]
    titles = "return [...document.querySelectorAll('.cluster-band span')].map((one) => one.title)"
    assert page.driver.execute_script(titles) == ["0 · ranks 0–3 · host0", "1 · ranks 4–7 · host1"]
    assert {str(step) for step in range(STEPS)} <= set(drawn[1])
    over = page.driver.execute_script(
        "const edges = (one) => [...document.querySelectorAll(one)].map((element) => element.getBoundingClientRect());"
        "return edges('.cluster-rows li button').some((rank) => edges('.cluster-band span').some((band) => band.right > rank.left))"
    )
    assert not over, "names of stages stand beside those of ranks"
    assert "0 ms" in drawn[1]
    assert "±" in page.text(f"[data-testid=rank-{SLOW}] + small")
    # Each tone says how far it goes, the last is the most that was found; how bad is another word than how sure.
    tones = page.driver.execute_script(
        "return [...document.querySelectorAll('[data-testid=cluster-ranks] .families li')].slice(1, 6)"
        ".map((one) => one.innerText.trim())"
    )
    assert tones[0].startswith("< ")
    edges = [float(text.strip("<≤ ").replace(",", "")) for text in tones]
    assert edges[1:] == sorted(edges[1:])
    assert edges[-1] == pytest.approx(6, abs=2), "the fault takes 6 ms"
    assert page.text("[data-testid=cluster-severity]") in ("high", "medium", "low")
    assert "confidence" in page.text("[data-testid=cluster-finding]")
    page.click("[data-testid=cluster-whatif] input")
    page.until("return document.querySelector('[data-testid=cluster-then] b')?.innerText", "the step without the fault")
    then, now = page.text("[data-testid=cluster-then]").replace(" ms", "").split(" a step, now ")
    assert float(then) < float(now)
    page.driver.execute_script(
        "const canvas = document.querySelector('[data-testid=cluster-heat]'), box = canvas.getBoundingClientRect();"
        "canvas.dispatchEvent(new MouseEvent('click', {clientX: box.left + box.width * 0.9, clientY: box.top + 5, bubbles: true}))"
    )
    page.until(f"return location.hash.includes('cstep={STEPS - 1}')", "the step that was clicked")
    page.click("[data-testid=cluster-trace]")
    page.ready("trace")
    assert f"worker=rank-{SLOW}" in page.driver.current_url
    assert not [error for error in page.errors() if "willReadFrequently" not in error]


def test_ten_thousand_ranks_are_drawn_as_a_heat_map(page: Page) -> None:
    """Drawn from an answer of that size; the least is drawn too where a line stands for many ranks."""
    page.open("cluster")
    page.driver.execute_script(
        """
        const real = window.fetch;
        window.fetch = async (url, options) => {
          if (!String(url).includes('cluster/heat')) return real(url, options);
          const ranks = [...Array(10000).keys()], steps = [...Array(100).keys()];
          const rows = ranks.map((rank) => steps.map((step) => (rank === 7777 ? 5000 : (rank * 7 + step * 13) % 100)));
          const about = {value: 'step', values: ['step'], group: 'rank', unit: 'us', bands: [], least: 0, median: 50, most: 5000};
          return new Response(JSON.stringify({...about, ranks, steps, rows}),
            {headers: {'Content-Type': 'application/json'}});
        };
        """
    )
    page.choose("select-cluster-value", "step")
    page.until(
        "return document.querySelector('[data-testid=cluster-heat]').ariaLabel?.includes('10000') || "
        "document.querySelector('[data-testid=cluster-heat]').getAttribute('aria-label').includes('10000')",
        "the heat map",
    )
    found = page.driver.execute_script(
        """
        const canvas = document.querySelector('[data-testid=cluster-heat]');
        const data = canvas.getContext('2d').getImageData(Math.floor(canvas.width / 2), 0, 1, canvas.height).data;
        let best = 0, sum = Infinity;
        for (let y = 0; y < canvas.height; y++) {
          const one = data[4 * y] + data[4 * y + 1] + data[4 * y + 2];
          if (one < sum) [sum, best] = [one, y];
        }
        return best / canvas.height;
        """
    )
    assert found == pytest.approx(0.7777, abs=0.01)


def test_matrix_and_pipeline_open_in_full_size(page: Page) -> None:
    page.open("cluster")
    page.click("[data-testid=open-matrix]")
    page.until("return document.querySelector('[data-testid=large-matrix] canvas')?.width > 200", "the matrix")
    page.choose("select-measure", "bytes")
    page.until("return document.querySelector('[data-testid=large-matrix] thead').innerText.includes('Transit Size')", "bytes")
    # Where a pair talks the cell is coloured; the diagonal is empty.
    picture = page.driver.execute_script(
        "const canvas = document.querySelector('[data-testid=large-matrix] canvas'), pen = canvas.getContext('2d');"
        "const cell = (canvas.width - 30) / 8, middle = (place) => 30 + (place + 0.5) * cell;"
        "const at = (x, y) => [...pen.getImageData(middle(x), middle(y), 1, 1).data];"
        "const pair = document.querySelector('[data-testid=large-matrix] tbody td').innerText;"
        "const first = pair.split(' → ').map((one) => parseInt(one));"
        "return [at(0, 0), at(first[1], first[0])]"
    )
    assert picture[0] != picture[1]
    page.click("[data-testid=open-pipeline]")
    page.until("return document.querySelector('[data-testid=large-pipeline] canvas')?.width > 400", "the pipeline")
    assert not page.text("[data-testid=large-matrix]")
    assert "ideal" in page.text("[data-testid=large-pipeline]")
    assert page.driver.execute_script("return location.hash.includes('large=pipeline')"), "a link opens it again"
    page.click("[data-testid=btn-close-large]")
    page.until("return !document.querySelector('[data-testid=large-pipeline]')", "closed")


def test_ranks_stand_on_the_common_clock_in_the_timeline(page: Page) -> None:
    """The simulated clocks are milliseconds apart; a call that ends together ends together in the picture."""
    shown = Timeline(page, "worker=rank-0&ranks=rank-1", height=3000)
    heads = [one.text for one in shown.all("[data-testid=rank-clock]")]
    assert heads[0] == "clock reference"
    assert "±" in heads[1]
    ends = []
    for worker, source in (("rank-0", 0), ("rank-1", 2)):
        found = shown.call_api("trace/search", f"worker={worker}&q=AllReduce&mode=text&limit=1000&px=1")["hits"]
        last = max(found, key=lambda hit: hit["start_ns"])
        ends.append(shown.call(f"placeOf({last['row']}, {last['start_ns'] + last['duration_ns']}, {source})")["x"])
    low, high = shown.stats["window"]
    width = shown.find("[data-testid=trace-canvas]").size["width"]
    assert abs(ends[1] - ends[0]) / width * (high - low) < 100_000, "less than 0.1 ms apart"


def test_the_slow_rank_is_compared_with_one_that_does_the_same_work(page: Page) -> None:
    page.open("cluster")
    page.click("[data-testid=cluster-gone]")
    page.until("return document.querySelector('[data-testid=cluster-then] b')?.innerText", "the step without the fault")
    page.click("[data-testid=cluster-compare]")
    page.ready("diff")
    chosen = page.driver.execute_script(
        "return ['a', 'b'].map((side) => document.querySelector(`[data-testid=select-workers-${side}]`).value)"
    )
    assert chosen[1] == f"rank-{SLOW}"
    assert chosen[0] != chosen[1]


def test_the_first_screen_of_a_large_run_tells_what_all_its_ranks_say(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    from stepscope.web.views import verdict

    monkeypatch.setattr(verdict, "MOST_RANKS", 4)
    page.open("verdict", worker="rank-0")
    page.until("return document.querySelector('[data-testid=verdict-ranks]')?.innerText.includes('lost')", "all ranks")
    assert f"rank {SLOW}" in page.text("[data-testid=verdict-ranks]")
    page.click("[data-testid=verdict-ranks] .link")
    page.ready("cluster")


def test_the_page_says_what_the_server_judges(page: Page) -> None:
    """How bad a finding is, and how fast links like a slow one are; here it is the only link."""
    page.open("overview")
    page.driver.execute_script(
        """
        const real = window.fetch;
        window.fetch = async (url, options) => {
          const answer = await real(url, options), route = /v1[/](cluster|cluster[/]matrix)[?]/.exec(String(url))?.[1];
          if (!route || answer.status !== 200) return answer;
          const told = await answer.json();
          const slow = {...told.links?.[0], src: 0, dst: 4, transport: 'p2p', bandwidth: 2.04, usual: 10, slow: true};
          return Response.json(route === 'cluster' ? {...told, findings: told.findings.map((one) => ({...one, severity: 'low'}))} :
            {...told, links: [slow]});
        };
        """
    )
    page.choose("select-views", "cluster")
    page.ready("cluster")
    assert page.text("[data-testid=cluster-severity]") == "low"
    page.until("return document.querySelector('[data-testid=cluster-matrix] p')", "the links")
    assert page.text("[data-testid=cluster-matrix] p") == "0 → 4: 2.0 GB/s, like links 10.0"


def test_a_run_of_which_nothing_is_concluded_clears_nobody(page: Page) -> None:
    """The replay does not fit what was measured: the first line says that, not that nobody holds the others up."""
    page.open("overview")
    page.driver.execute_script(
        """
        const real = window.fetch, said = 'the replay takes 9 ms a step where 8 were measured; nothing is concluded';
        window.fetch = async (url, options) => {
          const answer = await real(url, options);
          if (!/v1[/]cluster[?]/.test(String(url)) || answer.status !== 200) return answer;
          const run = await answer.json();
          return Response.json({...run, findings: [], lost_ms: null, problems: [{kind: 'replay', text: {en: said, zh: said}}]});
        };
        """
    )
    page.choose("select-views", "cluster")
    page.ready("cluster")
    assert page.text("[data-testid=cluster-answer] h2").endswith("nothing is concluded")


def test_a_run_that_lacks_ranks_says_so_and_whom_they_wait_for(sample_page: Page) -> None:
    """Two of eight ranks: nobody recorded is slow, and the answer is not that nobody holds the run up."""
    sample_page.open("cluster", run="npu_level2")
    assert "waits for ranks that were not recorded" in sample_page.text("[data-testid=cluster-answer] h2")
    assert sample_page.text("[data-testid=cluster-partial]") == "partial 2 of 8 ranks were recorded"
    sample_page.click("[data-testid=cluster-verdict]")
    sample_page.ready("verdict")
    assert "waits for rank 5" in sample_page.text("[data-testid=verdict-answer] h2")


@pytest.mark.parametrize("size", [(1280, 720)], indirect=True)
def test_the_last_rank_below_its_bar_is_not_cut_off(driver: Any, tmp_path: Path, size: tuple[int, int]) -> None:
    write_captures(tmp_path, record(Plan("ddp", dp=13, layers=1, per_host=13), 2, 1), "kineto")
    with serving(tmp_path) as address:
        page = Page(driver, address)
        page.open("distributed")
        beyond = page.until(
            "const chart = document.querySelector('.bars svg'), names = [...(chart?.querySelectorAll('text') ?? [])];"
            "const last = names.find((one) => one.textContent === 'rank-12');"
            "return last && [chart.getBoundingClientRect().right - last.getBoundingClientRect().right]",
            "the last rank",
        )
        assert beyond[0] >= 0
