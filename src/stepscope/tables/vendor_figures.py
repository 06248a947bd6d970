# SPDX-License-Identifier: Apache-2.0
"""Tables of figures that the vendor's own analysis left, for captures whose events are gone.

Where the events are there, the same figures are computed from them and these tables are not used.
"""

from __future__ import annotations

import polars as pl

from stepscope.tables.schema import TEXT, Column, Table

OP_TIMES = Table(
    name="op_times",
    doc="One row per operator call of operator_details.csv, where the capture has no timeline with the calls themselves.",
    columns=(
        Column("name", TEXT, "Operator name."),
        Column("shapes", TEXT, "Input shapes: `,` inside one input, `;` between inputs."),
        Column("stack", TEXT, "Python call stack, innermost frame first, `;` between frames."),
        Column("host_self_ns", pl.Float64(), "Host time without operators called inside.", "ns"),
        Column("host_total_ns", pl.Float64(), "Host time with operators called inside.", "ns"),
        Column("device_self_ns", pl.Float64(), "Device time without operators called inside.", "ns"),
        Column("device_total_ns", pl.Float64(), "Device time with operators called inside.", "ns"),
        Column("aicore_self_ns", pl.Float64(), "Part of `device_self_ns` on AI Cores.", "ns"),
        Column("aicore_total_ns", pl.Float64(), "Part of `device_total_ns` on AI Cores.", "ns"),
    ),
)

STEP_TIMES = Table(
    name="step_times",
    doc="One row per device and step of step_trace_time.csv: where the time of the step went on the device.",
    columns=(
        Column("device", pl.Int32(), "Device number inside the node; null where the file has none."),
        Column("step", pl.Int64(), "Step number; null where the capture has no steps."),
        Column("computing_ns", pl.Float64(), "Time in which the device computed.", "ns"),
        Column("not_overlapped_ns", pl.Float64(), "Exposed communication: time in which it only communicated.", "ns"),
        Column("overlapped_ns", pl.Float64(), "Time in which it communicated and computed.", "ns"),
        Column("communication_ns", pl.Float64(), "Time in which it communicated.", "ns"),
        Column("free_ns", pl.Float64(), "Time in which it did neither.", "ns"),
        Column("stage_ns", pl.Float64(), "Time of the step on the device without bubbles.", "ns"),
        Column("bubble_ns", pl.Float64(), "Time in which it waited to receive.", "ns"),
        Column("not_overlapped_except_receive_ns", pl.Float64(), "Exposed communication without receiving.", "ns"),
        Column("preparing_ns", pl.Float64(), "From the begin of the step to the first task on the device.", "ns"),
    ),
)

LINK_EXTREMES = Table(
    name="link_extremes",
    doc="Rows of communication_matrix.json: fastest, middle and slowest communication operators and their sum, by pair of ranks.",
    columns=(
        Column("step", TEXT, "Step as the file names it, such as `step50`."),
        Column("kind", TEXT, "p2p or collective."),
        Column("operator_type", TEXT, "Type of the operators, such as allreduce."),
        Column("tag", TEXT, "top1, middle, bottom1, bottom2, bottom3 or total."),
        Column("group", TEXT, "Hash of the group."),
        Column("src_rank", pl.Int64(), "Rank inside the group."),
        Column("dst_rank", pl.Int64(), "Rank inside the group."),
        Column("transport", TEXT, "HCCS, PCIE, RDMA, LOCAL or SIO."),
        Column("transit_mb", pl.Float64(), "Bytes moved over the link.", "MB"),
        Column("transit_ms", pl.Float64(), "Time of it.", "ms"),
        Column("bandwidth", pl.Float64(), "Size by time.", "GB/s"),
        Column("op_name", TEXT, "Operator that the extreme is of; null for the sum."),
    ),
)

OP_TYPE_TIMES = Table(
    name="op_type_times",
    doc="Rows of op_statistic.csv: kernels by operator type and core, where no kernel of the capture has a type.",
    columns=(
        Column("device", pl.Int32(), "Device number inside the node; null where the file has none."),
        Column("op_type", TEXT, "Operator type."),
        Column("core", TEXT, "Kind of core that they ran on."),
        Column("count", pl.Int64(), "Number of kernels."),
        Column("total_ns", pl.Float64(), "Sum of their durations.", "ns"),
        Column("min_ns", pl.Float64(), "Shortest one.", "ns"),
        Column("avg_ns", pl.Float64(), "Mean duration.", "ns"),
        Column("max_ns", pl.Float64(), "Longest one.", "ns"),
        Column("ratio", pl.Float64(), "Part of the computing time of the device.", "%"),
    ),
)

API_TIMES = Table(
    name="api_times",
    doc="Rows of api_statistic.csv: API calls by name and level, where the capture has no timeline with the calls themselves.",
    columns=(
        Column("level", TEXT, "Layer of the software that the call belongs to, such as acl or runtime."),
        Column("name", TEXT, "Name of the call."),
        Column("total_ns", pl.Float64(), "Sum of the durations.", "ns"),
        Column("count", pl.Int64(), "Number of calls."),
        Column("avg_ns", pl.Float64(), "Mean duration.", "ns"),
        Column("min_ns", pl.Float64(), "Shortest call.", "ns"),
        Column("max_ns", pl.Float64(), "Longest call.", "ns"),
        Column("variance_us2", pl.Float64(), "Variance of the durations.", "us²"),
    ),
)

VENDOR_TABLES = (OP_TIMES, STEP_TIMES, LINK_EXTREMES, OP_TYPE_TIMES, API_TIMES)
