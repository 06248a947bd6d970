# SPDX-License-Identifier: Apache-2.0
"""Arrow arrays as columns, through the C interface."""

from __future__ import annotations

from typing import Any

import polars as pl


class _Exported:
    def __init__(self, array: Any):
        self._array = array

    def __arrow_c_array__(self, requested_schema: object | None = None) -> Any:
        return self._array.__arrow_c_array__(requested_schema)


def to_series(name: str, array: Any) -> pl.Series:
    """The array as a column, without a copy.

    For an array of pyarrow's own classes polars loads `pyarrow.compute`, which takes longer than a small trace.
    """
    return pl.Series(_Exported(array)).alias(name)
