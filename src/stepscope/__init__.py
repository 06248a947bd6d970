# SPDX-License-Identifier: Apache-2.0
"""Where every step of an AI training or inference run goes, on NPU, GPU or CPU.

`stepscope.open(path)` gives a capture whose tables are polars frames; `stepscope.analyse(path)` writes the files;
`stepscope.verdict(path)` says what costs time, what would be saved and what to do; `stepscope.diff(base, new)` says why two runs
differ; `stepscope.query(path, sql)` answers anything else. `stepscope.watch()` follows the steps of a job, always on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["analyse", "diff", "open", "open_all", "query", "verdict", "watch"]

if TYPE_CHECKING:
    from stepscope import query, watch
    from stepscope.analyser import analyse
    from stepscope.capture import open_all
    from stepscope.capture import open_capture as open
    from stepscope.diff import diff
    from stepscope.verdict import verdict


def __getattr__(name: str) -> Any:
    # Loaded on first use: `stepscope --version` and a training script that only marks steps need no columnar engine.
    if name == "analyse":
        from stepscope.analyser import analyse

        return analyse
    if name in ("open", "open_all"):
        from stepscope import capture

        return capture.open_capture if name == "open" else capture.open_all
    if name in ("diff", "query", "verdict", "watch"):
        from importlib import import_module

        return import_module(f"stepscope.{name}")  # these packages are callable
    raise AttributeError(f"module 'stepscope' has no attribute {name!r}")
