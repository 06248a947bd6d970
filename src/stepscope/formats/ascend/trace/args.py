# SPDX-License-Identifier: Apache-2.0
"""The arguments of events of a timeline: declared once, read and written by that (docs/formats/outputs.md 3.1, 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import polars as pl

from stepscope.formats import NONE32
from stepscope.formats.ascend.stack_frames import frame_lines
from stepscope.formats.ascend.trace.events import arg, text
from stepscope.render.csv_file import NOT_KNOWN
from stepscope.render.json_text import escaped, number, several_lines
from stepscope.render.lines import Label, Part, Text, Whole
from stepscope.tables import TEXT

# `word` is a text of which N/A stands for none, `lines` one with a line for each entry, `frames` a call stack, `answer` yes or no.
Kind = Literal["whole", "number", "text", "word", "lines", "frames", "answer"]

_NONE = str(NONE32)
_NO_TYPE = "INVALID_TYPE"
NO_NOTIFY = ("18446744073709551615", "9223372036854775807", "-1")  # docs/formats/enums.md 8; the first is written


@dataclass(frozen=True)
class Argument:
    """One argument: its column in our tables, its name, and what is written for a missing value: None leaves it out."""

    key: str
    name: str
    kind: Kind
    missing: str | None = None
    older: str = ""  # name in the first generation


OPS = (
    Argument("seq", "Sequence number", "whole", "-1"),
    Argument("fwd_thread", "Fwd thread id", "whole", "0"),
    Argument("shapes", "Input Dims", "lines"),
    Argument("dtypes", "Input type", "lines"),
    Argument("stack", "Call stack", "frames"),
    Argument("modules", "Module Hierarchy", "text"),
    Argument("flops", "flops", "whole"),
)
PYTHON_CALLS = (
    Argument("call_id", "Python id", "whole", "0"),
    Argument("parent_id", "Python parent id", "whole", "0"),
    Argument("module_id", "Python module id", "whole"),
)
QUEUE = (Argument("correlation_id", "correlation_id", "whole", "-1"),)
API_CALLS = (
    Argument("tid", "Thread Id", "whole", "0"),
    Argument("mode", "Mode", "word", ""),
    Argument("level", "level", "text", ""),
    Argument("id", "id", "text", "0"),
    Argument("item_id", "item_id", "word", "0"),
    Argument("connection_id", "connection_id", "whole", "-1"),
)
TASKS = (
    Argument("model_id", "Model Id", "whole", _NONE),
    Argument("task_type", "Task Type", "word", NOT_KNOWN),
    Argument("stream", "Physic Stream Id", "whole", "0"),
    Argument("task_id", "Task Id", "whole", _NONE),
    Argument("batch_id", "Batch Id", "whole", "0"),
    Argument("context_id", "Subtask Id", "whole", _NONE),
    Argument("connection_id", "connection_id", "whole", "-1"),
)
# Further ones of a task that copies, and of one that runs on a grid of threads.
COPIES = (
    Argument("bytes", "size(B)", "whole", older="data size(Byte)"),
    Argument("rate", "bandwidth(GB/s)", "number"),
    Argument("copy_direction", "operation", "word", older="memcpy direction"),
)
GRIDS = (Argument("grid", "Grid Dim", "word"), Argument("block", "Block Dim", "word"))
FUSIONS = (
    Argument("task_id", "Task Id", "whole", _NONE),
    Argument("accelerator", "Acc Id", "whole", "0"),
    Argument("task_type", "Task Type", "text", "FUSION"),
    Argument("type", "Fusion Task Type", "word", NOT_KNOWN),
)
BLOCKS = (
    Argument("stream", "Physic Stream Id", "whole", "0"),
    Argument("task_id", "Task Id", "whole", _NONE),
    Argument("batch_id", "Batch Id", "whole", "0"),
    Argument("context_id", "Subtask Id", "whole", _NONE),
    Argument("core_id", "Core Id", "whole", "0"),
)
COLLECTIVES = (
    Argument("rank_size", "rank_size", "whole"),
    Argument("connection_id", "connection_id", "whole", "-1"),
    Argument("model_id", "model id", "whole", _NONE),
    Argument("data_type", "data_type", "word", NOT_KNOWN),
    Argument("alg_type", "alg_type", "word", NOT_KNOWN),
    Argument("count", "count", "whole"),
    Argument("relay", "relay", "answer"),
    Argument("retry", "retry", "answer"),
)
TRANSFERS = (
    Argument("notify_id", "notify_id", "text", NO_NOTIFY[0]),
    Argument("estimated_us", "duration estimated(us)", "number"),
    Argument("stream", "stream id", "whole", _NONE),
    Argument("task_id", "task id", "whole", _NONE),
    Argument("context_id", "context id", "whole", _NONE),
    Argument("task_type", "task type", "text", ""),
    Argument("src_rank", "src rank", "whole", _NONE),
    Argument("dst_rank", "dst rank", "whole", _NONE),
    Argument("transport", "transport type", "word", _NO_TYPE),
    Argument("bytes", "size(Byte)", "whole", "0"),
    Argument("data_type", "data type", "word", _NO_TYPE),
    Argument("link", "link type", "word", _NO_TYPE),
    Argument("bandwidth", "bandwidth(GB/s)", "number"),
    Argument("model_id", "model id", "whole", _NONE),
)
MARKS = (
    Argument("category", "Category", "whole", "0"),
    Argument("kind", "event_type", "text", ""),
    Argument("domain", "domain", "word", "default"),
)
CPU_KERNELS = (Argument("task_type", "type", "word", ""),)  # MindSpore's kernels on the processor
# Of a GPU, named as in PyTorch's own traces.
GPU_TASKS = (
    Argument("device", "device", "whole", "0"),
    Argument("stream", "stream", "whole", "0"),
    Argument("connection_id", "correlation", "whole", "0"),
    Argument("external_id", "External id", "whole"),
    Argument("bytes", "bytes", "whole"),
    Argument("grid", "grid", "number"),
    Argument("block", "block", "number"),
    Argument("registers", "registers per thread", "whole"),
    Argument("shared_memory", "shared memory", "whole"),
    Argument("blocks_per_sm", "blocks per SM", "number"),
    Argument("occupancy", "est. achieved occupancy %", "number"),
)

_TYPES: dict[Kind, pl.DataType] = {"whole": pl.Int64(), "number": pl.Float64()}
_READ: dict[Kind, Callable[[str], pl.Expr]] = {
    "text": lambda name: arg(name).cast(TEXT),
    "lines": lambda name: arg(name).cast(TEXT),
    "frames": lambda name: arg(name).cast(TEXT),
    "word": text,
    "answer": lambda name: arg(name) == "yes",
}


def select(arguments: Iterable[Argument], *keys: str) -> tuple[Argument, ...]:
    """The arguments of these keys, in that order."""
    known = {item.key: item for item in arguments}
    return tuple(known[key] for key in keys)


def without(arguments: Iterable[Argument], *keys: str) -> tuple[Argument, ...]:
    return tuple(item for item in arguments if item.key not in keys)


def names(arguments: Iterable[Argument]) -> dict[str, str]:
    """Name by key."""
    return {item.key: item.name for item in arguments}


def types(arguments: Iterable[Argument]) -> dict[str, pl.DataType]:
    """What the values of the arguments are, by name."""
    return {name: _TYPES.get(item.kind, pl.String()) for item in arguments for name in (item.older, item.name) if name}


def columns(arguments: Iterable[Argument], **special: Callable[[str], pl.Expr]) -> list[pl.Expr]:
    """The arguments of events as columns by their keys; `special` reads those, by key, that none of their kind is read like."""
    found = []
    for item in arguments:
        read = special.get(item.key) or _READ.get(item.kind, arg)
        value = pl.coalesce(read(item.older), read(item.name)) if item.older else read(item.name)
        found.append(value.alias(item.key))
    return found


def written(arguments: Iterable[Argument], **special: Part) -> list[Part]:
    """The parts of the arguments of each row; `special` has, by key, the part of a value that is not that of the column."""
    parts: list[Part] = []
    leading: list[Part] = []
    for item in arguments:
        if item.missing is None:
            # Before the first argument that every row has, the comma follows.
            (parts if parts else leading).extend(_optional(item, special.get(item.key), before=bool(parts)))
            continue
        parts.append(f'{", " if parts else ""}"{item.name}": ')
        if item.kind in ("whole", "number"):
            parts.append(special.get(item.key, Whole(item.key, item.missing)))
        else:
            parts += ['"', special.get(item.key, Text(item.key, missing=item.missing)), '"']
    return [*leading, *parts]


def optional(arguments: Iterable[Argument], **special: Part) -> list[Part]:
    """As `written`, for further arguments after those that every row has."""
    return [part for item in arguments for part in _optional(item, special.get(item.key), before=True)]


def _optional(item: Argument, value: Part | None, *, before: bool) -> list[Part]:
    label = f'"{item.name}": '
    column = pl.col(item.key)
    match item.kind:
        case "whole" if before:
            return [Label(item.key, f", {label}"), Whole(item.key)]
        case "whole":
            return [pl.lit(label) + column.cast(pl.String) + pl.lit(", ")]
        case "text" | "word":
            return [Text(item.key, lambda text: f', {label}"{escaped(text)}"')]
        case "lines":
            return [Text(item.key, lambda text: f', {label}"{escaped(several_lines(text))}"')]
        case "frames":
            return [Text(item.key, lambda text: f', {label}"{escaped(frame_lines(text))}"')]
        case "answer":
            return [pl.lit(f", {label}") + pl.when(column).then(pl.lit('"yes"')).when(~column).then(pl.lit('"no"'))]
        case "number":
            return [pl.lit(f", {label}") + (value if isinstance(value, pl.Expr) else number(column))]
