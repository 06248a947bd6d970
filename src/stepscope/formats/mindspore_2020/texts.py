# SPDX-License-Identifier: Apache-2.0
"""Text that MindSpore of 2020 wrote beside its records: operators, points of the step trace, AI CPU (docs/formats/cann.md 6.11)."""

from __future__ import annotations

import re
from collections.abc import Iterable

import polars as pl

_TENSOR = re.compile(r'(input|output)_id:\d+ \1_format:(\S*) \1_data_type:\d+ \1_shape:"([\d,]*)"')
_FORMATS = {"DefaultFormat": "DEFAULT"}
_AICPU = re.compile(
    r"(?:Node:(?P<node>[^\0]*?), Run s?tart:(?P<run_start>\d+),(?P<between>[^T\0]*?)Run end:(?P<run_end>\d+)[\s\0]*)?"
    r"Thread\[\s*(?P<thread>\d+)\] process device\[\s*\d+\]:aicpu\[\s*\d+\] task end, tickDrvTopHalf=\d+,\s*tickDrvBottomHalf=\d+,"
    r"\s*tickBeforeRun=(?P<before>\d+),\s*tickAfterRun=(?P<after>\d+), dispatchTime=(?P<dispatch>\d+) us, "
    r"totalTime=(?P<total>\d+) us"
)
_STAGES = re.compile(r"compute start:(\d+), memcpy start:(\d+), memcpy end:(\d+)")
_DIGITS = 18  # more are damage, and do not fit 64 bits

OPERATORS = {
    "task_id": pl.Int64(), "name": pl.String(), "block_num": pl.Int64(), "op_type": pl.String(), "input_shapes": pl.String(),
    "input_formats": pl.String(), "output_shapes": pl.String(), "output_formats": pl.String(),
}  # fmt: skip
AI_CPU = {
    "node": pl.String(), "run_start_us": pl.Int64(), "run_end_us": pl.Int64(), "compute_us": pl.Float64(),
    "memcpy_us": pl.Float64(), "before_ticks": pl.Int64(), "after_ticks": pl.Int64(), "dispatch_us": pl.Int64(),
    "total_us": pl.Int64(), "thread": pl.Int64(),
}  # fmt: skip


def short_name(operator: str) -> str:
    """The type of an operator by its name: `Default/TruncatedNormal-op0` is a TruncatedNormal."""
    return operator.rpartition("/")[2].rpartition("-op")[0] or operator.rpartition("/")[2]


def operators(tasks: Iterable[str], graph: Iterable[str]) -> tuple[pl.DataFrame, int]:
    """Frame OPERATORS by task number, which is unique over all streams; and how many lines are not understood."""
    described = {name: found for name, found in map(_described, graph) if name}
    rows, bad = {}, 0
    for line in filter(None, map(str.strip, tasks)):
        name, *numbers = line.rsplit(" ", 3)
        if len(numbers) != 3 or not all(number.isdecimal() and len(number) <= _DIGITS for number in numbers):
            bad += 1
            continue
        known = described.get(name, (None,) * 5)
        rows[int(numbers[1])] = (int(numbers[1]), name, int(numbers[0]), known[0] or short_name(name), *known[1:])
    return pl.DataFrame(list(rows.values()), schema=OPERATORS, orient="row"), bad


def _described(line: str) -> tuple[str, tuple[str | None, ...]]:
    """Name, type, and shapes and formats of inputs and outputs."""
    head = re.match(r"op_name:(.*?) op_type:(\S+)", line)
    if not head:
        return "", ()
    found: dict[str, list[tuple[str, str]]] = {"input": [], "output": []}
    for side, form, shape in _TENSOR.findall(line):
        found[side].append((shape, _FORMATS.get(form, form)))
    texts = [";".join(tensor[at] for tensor in side) if side else None for side in found.values() for at in (0, 1)]
    return head[1], (head[2], *texts)


def points(lines: Iterable[str]) -> dict[int, str]:
    """Which operator each tag of the step trace stands at."""
    parts = (line.strip().partition(" ") for line in lines)
    return {int(tag): name for tag, _, name in parts if tag.isdecimal() and len(tag) <= _DIGITS and name}


def ai_cpu(text: str) -> tuple[pl.DataFrame, int]:
    """Frame AI_CPU in the order of the text, and how many entries are not understood."""
    rows = []
    for found in _AICPU.finditer(text):
        numbers = {name: value for name, value in found.groupdict().items() if name not in ("node", "between") and value}
        if any(len(value) > _DIGITS for value in numbers.values()):
            continue
        known = {name: int(value) for name, value in numbers.items()}
        stages = _STAGES.search(found["between"] or "")
        compute, copy, copied = map(int, stages.groups()) if stages else (0, 0, 0)
        rows.append(
            (
                found["node"], known.get("run_start"), known.get("run_end"), float(copy - compute) if stages else None,
                float(copied - copy) if stages else None, known["before"], known["after"], known["dispatch"], known["total"],
                known["thread"],
            )
        )  # fmt: skip
    return pl.DataFrame(rows, schema=AI_CPU, orient="row"), max(text.count("task end") - len(rows), 0)
