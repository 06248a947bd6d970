# SPDX-License-Identifier: Apache-2.0
"""`python -m stepscope.simnpu [--into FOLDER]`: compile the simulated NPU ahead of its first use.

Without a folder it goes where the first use would have put it. A folder is filled for a wheel.
"""

from __future__ import annotations

import sys

from stepscope.native.ahead import compile_ahead
from stepscope.simnpu.device import TRIAL

if __name__ == "__main__":
    sys.exit(compile_ahead("simnpu", TRIAL, "stepscope.simnpu", "scripts for `npu` stay on the CPU instead"))
