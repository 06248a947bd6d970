# SPDX-License-Identifier: Apache-2.0
"""On the path with `stepscope run --profile`: says one line if the script ended without ever importing torch.

Everything else of ours begins with the import of torch. Python imports one `sitecustomize`; the one that it would have
imported follows.
"""

import atexit
import importlib.machinery
import os
import sys
from pathlib import Path

_folder = str(Path(__file__).parent)
sys.path[:] = [folder for folder in sys.path if folder != _folder]


def _say_if_nothing_was_there() -> None:
    if not sys.modules.keys() & {"torch", "mindspore"}:
        text = "stepscope: --profile recorded nothing: the script never imported torch, so there was nothing to record"
        print(text, file=sys.stderr, flush=True)


if os.environ.get("STEPSCOPE_PROFILE_PID") == str(os.getpid()):
    atexit.register(_say_if_nothing_was_there)
if importlib.machinery.PathFinder.find_spec(__name__) is not None:
    del sys.modules[__name__]
    importlib.import_module(__name__)
