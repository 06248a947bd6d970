# SPDX-License-Identifier: Apache-2.0
"""`python -m stepscope.collect [--into FOLDER]`: compile the collector's library ahead of its first use.

Without a folder it goes where the first capture would have put it. A folder is filled for a wheel.
"""

from __future__ import annotations

import sys

from stepscope.collect.tiers.observer import TRIAL
from stepscope.native.ahead import compile_ahead

if __name__ == "__main__":
    sys.exit(compile_ahead("observer", TRIAL, "stepscope.collect", "captures use torch's own profiler instead"))
