# SPDX-License-Identifier: Apache-2.0
"""What could not be read, noted as rows of `quality`."""

from __future__ import annotations

import polars as pl

from stepscope.tables import lost
from stepscope.tables.issues import Issue


def note(quality: list[pl.DataFrame], issue: Issue, source: str, count: int, detail: str = "") -> None:
    """Add a row unless the count is 0, which is the usual case; an empty frame would cost time too."""
    if count:
        quality.append(lost(issue, source, count, detail))
