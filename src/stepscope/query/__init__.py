# SPDX-License-Identifier: Apache-2.0
"""Questions in SQL over the tables of captures, answered by a guarded process that can open no file and is ended at its limits.

The package is also the function: `stepscope.query(path, "SELECT …")` opens what the path holds and gives a polars frame.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


class QueryError(Exception):
    """A question that was not answered: what is wrong with it, and what to do."""

    def __init__(self, what: str, *, cause: str = "", fix: str = "", busy: bool = False):
        super().__init__(what)
        self.what, self.cause, self.fix, self.busy = what, cause, fix, busy

    def __str__(self) -> str:
        parts = (("cause", self.cause), ("do this", self.fix))
        return "\n".join([self.what, *(f"  {label}: {text}" for label, text in parts if text)])


class _CallableModule(ModuleType):
    def __call__(self, what: Any, sql: str, *, limit: int = 10_000, timeout: float = 10.0) -> pl.DataFrame:
        """The answer to a question about a path, a capture, tables, or a list of them (ranks).

        Args:
            what: what to ask about.
            sql: one SELECT, SHOW TABLES or DESCRIBE (docs/query.md).
            limit: rows of the answer at most; a warning says when it was cut.
            timeout: seconds after which the question is given up.

        Raises:
            QueryError: the question is not allowed, wrong, or needs more than its limits.
            CaptureError: a path holds no capture.
        """
        from stepscope.query.ask import ask

        return ask(what, sql, limit=limit, timeout=timeout)


sys.modules[__name__].__class__ = _CallableModule
