# SPDX-License-Identifier: Apache-2.0
"""Tables of a whole run: the digests of its ranks, one row set per rank, small enough for ten thousand of them."""

from __future__ import annotations

import polars as pl

from stepscope.tables.schema import Column, Table

# Where local time (everything but waiting for others) goes; `w_<cause>` in `cluster_calls`.
CAUSES = ("compute", "data_loading", "gc", "allocation", "checkpoint", "copy", "dispatch", "other")
DIGEST_VERSION = 4

_RANK = Column("rank", pl.Int64(), "Rank in the run.")
_STEP = Column("step", pl.Int64(), "Step number; null where the capture marks none.")


def _ns(name: str, doc: str) -> Column:
    return Column(name, pl.Int64(), doc, "ns")


CLUSTER_RANKS = Table(
    name="cluster_ranks",
    doc="One row per rank: where it ran, what it was read from, what was lost.",
    sorted_by=("rank",),
    columns=(
        _RANK,
        Column("host", pl.String(), "Host; null when the capture does not say."),
        Column("device", pl.Int64(), "Device number inside the host."),
        Column("device_name", pl.String(), "Chip."),
        Column("source", pl.String(), "Form that was read: framework+msprof, ascend_text, ascend_db, kineto, …"),
        Column("lean", pl.Boolean(), "Read by the lean path: launches and causes of the host are not known."),
        Column("path", pl.String(), "Capture, relative to the root that was given."),
        _ns("start_ns", "First moment of the steps on this rank's clock."),
        _ns("end_ns", "Last moment of the steps on this rank's clock."),
        Column("world_size", pl.Int64(), "Ranks of the run, as the capture says."),
        *(Column(word, pl.Int64(), f"Size of {word} parallelism, as the capture says.") for word in ("tp", "pp", "dp", "cp", "ep")),
        Column("losses", pl.Int64(), "Records lost, from `quality`."),
        _ns("residual_ns", "Time of the steps that neither local work nor waiting explains; 0 unless something is wrong."),
    ),
)

CLUSTER_STEPS = Table(
    name="cluster_steps",
    doc="One row per rank and step: where the time went on the device.",
    sorted_by=("rank", "start_ns"),
    columns=(
        _RANK,
        _STEP,
        _ns("start_ns", "Start of the step on the device, on this rank's clock."),
        _ns("end_ns", "End of the step: where the next one begins."),
        _ns("computing_ns", "Time in which the device computed."),
        _ns("communication_ns", "Time in which it communicated."),
        _ns("exposed_ns", "Time in which it communicated and did not compute."),
        _ns("wait_ns", "Part of the step in which it waited for the end of calls."),
        _ns("free_ns", "Time in which it did neither."),
        _ns("bubble_ns", "Waiting for point-to-point calls."),
        Column("kernels", pl.Int64(), "Compute tasks."),
        Column("peak_bytes", pl.Int64(), "Most memory allocated.", "B"),
        Column("frequency_mhz", pl.Float64(), "Mean frequency of the cores.", "MHz"),
    ),
)

CLUSTER_CALLS = Table(
    name="cluster_calls",
    doc="One row per communication call in program order, and a closing row per step (`op` is null) for what came after the last.",
    sorted_by=("rank", "step", "index"),
    columns=(
        _RANK,
        _STEP,
        Column("index", pl.Int32(), "Position in the step."),
        Column("group", pl.String(), "Key of the group on this rank; joins `cluster_groups`."),
        Column(
            "op", pl.String(), "allreduce, allgather, reducescatter, alltoall, broadcast, send, recv, …; null in a closing row."
        ),
        Column("peer", pl.Int64(), "Other rank of a point-to-point call."),
        Column("seq", pl.Int64(), "Number of the call in its group, where the source has one."),
        Column("bytes", pl.Int64(), "Bytes, where known.", "B"),
        Column("variable", pl.Boolean(), "Sizes differ from rank to rank by design (all-to-all-v)."),
        Column("retry", pl.Boolean(), "Was retried, where the source says."),
        Column("relay", pl.Boolean(), "Went through a relay, where the source says."),
        Column("lane", pl.String(), "Queue of the device on which it ran; calls of one lane run one after the other."),
        Column("folded", pl.Int32(), "Calls in this row."),
        _ns("issue_ns", "When the compute stream had reached the call."),
        _ns("start_ns", "Start of the call on the device."),
        _ns("end_ns", "End of the call on the device."),
        _ns("wait_ns", "Time that the compute stream waited for the call."),
        Column("stop", pl.Boolean(), "The compute stream stood still until the call ended."),
        Column("late", pl.Int32(), "Index of an earlier call of this step whose end was waited for before this row's issue."),
        _ns(
            "before_stop_ns",
            "Local time between the issue of this call and the moment at which it was waited for; 0 without a stop.",
        ),
        _ns("after_ns", "Part of the local time that came after that wait; 0 without one."),
        *(_ns(f"w_{cause}", f"Local time ({cause}) between the previous issue and this one.") for cause in CAUSES),
    ),
)

