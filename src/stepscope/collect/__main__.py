# SPDX-License-Identifier: Apache-2.0
"""`python -m stepscope.collect [--into FOLDER]`: compile the collector's library ahead of its first use.

Without a folder it goes where the first capture would have put it. A folder is filled for a wheel.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from stepscope.collect.observer import TRIAL
from stepscope.native.library import find_library, shipped_name


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m stepscope.collect", description=__doc__)
    parser.add_argument("--into", type=Path, help="put the library into this folder, named as a package carries it")
    args = parser.parse_args()
    found = find_library("observer", TRIAL)
    if isinstance(found, str):
        # Not a failure: captures then use torch's own profiler and say so.
        print(f"the collector's library is not built: {found}", file=sys.stderr)
        return 1 if args.into else 0
    if args.into:
        args.into.mkdir(parents=True, exist_ok=True)
        target = args.into / shipped_name("observer")
        shutil.copyfile(found.path, target)
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
