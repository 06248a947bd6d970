# SPDX-License-Identifier: Apache-2.0
"""Pictures of the page for the documents, taken from any folder of captures in headless Chromium.

    python docs/screenshots.py runs --out docs/images
    python docs/screenshots.py runs --view trace overview --theme dark --size 1280x800

Needs selenium, chromium and chromedriver. `--readme` makes the pictures of README.md, from such a run:

    stepscope run --nproc 2 --profile steps=4:5,level=1,memory,stack,out=runs examples/train_transformer.py
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from viewer.page import Page, chromium, serving

# View, theme and parameters of each picture of README.md.
README = {
    "verdict": ("verdict", "light", ""),
    "cluster": ("cluster", "light", ""),
    "overview": ("overview", "light", ""),
    "trace": ("trace", "dark", "rowheight=14"),
    "operator": ("operator", "light", ""),
    "kernel": ("kernel", "dark", ""),
    "memory": ("memory", "light", "peak=1"),
    "distributed": ("distributed", "light", ""),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what `stepscope view` would be given")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--run", help="the run to show; default the first")
    parser.add_argument("--view", nargs="+", help="default all that the capture has")
    parser.add_argument("--theme", choices=["light", "dark"], nargs="+", default=["light", "dark"])
    parser.add_argument("--size", default="1400x1043", help="of the window, of which the frame takes some 143 lines")
    parser.add_argument("--readme", action="store_true", help="only the pictures of README.md")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    width, height = (int(side) for side in args.size.split("x"))
    chosen = {"run": args.run} if args.run else {}
    with serving(args.folder) as address, chromium() as driver:
        page = Page(driver, address)
        page.leave = partial(page.leave, width, height)  # type: ignore[method-assign]
        page.open("overview", 120, **chosen)
        there = page.views()
        views = {f"{view}-{theme}": (view, theme, "") for view in args.view or there for theme in args.theme}
        for name, (view, theme, more) in (README if args.readme else views).items():
            if view not in there:
                print(f"{view}: not in this capture", file=sys.stderr)
                continue
            page.open(view, 120, **chosen, **dict(parse_qsl(more)), theme=theme)
            # What is drawn after the first picture (shares, the critical path) belongs to it.
            time.sleep(1.5)
            path = args.out / f"{name}.png"
            driver.save_screenshot(str(path))
            print(f"{path}: {path.stat().st_size / 1000:.0f} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
