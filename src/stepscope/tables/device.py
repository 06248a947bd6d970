# SPDX-License-Identifier: Apache-2.0
"""Tables of what ran on devices: tasks and their counters, communication, caches, sampled series."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from stepscope.tables.schema import TEXT, Column, Table, span

STEP_DOC = "Step: on GPUs the one that launched it, else as the source gives it; null where the device ranges in `steps` decide."


def _launch() -> Iterable[Column]:
    return (
        Column("connection_id", pl.Int64(), "Joins the task with the API call that launched it."),
        Column("launch_ns", pl.Int64(), "Host time of the launch.", "ns"),
        Column("launch_tid", pl.Int64(), "Host thread of the launch."),
        Column("correlation_id", pl.Int64(), "Task number in the host task queue through which it was launched; joins `queue`."),
        Column("extra", pl.Boolean(), "A further task of a launch that already has one; not counted for an operator."),
        Column("op", pl.Int64(), "Row of `ops` that launched it; null when nothing did."),
    )


def _duration() -> Column:
    return Column(
        "duration_ns", pl.Float64(), "Length as the source gives it; may hold parts of a nanosecond that the span cannot.", "ns"
    )


KERNELS = Table(
    name="kernels",
    doc="One row per task that ran on a device stream: kernels, copies, events and the rest.",
    sorted_by=("device", "start_ns"),
    columns=(
        Column("device", pl.Int32(), "Device number inside the node."),
        Column("stream", pl.Int64(), "Stream the task was queued on."),
        *span("task"),
        _duration(),
        Column("kind", TEXT, "compute, communication, memcpy, memset, event or other."),
        Column("name", TEXT, "Kernel name; for tasks that are not operators the task kind, such as MEMCPY_ASYNC."),
        Column("kernel_name", TEXT, "Function that the runtime launched, such as Add_93b3…_210010000; null when not recorded."),
        Column("op_type", TEXT, "Operator type of a compute task."),
        Column("core", TEXT, "Accelerator core: AI_CORE, AI_VECTOR_CORE, MIX_AIC, MIX_AIV, AI_CPU, DSA_SQE, …"),
        Column("task_type", TEXT, "Task type as the timeline shows it; old captures say AI_CORE for vector kernels too."),
        Column("host_task_type", TEXT, "Kind of task the host queued, such as KERNEL_AICORE."),
        Column("pid", pl.Int64(), "Process that owns the task."),
        Column("task_id", pl.Int64(), "Task number on its stream."),
        Column("batch_id", pl.Int64(), "How often the task number had wrapped."),
        Column("context_id", pl.Int64(), "Sub-task number; null for whole tasks."),
        Column("model_id", pl.Int64(), "Model the task belongs to; null for single operators."),
        Column("global_task_id", pl.Int64(), "Number of the task in a database capture."),
        Column("step", pl.Int64(), STEP_DOC),
        *_launch(),
        Column("external_id", pl.Int64(), "Operator id in a Kineto trace."),
        Column("block_num", pl.Int64(), "Blocks (cores' worth of work) of the kernel; for GPUs blocks of the grid."),
        Column("mix_block_num", pl.Int64(), "Blocks on the other core type of a mixed kernel."),
        Column("op_state", TEXT, "dynamic or static shape."),
        Column("hf32", TEXT, "YES or NO: eligible for HF32."),
        Column("input_shapes", TEXT, "`,` inside one input, `;` between inputs."),
        Column("input_dtypes", TEXT, "`;` between inputs."),
        Column("input_formats", TEXT, "`;` between inputs."),
        Column("output_shapes", TEXT, "`,` inside one output, `;` between outputs."),
        Column("output_dtypes", TEXT, "`;` between outputs."),
        Column("output_formats", TEXT, "`;` between outputs."),
        Column("attrs", TEXT, "Operator attributes."),
        Column("bytes", pl.Int64(), "Bytes a copy or memset moved.", "B"),
        Column("copy_direction", TEXT, "Direction of a copy, such as `host to device`."),
        Column("bandwidth", pl.Float64(), "Bandwidth of a copy or memset as the source gives it.", "GB/s"),
        Column("grid", TEXT, "Grid of a SIMT or GPU kernel, `x,y,z`."),
        Column("block", TEXT, "Thread block of a SIMT or GPU kernel, `x,y,z`."),
        Column("occupancy", pl.Float64(), "Estimated achieved occupancy of a GPU kernel.", "%"),
        Column("registers", pl.Int64(), "Registers per thread of a GPU kernel."),
        Column("shared_memory", pl.Int64(), "Shared memory per block of a GPU kernel.", "B"),
        Column("blocks_per_sm", pl.Float64(), "Blocks of the grid by the number of the GPU's multiprocessors."),
    ),
)

WAITS = Table(
    name="waits",
    doc="One row per wait that a GPU's driver reported: the host or a stream waited for an event, a stream or a whole context.",
    sorted_by=("device", "start_ns"),
    columns=(
        Column("device", pl.Int32(), "Device number inside the node."),
        Column("stream", pl.Int64(), "Stream that waited or was waited for; null for a whole context."),
        *span("wait"),
        _duration(),
        Column("name", TEXT, "Kind of wait, such as Stream Wait Event or Context Sync."),
        Column("connection_id", pl.Int64(), "Joins the wait with the API call that asked for it."),
        Column("external_id", pl.Int64(), "Operator id in a Kineto trace."),
        Column("event_id", pl.Int64(), "Event that was waited for."),
        Column("event_stream", pl.Int64(), "Stream on which that event was recorded."),
        Column("event_connection_id", pl.Int64(), "Connection id of the API call that recorded the event."),
    ),
)

KERNEL_METRICS = Table(
    name="kernel_metrics",
    doc="Hardware counters of a kernel: one column per metric, named without unit; times are in ns, bandwidths in GB/s.",
    sorted_by=("kernel",),
    columns=(Column("kernel", pl.Int64(), "Row of `kernels`."),),
    extra=pl.Float64(),
)

TASK_STATES = Table(
    name="task_states",
    doc="How long a task was in each state, on chips whose scheduler reports states (Ascend310).",
    sorted_by=("kernel",),
    columns=(
        Column("kernel", pl.Int64(), "Row of `kernels`."),
        Column("scheduled_type", TEXT, "What the scheduler calls the task, such as `kernel AI core task`."),
        Column("waiting_ns", pl.Float64(), "From queued to running.", "ns"),
        Column("running_ns", pl.Float64(), "From running to complete.", "ns"),
        Column("pending_ns", pl.Float64(), "From pending to complete.", "ns"),
    ),
)

TASK_PARTS = Table(
    name="task_parts",
    doc="Parts of tasks that a device reports by themselves (Ascend950, HWTS chips): sub tasks of fusions, blocks on single cores.",
    sorted_by=("device", "start_ns"),
    columns=(
        Column("device", pl.Int32(), "Device number inside the node."),
        *span("part"),
        Column("kernel", pl.Int64(), "Row of `kernels` that it is a part of; null when no task of its number ran then."),
        Column("kind", TEXT, "fusion, block (from the scheduler's log) or counted block (from the counters of a core)."),
        Column("type", TEXT, "What it ran on: CPU, AICPU, AICORE or CCU of a fusion, AIC or AIV of a block."),
        Column("stream", pl.Int64(), "Stream of the task; 65535 when the host did not queue it."),
        Column("task_id", pl.Int64(), "Task number."),
        Column("core_id", pl.Int64(), "Core of a block."),
        Column("block_id", pl.Int64(), "Number of a block in its task."),
        Column("accelerator", pl.Int64(), "Accelerator of a fusion's sub task."),
        Column("mission", pl.Int64(), "Mission of a fusion's sub task on a CCU."),
        Column("die", pl.Int64(), "Die of a CCU."),
        Column("cycles", pl.Int64(), "Cycles of a block with counters."),
    ),
)

COLLECTIVES = Table(
    name="collectives",
    doc="One row per communication operator.",
    sorted_by=("device", "start_ns"),
    columns=(
        Column("device", pl.Int32(), "Device number inside the node."),
        *span("operator"),
        _duration(),
        Column("name", TEXT, "Operator with group, index and iteration, such as hcom_allReduce__271_0_1."),
        Column("op_type", TEXT, "Operator type, such as hcom_allReduce_."),
        Column("group", TEXT, "Hash (or Kineto name) of the communication group."),
        Column("group_name", TEXT, "Full text of the group where the source has it."),
        Column("group_index", pl.Int64(), "Number of the group's lane in the timeline."),
        Column("stream", pl.Int64(), "Stream, where the operator is a single kernel."),
        Column("kernel", pl.Int64(), "Row of `kernels` when the operator is a single kernel (NCCL)."),
        Column("comm_op_id", pl.Int64(), "Number of the operator in a database capture."),
        Column("data_type", TEXT, "Element type."),
        Column("alg_type", TEXT, "Algorithm, phases joined by `-`."),
        Column("count", pl.Int64(), "Elements."),
        Column("bytes", pl.Int64(), "Bytes, where the source has it.", "B"),
        Column("rank_size", pl.Int64(), "Members of the group."),
        Column("members", TEXT, "Ranks of the group, as ranks of the run, `,` between them; null when not recorded."),
        Column("src_rank", pl.Int64(), "Sender of a point-to-point call, as a rank of the run."),
        Column("dst_rank", pl.Int64(), "Receiver of a point-to-point call, as a rank of the run."),
        Column("seq", pl.Int64(), "Number of the call in its group, where the library counts them."),
        Column("relay", pl.Boolean(), "Went through a relay."),
        Column("retry", pl.Boolean(), "Was retried."),
        Column("model_id", pl.Int64(), "Model; null for single operators."),
        Column("step", pl.Int64(), STEP_DOC),
        *_launch(),
    ),
)

TRANSFERS = Table(
    name="transfers",
    doc="One row per link-level task of a communication operator.",
    sorted_by=("device", "start_ns"),
    columns=(
        Column("device", pl.Int32(), "Device number inside the node."),
        *span("task"),
        _duration(),
        Column("collective", pl.Int64(), "Row of `collectives`; null when unknown."),
        Column("plane", pl.Int64(), "Plane (lane) of the task."),
        Column("task_type", TEXT, "Memcpy, Reduce_Inline, Notify_Wait, Notify_Record, RDMASend, …"),
        Column("stream", pl.Int64(), "Stream of the task."),
        Column("task_id", pl.Int64(), "Task number on its stream."),
        Column("context_id", pl.Int64(), "Sub-task number."),
        Column("global_task_id", pl.Int64(), "Number of the task in a database capture."),
        Column("model_id", pl.Int64(), "Model; null for single operators."),
        Column("notify_id", TEXT, "Notification waited for or sent."),
        Column("rdma_type", TEXT, "RDMA_SEND_NOTIFY, RDMA_SEND_PAYLOAD, …; null when not RDMA."),
        Column("src_rank", pl.Int64(), "Rank inside the group; null when not set."),
        Column("dst_rank", pl.Int64(), "Rank inside the group; null for a local task."),
        Column("transport", TEXT, "SDMA, RDMA, LOCAL, …"),
        Column("link", TEXT, "ON_CHIP, HCCS, PCIE, ROCE, SIO, HCCS_SW, …"),
        Column("data_type", TEXT, "Element type."),
        Column("bytes", pl.Int64(), "Bytes moved.", "B"),
        Column("estimated_us", pl.Float64(), "Duration the library expected.", "us"),
        Column("bandwidth", pl.Float64(), "Bandwidth as the source gives it.", "GB/s"),
        Column("is_master", pl.Boolean(), "Task of the plane that stands for the operator; null when the source does not say."),
    ),
)

COLLECTIVE_TIMES = Table(
    name="collective_times",
    doc="Where the time of a communication operator went; from the vendor's own analysis, or computed from `transfers`.",
    columns=(
        Column("collective", pl.Int64(), "Row of `collectives`; null when the operator is not there."),
        Column("name", TEXT, "Operator name."),
        Column("group", TEXT, "Hash of the group."),
        Column("start_us", pl.Float64(), "Start as the source gives it.", "us"),
        Column("elapse_ms", pl.Float64(), "Last end minus first start.", "ms"),
        Column("transit_ms", pl.Float64(), "Time data moved.", "ms"),
        Column("wait_ms", pl.Float64(), "Time waited for others.", "ms"),
        Column("sync_ms", pl.Float64(), "Part of the wait before the first data moved.", "ms"),
        Column("idle_ms", pl.Float64(), "The rest.", "ms"),
    ),
)

COLLECTIVE_PACKETS = Table(
    name="collective_packets",
    doc="Packets of a communication operator by transport and size.",
    columns=(
        Column("collective", pl.Int64(), "Row of `collectives`; null when the operator is not there."),
        Column("name", TEXT, "Operator name."),
        Column("group", TEXT, "Hash of the group."),
        Column("transport", TEXT, "RDMA, HCCS, PCIE, SDMA or SIO."),
        Column("transit_mb", pl.Float64(), "Size of all packets of this transport.", "MB"),
        Column("transit_ms", pl.Float64(), "Time of all packets of this transport.", "ms"),
        Column("bandwidth", pl.Float64(), "Size by time.", "GB/s"),
        Column("large_packet_ratio", pl.Float64(), "Share of packets over the transport's limit."),
        Column("packet_mb", pl.Float64(), "Size of one packet; null when the transport has no distribution.", "MB"),
        Column("packets", pl.Int64(), "Packets of that size."),
        Column("packets_ms", pl.Float64(), "Time of the packets of that size.", "ms"),
    ),
)

COLLECTIVE_LINKS = Table(
    name="collective_links",
    doc="Traffic of a communication operator by pair of ranks.",
    columns=(
        Column("collective", pl.Int64(), "Row of `collectives`; null when the operator is not there."),
        Column("name", TEXT, "Operator name."),
        Column("group", TEXT, "Hash of the group."),
        Column("src_rank", pl.Int64(), "Rank inside the group."),
        Column("dst_rank", pl.Int64(), "Rank inside the group."),
        Column("transport", TEXT, "HCCS, PCIE, RDMA, LOCAL or SIO."),
        Column("transit_mb", pl.Float64(), "Bytes moved over the link.", "MB"),
        Column("transit_ms", pl.Float64(), "Time of it.", "ms"),
        Column("bandwidth", pl.Float64(), "Size by time.", "GB/s"),
    ),
)

OVERLAP = Table(
    name="overlap",
    doc="What each device did at each moment: one row per piece of a layer of the overlap analysis, layer by layer.",
    columns=(
        Column("device", pl.Int32(), "Device number inside the node."),
        Column("layer", TEXT, "Computing, Communication, Communication(Not Overlapped) or Free."),
        *span("piece"),
    ),
)

COUNTERS = Table(
    name="counters",
    doc="Sampled series of device and host: one row per sample of one series.",
    sorted_by=("source", "name", "series", "instance", "time_ns"),
    columns=(
        Column(
            "source",
            TEXT,
            "Group of series, named as the layer in the timeline: HBM, LLC, NPU MEM, NIC, CPU Usage, NPU Module Mem, …",
        ),
        Column("name", TEXT, "Series name as in the timeline, such as `HBM 0/Read`."),
        Column("series", TEXT, "Value name with its unit, such as `Read(MB/s)`."),
        Column("instance", pl.Int64(), "Further number that distinguishes series (accelerator, die, port)."),
        Column("device", pl.Int32(), "Device; null for the host."),
        Column("time_ns", pl.Int64(), "Time of the sample.", "ns"),
        Column("value", pl.Float64(), "Value in the unit of the series."),
    ),
)

CACHE_RATES = Table(
    name="cache_rates",
    doc="L2 cache and TLB rates of a task.",
    columns=(
        Column("kind", TEXT, "l2 or tlb."),
        Column("device", pl.Int32(), "Device number inside the node."),
        Column("stream", pl.Int64(), "Stream of the task."),
        Column("task_id", pl.Int64(), "Task number."),
        Column("op_name", TEXT, "Kernel name."),
        Column("hit_rate", pl.Float64(), "Hits by requests."),
        Column("other_rate", pl.Float64(), "Victims (l2) or misses (tlb) by requests."),
    ),
)

LINK_SUMMARY = Table(
    name="link_summary",
    doc="Smallest, largest and mean value of a link counter where only the summary is left (pcie.csv, hccs.csv).",
    columns=(
        Column("source", TEXT, "PCIe or HCCS."),
        Column("device", pl.Int32(), "Device."),
        Column("mode", TEXT, "Counter with its unit, such as `Tx (MB/s)`."),
        Column("min", pl.Float64(), "Smallest."),
        Column("max", pl.Float64(), "Largest."),
        Column("avg", pl.Float64(), "Mean."),
    ),
)

AICPU_TASKS = Table(
    name="aicpu_tasks",
    doc="One row per AI CPU operator of the data pre-processing.",
    sorted_by=("time_ns",),
    columns=(
        Column("device", pl.Int32(), "Device."),
        Column("time_ns", pl.Int64(), "Start.", "ns"),
        Column("node", TEXT, "Node name."),
        Column("compute_us", pl.Float64(), "Computing.", "us"),
        Column("memcpy_us", pl.Float64(), "Copying.", "us"),
        Column("task_us", pl.Float64(), "From task start to task end.", "us"),
        Column("dispatch_us", pl.Float64(), "Dispatching.", "us"),
        Column("total_us", pl.Float64(), "Whole kernel-mode span.", "us"),
        Column("stream", pl.Int64(), "Stream."),
        Column("task_id", pl.Int64(), "Task number."),
    ),
)

DEVICE_TABLES = (
    KERNELS, WAITS, KERNEL_METRICS, TASK_STATES, TASK_PARTS, COLLECTIVES, TRANSFERS, COLLECTIVE_TIMES, COLLECTIVE_PACKETS,
    COLLECTIVE_LINKS, OVERLAP, COUNTERS, CACHE_RATES, LINK_SUMMARY, AICPU_TASKS,
)  # fmt: skip
