# SPDX-License-Identifier: Apache-2.0
"""What calls, operators and marks mean by their names: one table of patterns for the partition, the replay and the rules."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import polars as pl

# Runtime calls that return only when the device has finished something.
SYNC = r"(?i)synchroniz|^cudaMemcpy$|^aclrtMemcpy$|^hipMemcpyWithStream$|^hipMemcpy$|^aclrtMemcpyD2H$"
# Calls that only issue work: when one takes long, the queue of the device is full, which slows nothing down.
LAUNCH = r"(?i)launch|enqueue"
ALLOC = r"(?i)malloc|aclrtFree|cudaFree|hipFree|FreePhysical|MapMem|UnmapMem|ReserveMem|cudaHostAlloc|MemCreate"
COMPILE = r"(?i)compile"
DATA = r"(?i)data[_ -]?load|next\(.*loader"
# Where collections are not recorded themselves: calls of gc.collect, and ranges that say so.
GC = r"(?i)\bgc[ .:_]+collect|<built-in (?:function|method) collect\b|\bgarbage[ _-]?collect|^(?:python[ _])?gc$"
DATA_FRAME = r"(?i)dataloader\.py"
SAVE = r"(?i)checkpoint|torch/serialization|torch\.save|save_pretrained"
# Recomputing activations is called checkpointing too, and saves nothing to disk.
NOT_SAVE = r"(?i)checkpoint.*(forward|backward|wrapper|activation|recompute)|CheckpointFunction|utils/checkpoint|_checkpoint_"
LOGGING = r"(?i)\bprint\b|logging/__init__|tqdm|tensorboard|wandb|SummaryWriter|loguru"


def matches(names: pl.Series, pattern: str, *, but_not: str = "") -> npt.NDArray[np.bool_]:
    """Which values of a categorical column match; each distinct name is looked at once."""
    codes = names.to_physical()
    known = codes.unique().drop_nulls()
    if not known.len():
        return np.zeros(len(names), dtype=np.bool_)
    first = codes.to_frame("code").with_row_index("row").unique("code", keep="first").drop_nulls()
    texts = names.gather(first["row"]).cast(pl.String).to_list()
    wanted, refused = re.compile(pattern), re.compile(but_not) if but_not else None
    hits = [bool(wanted.search(text)) and not (refused and refused.search(text)) for text in texts]
    chosen = first["code"].filter(pl.Series(hits, dtype=pl.Boolean))
    return np.asarray(codes.is_in(chosen.implode()).fill_null(False).to_numpy(), dtype=np.bool_)
