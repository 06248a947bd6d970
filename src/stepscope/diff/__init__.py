# SPDX-License-Identifier: Apache-2.0
"""Why two runs differ: the change of the mean step, divided exactly into rows, with what is noise and what is not.

The package is also the function: `stepscope.diff(base, new)` takes paths, captures, tables, or lists of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from stepscope.diff.align import LEVELS
from stepscope.diff.engine import diff
from stepscope.diff.result import Diff, Row

__all__ = ["LEVELS", "Diff", "Row", "diff"]


class _CallableModule(ModuleType):
    def __call__(self, base: Any, new: Any, *, by: str = "kernel") -> Diff:
        """The difference between two paths, captures or tables, or lists of them.

        Args:
            base: what to compare with; captures of different ranks are one run, the same rank again is a further run.
            new: what to explain.
            by: level of the rows: part, module, op or kernel.
        """
        if by not in LEVELS:
            raise ValueError(f"by={by!r} is not one of {', '.join(LEVELS)}")
        return diff(_tables(base), _tables(new), by=by)


def _tables(what: Any) -> Iterator[Any]:
    """Tables of everything named, one capture at a time."""
    from stepscope.tables import Tables

    for item in what if isinstance(what, list | tuple) else [what]:
        if isinstance(item, Tables):
            yield item
        elif hasattr(item, "tables"):  # a capture
            yield item.tables
        else:
            import stepscope

            for capture in stepscope.open_all(item):
                yield capture.tables


sys.modules[__name__].__class__ = _CallableModule
