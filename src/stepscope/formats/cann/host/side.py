# SPDX-License-Identifier: Apache-2.0
"""The host's half of a raw folder: calls, queued tasks, what they are and who launched them (docs/formats/cann.md 3, 7.1)."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stepscope.formats.cann.chips import UNSAID, chip_of
from stepscope.formats.cann.folder import Part, Prof
from stepscope.formats.cann.host.api_events import api_frame, read_apis
from stepscope.formats.cann.host.dictionaries import read_dictionaries
from stepscope.formats.cann.host.hccl_records import read_big_ops, read_small_tasks, small_task_columns
from stepscope.formats.cann.host.marks import read_marks
from stepscope.formats.cann.host.old_files import read_old_host
from stepscope.formats.cann.host.op_memory import read_op_memory
from stepscope.formats.cann.host.operators import read_operators
from stepscope.formats.cann.host.task_tracks import read_tracks
from stepscope.formats.cann.host.tasks import join_tasks
from stepscope.formats.cann.host.tree import HostTree
from stepscope.formats.cann.layouts import EXPAND_STREAM_SPEC
from stepscope.formats.cann.records import read_records
from stepscope.tables import issues, lost
from stepscope.tables.threads import side_by_side

# Kinds of host files that `read_host` reads, and those that hold nothing a table needs; others are sampled or unknown.
HOST_FILES = (
    "api_event.data", "compact.node_basic_info", "compact.node_attr_info", "compact.task_track", "compact.task_track_v2",
    "compact.memcpy_info", "compact.expand_stream_spec", "compact.capture_stream_info", "compact.hccl_op_info",
    "additional.tensor_info", "additional.context_id_info", "additional.task_memory_info", "additional.hccl_info",
    "additional.msproftx", "additional.hash_dic", "additional.type_info_dic",
    # Static memory, fused operators, models, streams and threads of compiled graphs.
    "additional.static_op_mem", "additional.fusion_op_info", "additional.graph_id_map", "additional.logic_stream_info",
    "additional.mc2_comm_info", "additional.Multi_Thread",
)  # fmt: skip


@dataclass(frozen=True)
class HostSide:
    """Frames of the host. Missing is null; text columns are String; `row of x` is a row number of frame x.

    apis: pid, tid, start_ns, end_ns, level, name, connection_id, mode, item_id (as table `api_calls`; connection_id is
        the row number + 1), type (name of the record type), request_id, has_begin (false: the begin was 0, so start_ns
        means nothing; the vendor's newer tools leave the call out). Sorted by start_ns, outer levels first.
    tasks: device Int32, stream, task_id, batch_id, context_id (null: the whole task), stamp_ns, tid, host_type,
        kernel_name, model_id, index_id, connection_id (null: outside every call), node and communication (rows of
        apis), role (compute, hccl, other_op, plain, placeholder), description (row of descriptions; a compute or other_op
        task is an operator exactly when it has one), bytes, copy_direction, block_num, mix_block_num, grid, block (of
        records that carry them; they go before those of the description). Sorted by stamp_ns; several rows of one task
        when it has contexts or several operators.
    descriptions: op_name, op_type, core, block_num, mix_block_num, op_state (dynamic, static), hf32, input_shapes,
        input_dtypes, input_formats, output_shapes, output_dtypes, output_formats, attrs, node (row of apis).
    big_ops: device, tid, start_ns, end_ns, name, op_type, node (row of apis), connection_id, inner_connection_id (of a
        node call inside), model_id, index_id, group (its number as text), group_name, data_type, alg_type, count, relay,
        retry. Sorted by start_ns.
    hccl_tasks: task (row of tasks), big_op (row of big_ops), is_master, device, stream, task_id, batch_id, context_id,
        stamp_ns, tid, host_type, model_id, index_id, connection_id, node, communication, name (of the communication
        call), task_type, tag, group, group_name, plane, local_rank, remote_rank, rank_size, flow_mode, notify_id, stage,
        role (0 destination, 1 source), estimated_us, bytes, reduce_op, data_type, link, transport, rdma_type.
    marks: pid, tid, start_ns, end_ns, message, domain, kind, category, payload_type, payload, message_type, mark_id
        (joins the device's part; null for plain stamps). Sorted by start_ns.
    op_memory: columns of table `memory_events` and raw_device_type. Sorted by time_ns.
    wide: whether stream numbers of device records are wide (docs/formats/cann.md 4.3).
    """

    apis: pl.DataFrame
    tasks: pl.DataFrame
    descriptions: pl.DataFrame
    big_ops: pl.DataFrame
    hccl_tasks: pl.DataFrame
    marks: pl.DataFrame
    op_memory: pl.DataFrame
    wide: bool
    lost: tuple[pl.DataFrame, ...]
    steps: pl.DataFrame | None = None  # columns of table `steps`, where the host recorded steps


def read_host(prof: Prof, *, parallel: bool = True) -> HostSide:
    """Everything the host recorded; empty frames when there is no host folder."""
    host = prof.host
    words = read_dictionaries(host)
    apis = read_apis(host)
    tree = HostTree(apis)
    level0 = is_level0(host)
    operators, calls = side_by_side(
        lambda: read_operators(host, tree, words, names_only=level0), lambda: api_frame(apis, host, words), parallel=parallel
    )
    chip = chip_of(prof.chip) or UNSAID
    tracks = read_tracks(host, words, chip)
    small = read_small_tasks(host, tree)
    joined = join_tasks(host, tree, apis, words, tracks, operators, small, names_only=level0, contexts=chip.has_contexts)
    big_ops, big_lost = read_big_ops(host, tree, apis, operators, joined.small, words)
    columns = small_task_columns(small, joined.small["info"].to_numpy(), words)
    hccl_tasks = _hccl_tasks(joined.small, columns, big_ops, calls)
    marks, mark_lost = read_marks(host, words)
    op_memory, memory_lost = read_op_memory(host, words)
    type_numbers = [kind for kind in sorted(tracks.type.unique().to_list()) if kind.isdecimal()]
    unnamed_types = (
        lost(issues.UNNAMED_KIND, "task_track", int((tracks.type == kind).sum()), f"type {kind}") for kind in type_numbers
    )
    losses = (
        *words.lost, *apis.lost, *operators.lost, *tracks.lost, *small.lost, *joined.lost, *big_lost, *mark_lost, *memory_lost,
        *unnamed_types,
    )  # fmt: skip
    tasks, descriptions = joined.tasks, joined.descriptions
    newer = len(tracks) > 0 or calls.height > 0
    old = None if newer else read_old_host(host, batches=chip.has_batches and not (host and host.has_old_driver))
    if old is not None:
        calls, tasks, descriptions = _as(calls, old.calls), _as(tasks, old.tasks), _as(descriptions, old.descriptions)
        losses += old.lost
    return HostSide(
        calls, tasks, descriptions, big_ops, hccl_tasks, marks, op_memory, has_wide_streams(host), losses,
        old.steps if old is not None else None,
    )  # fmt: skip


def _as(schema: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the columns of another frame; what they do not have is null."""
    known = rows.select(pl.col(name).cast(schema.schema[name]) for name in rows.columns)
    return pl.concat([schema.clear(), known], how="diagonal")


def is_level0(host: Part | None) -> bool:
    """Whether only names were recorded: level 0, spelt `level0` or `l0`."""
    return host is not None and host.setting("prof_level", "profLevel").lower() in ("level0", "l0")


def has_wide_streams(host: Part | None) -> bool:
    return bool((read_records(host, EXPAND_STREAM_SPEC).rows["wide"] == 1).any())


def _hccl_tasks(small: pl.DataFrame, columns: pl.DataFrame, big_ops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    shared = small.select(
        "task", "device", "stream", "task_id", "batch_id", "context_id", "stamp_ns", "tid", "host_type", "model_id", "index_id",
        "connection_id", "node", "communication",
    )  # fmt: skip
    # Calls that end together are one operator: the first of them (docs/formats/cann.md 7.1).
    ends = calls.select(pl.int_range(pl.len()).alias("node"), "end_ns")
    owner = big_ops.select(pl.int_range(pl.len()).alias("big_op"), "tid", "end_ns").unique(["tid", "end_ns"], keep="first")
    return pl.concat(
        [
            shared.join(ends, on="node", how="left", maintain_order="left")
            .join(owner, on=["tid", "end_ns"], how="left", maintain_order="left")
            .drop("end_ns")
            .with_columns(
                (calls["type"].gather(shared["communication"]) == "master").alias("is_master"),
                calls["name"].gather(shared["communication"]).alias("name"),
            ),
            columns,
        ],
        how="horizontal",
    )
