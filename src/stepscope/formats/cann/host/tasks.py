# SPDX-License-Identifier: Apache-2.0
"""What each queued task is: its call, role, contexts and description (docs/formats/cann.md 7.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.host.api_events import COMMUNICATION, MODEL, NODE, Apis, Ints
from stepscope.formats.cann.host.codes import AI_CORE, AI_CPU, CORES, HCCL_AI_CPU, RUNTIME_CORES
from stepscope.formats.cann.host.codes import COMMUNICATION as COMMUNICATION_CORE
from stepscope.formats.cann.host.dictionaries import Dictionaries
from stepscope.formats.cann.host.hccl_records import SmallTasks
from stepscope.formats.cann.host.operators import CallOperators, Operators, conform_descriptions
from stepscope.formats.cann.host.task_tracks import Tracks, captured_models, copies, kernel_sizes
from stepscope.formats.cann.host.tree import HostTree
from stepscope.tables import issues, lost

_MIX = ("KERNEL_MIX_AIC", "KERNEL_MIX_AIV")
# Kernels that are operators of their own when only the runtime saw them.
_LONE_KERNELS = tuple(RUNTIME_CORES)
# Kernels that may run as contexts of an FFTS+ task.
_WITH_CONTEXTS = ("KERNEL_AICORE", "KERNEL_AIVEC", "FFTS_PLUS", "SIMT", "KERNEL_SIMT", *_MIX)
_STEP_INFO, _LCCL = "step_info", "Lccl"

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Calls:
    """Rows of `Apis` around each queued task; -1 where absent."""

    parent: Ints
    node: Ints
    communication: Ints
    model: Ints


@dataclass(frozen=True)
class _Rows:
    """Rows of the result: which queued task, operator and context each is; -1 where absent."""

    track: Ints
    operator: Ints
    context: Ints
    whole: Bools

    def __getitem__(self, chosen: Bools | Ints) -> _Rows:
        return _Rows(self.track[chosen], self.operator[chosen], self.context[chosen], self.whole[chosen])

    @classmethod
    def concat(cls, parts: Sequence[_Rows]) -> _Rows:
        return cls(
            np.concatenate([part.track for part in parts]),
            np.concatenate([part.operator for part in parts]),
            np.concatenate([part.context for part in parts]),
            np.concatenate([part.whole for part in parts]),
        )


@dataclass(frozen=True)
class HostTasks:
    tasks: pl.DataFrame
    descriptions: pl.DataFrame
    small: pl.DataFrame  # communication tasks: columns of `tasks` and `task` (its row), `info` (number of its record)
    lost: tuple[pl.DataFrame, ...]


def join_tasks(
    host: Part | None,
    tree: HostTree,
    apis: Apis,
    words: Dictionaries,
    tracks: Tracks,
    operators: Operators,
    small: SmallTasks,
    *,
    names_only: bool,
    contexts: bool = True,
) -> HostTasks:
    """What each queued task is; `contexts` says whether the device's tasks may have parts."""
    calls = _calls(tree, tracks)
    compute, communication = _roles(apis, words, tracks, calls)
    kinds = tracks.type
    computing = _computing(kinds, calls, operators, compute, contexts)
    excess = int(operators.with_contexts.exceeds_limit(calls.node[compute]).sum())
    small_rows = _expand(small.by_call, calls.communication, np.flatnonzero(communication))
    only_small = ~compute[small_rows.track]
    others = np.flatnonzero(~compute & ~communication)
    is_mix = kinds.is_in(_MIX).to_numpy() & contexts
    absent = np.full(len(others), -1, np.int64)
    parts = (
        computing,
        small_rows[only_small],
        _Rows(others, absent, np.where(is_mix[others], 0, -1), np.zeros(len(others), bool)),
    )
    role = np.repeat(np.array([0, 1, 2], np.int8), [len(part.track) for part in parts])
    rows = _Rows.concat(parts)
    order = np.argsort(rows.track, kind="stable")
    rows = rows[order]
    role = role[order]
    lone = (role == 2) & kinds.is_in(_LONE_KERNELS).to_numpy()[rows.track] & (tracks.rows["kernel"][rows.track] != 0)
    description, descriptions = _descriptions(apis, words, tracks, operators, calls, rows, role, lone, names_only)
    roles = pl.Series(np.where(rows.whole, 4, np.where(lone, 3, role))).replace_strict(
        {0: "compute", 1: "hccl", 2: "plain", 3: "other_op", 4: "placeholder"}, return_dtype=pl.String
    )
    copied, copy_lost = copies(host, tracks)
    captured, capture_lost = captured_models(host, tracks)
    whole_frame = _frame(host, apis, words, tracks, calls, copied, captured, compute | communication)
    tasks = whole_frame.select(pl.all().gather(rows.track)).with_columns(
        roles.alias("role"), _number(rows.context).alias("context_id"), _number(description).alias("description")
    )
    found = _small_frame(tasks, rows, role, small_rows, only_small)
    too_many = (lost(issues.OPERATOR_UNKNOWN, "task_track", excess, "too many operators for one task"),) if excess else ()
    return HostTasks(tasks, descriptions, found, (*copy_lost, *capture_lost, *too_many))


