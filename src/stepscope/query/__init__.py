# SPDX-License-Identifier: Apache-2.0
"""Questions in SQL over the tables of a capture, answered by a guarded process that can open no file and is ended at its limits."""

from __future__ import annotations


class QueryError(Exception):
    """A question that was not answered: what is wrong with it, and what to do."""

    def __init__(self, what: str, *, cause: str = "", fix: str = "", busy: bool = False):
        super().__init__(what)
        self.what, self.cause, self.fix, self.busy = what, cause, fix, busy
