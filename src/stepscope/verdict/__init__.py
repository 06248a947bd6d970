# SPDX-License-Identifier: Apache-2.0
"""What costs time, what would be saved, where and what to do: one verdict for page, report, commands and scripts.

The package is also the function: `stepscope.verdict(path)` opens what the path holds and gives the verdict on all its ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from types import ModuleType
from typing import Any

from stepscope.verdict.engine import verdict
from stepscope.verdict.finding import Evidence, Finding, Lack, Place, RankVerdict, Verdict
from stepscope.verdict.what_if import WhatIf, what_if, what_if_ranks

__all__ = ["Evidence", "Finding", "Lack", "Place", "RankVerdict", "Verdict", "WhatIf", "verdict", "what_if", "what_if_ranks"]


class _CallableModule(ModuleType):
    def __call__(self, what: Any, *, rules: Collection[str] | None = None) -> Verdict:
        """The verdict on a path, a capture, tables, or a list of them (ranks)."""
        return verdict([tables for item in _listed(what) for tables in _tables(item)], rules=rules)


def _listed(what: Any) -> list[Any]:
    return list(what) if isinstance(what, list | tuple) else [what]


def _tables(item: Any) -> list[Any]:
    from stepscope.tables import Tables

    if isinstance(item, Tables):
        return [item]
    if hasattr(item, "tables"):  # a capture
        return [item.tables]
    import stepscope

    return [capture.tables for capture in stepscope.open_all(item)]


sys.modules[__name__].__class__ = _CallableModule
