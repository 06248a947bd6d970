# SPDX-License-Identifier: Apache-2.0
"""Every view of a folder of captures, through both doors, in both themes, languages and sizes: pictures, and what is wrong.

    python docs/every_view.py runs --out pictures
    python docs/every_view.py runs --out pictures --door own --run demo --view verdict trace

Pictures are `<run>-<view>-<door>-<theme>-<language>-<width>.png`. Printed, and the reason for exit code 1: errors of the console,
requests to other hosts, what axe finds, pages wider than the window, texts that are cut off without a hint of it.
Needs selenium, chromium and chromedriver, TensorBoard for its door, and `make web` for axe.
"""

from __future__ import annotations

import argparse
import itertools
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from viewer.page import AXE, Page, chromium, serving

SIZES = {"1280": (1280, 720), "1920": (1920, 1080)}
THEMES = ("light", "dark")
LANGUAGES = ("en", "zh")

# An element that hides a part of its own text must say so: by an ellipsis, by a title, or by scrolling.
CUT = """
  const found = [];
  const wide = document.scrollingElement.scrollWidth - innerWidth;
  if (wide > 0) found.push(`the page is ${wide} px wider than the window`);
  for (const one of document.querySelectorAll('.main, .main > *')) {
    const style = getComputedStyle(one);
    if (one.scrollWidth > one.clientWidth + 1 && style.overflowX !== 'visible' && one.clientWidth > 0)
      found.push(`${one.className || one.tagName} is ${one.scrollWidth - one.clientWidth} px too wide`);
  }
  const texts = document.createTreeWalker(document.querySelector('.shell'), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode, holder = text.parentElement;
    if (!text.data.trim() || holder.closest('.unseen, select, canvas, svg, dialog, .skip, script, style')) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    const box = range.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    for (let around = holder; around && !around.classList.contains('shell'); around = around.parentElement) {
      const style = getComputedStyle(around), edge = around.getBoundingClientRect();
      const scrolls = (way) => ['auto', 'scroll'].includes(way);
      if (scrolls(style.overflowX) || scrolls(style.overflowY)) break;
      if (style.overflowX === 'visible') continue;
      const cut = box.right - edge.right > 1.5 || box.bottom - edge.bottom > 3 || edge.left - box.left > 1.5;
      if (!cut) continue;
      const said = style.textOverflow === 'ellipsis' || style.webkitLineClamp !== 'none';
      // Three dots say it; the whole text has to be somewhere.
      if (!holder.closest(said ? '[title], [aria-label]' : '[title]'))
        found.push(`${said ? 'no title' : 'cut off'}: ${around.className || around.tagName}: ${text.data.trim().slice(0, 60)}`);
      break;
    }
  }
  for (const text of document.querySelectorAll('.main svg text')) {
    const box = text.getBoundingClientRect(), edge = text.ownerSVGElement.getBoundingClientRect();
    if (!box.width || !edge.width) continue;
    const out = Math.max(box.right - edge.right, edge.left - box.left, box.bottom - edge.bottom, edge.top - box.top);
    if (out > 1.5) found.push(`${Math.round(out)} px out of its picture: ${text.textContent.slice(0, 60)}`);
  }
  return [...new Set(found)];
"""
VISIBLE = "return !!document.querySelector('[data-testid=\"view-{view}\"][data-ready=true]')"


@contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """Address of a running TensorBoard that shows this folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}/"
    try:
        while True:
            try:
                urllib.request.urlopen(f"{address}data/plugin/stepscope/index.js").close()
                break
            except (urllib.error.URLError, ConnectionError):
                if process.poll() is not None:
                    sys.exit("TensorBoard did not start")
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(20)


class Door:
    """The page behind one of its two addresses."""

    def __init__(self, name: str, driver: Any, address: str):
        self.name, self.driver, self.page = name, driver, Page(driver, address)

    def enter(self, run: str, parameters: dict[str, str]) -> None:
        self.driver.switch_to.default_content()
        self.page.leave()
        state = f"/?{urlencode({**({'run': run} if run else {}), **parameters})}"
        if self.name == "own":
            self.driver.get(f"{self.page.address}#{state}")
        else:
            self.driver.get(f"{self.page.address}#stepscope&p.stepscope.s={quote(state, safe='')}")
            self.page.until("return !!document.querySelector('iframe')", "TensorBoard's frame for the tab", 60)
            self.driver.switch_to.frame(self.driver.find_element("css selector", "iframe"))
        self.page.until("return !!document.querySelector('[data-ready=true]')", "the first view", 120)
        self.driver.execute_script(AXE.read_text())

    def dress(self, theme: str, language: str, size: tuple[int, int]) -> None:
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.page.choose("select-theme", theme)
        self.page.choose("select-language", language)

    def show(self, view: str) -> None:
        if view == "diff":
            self.page.click("[data-testid=tab-diff]")
        else:
            self.page.choose("select-views", view)
        self.page.until(VISIBLE.replace("{view}", view), view, 120)

    def flaws(self) -> list[str]:
        own = [line for line in self.page.errors() if self.name == "own" or "/data/plugin/stepscope/" in line]
        foreign = [f"foreign request {url}" for url in self.page.foreign_requests()]
        return own + foreign + self.driver.execute_script(CUT)


def pictures(door: Door, run: str, args: argparse.Namespace) -> int:
    door.enter(run, {})
    views = [view for view in (args.view or [*door.page.views(), "diff"]) if view in (*door.page.views(), "diff")]
    wrong = 0
    # Views outermost: each is asked of the server once.
    for view in views:
        if view != "diff" and not door.driver.execute_script("return !!document.querySelector('[data-testid=select-views]')"):
            door.page.click("[data-testid=tab-normal]")
        door.show(view)
        for theme, language, size in itertools.product(args.theme, args.language, args.size):
            door.dress(theme, language, SIZES[size])
            time.sleep(args.settle)
            name = f"{(run or 'first').replace('/', '_')}-{view}-{door.name}-{theme}-{language}-{size}"
            found = door.flaws()
            if size == args.size[0]:
                found += [f"axe: {flaw}" for flaw in door.page.accessibility(*([] if theme == "light" else ["color-contrast"]))]
            for flaw in found:
                print(f"{name}: {flaw}", flush=True)
            wrong += len(found)
            door.driver.save_screenshot(str(args.out / f"{name}.png"))
    door.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what `stepscope view` would be given")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--run", nargs="+", default=[""], help="default the first")
    parser.add_argument("--view", nargs="+", help="default all that the capture has, and diff")
    parser.add_argument("--door", choices=["own", "tensorboard"], nargs="+", default=["own", "tensorboard"])
    parser.add_argument("--theme", choices=THEMES, nargs="+", default=THEMES)
    parser.add_argument("--language", choices=LANGUAGES, nargs="+", default=LANGUAGES)
    parser.add_argument("--size", choices=list(SIZES), nargs="+", default=list(SIZES))
    parser.add_argument("--settle", type=float, default=0.6, help="seconds before a picture")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    doors = {"own": serving, "tensorboard": tensorboard}
    wrong = 0
    with chromium() as driver:
        for name in args.door:
            with doors[name](args.folder) as address:
                for run in args.run:
                    wrong += pictures(Door(name, driver, address), run, args)
    print(f"{len(list(args.out.glob('*.png')))} pictures, {wrong} flaws")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
