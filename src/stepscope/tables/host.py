# SPDX-License-Identifier: Apache-2.0
"""Tables of what ran on the host: operators, Python frames, the task queue, runtime calls, marks, steps."""

from __future__ import annotations

import polars as pl

from stepscope.tables.schema import TEXT, Column, Table, span, thread

OPS = Table(
    name="ops",
    doc="One row per framework operator call, user range or step range. `row` references elsewhere mean the row number here.",
    sorted_by=("start_ns",),
    columns=(
        *thread(),
        *span("call"),
        Column("name", TEXT, "Operator or range name."),
        Column("seq", pl.Int64(), "Autograd sequence number; a forward operator and its backward node share it."),
        Column(
            "fwd_thread", pl.Int64(), "The framework's own number of the forward thread; null when this is not a backward range."
        ),
        Column("scope", pl.UInt8(), "Kind of range: 0 function, 1 backward, 2 TorchScript, 7 user range, others as in PyTorch."),
        Column("is_async", pl.Boolean(), "The range may end on another thread than it began."),
        Column("end_tid", pl.Int64(), "Thread on which the range ended."),
        Column("shapes", TEXT, "Input shapes: `,` inside one input, `;` between inputs, empty for non-tensors."),
        Column("dtypes", TEXT, "Input types, `;` between inputs."),
        Column("stack", TEXT, "Python call stack, innermost frame first, `;` between frames."),
        Column("modules", TEXT, "Module hierarchy as the framework wrote it."),
        Column("flops", pl.Int64(), "Floating-point operations of the call.", "flop"),
        Column("external_id", pl.Int64(), "Id by which device tasks of a Kineto trace name their operator."),
        Column("parent", pl.Int64(), "Row of the enclosing operator on the same thread; null at the root."),
    ),
)

OP_INPUTS = Table(
    name="op_inputs",
    doc="Tensors that went into an operator, as recorded text; kept apart because few readers need it.",
    sorted_by=("op",),
    columns=(
        Column("op", pl.Int64(), "Row of `ops`."),
        Column("tensors", pl.String(), "Tensor inputs in the grammar of the framework format."),
        Column("tensor_lists", pl.String(), "Tensor-list inputs in the same grammar."),
        Column("scalars", pl.String(), "Type words of scalar inputs."),
    ),
)

PYTHON_CALLS = Table(
    name="python_calls",
    doc="One row per Python function, C function or module call.",
    sorted_by=("tid", "start_ns"),
    columns=(
        *thread(),
        *span("call"),
        Column("name", TEXT, "`file(line): function`, the C function's text, or `nn.Module: Class_n`."),
        Column("kind", TEXT, "python, c or module."),
        Column("call_id", pl.Int64(), "Number of the call inside its thread."),
        Column("parent_id", pl.Int64(), "`call_id` of the caller in the same thread; 0 at the root."),
        Column("module_id", pl.Int64(), "Number of the module among those of its class; null for functions."),
        Column("key", pl.UInt64(), "Key of the callee in the capture; joins `param_tensors`."),
    ),
)

PARAM_TENSORS = Table(
    name="param_tensors",
    doc="Parameter tensors of modules and optimizers, as recorded text.",
    columns=(
        Column("key", pl.UInt64(), "Key of the call that showed them, as in `python_calls`."),
        Column("kind", TEXT, "module or optimizer."),
        Column("text", pl.String(), "Parameters in the grammar of the framework format."),
    ),
)

QUEUE = Table(
    name="queue",
    doc="One row per interval in which a task was put into or taken from the host task queue.",
    sorted_by=("start_ns",),
    columns=(
        *thread(),
        *span("interval"),
        Column("kind", TEXT, "enqueue or dequeue."),
        Column("name", TEXT, "Task name, without the Enqueue@/Dequeue@ prefix; null when unknown."),
        Column("correlation_id", pl.Int64(), "Task number; joins enqueue and dequeue."),
    ),
)

API_CALLS = Table(
    name="api_calls",
    doc="One row per runtime API call on the host.",
    sorted_by=("start_ns",),
    columns=(
        *thread(),
        *span("call"),
        Column("level", TEXT, "acl, model, node, communication, runtime; for GPUs cuda_runtime, cuda_driver and the like."),
        Column("name", TEXT, "API name, without the level prefix."),
        Column("connection_id", pl.Int64(), "Joins the call with the device tasks it launched."),
        Column("mode", TEXT, "Mode argument of the vendor's timeline."),
        Column("item_id", TEXT, "Item the call worked on, for launches the kernel name."),
        Column("external_id", pl.Int64(), "Operator id in a Kineto trace, which calls outside of operators may have as 0."),
    ),
)

EARLY_CALLS = Table(
    name="early_calls",
    doc="One row per runtime API call of which only the end was recorded: it began before the collection.",
    sorted_by=("end_ns",),
    columns=(
        *thread(),
        Column("end_ns", pl.Int64(), "First instant after the call.", "ns"),
        Column("zero_ns", pl.Int64(), "Where the host's counter stood at zero; the vendor's statistics count from there.", "ns"),
        Column("level", TEXT, "As in `api_calls`."),
        Column("name", TEXT, "As in `api_calls`."),
    ),
)

MARKS = Table(
    name="marks",
    doc="One row per mark or range that the user set (mstx, NVTX, annotations), with its device part where there is one.",
    sorted_by=("start_ns",),
    columns=(
        *thread(),
        *span("mark"),
        Column("message", TEXT, "Text of the mark."),
        Column("domain", TEXT, "Domain; null for the default one."),
        Column("kind", TEXT, "marker, push/pop, start/end, marker_ex or annotation."),
        Column("range_id", pl.Int64(), "Id of a start/end range."),
        Column("category", pl.Int64(), "User's category number."),
        Column("end_tid", pl.Int64(), "Thread that ended the range."),
        Column("connection_id", pl.Int64(), "Joins host and device part; null without device part."),
        Column("device", pl.Int32(), "Device of the device part."),
        Column("stream", pl.Int64(), "Stream of the device part."),
        Column("device_start_ns", pl.Int64(), "Start on the device.", "ns"),
        Column("device_end_ns", pl.Int64(), "End on the device.", "ns"),
    ),
)

