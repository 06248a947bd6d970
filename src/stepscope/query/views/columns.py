# SPDX-License-Identifier: Apache-2.0
"""The columns of all views. Read without what computes them: a process that answers about tables does not load that."""

from __future__ import annotations

import polars as pl

from stepscope.tables import Column, Table

# Parts of the partition (analysis/partition/parts.py, which a test compares).
BUSY = ("computing", "communication", "copy")
_LAYERS = ("gc", "sync", "alloc", "compile", "checkpoint", "data", "api", "operator", "python", "other")
IDLE = (*(f"idle.{layer}" for layer in _LAYERS), "idle.queue", "idle.launch", "idle.queued", "idle.unknown")
HOST = tuple(f"host.{layer}" for layer in _LAYERS)

_OF_STEP = Column("step", pl.Int64(), "Number of the step; null when the capture marks none.")
_START = Column("start_ns", pl.Int64(), "Start on the host's epoch clock.", "ns")
_END = Column("end_ns", pl.Int64(), "First instant after it.", "ns")
_TABLE = Column("table", pl.String(), "`kernels` or `collectives`.")


def plain(part: str, unit: str) -> str:
    """A part as a name that needs no quotes: idle.data is idle_data_ms."""
    return f"{part.replace('.', '_')}_{unit}"


def _sentence(part: str) -> str:
    side, _, layer = part.partition(".")
    if side == "idle":
        return f"Device idle: {layer}."
    return f"Host: {layer} (captures without a device)." if side == "host" else f"{side.capitalize()} of the device."


V_STEPS = Table(
    "v_steps",
    "One row per step: its length and one column per part of the partition; the parts sum to `total_ms`.",
    (
        _OF_STEP,
        _START,
        _END,
        Column("total_ms", pl.Float64(), "Length of the step on the device.", "ms"),
        *(Column(plain(part, "ms"), pl.Float64(), _sentence(part), "ms") for part in (*BUSY, *IDLE, *HOST)),
    ),
)
V_PARTS = Table(
    "v_parts",
    "One row per step and part of the partition that occurs in it.",
    (
        _OF_STEP,
        Column("part", pl.String(), "Part: `computing`, `communication`, `copy`, `idle.…`, `host.…`."),
        Column("ns", pl.Int64(), "Time of the part.", "ns"),
        Column("share", pl.Float64(), "Share of the step, from 0 to 1."),
    ),
)
V_GAPS = Table(
    "v_gaps",
    "One row per idle gap of the device, divided by cause; the causes sum to `ns`.",
    (
        _OF_STEP,
        _START,
        _END,
        Column("ns", pl.Int64(), "Length of the gap.", "ns"),
        Column("table", pl.String(), "Table of the task that ended the gap; null at the end."),
        Column("row", pl.Int64(), "Its `id` there."),
        Column("name", pl.String(), "Its name."),
        Column("op", pl.Int64(), "Operator that launched it: `id` in `ops`."),
        Column("op_name", pl.String(), "Name of that operator."),
        Column("tid", pl.Int64(), "Thread that issued it."),
        *(Column(plain(part, "ns"), pl.Int64(), _sentence(part), "ns") for part in IDLE),
    ),
)
V_EXCLUSIVE = Table(
    "v_exclusive",
    "One row per task and step: each busy nanosecond of the device belongs to one task, so rows sum to their part.",
    (
        _TABLE,
        Column("row", pl.Int64(), "`id` of the task there."),
        _OF_STEP,
        Column("part", pl.String(), "`computing`, `communication` or `copy`."),
        Column("ns", pl.Int64(), "Time that belongs to this task alone.", "ns"),
    ),
)
V_CRITICAL_PATH = Table(
    "v_critical_path",
    "What the end of the run depended on, piece by piece in order of time; empty for captures that cannot be replayed.",
    (
        _OF_STEP,
        Column(
            "kind", pl.String(), "`device`: the task ran; `wait`: it waited to start; `host`: the host worked towards issuing it."
        ),
        _TABLE,
        Column("row", pl.Int64(), "`id` of the task there."),
        Column("name", pl.String(), "Name of the task."),
        _START,
        _END,
        Column("ns", pl.Int64(), "Length of the piece.", "ns"),
    ),
)

_ID = Column("id", pl.Int64(), "Number of the row.")
_STEP = Column("step", pl.Int64(), "Step that it belongs to; null when unknown.")
_NS = Column("ns", pl.Int64(), "Length.", "ns")
_OP = Column("op", pl.Int64(), "Operator that launched it: `id` in `ops`.")
_OP_NAME = Column("op_name", pl.String(), "Name of that operator.")
_MODULE = Column("module", pl.String(), "Path of the module around the operator, where modules were recorded.")
_SELF_AND_TOTAL = (
    Column("host_self_ns", pl.Int64(), "Time on the host without operators called inside.", "ns"),
    Column("host_total_ns", pl.Int64(), "Time on the host.", "ns"),
    Column("device_self_ns", pl.Float64(), "Time of the tasks that it launched itself.", "ns"),
    Column("device_total_ns", pl.Float64(), "Time of all tasks launched inside.", "ns"),
)

