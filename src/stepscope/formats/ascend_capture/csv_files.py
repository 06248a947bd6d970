# SPDX-License-Identifier: Apache-2.0
"""What a csv file of an Ascend profiler holds: by its name, else by the titles of its columns."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

# Kind of the file, which is its name in msprof, and the names that frameworks and older versions give to the same content.
_NAMES = {
    "op_summary": ("kernel_details",), "task_time": (), "operator_details": (), "step_trace_time": (), "op_statistic": (),
    "api_statistic": (), "memory_record": ("ge_memory_record",), "operator_memory": ("ge_operator_memory",), "npu_mem": (),
    "npu_module_mem": (), "l2_cache": (), "soc_pmu": (), "aicpu": ("data_preprocess",), "pcie": (), "hccs": (),
    "nic": (), "roce": (),
}  # fmt: skip
_KINDS = {name: kind for kind, others in _NAMES.items() for name in (kind, *others)}
_NEVER_OF_MSPROF = {"kernel_details", "operator_details", "step_trace_time"}  # with a number they are somebody's copies
# op_summary_20260522113006, op_summary_slice_0_20260522113006, op_summary_0_1
_OF_MSPROF = re.compile(rf"({'|'.join(_KINDS.keys() - _NEVER_OF_MSPROF)})_(?:slice_)?\d.*")
_MOST_BYTES = 1 << 14  # of the first line


def is_of_framework(name: str) -> bool:
    """Whether a file has a name as in ASCEND_PROFILER_OUTPUT: `kernel_details.csv`."""
    return name.endswith(".csv") and name[:-4] in _KINDS


def is_of_msprof(name: str) -> bool:
    """Whether a file has a name as in mindstudio_profiler_output: `op_summary_20260522113006.csv`."""
    return name.endswith(".csv") and _OF_MSPROF.fullmatch(name[:-4]) is not None


def kind_of(path: Path) -> str | None:
    """What a csv file holds, as msprof names it; None for files of other programs. Never raises."""
    if path.suffix != ".csv" or not path.is_file():
        return None
    match = _OF_MSPROF.fullmatch(path.stem)
    if match:
        return _KINDS[match[1]]
    return _KINDS.get(path.stem) or _by_titles(path)


def _by_titles(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            line = stream.readline(_MOST_BYTES).decode("utf-8-sig", errors="replace")
        titles = {title.strip() for title in next(csv.reader([line.replace("\0", "")]), [])}
    except (OSError, csv.Error):
        return None
    return next((kind for kind, columns in signs() if all(titles & names for names in columns)), None)


@cache
def signs() -> tuple[tuple[str, tuple[frozenset[str], ...]], ...]:
    """Kinds by the columns that tell them from other files, each with its titles; the first that fits counts.

    Those of nic and roce are the same, those of pcie and hccs could be anybody's.
    """
    # For a file that somebody renamed: opening any other needs no declaration.
    from stepscope.formats.ascend import hardware, kernel_details, memory, operator_details, statistics, step_trace_time, task_time

    chosen = (
        ("op_summary", kernel_details.COLUMNS, ("name", "core", "start_ns", "duration_ns")),
        ("task_time", task_time.COLUMNS, ("name", "task_type", "duration_ns", "start_ns")),
        ("operator_details", operator_details.COLUMNS, ("name", "host_self_ns", "device_self_ns")),
        ("step_trace_time", step_trace_time.COLUMNS, ("step", "computing_ns", "not_overlapped_ns", "free_ns")),
        ("op_statistic", statistics.OP, ("op_type", "core", "count", "total_ns")),
        ("api_statistic", statistics.API, ("name", "total_ns", "count")),
        ("operator_memory", memory.ALLOCATION, ("name", "bytes", "start_ns")),
        ("memory_record", memory.RECORD, ("component", "time_ns", "total_allocated")),
        ("npu_module_mem", memory.MODULE, ("name", "time_ns", "value")),
        ("l2_cache", hardware.CACHE["l2"], ("hit_rate", "other_rate")),
    )
    return tuple(
        (kind, tuple(frozenset(column.names) for column in columns if column.key in keys)) for kind, columns, keys in chosen
    )
