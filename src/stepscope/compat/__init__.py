# SPDX-License-Identifier: Apache-2.0
"""Lets scripts that say `import torch_npu` run where the vendor's package is not installed.

`import stepscope.compat` in a script, or `python -m stepscope.compat train.py ...` without touching it. The vendor's
package always wins: ours is searched last.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from pathlib import Path

STAND_IN_FOLDER = str(Path(__file__).parent / "path")


def install() -> bool:
    """Make `import torch_npu` find our stand-in; False when the vendor's package is there and is used instead."""
    others = [folder for folder in sys.path if folder != STAND_IN_FOLDER]
    if importlib.machinery.PathFinder.find_spec("torch_npu", others) is not None:
        return False
    sys.path[:] = [*others, STAND_IN_FOLDER]
    return True


def install_in_children() -> None:
    """For processes that this one starts (torchrun, data loaders); after `install` said True."""
    before = os.environ.get("PYTHONPATH")
    if STAND_IN_FOLDER not in (before or "").split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(part for part in (before, STAND_IN_FOLDER) if part)


install()