V_KERNELS = Table(
    "v_kernels",
    "`kernels` with operator, module, step, launch delay and exclusive time.",
    (
        _ID, _STEP,
        Column("device", pl.Int64(), "Device number."),
        Column("stream", pl.Int64(), "Stream of the task."),
        _START, _END, _NS,
        Column("kind", pl.String(), "`compute`, `communication`, `memcpy`, `memset`, `event` or `other`."),
        Column("name", pl.String(), "Name of the kernel."),
        Column("op_type", pl.String(), "Type of the kernel."),
        _OP, _OP_NAME, _MODULE,
        Column("launch_ns", pl.Int64(), "When the host launched it.", "ns"),
        Column("launch_delay_ns", pl.Int64(), "From launch to start.", "ns"),
        Column("exclusive_ns", pl.Int64(), "Busy time that belongs to this task alone; null for other devices.", "ns"),
    ),
)  # fmt: skip
V_OPS = Table(
    "v_ops",
    "`ops` with their own and total time on host and device, step, module and stack.",
    (
        _ID, _STEP,
        Column("tid", pl.Int64(), "Thread."),
        _START, _END,
        Column("name", pl.String(), "Name of the operator."),
        Column("parent", pl.Int64(), "Operator around it: `id` in `ops`."),
        *_SELF_AND_TOTAL, _MODULE,
        Column("stack", pl.String(), "Python stack, innermost frame first."),
        Column("shapes", pl.String(), "Shapes of the inputs."),
    ),
)  # fmt: skip
V_MODULES = Table(
    "v_modules",
    "One row per module of the model, parents before children; empty where modules were not recorded.",
    (
        Column("path", pl.String(), "Names from the outermost module, joined by `/`."),
        Column("depth", pl.Int64(), "0 for the outermost."),
        Column("calls", pl.Int64(), "Calls of the module."),
        *_SELF_AND_TOTAL,
        Column("device_backward_ns", pl.Int64(), "Device time of its backward, with that of the modules inside.", "ns"),
        Column("operators", pl.Int64(), "Operators inside."),
    ),
)
V_COLLECTIVES = Table(
    "v_collectives",
    "`collectives` with wait, transit, exposed time, the rank that came last, and bandwidth.",
    (
        _ID, _STEP,
        Column("name", pl.String(), "Name of the operator."),
        Column("op_type", pl.String(), "Type of the collective."),
        Column("group", pl.String(), "Communication group."),
        _START, _END, _NS,
        Column("bytes", pl.Int64(), "Size of the data.", "bytes"),
        Column("wait_ns", pl.Int64(), "Waiting for others: as the capture's own figures say, else (several ranks) what is longer "
               "than on the fastest rank; null when unknown.", "ns"),
        Column("transit_ns", pl.Int64(), "Moving data: the rest.", "ns"),
        Column("exposed_ns", pl.Int64(), "Time that no computing hides; null when unknown.", "ns"),
        Column("late_rank", pl.Int64(), "Rank that waited least, which the others waited for; null with one rank."),
        Column("gb_s", pl.Float64(), "`bytes` by transit time; by the whole length when the wait is unknown.", "GB/s"),
    ),
)  # fmt: skip
V_MEMORY_STEPS = Table(
    "v_memory_steps",
    "Memory per step, device and component.",
    (
        _STEP,
        Column("device_type", pl.String(), "Kind of device."),
        Column("device", pl.Int64(), "Device number."),
        Column("component", pl.String(), "Allocator."),
        Column("peak_allocated", pl.Int64(), "Most bytes allocated at once.", "bytes"),
        Column("peak_reserved", pl.Int64(), "Most bytes reserved at once.", "bytes"),
        Column("peak_active", pl.Int64(), "Most bytes in use by a stream at once.", "bytes"),
        Column("events", pl.Int64(), "Allocations and frees."),
    ),
)

FINDINGS = Table(
    "findings",
    "What costs time, most worth first: the findings of `stepscope verdict`; `rank` is the rank that loses most.",
    (
        Column("finding", pl.String(), "Stable name, such as `sync-stall:1`."),
        Column("rule", pl.String(), "Rule that found it."),
        Column("family", pl.String(), "`host`, `device`, `communication`, `memory`, `steps` or `data`."),
        Column("severity", pl.String(), "`high`, `medium`, `low` or `info`."),
        Column("confidence", pl.String(), "`high`, `medium` or `low`."),
        Column("saved_ms", pl.Float64(), "What a step would be shorter without the cause.", "ms"),
        Column("share", pl.Float64(), "The same as a share of the step, from 0 to 1."),
        Column("title", pl.String(), "What was found."),
        Column("next", pl.String(), "What to do."),
        Column("op", pl.String(), "Operator that it comes from most."),
        Column("module", pl.String(), "Module of that operator."),
        Column("stack", pl.String(), "Source line of that operator."),
        Column("start_ns", pl.Int64(), "Where to look: start.", "ns"),
        Column("end_ns", pl.Int64(), "Where to look: end.", "ns"),
    ),
)
FACTS = Table(
    "facts",
    "One row per capture: what it is.",
    (
        Column("path", pl.String(), "Where it lies."),
        Column("source", pl.String(), "What the tables were read from."),
        Column("framework", pl.String(), "Framework of the program."),
        Column("device_kind", pl.String(), "`npu`, `cuda`, `rocm`, `cpu` or another accelerator."),
        Column("device_names", pl.String(), "Names of its devices."),
        Column("host_name", pl.String(), "Machine."),
        Column("level", pl.String(), "Profiler level of the device."),
        Column("steps", pl.Int64(), "Number of steps."),
        Column("ops", pl.Int64(), "Number of operators."),
        Column("kernels", pl.Int64(), "Number of device tasks."),
        Column("start_ns", pl.Int64(), "Start of the first step, operator or task.", "ns"),
        Column("end_ns", pl.Int64(), "End of the last one.", "ns"),
        Column("complete", pl.Boolean(), "Whether nothing was lost."),
    ),
)

VIEW_TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        V_STEPS, V_PARTS, V_GAPS, V_EXCLUSIVE, V_CRITICAL_PATH, V_KERNELS, V_OPS, V_MODULES, V_COLLECTIVES, V_MEMORY_STEPS,
        FINDINGS, FACTS,
    )
}  # fmt: skip
