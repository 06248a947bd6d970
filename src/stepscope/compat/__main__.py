# SPDX-License-Identifier: Apache-2.0
"""`python -m stepscope.compat SCRIPT [ARGUMENTS]`: run a script with the stand-in for torch_npu."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from stepscope.compat import install, install_in_children


def main() -> int:
    if len(sys.argv) < 2:
        print("usage: python -m stepscope.compat SCRIPT [ARGUMENTS]", file=sys.stderr)
        return 2
    if install():
        install_in_children()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
