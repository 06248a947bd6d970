# SPDX-License-Identifier: Apache-2.0
"""Lets scripts with `import torch_npu` run where the vendor's package is not installed.

Use `stepscope run train.py ...` with an unchanged script, or `import stepscope.compat` in it. The vendor's package always wins:
ours is searched last, and defers to another one if it finds it.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import MutableMapping
from importlib.machinery import ModuleSpec
from pathlib import Path

# Holds `torch_npu`.
STAND_IN_FOLDER = str(Path(__file__).parent / "path")
# Holds an entry point that torch calls at the end of its import, in whatever process.
HOOK_FOLDER = str(Path(__file__).parent / "hooks")
# Holds a `mindspore` that imports the real one and redirects its profiler.
MINDSPORE_FOLDER = str(Path(__file__).parent / "mindspore_path")
# Holds the `sitecustomize` of scripts under `--profile`.
END_FOLDER = str(Path(__file__).parent / "end_of_script")


def vendor_spec() -> ModuleSpec | None:
    """Where the vendor's package would be imported from."""
    return importlib.machinery.PathFinder.find_spec("torch_npu", [folder for folder in sys.path if folder != STAND_IN_FOLDER])


def install() -> bool:
    """Make `import torch_npu` find our stand-in; False if the vendor's package is installed and used instead."""
    stands_in = vendor_spec() is None
    ours = (STAND_IN_FOLDER, HOOK_FOLDER) if stands_in else (HOOK_FOLDER,)
    sys.path[:] = [*(folder for folder in sys.path if folder not in (STAND_IN_FOLDER, HOOK_FOLDER)), *ours]
    return stands_in


def install_in_children(environment: MutableMapping[str, str] = os.environ) -> None:
    """The same for processes started with this environment (spawn, torchrun, data loaders); after `install`."""
    before = environment.get("PYTHONPATH", "").split(os.pathsep)
    ours = [folder for folder in (STAND_IN_FOLDER, HOOK_FOLDER) if folder in sys.path]
    if _has_mindspore():
        ours.append(MINDSPORE_FOLDER)
    ours = [folder for folder in ours if folder not in before]
    environment["PYTHONPATH"] = os.pathsep.join([*filter(None, before), *ours])


def _has_mindspore() -> bool:
    """Whether MindSpore is installed; only then may `import mindspore` find ours first."""
    return importlib.machinery.PathFinder.find_spec("mindspore", [f for f in sys.path if f != MINDSPORE_FOLDER]) is not None


install()
install_in_children()
if "torch" in sys.modules:  # otherwise at the end of its import
    from stepscope.compat.after_torch import load

    load()
