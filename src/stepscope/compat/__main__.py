# SPDX-License-Identifier: Apache-2.0
"""`python -m stepscope.compat SCRIPT [ARGUMENTS]`: the same as `stepscope run SCRIPT [ARGUMENTS]`."""

from __future__ import annotations

import sys

from stepscope.compat.launch import Launch

if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("usage: python -m stepscope.compat SCRIPT [ARGUMENTS]", file=sys.stderr)
        sys.exit(2)
    Launch(tuple(sys.argv[1:])).replace_this_process()