STEPS = Table(
    name="steps",
    doc="One row per profiled step.",
    sorted_by=("start_ns",),
    columns=(
        Column("step", pl.Int64(), "Step number."),
        Column("pid", pl.Int64(), "Process of the step."),
        *span("step on the host"),
        Column("device_start_ns", pl.Int64(), "Start of the first device task the step launched.", "ns"),
        Column("device_end_ns", pl.Int64(), "End of the last device task the step launched, not before the host's end.", "ns"),
        Column("inflated", pl.Boolean(), "The profiler itself slowed this step (first or last one); averages may leave it out."),
    ),
)

STEP_PHASES = Table(
    name="step_phases",
    doc="One row per step that `stepscope.watch` followed: what it waited for, and whether it was much slower than the others.",
    sorted_by=("start_ns",),
    columns=(
        Column("step", pl.Int64(), "Step number."),
        Column("start_ns", pl.Int64(), "Start of the step on the host, as in `steps`.", "ns"),
        Column("data_wait_ns", pl.Int64(), "Time in the data loader of training.", "ns"),
        Column("other_loader_ns", pl.Int64(), "Time in other data loaders, such as that of an evaluation.", "ns"),
        Column("gc_ns", pl.Int64(), "Time in garbage collections of Python.", "ns"),
        Column("checkpoint_ns", pl.Int64(), "Time in which checkpoints were saved.", "ns"),
        Column("limit_ns", pl.Int64(), "A step longer than this is an outlier; null while too few steps were seen.", "ns"),
        Column("outlier", pl.Boolean(), "The step was longer, without a checkpoint, an evaluation or a capture as the reason."),
    ),
)

GC_PAUSES = Table(
    name="gc_pauses",
    doc="One row per Python garbage collection over the threshold.",
    sorted_by=("start_ns",),
    columns=(Column("pid", pl.Int64(), "Operating-system process."), *span("collection")),
)

FLOWS = Table(
    name="flows",
    doc="Arrows between two points of the timeline that no other table implies.",
    columns=(
        Column("kind", TEXT, "fwdbwd, or the category of a foreign trace."),
        Column("id", pl.Int64(), "Id inside its kind."),
        Column("from_pid", pl.Int64(), "Process of the start."),
        Column("from_tid", pl.Int64(), "Thread of the start."),
        Column("from_ns", pl.Int64(), "Time of the start.", "ns"),
        Column("to_pid", pl.Int64(), "Process of the end."),
        Column("to_tid", pl.Int64(), "Thread of the end."),
        Column("to_ns", pl.Int64(), "Time of the end.", "ns"),
    ),
)

DATA_STAGES = Table(
    name="data_stages",
    doc="Which of the ranges in `ops` are work of the input pipeline, and of which part of it; in the order recorded.",
    columns=(
        Column("op", pl.Int64(), "Row of `ops`."),
        Column(
            "operator", TEXT, "Pipeline operator with its number, such as MapOp(ID:1), or Pipeline, IteratorConsumer, PyFuncOp."
        ),
        Column("stage", TEXT, "What it did, such as WorkerProcess or GetFromPreviousOp."),
        Column("info", TEXT, "Further words as recorded, `key:value` with `;` between."),
    ),
)

DATA_PIPELINES = Table(
    name="data_pipelines",
    doc="One row per operator of an input pipeline, with what was sampled of it.",
    sorted_by=("pipeline", "op_id"),
    columns=(
        Column("pipeline", pl.Int64(), "Number of the pipeline."),
        Column("op_id", pl.Int64(), "Number of the operator; 0 gives the batches."),
        Column("op_type", TEXT, "Kind of operator, such as BatchOp."),
        Column("workers", pl.Int64(), "Threads or processes that work for it."),
        Column("children", pl.List(pl.Int64()), "Operators it takes its input from."),
        Column("queue_length", pl.Int64(), "Places in its output queue; null when it has none."),
        Column("queue_sizes", pl.List(pl.Int64()), "Rows waiting in its output queue, by sample."),
        Column("interval_ms", pl.Int64(), "Time between samples.", "ms"),
        Column("cpu_pct", pl.List(pl.Float64()), "Share of all processors it used, by sample.", "%"),
    ),
)

DATA_BATCHES = Table(
    name="data_batches",
    doc="How long the batches of an input pipeline took, and how full its last queue was; in the order recorded.",
    columns=(
        Column("pipeline", pl.Int64(), "Number of the pipeline."),
        Column("to_device", pl.Boolean(), "The batches went into the queue of a device, not to an iterator."),
        Column("kind", TEXT, "pipeline, push, batch (times) or queue (depth)."),
        Column("batch", pl.Int64(), "Number of the batch, from 1."),
        Column("value", pl.Int64(), "Time in ms; for queue the rows in it."),
        Column("capacity", pl.Int64(), "Places in the queue; null for times."),
        Column("time_ms", pl.Int64(), "Moment on the clock of the pipeline.", "ms"),
    ),
)

HOST_TABLES = (
    OPS, OP_INPUTS, PYTHON_CALLS, PARAM_TENSORS, QUEUE, API_CALLS, EARLY_CALLS, MARKS, STEPS, STEP_PHASES, GC_PAUSES, FLOWS,
    DATA_STAGES, DATA_PIPELINES, DATA_BATCHES,
)  # fmt: skip
