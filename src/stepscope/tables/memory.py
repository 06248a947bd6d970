# SPDX-License-Identifier: Apache-2.0
"""Tables of memory: raw allocator events and paired allocations."""

from __future__ import annotations

import polars as pl

from stepscope.tables.schema import TEXT, Column, Table, thread

MEMORY_EVENTS = Table(
    name="memory_events",
    doc="One row per allocator event; totals are those after the event.",
    sorted_by=("time_ns",),
    columns=(
        *thread(),
        Column("time_ns", pl.Int64(), "Time of the event.", "ns"),
        Column("component", TEXT, "PTA (framework allocator), WORKSPACE, GE or another runtime component."),
        Column("device_type", TEXT, "npu, cuda or cpu."),
        Column("device", pl.Int32(), "Device; null for the host."),
        Column("action", TEXT, "malloc, free or block_free; null when only totals are known."),
        Column("inner", pl.Boolean(), "Made by the framework's own allocator; only such events are paired."),
        Column("ptr", pl.Int64(), "Address of the block."),
        Column("bytes", pl.Int64(), "Size; negative when memory is given back.", "B"),
        Column("total_allocated", pl.Float64(), "Allocated after the event.", "B"),
        Column("total_reserved", pl.Float64(), "Reserved from the device after the event.", "B"),
        Column("total_active", pl.Float64(), "Active after the event.", "B"),
        Column("stream_ptr", pl.Int64(), "Stream of the block."),
        Column("op_name", TEXT, "Operator the runtime named (GE records only)."),
    ),
)

ALLOCATIONS = Table(
    name="allocations",
    doc="One row per block from its allocation to its release.",
    sorted_by=("start_ns",),
    columns=(
        *thread(),
        Column("name", TEXT, "Operator that allocated it; null when none covers the moment."),
        Column("op", pl.Int64(), "Row of `ops`; null when none covers the moment or only the name is known."),
        Column("component", TEXT, "PTA or GE."),
        Column("device_type", TEXT, "npu, cuda or cpu."),
        Column("device", pl.Int32(), "Device; null for the host."),
        Column("ptr", pl.Int64(), "Address of the block."),
        Column("bytes", pl.Int64(), "Size.", "B"),
        Column("start_ns", pl.Int64(), "Allocation.", "ns"),
        Column("release_ns", pl.Int64(), "The tensor gave it back; null when it outlived the capture.", "ns"),
        Column("active_release_ns", pl.Int64(), "It really returned to the pool.", "ns"),
        Column("alloc_total_allocated", pl.Float64(), "Allocated after the allocation.", "B"),
        Column("alloc_total_reserved", pl.Float64(), "Reserved after the allocation.", "B"),
        Column("alloc_total_active", pl.Float64(), "Active after the allocation.", "B"),
        Column("release_total_allocated", pl.Float64(), "Allocated after the release.", "B"),
        Column("release_total_reserved", pl.Float64(), "Reserved after the release.", "B"),
        Column("release_total_active", pl.Float64(), "Active after the release.", "B"),
        Column("stream_ptr", pl.Int64(), "Stream of the block."),
    ),
)

MEMORY_TABLES = (MEMORY_EVENTS, ALLOCATIONS)