def _calls(tree: HostTree, tracks: Tracks) -> _Calls:
    tid, stamp = np.ascontiguousarray(tracks.rows["tid"]), np.ascontiguousarray(tracks.rows["stamp"])
    deepest = tree.deepest(tid, stamp)
    return _Calls(tree.row(deepest), *(tree.above(deepest, level) for level in (NODE, COMMUNICATION, MODEL)))


def _roles(apis: Apis, words: Dictionaries, tracks: Tracks, calls: _Calls) -> tuple[Bools, Bools]:
    """Which tasks compute and which communicate; some do both."""
    node = np.maximum(calls.node, 0)
    has_node = calls.node >= 0
    if has_node.any():
        step_info = (words.type_names(apis.level[node], apis.type[node]) == _STEP_INFO).to_numpy()
        lccl = words.hashes.text(apis.item[node]).str.starts_with(_LCCL).fill_null(False).to_numpy()
        counting = has_node & ~step_info & ~lccl
    else:
        counting = has_node
    kinds = tracks.type
    kernel = (kinds.str.starts_with("KERNEL") | (kinds == "STARS_COMMON")).to_numpy()
    graph = (kinds == "FFTS_PLUS").to_numpy() & (calls.communication < 0)
    return counting & (kernel | graph), has_node & (calls.communication >= 0)


def _computing(kinds: pl.Series, calls: _Calls, operators: Operators, compute: Bools, contexts: bool) -> _Rows:
    with_contexts = kinds.is_in(_WITH_CONTEXTS).to_numpy() & contexts
    one = _expand(operators.with_contexts, calls.node, np.flatnonzero(compute & with_contexts))
    two = _expand(operators.without_contexts, calls.node, np.flatnonzero(compute & ~with_contexts))
    return _Rows.concat((one, two))


def _expand(by_call: CallOperators, call: Ints, tracks: Ints) -> _Rows:
    place, operator, context, whole = by_call.expand(call[tracks])
    return _Rows(tracks[place], operator, context, whole)


def _descriptions(
    apis: Apis,
    words: Dictionaries,
    tracks: Tracks,
    operators: Operators,
    calls: _Calls,
    rows: _Rows,
    role: npt.NDArray[np.int8],
    lone: Bools,
    names_only: bool,
) -> tuple[Ints, pl.DataFrame]:
    """Row of each task's description, and the descriptions: the operators, then what tasks make of them."""
    description = np.where((role == 0) & (rows.operator >= 0), rows.operator, -1)
    kinds = tracks.type.gather(rows.track)
    inside = calls.communication[rows.track] >= 0
    alone = (role == 0) & (rows.operator < 0) & ~rows.whole
    compute = (role == 0) & ~rows.whole
    aicpu = (kinds == "KERNEL_AICPU").to_numpy()
    core_of = np.full(len(role), -1)
    described = description >= 0  # communication tasks have the number of their own description in this column
    core_of[described] = operators.core[description[described]]
    core = core_of.copy()
    node, communication = calls.node[rows.track], calls.communication[rows.track]
    name = np.zeros(len(role), np.uint64)
    if names_only:
        changed = alone.copy()
        name[alone] = apis.item[np.where(inside, communication, node)[alone]]
    else:
        # Inside communication: the small task's name, and cores of communication.
        within = compute & inside
        name[within] = apis.item[communication[within]]
        core[within & (core < 0)] = AI_CORE
        core[within & aicpu] = HCCL_AI_CPU
        core[within & (kinds == "KERNEL_AICORE").to_numpy()] = COMMUNICATION_CORE
        helper = compute & ~inside & aicpu & (core_of == COMMUNICATION_CORE)
        core[helper] = AI_CPU
        name[helper] = operators.name[rows.operator[helper]]
        changed = within | helper
        description[compute & ~changed & (core_of < 0)] = -1  # above level 0 an operator needs basic information
    name[lone] = tracks.rows["kernel"][rows.track[lone]]
    lone_core = kinds.replace_strict(RUNTIME_CORES, default=-1, return_dtype=pl.Int64).to_numpy()
    changed |= lone
    variants = pl.DataFrame(
        {
            "row": np.flatnonzero(changed),
            "base": np.where(lone, -2, rows.operator)[changed],
            "name": name[changed],
            "core": np.where(lone, lone_core, core)[changed],
            "node": np.where(lone, -1, node)[changed],
        }
    )
    keys = ["base", "name", "core", "node"]
    distinct = (
        variants.select(keys)
        .unique(maintain_order=True)
        .with_row_index("number", operators.frame.height)
        .cast({"number": pl.Int64})
    )
    numbered = variants.join(distinct, on=keys, how="left", maintain_order="left")
    description[numbered["row"].to_numpy()] = numbered["number"].to_numpy()
    if not distinct.height:
        return description, operators.frame
    return description, pl.concat([operators.frame, _variants(distinct, operators, words, names_only)])


