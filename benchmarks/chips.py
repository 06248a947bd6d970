# SPDX-License-Identifier: Apache-2.0
"""How long a raw folder of each chip takes to read, per device task, against A2.

    python -m benchmarks.chips [--tasks 200000] [--repeat 3]

The same steps are written in the records of each chip with the project's own writers. Times are CPU seconds of the whole
process, the least and the most of the repetitions, so that other load on the machine matters little.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import raw_capture
from stepscope.formats import cann
from stepscope.formats.cann.chips import CHIPS

PLATFORMS = (5, 1, 4, 0, 15)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    for platform in PLATFORMS:
        with tempfile.TemporaryDirectory() as parent:
            prof = raw_capture.write(Path(parent), args.tasks, platform=platform)
            spent, rows = [], 0
            for _ in range(args.repeat):
                before = time.process_time()
                rows = cann.read(prof).kernels.height
                spent.append(time.process_time() - before)
        name = CHIPS[platform].name
        print(f"{name:<12} {rows:>9,} tasks  {min(spent):.2f} to {max(spent):.2f} CPU s  {min(spent) / rows * 1e6:.2f} us per task")
    return 0


if __name__ == "__main__":
    sys.exit(main())
