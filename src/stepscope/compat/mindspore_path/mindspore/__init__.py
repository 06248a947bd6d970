# SPDX-License-Identifier: Apache-2.0
"""Found before MindSpore under `stepscope run`: imports it from where it is, then redirects its profiler to ours."""

import importlib
import os
import sys
from pathlib import Path

del sys.modules[__name__]
_folder = str(Path(__file__).parents[1])
sys.path[:] = [folder for folder in sys.path if folder != _folder]
try:
    # Before MindSpore itself, which would follow MS_PROFILER_OPTIONS with its own profiler.
    from stepscope.collect import messages
    from stepscope.frameworks.mindspore import redirect
except ImportError:  # a different Python from the one that runs `stepscope run`
    importlib.import_module(__name__)
else:
    importlib.import_module(__name__)
    redirect.install()
    if os.environ.get("STEPSCOPE_PROFILE"):
        messages.once(messages.warning, "--profile records PyTorch only; set MS_PROFILER_OPTIONS to record a MindSpore script")
