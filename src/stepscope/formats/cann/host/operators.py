# SPDX-License-Identifier: Apache-2.0
"""Operators that the host described: name, type, core, blocks, tensors, contexts of their tasks (docs/formats/cann.md 3.3, 7.1).

An operator is what one node call records about one name. A task of the call gets every operator of the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.host.api_events import NODE, Ints
from stepscope.formats.cann.host.codes import CORES, FFTS_GRAPH, code_names
from stepscope.formats.cann.host.dictionaries import Dictionaries
from stepscope.formats.cann.host.op_tensors import TENSOR_COLUMNS, tensor_texts
from stepscope.formats.cann.host.tree import HostTree
from stepscope.formats.cann.layouts import CONTEXT_ID_INFO, NODE_ATTR_INFO, NODE_BASIC_INFO, TENSOR_INFO, Layout
from stepscope.formats.cann.records import read_records
from stepscope.tables import issues, lost

_MAX_CONTEXTS = 55
_MOST_ROWS = 1 << 24  # a damaged call may span all tasks and all operators; their product is not built

DESCRIPTION_SCHEMA: dict[str, pl.DataType] = {
    "op_name": pl.String(),
    "op_type": pl.String(),
    "core": pl.String(),
    "block_num": pl.Int64(),
    "mix_block_num": pl.Int64(),
    "op_state": pl.String(),
    "hf32": pl.String(),
    **dict.fromkeys(TENSOR_COLUMNS, pl.String()),
    "attrs": pl.String(),
    "node": pl.Int64(),
}


@dataclass(frozen=True)
class CallOperators:
    """What each task of a call becomes: rows (operator, context) by call, sorted; -1 where absent. A row without operator
    is the whole task of which the others are parts."""

    call: Ints
    operator: Ints
    context: Ints

    def expand(self, call: Ints) -> tuple[Ints, Ints, Ints, npt.NDArray[np.bool_]]:
        """For each call: its place in the argument, operator, context, and whether it is a whole task."""
        begin, end = np.searchsorted(self.call, call), np.searchsorted(self.call, call, "right")
        count = np.where(self.exceeds_limit(call), 0, end - begin)
        repeats = np.maximum(count, 1)  # a call without operators still has its task
        place = np.repeat(np.arange(len(call)), repeats)
        step = np.arange(len(place)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        found = np.repeat(count > 0, repeats)
        row = np.where(found, np.repeat(begin, repeats) + step, 0)
        operator, context = (
            np.where(found, column[row], -1) if len(column) else np.full(len(row), -1) for column in (self.operator, self.context)
        )
        return place, operator, context, found & (operator < 0)

    def exceeds_limit(self, call: Ints) -> npt.NDArray[np.bool_]:
        """Which of the calls would become more rows than is plausible."""
        count = np.searchsorted(self.call, call, "right") - np.searchsorted(self.call, call)
        return np.asarray((int(count.sum()) > _MOST_ROWS) & (count * len(call) > _MOST_ROWS))


@dataclass(frozen=True)
class Operators:
    """Operators sorted by their call; numbers of records are -1 where a kind is missing."""

    call: Ints
    name: npt.NDArray[np.uint64]
    basic: npt.NDArray[Any]  # records
    core: Ints  # GE task type, -1 without basic information
    frame: pl.DataFrame  # DESCRIPTION_SCHEMA
    with_contexts: CallOperators
    without_contexts: CallOperators
    basic_call: Ints  # call of each basic record, -1 where absent
    lost: tuple[pl.DataFrame, ...]


@dataclass(frozen=True)
class CallRecords:
    """Records of a kind by stamp, and the row of the call that each belongs to."""

    rows: npt.NDArray[Any]
    call: Ints
    aging: npt.NDArray[np.bool_]
    lost: tuple[pl.DataFrame, ...]


def attach(
    host: Part | None, tree: HostTree, layout: Layout, level: int, *, inner: bool = False, of_level: bool = False
) -> CallRecords:
    """Records of a kind that lie in a call of a level; the others are left out and counted."""
    records = read_records(host, layout)
    rows, aging = records.rows, np.arange(len(records)) < records.aging
    if of_level:
        chosen = rows["level"] == level
        rows, aging = rows[chosen], aging[chosen]
    if len(rows) > 1 and (rows["stamp"][1:] < rows["stamp"][:-1]).any():
        order = np.argsort(rows["stamp"], kind="stable")
        rows, aging = rows[order], aging[order]
    tid, stamp = np.ascontiguousarray(rows["tid"]), np.ascontiguousarray(rows["stamp"])
    call = (tree.inner if inner else tree.outermost)(level, tid, stamp)
    found = call >= 0
    losses = list(records.lost)
    if not found.all():
        losses.append(lost(issues.OUTSIDE_CALLS, layout.file, int((~found).sum())))
        rows, call, aging = rows[found], call[found], aging[found]
    return CallRecords(rows, call, aging, tuple(losses))


def read_operators(host: Part | None, tree: HostTree, words: Dictionaries, *, names_only: bool) -> Operators:
    """All operators; at level 0 (`names_only`) only their names count."""
    basic = attach(host, tree, NODE_BASIC_INFO, NODE, inner=True)
    attr = attach(host, tree, NODE_ATTR_INFO, NODE)
    tensor = attach(host, tree, TENSOR_INFO, NODE)
    context = attach(host, tree, CONTEXT_ID_INFO, NODE, of_level=True)
    parts = (basic, attr, tensor, context)
    calls = np.concatenate([part.call for part in parts])
    names = np.concatenate([part.rows["op_name"] for part in parts])
    unique_names, code = np.unique(names, return_inverse=True)
    keys, which = np.unique(calls * max(len(unique_names), 1) + code, return_inverse=True)
    call, name = keys // max(len(unique_names), 1), unique_names[keys % max(len(unique_names), 1)]
    of = np.split(which, np.cumsum([len(part.call) for part in parts])[:-1])
    last = [_last(numbers, len(keys)) for numbers in of]
    core = np.full(len(keys), -1, np.int64)
    core[last[0] >= 0] = basic.rows["task_type"][last[0][last[0] >= 0]]
    wanted = core != FFTS_GRAPH  # such a record only marks a graph
    frame = _frame(call, name, last, (basic, attr, tensor), of[2], words, names_only)
    expansions = (
        _call_operators(call, wanted, last[3], context),
        _call_operators(call, wanted & ~_only_contexts(last), None, context),
    )
    losses = tuple(row for part in parts for row in part.lost)
    return Operators(call, name, basic.rows, core, frame, *expansions, basic.call, losses)


def _last(numbers: Ints, count: int) -> Ints:
    """Number of the last record of each operator."""
    last = np.full(count, -1, np.int64)
    last[numbers] = np.arange(len(numbers))
    return last


def _only_contexts(last: list[Ints]) -> npt.NDArray[np.bool_]:
    return np.asarray((last[0] < 0) & (last[1] < 0) & (last[2] < 0))


def _frame(
    call: Ints,
    name: npt.NDArray[np.uint64],
    last: list[Ints],
    parts: tuple[CallRecords, CallRecords, CallRecords],
    of_tensor: Ints,
    words: Dictionaries,
    names_only: bool,
) -> pl.DataFrame:
    frame = pl.DataFrame({"op_name": words.hashes.text(name), "node": call})
    if names_only:
        return conform_descriptions(frame)
    basic, attr, tensor = parts
    rows = basic.rows[last[0][last[0] >= 0]]
    blocks = (rows["block_num"] & 0xFFFF).astype(np.int64)
    described = pl.DataFrame(
        {
            "at": np.flatnonzero(last[0] >= 0),
            "op_type": words.hashes.text(rows["op_type"]),
            "core": code_names(rows["task_type"], CORES),
            "block_num": blocks,
            "mix_block_num": blocks * (rows["block_num"] >> 16).astype(np.int64),
            "op_state": pl.Series(basic.aging[last[0][last[0] >= 0]]).replace_strict({True: "dynamic", False: "static"}),
            "hf32": pl.Series(rows["flag"] != 0).replace_strict({True: "YES", False: "NO"}),
        }
    )
    frame = _beside(frame, described)
    with_attr = last[1][last[1] >= 0]
    if len(with_attr):
        attrs = words.hashes.text(attr.rows["attr"][with_attr])
        frame = _beside(frame, pl.DataFrame({"at": np.flatnonzero(last[1] >= 0), "attrs": attrs}))
    if len(of_tensor):
        # An operator that was described twice keeps the later description.
        stamp = tensor.rows["stamp"]
        later = stamp == stamp[last[2][of_tensor]]
        records, owner = (tensor.rows, of_tensor) if later.all() else (tensor.rows[later], of_tensor[later])
        frame = pl.concat([frame, tensor_texts(records, owner, len(call))], how="horizontal")
    return conform_descriptions(frame)


def _beside(frame: pl.DataFrame, columns: pl.DataFrame) -> pl.DataFrame:
    """Columns for some rows, named by `at`, put beside a frame."""
    if columns.height == frame.height:
        return pl.concat([frame, columns.drop("at")], how="horizontal")
    return frame.with_row_index("at").cast({"at": pl.Int64}).join(columns, on="at", how="left", maintain_order="left").drop("at")


def conform_descriptions(frame: pl.DataFrame) -> pl.DataFrame:
    """Exactly the columns of a description."""
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in DESCRIPTION_SCHEMA.items()
    )


def _call_operators(call: Ints, wanted: npt.NDArray[np.bool_], of_context: Ints | None, context: CallRecords) -> CallOperators:
    operator = np.flatnonzero(wanted)
    count = np.ones(len(operator), np.int64)
    ids = np.empty(0, np.int64)
    has_ids = np.zeros(len(operator), bool)
    if of_context is not None:
        record = of_context[operator]
        has_ids = record >= 0
        rows = context.rows[record[has_ids]]
        number = np.minimum(rows["count"], _MAX_CONTEXTS).astype(np.int64)
        count[has_ids] = number
        ids = rows["ids"][np.arange(_MAX_CONTEXTS) < number[:, None]].astype(np.int64)
    contexts = np.full(int(count.sum()), -1, np.int64)
    contexts[np.repeat(has_ids, count)] = ids
    whole = np.unique(context.call)
    calls = np.concatenate([np.repeat(call[operator], count), whole])
    order = np.argsort(calls, kind="stable")
    absent = np.full(len(whole), -1, np.int64)
    return CallOperators(
        calls[order],
        np.concatenate([np.repeat(operator, count), absent])[order],
        np.concatenate([contexts, absent])[order],
    )
