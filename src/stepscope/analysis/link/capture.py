# SPDX-License-Identifier: Apache-2.0
"""Fill in what no single source knows: who called, who launched, which step, which block belongs to whom."""

from __future__ import annotations

import polars as pl

from stepscope.analysis import flows, overlap, steps
from stepscope.analysis.link import attribution, call_stacks, op_tree
from stepscope.analysis.memory import blocks as memory
from stepscope.tables import ALL_TABLES, TEXT, Tables, issues, lost
from stepscope.tables.limits import within_limits
from stepscope.tables.threads import side_by_side

SOURCE = "link"


def link(tables: Tables, *, parallel: bool = True) -> Tables:
    """The same tables with every reference between them filled.

    Sets ops.parent and, from Python calls, ops.stack; launch, task number and operator of kernels and collectives; device
    range and inflated flag of steps; forward-backward flows; allocations from raw memory events; the layers of the overlap
    analysis; names of queued tasks and numbers of Python calls where the source has none. What could not be matched is
    counted in `quality`. Linking linked tables changes nothing.
    """
    tables = within_limits(tables)
    parent, launched = side_by_side(lambda: op_tree.parents(tables.ops), lambda: _launched(tables), parallel=parallel)
    other_issues = tables.quality.filter(pl.col("source") != SOURCE)
    tables = tables.replace(ops=tables.ops.with_columns(parent=parent), quality=other_issues, **launched)
    host, (device, (memory_tables, quality)) = side_by_side(
        lambda: _host_tables(tables),
        lambda: (_device_tables(tables), _memory_tables(tables)),
        parallel=parallel,
    )
    linked = tables.replace(**device, **memory_tables, **host)
    linked = linked.replace(overlap=overlap.device_layers(linked.replace(overlap=ALL_TABLES["overlap"].empty())))
    return linked.with_quality(*quality, *_unmatched(linked))


def _launched(tables: Tables) -> dict[str, pl.DataFrame]:
    """Kernels and collectives with their launches."""
    # Tasks of a communication operator share its launch: their time counts once, through the operator.
    of_operators = tables.collectives.filter(pl.col("kernel").is_null())["connection_id"]
    kernels = attribution.with_launches(
        _with_communication(tables.kernels, tables.transfers), tables.api_calls, unless=of_operators
    )
    return {"kernels": kernels, "collectives": attribution.with_launches(tables.collectives, tables.api_calls)}


def _device_tables(tables: Tables) -> dict[str, pl.DataFrame]:
    """Kernels and collectives with their operators, and the steps that these fall into."""
    ops = tables.ops
    enqueued = attribution.enqueue_owners(ops, tables.queue)
    kernels = attribution.attributed(tables.kernels, ops, tables.queue, enqueued)
    collectives = attribution.attributed(tables.collectives, ops, tables.queue, enqueued)
    marked = tables.steps if tables.steps.height else steps.from_ops(ops)
    ranged = steps.ranged(marked, tables.queue, attribution.launched(kernels, collectives))
    if steps.by_launch(tables.device_kind):
        kernels, collectives = (steps.with_launching_step(tasks, marked) for tasks in (kernels, collectives))
    # A ring says itself which of its steps a profiler slowed.
    ended = ranged if tables.step_phases.height else steps.with_inflated(ranged)
    return {"kernels": kernels, "collectives": collectives, "steps": ended}


def _memory_tables(tables: Tables) -> tuple[dict[str, pl.DataFrame], list[pl.DataFrame]]:
    """Tasks with their names, the blocks that they and operators asked for, and what could not be matched."""
    queue = _with_task_names(tables.queue)
    allocations, quality = _allocations(tables, queue)
    return {"queue": queue, "allocations": allocations}, quality


def _host_tables(tables: Tables) -> dict[str, pl.DataFrame]:
    """What needs neither kernels nor tasks."""
    calls = _with_call_numbers(tables.python_calls)
    flowing = _with_forward_backward(tables.flows, tables.ops)
    return {"ops": call_stacks.with_stacks(tables), "python_calls": calls, "flows": flowing}


def _with_communication(kernels: pl.DataFrame, transfers: pl.DataFrame) -> pl.DataFrame:
    """Device tasks that are the link-level tasks of a communication operator are of that kind, whatever their type says."""
    place = ["device", "stream", "task_id", "context_id", "start_ns"]
    if not transfers.height or not kernels.height:
        return kernels
    known = transfers.select(place).unique().with_columns(in_transfers=True)
    in_transfers = (
        kernels.select(place)
        .join(known, on=place, how="left", maintain_order="left", nulls_equal=True)["in_transfers"]
        .fill_null(False)
    )
    kind = pl.when(in_transfers & (pl.col("kind") != "compute")).then(pl.lit("communication").cast(TEXT)).otherwise("kind")
    return kernels.with_columns(kind.alias("kind"))


def _with_task_names(queue: pl.DataFrame) -> pl.DataFrame:
    """Old timelines name a task only when it is taken from the queue (docs/formats/outputs.md 2.2)."""
    if not queue["name"].null_count():
        return queue
    dequeued = queue.filter(pl.col("kind") == "dequeue").select("correlation_id", task="name").drop_nulls()
    named = queue.join(dequeued.unique("correlation_id", keep="first"), on="correlation_id", how="left", maintain_order="left")
    return named.with_columns(name=pl.coalesce("name", "task")).drop("task")


def _with_call_numbers(calls: pl.DataFrame) -> pl.DataFrame:
    """Databases keep the spans of Python calls, not their numbers: the spans say who called whom."""
    if not calls.height or calls["call_id"].null_count() < calls.height:
        return calls
    number = calls.select(pl.int_range(pl.len(), dtype=pl.Int64).over("tid").alias("call_id")).to_series()
    caller = number.gather(op_tree.parents(calls)).fill_null(0).alias("parent_id")
    return calls.with_columns(number, caller)


def _with_forward_backward(known: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    if (known["kind"] == "fwdbwd").any():
        return known
    return pl.concat([known, flows.forward_backward_flows(ops)])


def _allocations(tables: Tables, queue: pl.DataFrame) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    # Sources may give some components paired already (GE); what has pointers and no blocks yet is paired here.
    events = tables.memory_events
    if tables.allocations.height:
        paired = tables.allocations["component"].cast(pl.String).unique().implode()
        events = events.filter(~pl.col("component").cast(pl.String).is_in(paired).fill_null(False))
    if events["ptr"].null_count() == events.height:
        return tables.allocations, []
    found, quality = memory.allocations(events, tables.ops, queue)
    return ALL_TABLES["allocations"].sort(pl.concat([tables.allocations, found])), quality


def _unmatched(tables: Tables) -> list[pl.DataFrame]:
    if not tables.ops.height:
        return []
    ownerless = pl.col("op").is_null() & ~pl.col("extra").fill_null(False)
    rows = []
    for name, work in (("kernels", pl.col("kind") == "compute"), ("collectives", pl.col("kernel").is_null())):
        without = tables[name].filter(work & ownerless)
        never_launched = without["launch_ns"].null_count()
        outside = without.height - never_launched
        rows.append(lost(issues.LAUNCH_NOT_RECORDED, SOURCE, never_launched, name))
        rows.append(lost(issues.LAUNCHED_OUTSIDE_OPERATORS, SOURCE, outside, name))
    return rows
