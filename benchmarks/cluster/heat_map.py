# SPDX-License-Identifier: Apache-2.0
"""Time of one frame of the Cluster view's heat map, 10,000 ranks by 100 steps, in headless Chromium.

    python -m benchmarks.cluster.heat_map [--ranks 10000] [--steps 100] [--frames 20]

The page draws it again for each step that is chosen; the time is that of the drawing itself, without the browser's own work.
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
# The answer of that size takes the place of the server's, which has a small run.
LARGE = """
  const real = window.fetch, [ranks, steps] = arguments;
  window.fetch = async (url, options) => {
    if (!String(url).includes('cluster/heat')) return real(url, options);
    const value = (rank, step) => (rank * 7919 + step * 104729) % 5000;
    const all = (count) => [...Array(count).keys()];
    const rows = all(ranks).map((rank) => all(steps).map((step) => value(rank, step)));
    const about = {value: 'step', values: ['excess', 'step'], group: 'rank', unit: 'us', bands: []};
    return Response.json({...about, least: 0, median: 2500, most: 5000, ranks: all(ranks), steps: all(steps), rows});
  };
"""
DRAWN = "return Number(document.querySelector('[data-testid=cluster-heat]').dataset.drawMs)"
CHOSEN = """
  const canvas = document.querySelector('[data-testid=cluster-heat]'), box = canvas.getBoundingClientRect();
  delete canvas.dataset.drawMs;
  const clientX = box.left + box.width * (arguments[0] + 0.5) / arguments[1];
  canvas.dispatchEvent(new MouseEvent('click', {clientX, clientY: box.top + 5, bubbles: true}));
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--frames", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        folder.mkdir()
        write_captures(folder, record(Plan("megatron", tp=2, pp=2, dp=2, micro=2, layers=1), 2, 4), "kineto")
        with serving(folder) as address, chromium() as driver:
            page = Page(driver, address)
            page.open("cluster", 120)
            driver.execute_script(LARGE, args.ranks, args.steps)
            page.choose("select-cluster-value", "step")
            label = "document.querySelector('[data-testid=cluster-heat]').getAttribute('aria-label')"
            page.until(f"return {label}.includes('{args.ranks} ')", "the heat map", 120)
            times = []
            for frame in range(args.frames):
                driver.execute_script(CHOSEN, (frame * 37) % args.steps, args.steps)
                page.until(
                    f"return document.querySelector('[data-testid=cluster-heat]').dataset.drawMs && ({DRAWN[7:]} > 0)", "a frame"
                )
                times.append(driver.execute_script(DRAWN))
    times.sort()
    middle = statistics.median(times)
    print(
        f"{args.ranks:,} ranks x {args.steps} steps: median {middle:.1f} ms, worst {times[-1]:.1f} ms a frame (at most {BUDGET_MS})"
    )
    return int(middle > BUDGET_MS)


if __name__ == "__main__":
    sys.exit(main())
