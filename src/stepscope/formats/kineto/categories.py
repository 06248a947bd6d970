# SPDX-License-Identifier: Apache-2.0
"""Which table an event of a Kineto trace belongs to, and which arguments are read from it."""

from __future__ import annotations

import polars as pl

# Names of 2021 (Operator, Kernel, Memcpy, PythonFunction) and of today, in lower case.
_OF_CATEGORY = {
    "cpu_op": "op",
    "operator": "op",
    "user_annotation": "op",
    "python_function": "python",
    "pythonfunction": "python",
    "runtime": "api",
    "driver": "api",
    "overhead": "api",
    "kernel": "task",
    "gpu_memcpy": "task",
    "memcpy": "task",
    "gpu_memset": "task",
    "memset": "task",
    "cuda_sync": "wait",
    "gpu_user_annotation": "annotation",
    "trace": "session",
    # Other accelerators, and what only some versions write (docs/formats/kineto.md 2).
    "mtia_ccp_events": "task",
    "mtia_insight": "task",
    "hpu_op": "either",
    "collective_comm": "task",
    "cuda_event": "task",
    "cuda_profiler_range": "task",
    "xpu_scope_profiler": "task",
}
# Makers of accelerators name their categories after Kineto's own: xpu_runtime, mlu_memcpy, gcu_sync, …
_OF_ENDING = {
    "_runtime": "api", "_driver": "api", "_memcpy": "task", "_memset": "task", "_sync": "wait", "_notifier": "task",
    "_user_annotation": "annotation",
}  # fmt: skip
# Arrows that correlation ids already imply.
_IMPLIED_FLOWS = ("ac2g", "async_cpu_to_gpu", "async_gpu", "async")
_FORWARD_BACKWARD = ("fwdbwd", "forward_backward", "fwd_bwd")

_I, _S, _F = pl.Int64(), pl.String(), pl.Float64()

_OPERATOR = {
    "External id": _I, "external id": _I, "Sequence number": _I, "Fwd thread id": _I,
    "Input Dims": _S, "Input dims": _S, "Input type": _S, "Call stack": _S, "Module Hierarchy": _S, "Flops": _I,
}  # fmt: skip
_PYTHON = {"Python id": _I, "Python parent id": _I, "Python module id": _I}
_TASK = {
    "correlation": _I, "device": _I, "stream": _I, "grid": _S, "block": _S, "bytes": _I, "kind": _S,
    "memory bandwidth (GB/s)": _F, "est. achieved occupancy %": _F,
    "registers per thread": _I, "shared memory": _I, "blocks per SM": _F,
}  # fmt: skip
_WAIT = {"wait_on_stream": _I, "wait_on_cuda_event_record_corr_id": _I, "wait_on_cuda_event_id": _I}
_SHAPE = ("registers per thread", "shared memory", "blocks per SM")
_COLLECTIVE = {
    "Collective name": _S, "In msg nelems": _I, "dtype": _S, "Group size": _I, "Process Group Name": _S,
    "Process Group ID": _S, "Process Group Description": _S, "Process Group Ranks": _S, "Src Rank": _I, "Dst Rank": _I, "Seq": _I,
}  # fmt: skip
_MTIA = {"direction": _S, "size": _I}  # of a copy
_LABEL = {"labels": _S}  # what a process is: CPU, GPU 0, MTIA 17
_MEMORY = {
    "Addr": _I, "Bytes": _I, "Total Allocated": _F, "Total Reserved": _F, "Device Type": _I, "Device Id": _I,
}  # fmt: skip

ARGS: dict[str, pl.DataType] = {**_OPERATOR, **_PYTHON, **_TASK, **_WAIT, **_COLLECTIVE, **_MTIA, **_LABEL, **_MEMORY}

# Keys that few captures have, each with a text that every event with the key contains: the key is only looked for where the
# text occurs.
GUARDS: dict[str, str] = {
    **dict.fromkeys(_PYTHON, '"Python id"'),
    **dict.fromkeys(_WAIT, '"cuda_sync_kind"'),
    **dict.fromkeys(_COLLECTIVE, '"Collective name"'),
    **dict.fromkeys(_MTIA, '"direction"'),
    **dict.fromkeys(_LABEL, '"process_labels"'),
    **dict.fromkeys(_MEMORY, '"[memory]"'),
    **{key: f'"{key}"' for key in ("external id", "Input dims", "Flops", *_SHAPE)},
}


def with_table_names(events: pl.DataFrame) -> pl.DataFrame:
    """Add `to`, the table an event belongs to; null for events that do not describe the run, `unknown:…` for unexpected ones.

    Spans of a category that is not known are `strange`: they may still be a device's. Those of a category that is used for host and
    device are `either`.
    """
    of_category = {category: _destination(category) for category in events["cat"].unique().to_list()}
    of_flow = {category: _flow(category) for category in of_category}
    memory = pl.col("name") == "[memory]"
    phase, category = pl.col("ph"), pl.col("cat")
    to = (
        pl.when(phase == "X")
        .then(category.replace_strict(of_category, return_dtype=_S))
        .when(phase.is_in(["s", "f"]))
        .then(category.replace_strict(of_flow, return_dtype=_S))
        .when(phase == "C")
        .then(pl.lit("counter"))
        .when((phase == "M") & (pl.col("name") == "process_labels"))
        .then(pl.lit("label"))
        # Names and order of lanes; begin and end of the recording.
        .when((phase == "M") | (phase.is_in(["i", "I", "R"]) & category.is_null() & ~memory))
        .then(None)
        .when(phase.is_in(["i", "I"]) & memory)
        .then(pl.lit("memory"))
        .otherwise(pl.format("unknown:ph {} cat {}", phase.fill_null("none"), category.fill_null("none")))
    )
    return events.with_columns(to=to)


def _destination(category: str | None) -> str:
    name = (category or "").lower()
    if name in _OF_CATEGORY:
        return _OF_CATEGORY[name]
    return next((table for ending, table in _OF_ENDING.items() if name.endswith(ending)), "strange")


def _flow(category: str | None) -> str | None:
    name = (category or "").lower()
    if name in _IMPLIED_FLOWS:
        return None
    return "flow:fwdbwd" if name in _FORWARD_BACKWARD else f"flow:{category or 'none'}"
