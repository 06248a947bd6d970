# SPDX-License-Identifier: Apache-2.0
"""The vendor's own analysis of a capture, where it is installed: torch_npu's, or msprof of the toolkit."""

from __future__ import annotations

import importlib.machinery
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

OUTPUT, PROF_OUTPUT = "ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output"
_ANALYSE = "import sys; from torch_npu.profiler.profiler import analyse; analyse(sys.argv[1])"
_SECONDS = 600


def find() -> tuple[str, Callable[[Path], Path]] | None:
    """The name of the tool and what makes it analyse a capture, giving the folder of its results; None without a tool."""
    if importlib.machinery.PathFinder.find_spec("torch_npu") is not None:
        return "torch_npu.profiler", _by_torch_npu
    if shutil.which("msprof"):
        return "msprof", _by_msprof
    return None


def _by_torch_npu(capture: Path) -> Path:
    _run([sys.executable, "-c", _ANALYSE, str(capture)])
    return capture / OUTPUT


def _by_msprof(capture: Path) -> Path:
    prof = next(capture.glob("PROF_*"))
    _run(["msprof", "--export=on", f"--output={prof}"])
    return prof / PROF_OUTPUT


def _run(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
