# SPDX-License-Identifier: Apache-2.0
"""The Source view: time beside the lines of the program that called operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from stepscope.analysis.source_lines import line_times, lines_with_backward, operator_places
from stepscope.web.loaded import LoadedCapture
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem, missing
from stepscope.web.views.files import source_text

MOST_FILES = 200


def times(capture: LoadedCapture) -> pl.DataFrame:
    """See `line_times`; what backward runs counts for the line of its forward operator."""

    def found() -> pl.DataFrame:
        lines = capture.once("operator places", lambda: operator_places(capture.tables))["line"]
        return line_times(capture.tables, lines_with_backward(capture.tables, lines))

    return capture.once("line times", found)


def files(capture: LoadedCapture, root: Path | None) -> dict[str, Any]:
    """Files whose lines called operators, the longest first."""
    rows = times(capture)
    if not rows.height:
        raise missing("lines", "no line of the program is known in this capture")
    summed = (
        rows.group_by("file")
        .agg(pl.col("calls", "host_ns", "device_ns").sum(), lines=pl.col("line").n_unique())
        .sort("device_ns", "host_ns", "file", descending=[True, True, False])
    )
    return {
        "source_root": root is not None,
        "count": summed.height,
        "files": [
            {
                "file": row["file"], "lines": row["lines"], "calls": row["calls"],
                "host_us": row["host_ns"] / 1000, "device_us": row["device_ns"] / 1000,
            }
            for row in summed.head(MOST_FILES).to_dicts()
        ],
    }  # fmt: skip


def lines(capture: LoadedCapture, root: Path | None, query: Query) -> dict[str, Any]:
    """Lines of one file with their times, and its text where it may be shown."""
    file = query.text("file")
    rows = times(capture).filter(pl.col("file") == file)
    if not rows.height:
        raise Problem(404, "missing_data", "no operator was called from this file", detail=file, hint="open Source again")
    try:
        _, text = source_text(root, file)
        refused = ""
    except Problem as problem:
        text, refused = [], problem.hint if root is None else "the file is not below the folder of --source-root"
    return {
        "file": file,
        "text": text,
        "refused": refused,
        "lines": [
            {
                "line": row["line"], "function": row["function"] or "", "calls": row["calls"], "operators": row["operators"],
                "host_us": row["host_ns"] / 1000, "device_us": row["device_ns"] / 1000,
            }
            for row in rows.sort("line").to_dicts()
        ],
    }  # fmt: skip
