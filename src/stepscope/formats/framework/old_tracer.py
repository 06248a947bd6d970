# SPDX-License-Identifier: Apache-2.0
"""The Python tracer's files of 2023, turned into those of today.

`torch.python_func_call` has the text of the callee in each record, `torch.python_module_call` says which
calls of a thread, counted in its sorted stream, were calls of modules (docs/formats/framework.md 11).
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.formats.framework.layouts import PYTHON_FUNC_CALL, PYTHON_MODULE_CALL, PYTHON_TRACER_FUNC, PYTHON_TRACER_HASH
from stepscope.formats.framework.python_replay import MODULE_MARK
from stepscope.formats.framework.records import read_kind


def read_old_tracer(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame, list[pl.DataFrame]]:
    """Frames as of python_tracer_func and python_tracer_hash, and what could not be read."""
    functions, function_losses = read_kind(folder, PYTHON_FUNC_CALL)
    modules, module_losses = read_kind(folder, PYTHON_MODULE_CALL)
    in_thread = pl.int_range(pl.len()).over("thread_id").cast(pl.Int64).alias("index")
    module_text = pl.concat_str("module", pl.lit(MODULE_MARK), "uid")
    events = (
        functions.sort("thread_id", "time", maintain_order=True)
        .with_columns(in_thread)
        .join(
            modules.select("index", "thread_id", module_text.alias("module")).unique(["index", "thread_id"], keep="last"),
            on=["index", "thread_id"],
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.coalesce("module", "name").fill_null("N/A").alias("value"))
        .with_columns((pl.col("value").rank("dense") - 1).cast(pl.UInt64).alias("key"))
    )
    return (
        events.select(list(PYTHON_TRACER_FUNC.schema)),
        events.select(list(PYTHON_TRACER_HASH.schema)).unique("key", maintain_order=True),
        [function_losses, module_losses],
    )