CLUSTER_KERNELS = Table(
    name="cluster_kernels",
    doc="Kernels by name and shapes, the longest 64 of each rank.",
    sorted_by=("rank",),
    columns=(
        _RANK,
        Column("name", pl.String(), "Kernel."),
        Column("shapes", pl.String(), "Input shapes; grid and block on GPUs."),
        Column("count", pl.Int64(), "How often it ran."),
        _ns("total_ns", "Time of all of them."),
        _ns("median_ns", "Middle time."),
        _ns("p95_ns", "Time that 95 % do not exceed."),
    ),
)

CLUSTER_LINKS = Table(
    name="cluster_links",
    doc="Traffic between two ranks by step, group, transport and size class.",
    sorted_by=("rank",),
    columns=(
        _RANK,
        _STEP,
        Column("group", pl.String(), "Key of the group on this rank."),
        Column("src", pl.Int64(), "Sender, as a rank of the run."),
        Column("dst", pl.Int64(), "Receiver, as a rank of the run."),
        Column("transport", pl.String(), "HCCS, PCIE, RDMA, SDMA, …"),
        Column("size_class", pl.Int8(), "Size of a packet: 0 below 4 KiB, then one more for each factor of 4."),
        Column("count", pl.Int64(), "Packets."),
        Column("bytes", pl.Float64(), "Bytes.", "B"),
        Column("time_ns", pl.Float64(), "Time of them.", "ns"),
    ),
)

CLUSTER_GROUPS = Table(
    name="cluster_groups",
    doc="Communication groups that a rank belongs to.",
    sorted_by=("rank",),
    columns=(
        _RANK,
        Column("group", pl.String(), "Key of the group on this rank."),
        Column("text", pl.String(), "Full name, where known."),
        Column("pg_name", pl.String(), "What the program calls it: tp, dp, pp, …"),
        Column("listed", pl.Int64(), "Its members, in `cluster_members`; null when not recorded."),
    ),
)

CLUSTER_MEMBERS = Table(
    name="cluster_members",
    doc="Ranks of groups, each list once, however many ranks and groups have it.",
    sorted_by=("listed",),
    columns=(
        Column("listed", pl.Int64(), "Key of the list; equal lists have the same."),
        Column("members", pl.List(pl.Int64()), "Ranks of the run, rising."),
    ),
)

CLUSTER_MEMORY = Table(
    name="cluster_memory",
    doc="Most memory per rank, step and component.",
    sorted_by=("rank",),
    columns=(
        _RANK,
        _STEP,
        Column("component", pl.String(), "PTA, GE, WORKSPACE, …"),
        Column("allocated_bytes", pl.Int64(), "Most allocated.", "B"),
        Column("reserved_bytes", pl.Int64(), "Most reserved.", "B"),
    ),
)

CLUSTER_TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        CLUSTER_RANKS, CLUSTER_STEPS, CLUSTER_CALLS, CLUSTER_KERNELS, CLUSTER_LINKS, CLUSTER_GROUPS, CLUSTER_MEMBERS,
        CLUSTER_MEMORY,
    )
}  # fmt: skip
