# SPDX-License-Identifier: Apache-2.0
"""Pictures of the page for the documents, taken from any folder of captures in headless Chromium.

python docs/screenshots.py demo-run --out docs/images
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "browser"))

from page import Page, chromium, serving

SIZE = (1600, 1000)
LISTED = "return [...document.querySelector('[data-testid=select-views]').options].map(one => one.value)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what `stepscope view` would be given")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--run", help="the run to show; default the first")
    parser.add_argument("--theme", choices=["light", "dark"], action="append", help="default both")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    chosen = {"run": args.run} if args.run else {}
    with serving(args.folder) as address, chromium() as driver:
        driver.set_window_size(*SIZE)
        page = Page(driver, address)
        page.driver.get(address)
        page.until("return !!document.querySelector('[data-testid^=view-][data-ready=true]')", "the first view", 120)
        for view in driver.execute_script(LISTED):
            for theme in args.theme or ["light", "dark"]:
                page.open(view, 120, **chosen, theme=theme)
                path = args.out / f"{view}-{theme}.png"
                driver.save_screenshot(str(path))
                print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
