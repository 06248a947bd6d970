# SPDX-License-Identifier: Apache-2.0
"""Communication as the host described it: operators and their small tasks (docs/formats/cann.md 3.3, 3.5, 7.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats import NONE32
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.host.api_events import COMMUNICATION, NODE, Apis, Ints
from stepscope.formats.cann.host.codes import HCCL_DATA_TYPES, HCCL_LINKS, HCCL_RDMA, HCCL_REDUCE, HCCL_TRANSPORTS, hccl_code_names
from stepscope.formats.cann.host.dictionaries import Dictionaries
from stepscope.formats.cann.host.operators import CallOperators, CallRecords, Operators, attach
from stepscope.formats.cann.host.tree import HostTree
from stepscope.formats.cann.layouts import CONTEXT_ID_INFO, HCCL_INFO, HCCL_OP_INFO
from stepscope.tables import issues, lost

_MOST_CONTEXTS = 1 << 16  # of one call: context numbers have 16 bits


@dataclass(frozen=True)
class SmallTasks:
    """What the tasks of each communication call become; in `by_call` an operator is a row of `infos`, or `unknown`."""

    infos: npt.NDArray[Any]
    unknown: int
    by_call: CallOperators
    lost: tuple[pl.DataFrame, ...]


def read_small_tasks(host: Part | None, tree: HostTree) -> SmallTasks:
    info = attach(host, tree, HCCL_INFO, COMMUNICATION)
    context = attach(host, tree, CONTEXT_ID_INFO, COMMUNICATION, of_level=True)
    losses = [*info.lost, *context.lost]
    # One small task per call and context; the last record counts.
    key = info.call << 32 | info.rows["context"].astype(np.int64)
    last = len(key) - 1 - np.unique(key[::-1], return_index=True)[1]
    calls, operators, contexts = [info.call[last]], [last], [np.full(len(last), -1, np.int64)]
    unknown = len(info.rows)
    if len(context.rows):
        plain = ~np.isin(calls[0], context.call)
        calls, operators, contexts = [calls[0][plain]], [last[plain]], [contexts[0][plain]]
        ranges, bad = _ranges(context)
        if bad:
            losses.append(lost(issues.NOT_UNDERSTOOD, CONTEXT_ID_INFO.file, bad, "ranges of contexts"))
        by_key = dict(zip(key[last].tolist(), last.tolist(), strict=True))
        for call, first, count in ranges:
            calls.append(np.full(count + 1, call))
            named = [by_key.get(call << 32 | first + step, unknown) for step in range(count)]
            operators.append(np.array([*named, -1], np.int64))  # and the whole task around them
            contexts.append(np.append(np.arange(first, first + count), -1))
    all_calls = np.concatenate(calls)
    order = np.argsort(all_calls, kind="stable")
    by_call = CallOperators(all_calls[order], np.concatenate(operators)[order], np.concatenate(contexts)[order])
    return SmallTasks(info.rows, unknown, by_call, tuple(losses))


def _ranges(context: CallRecords) -> tuple[list[tuple[int, int, int]], int]:
    """Call, first context and their number of each range, and how many records are not a range."""
    found, bad = [], 0
    for call, count, (first, final) in zip(
        context.call.tolist(), context.rows["count"].tolist(), context.rows["ids"][:, :2].tolist(), strict=True
    ):
        if count == 2 and first <= final < first + _MOST_CONTEXTS:
            found.append((call, first, final - first + 1))
        else:
            bad += 1
    return found, bad


def small_task_columns(small: SmallTasks, number: Ints, words: Dictionaries) -> pl.DataFrame:
    """Columns from the records of small tasks; all null where there is none."""
    has_info = (number >= 0) & (number < small.unknown)
    rows = small.infos[number[has_info]]
    described = pl.DataFrame(
        {
            "at": np.flatnonzero(has_info),
            "task_type": words.hashes.text(rows["task_name"]),
            "tag": words.hashes.text(rows["tag"]),
            **_group(rows["group"], words),
            "plane": _valid(rows["plane"]),
            "local_rank": _valid(rows["local_rank"]),
            "remote_rank": _valid(rows["remote_rank"]),
            "rank_size": _valid(rows["rank_size"]),
            "flow_mode": _valid(rows["flow_mode"]),
            "notify_id": pl.Series(rows["notify"]).cast(pl.String),
            "stage": _valid(rows["stage"]),
            "role": _valid(rows["role"]),
            "estimated_us": rows["estimated_us"].astype(np.float64),
            "bytes": np.minimum(rows["bytes"], np.uint64(1 << 62)).astype(np.int64),
            "reduce_op": hccl_code_names(rows["reduce_op"], HCCL_REDUCE),
            "data_type": hccl_code_names(rows["data_type"], HCCL_DATA_TYPES),
            "link": hccl_code_names(rows["link"], HCCL_LINKS),
            "transport": hccl_code_names(rows["transport"], HCCL_TRANSPORTS),
            "rdma_type": hccl_code_names(rows["rdma"], HCCL_RDMA),
        }
    )
    at = pl.DataFrame({"at": np.arange(len(number))})
    return at.join(described, on="at", how="left", maintain_order="left").drop("at")


def _group(number: npt.NDArray[Any], words: Dictionaries) -> dict[str, pl.Series]:
    """The number of a group as text, and its name where the dictionary has it."""
    return {
        "group": pl.Series(np.ascontiguousarray(number)).cast(pl.String).set(pl.Series(number == 0), None),
        "group_name": words.hashes.text(number, else_number=False),
    }


def _valid(numbers: npt.NDArray[Any]) -> pl.Series:
    return pl.Series(numbers.astype(np.int64)).set(pl.Series(numbers == NONE32), None)


def read_big_ops(
    host: Part | None, tree: HostTree, apis: Apis, operators: Operators, small: pl.DataFrame, words: Dictionaries
) -> tuple[pl.DataFrame, tuple[pl.DataFrame, ...]]:
    """One row per node call that has communication tasks, in the order of calls; `small` has their first tasks."""
    op_info = attach(host, tree, HCCL_OP_INFO, NODE)
    firsts = small.unique("node", keep="first", maintain_order=True).sort("node")
    node = firsts["node"].to_numpy()
    firsts = firsts.filter(~pl.Series(_same_end_before(apis, node)))
    node = firsts["node"].to_numpy()
    info, basic = _first_of(op_info.call, node), _first_of(operators.basic_call, node)
    rows, with_info = op_info.rows[info[info >= 0]], np.flatnonzero(info >= 0)
    children, parents = tree.children(NODE)
    inner = pl.DataFrame({"node": parents, "inner": children + 1}).unique("node", keep="last", maintain_order=True)
    described = operators.basic[basic[basic >= 0]]
    details = pl.DataFrame(
        {
            "at": with_info,
            "relay": rows["flags"] & 1 != 0,
            "retry": rows["flags"] & 2 != 0,
            "data_type": hccl_code_names(rows["data_type"], HCCL_DATA_TYPES),
            "alg_type": words.hashes.text(rows["algorithm"]),
            "count": np.minimum(rows["count"], np.uint64(1 << 62)).astype(np.int64),
            **_group(rows["group"], words),
        }
    )
    types = pl.DataFrame({"at": np.flatnonzero(basic >= 0), "op_type": words.hashes.text(described["op_type"])})
    clock = host.clock if host else None
    frame = (
        firsts.select("device", "tid", "node", "connection_id", "model_id", "index_id")
        .with_columns(
            pl.Series("start_ns", clock.ns(apis.begin[node]) if clock else [], pl.Int64),
            pl.Series("end_ns", clock.ns(apis.end[node]) if clock else [], pl.Int64),
            words.hashes.text(apis.item[node]).alias("name"),
        )
        .with_row_index("at")
        .cast({"at": pl.Int64})
        .join(types, on="at", how="left", maintain_order="left")
        .join(details, on="at", how="left", maintain_order="left")
        .join(inner, on="node", how="left", maintain_order="left")
        .drop("at")
        .rename({"inner": "inner_connection_id"})
    )
    return frame, op_info.lost


def _same_end_before(apis: Apis, node: Ints) -> npt.NDArray[np.bool_]:
    """Calls of a thread that end with the communication call before them are the same operator."""
    order = np.lexsort((node, apis.tid[node]))
    tid, end = apis.tid[node][order], apis.end[node][order]
    same = np.zeros(len(node), bool)
    same[order[1:]] = (tid[1:] == tid[:-1]) & (end[1:] == end[:-1])
    return same


def _first_of(calls: Ints, wanted: Ints) -> Ints:
    """Number of the first record of each call; -1 when it has none."""
    unique, first = np.unique(calls, return_index=True)
    if not len(unique):
        return np.full(len(wanted), -1, np.int64)
    place = np.minimum(np.searchsorted(unique, wanted), len(unique) - 1)
    return np.where(unique[place] == wanted, first[place], -1)