def _variants(distinct: pl.DataFrame, operators: Operators, words: Dictionaries, names_only: bool) -> pl.DataFrame:
    names = words.hashes.text(distinct["name"].to_numpy())
    if names_only:
        return conform_descriptions(pl.DataFrame({"op_name": names, "node": distinct["node"].set(distinct["node"] < 0, None)}))
    base = distinct["base"].set(distinct["base"] < 0, None)
    lone = distinct["base"] == -2
    bare = base.is_null() & ~lone  # the vendor's tool takes such a task for a static operator
    frame = operators.frame.select(pl.all().gather(base))
    cores = distinct["core"].replace_strict(CORES, default=None, return_dtype=pl.String)
    changed = frame.with_columns(
        names.alias("op_name"),
        pl.when(lone).then(names).otherwise("op_type").alias("op_type"),
        cores.alias("core"),
        pl.when(bare).then(pl.lit("static")).otherwise("op_state").alias("op_state"),
        pl.when(bare).then(pl.lit("NO")).otherwise("hf32").alias("hf32"),
        distinct["node"].set(distinct["node"] < 0, None).alias("node"),
    )
    return conform_descriptions(changed)


def _frame(
    host: Part | None,
    apis: Apis,
    words: Dictionaries,
    tracks: Tracks,
    calls: _Calls,
    copied: pl.DataFrame,
    captured: Ints,
    by_node: Bools,
) -> pl.DataFrame:
    """Columns that all rows of one queued task share."""
    rows, has_model = tracks.rows, calls.model >= 0
    model = captured.copy()
    model[has_model] = np.minimum(apis.item[calls.model[has_model]], np.uint64(1 << 62)).astype(np.int64)
    index = np.full(len(rows), -1, np.int64)
    index[has_model] = apis.request[calls.model[has_model]]
    connection = np.where(by_node, calls.node, calls.parent) + 1
    stamp = host.clock.ns(np.ascontiguousarray(rows["stamp"])) if host else np.empty(0, np.int64)
    frame = pl.DataFrame(
        {
            "device": tracks.device.astype(np.int32),
            "stream": tracks.stream,
            "task_id": tracks.task,
            "batch_id": tracks.batch,
            "stamp_ns": stamp,
            "tid": rows["tid"].astype(np.int64),
            "host_type": tracks.type,
            "kernel_name": words.hashes.text(rows["kernel"]),
            "model_id": _number(model),
            "index_id": _number(index),
            "connection_id": _number(connection - 1) + 1,
            "node": _number(calls.node),
            "communication": _number(calls.communication),
        }
    )
    return pl.concat([frame, copied, kernel_sizes(tracks)], how="horizontal")


def _small_frame(tasks: pl.DataFrame, rows: _Rows, role: npt.NDArray[np.int8], small: _Rows, only_small: Bools) -> pl.DataFrame:
    """Communication tasks with the row of `tasks` they are; one that also computes is the first row of its queued task."""
    task = np.searchsorted(rows.track, small.track)
    task[only_small] = np.flatnonzero(role == 1)
    real = ~small.whole
    found = tasks.select(pl.all().gather(task[real]))
    return found.with_columns(
        pl.Series("task", task[real]),
        _number(small.context[real]).alias("context_id"),
        pl.Series("info", small.operator[real]),
    )


def _number(values: Ints) -> pl.Series:
    """-1 is null."""
    return pl.Series(values).set(pl.Series(values < 0), None)
