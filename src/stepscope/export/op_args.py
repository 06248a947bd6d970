# SPDX-License-Identifier: Apache-2.0
"""Arguments of every operator call, one JSON object a line (docs/formats/framework.md 10)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.render.atomic import make_output_folder, replacing
from stepscope.tables import Tables

FILE = "op_args.jsonl"


def write_op_args(tables: Tables, capture: Path) -> Path:
    """Write the folder `{capture}_op_args` beside a capture."""
    folder = make_output_folder(capture.with_name(f"{capture.name}_op_args"))
    texts = [pl.col(name).cast(pl.String) for name in ("dtypes", "shapes")]
    rows = tables.ops.select(pl.col("name").cast(pl.String), pl.col("start_ns").alias("ts"), *texts)
    with replacing(folder / FILE) as handle:
        rows.write_ndjson(handle)
    return folder / FILE
