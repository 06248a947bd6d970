# SPDX-License-Identifier: Apache-2.0
"""Time of one frame of the Cluster view's heat map, 10,000 ranks by 100 steps, in headless Chromium.

    python -m benchmarks.cluster.heat_map [--ranks 10000] [--steps 100] [--frames 20] [--group stage|host]

The page draws it again for each step that is chosen. The first time is that of the drawing itself, the second from the click to the
end of the drawing, with the elements of the view; neither has the browser's own work.
Needs selenium, chromium and chromedriver.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from viewer.page import Page, chromium, serving

from stepscope.cluster.simulate import Plan, record
from stepscope.cluster.simulate.captures import write_captures

BUDGET_MS = 50
BANDS = {"stage": 8, "host": 1250}  # of 10,000 ranks
# Answers of that size take the place of the server's, which has a small run.
LARGE = """
  const real = window.fetch, [ranks, steps, group, count] = arguments;
  window.fetch = async (url, options) => {
    const answer = await real(url, options), route = /v1[/](cluster|cluster[/]heat)[?]/.exec(String(url))?.[1];
    if (!route || answer.status !== 200) return answer;
    const value = (rank, step) => (rank * 7919 + step * 104729) % 5000;
    const all = (count) => [...Array(count).keys()];
    const each = Math.ceil(ranks / count);
    const about = (rank) => ({rank, host: `host${Math.floor(rank / 8)}`, stage: Math.floor(rank / each), worker: null, span: null});
    if (route === 'cluster') return Response.json({...await answer.json(), ranks: all(ranks).map(about)});
    const rows = all(ranks).map((rank) => all(steps).map((step) => value(rank, step)));
    const band = (at) => ({name: at, first: at * each, count: Math.min(each, ranks - at * each)});
    const bands = all(Math.ceil(ranks / each)).map(band);
    const heat = {value: 'step', values: ['excess', 'step'], group, unit: 'us', bands};
    return Response.json({...heat, least: 0, median: 2500, most: 5000, ranks: all(ranks), steps: all(steps), rows});
  };
"""
DRAWN = """
  const {drawMs, wholeMs} = document.querySelector('[data-testid=cluster-heat]').dataset;
  return wholeMs && [Number(drawMs), Number(wholeMs)];
"""
CHOSEN = """
  const canvas = document.querySelector('[data-testid=cluster-heat]'), box = canvas.getBoundingClientRect();
  delete canvas.dataset.drawMs;
  delete canvas.dataset.wholeMs;
  const seen = new MutationObserver(() => {
    if (!canvas.dataset.drawMs) return;
    canvas.dataset.wholeMs = performance.now() - began;
    seen.disconnect();
  });
  seen.observe(canvas, {attributeFilter: ['data-draw-ms']});
  const began = performance.now();
  const clientX = box.left + box.width * (arguments[0] + 0.5) / arguments[1];
  canvas.dispatchEvent(new MouseEvent('click', {clientX, clientY: box.top + 5, bubbles: true}));
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--group", choices=BANDS, default="host")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        folder.mkdir()
        write_captures(folder, record(Plan("megatron", tp=2, pp=2, dp=2, micro=2, layers=1), 2, 4), "kineto")
        with serving(folder) as address, chromium() as driver:
            page = Page(driver, address)
            page.open("overview", 120)
            driver.execute_script(LARGE, args.ranks, args.steps, args.group, BANDS[args.group])
            page.choose("select-views", "cluster")
            page.ready("cluster", 120)
            page.choose("select-cluster-group", args.group)
            page.choose("select-cluster-value", "step")
            label = "document.querySelector('[data-testid=cluster-heat]').getAttribute('aria-label')"
            page.until(f"return {label}.includes('{args.ranks} ')", "the heat map", 120)
            drawn, whole = [], []
            for frame in range(args.frames):
                driver.execute_script(CHOSEN, (frame + 1) * 37 % args.steps, args.steps)
                times = page.until(DRAWN, "a frame")
                drawn.append(times[0])
                whole.append(times[1])
    middle = statistics.median(drawn)
    size = f"{args.ranks:,} ranks x {args.steps} steps in {BANDS[args.group]:,} bands"
    print(f"{size}: median {middle:.1f} ms, worst {max(drawn):.1f} ms a frame (at most {BUDGET_MS})")
    print(f"{size}: median {statistics.median(whole):.1f} ms, worst {max(whole):.1f} ms from the click to its end")
    return int(middle > BUDGET_MS)


if __name__ == "__main__":
    sys.exit(main())
