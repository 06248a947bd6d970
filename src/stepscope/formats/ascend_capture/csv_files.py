# SPDX-License-Identifier: Apache-2.0
"""What a csv file of an Ascend profiler holds: by its name, else by the titles of its columns."""

from __future__ import annotations

import csv
import re
from pathlib import Path

# Kind of the file, which is its name in msprof, and the names that frameworks and older versions give to the same content.
_NAMES = {
    "op_summary": ("kernel_details",), "task_time": (), "operator_details": (), "step_trace_time": (), "op_statistic": (),
    "api_statistic": (), "memory_record": ("ge_memory_record",), "operator_memory": ("ge_operator_memory",), "npu_mem": (),
    "npu_module_mem": (), "l2_cache": (), "soc_pmu": (), "aicpu": ("data_preprocess",), "pcie": (), "hccs": (),
    "nic": (), "roce": (),
}  # fmt: skip
_KINDS = {name: kind for kind, others in _NAMES.items() for name in (kind, *others)}
# Titles by which a file is known that somebody renamed. Those of nic and roce are the same, those of pcie and hccs could be
# anybody's. The first that fits counts.
TITLES: tuple[tuple[str, frozenset[str]], ...] = (
    ("op_summary", frozenset({"Name", "Accelerator Core", "Start Time(us)", "Duration(us)"})),
    ("op_summary", frozenset({"Op Name", "Task Start Time(us)", "Task Duration(us)"})),
    ("task_time", frozenset({"kernel_name", "kernel_type", "task_time(us)", "task_start(us)"})),
    ("operator_details", frozenset({"Name", "Host Self Duration(us)", "Device Self Duration(us)"})),
    ("step_trace_time", frozenset({"Step", "Computing", "Communication(Not Overlapped)", "Free"})),
    ("op_statistic", frozenset({"OP Type", "Core Type", "Count", "Total Time(us)"})),
    ("api_statistic", frozenset({"API Name", "Time(us)", "Count"})),
    ("operator_memory", frozenset({"Name", "Size(KB)", "Allocation Time(us)"})),
    ("memory_record", frozenset({"Component", "Timestamp(us)", "Total Allocated(MB)"})),
    ("npu_module_mem", frozenset({"Component", "Timestamp(us)", "Total Reserved(MB)"})),
    ("l2_cache", frozenset({"Hit Rate", "Victim Rate"})),
)
# op_summary_20260522113006, op_summary_slice_0_20260522113006, op_summary_0_1
_OF_MSPROF = re.compile(rf"({'|'.join(_KINDS)})_(?:slice_)?\d.*")
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
    return next((kind for kind, needed in TITLES if needed <= titles), None)
