# SPDX-License-Identifier: Apache-2.0
"""The profiler for MindSpore; see stepscope.frameworks.mindspore.

`python -m stepscope.mindspore SCRIPT [ARGUMENTS]` runs an unchanged script with this profiler in place of MindSpore's own.
"""

import runpy
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stepscope.frameworks import mindspore as _framework
from stepscope.frameworks.mindspore import *  # noqa: F403
from stepscope.frameworks.mindspore import __all__, redirect  # noqa: F401


def __getattr__(name: str) -> Any:
    return getattr(_framework, name)


def _run() -> int:
    if len(sys.argv) < 2:
        print("usage: python -m stepscope.mindspore SCRIPT [ARGUMENTS]", file=sys.stderr)
        return 2
    if find_spec("mindspore") is None:
        print("error: mindspore is not installed in this Python\n  do this: pip install mindspore", file=sys.stderr)
        return 2
    if not Path(sys.argv[1]).exists():
        print(f"error: no such file\n  where: {sys.argv[1]}", file=sys.stderr)
        return 2
    import_module("mindspore")
    redirect.install()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(_run())
