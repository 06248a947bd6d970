# SPDX-License-Identifier: Apache-2.0
"""Parsed text files without the capture folder they came from: one csv file, or a folder of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.formats.reader import CaptureFiles, Options, Reader

if TYPE_CHECKING:
    from stepscope.tables import Tables

# Files that say enough about a capture to be one.
_KNOWN = (
    "kernel_details.csv", "operator_details.csv", "step_trace_time.csv", "memory_record.csv", "operator_memory.csv",
    "npu_module_mem.csv", "l2_cache.csv", "task_time.csv", "soc_pmu.csv", "data_preprocess.csv", "pcie.csv", "hccs.csv", "nic.csv",
    "roce.csv", "op_statistic.csv", "api_statistic.csv",
)  # fmt: skip
_OUR_RESULTS = ("_stepscope", "stepscope_output")  # what an analysis wrote beside a trace, and into a PROF folder
_BESIDE = ("trace_view.json", "communication.json", "communication_matrix.json")


def _claims(path: Path) -> CaptureFiles | None:
    if path.name in _KNOWN and path.is_file():
        return CaptureFiles(path, file=path)
    if path.name.endswith(_OUR_RESULTS):
        return None
    try:
        holds_files = path.is_dir() and any((path / name).is_file() for name in _KNOWN)
    except OSError:
        return None
    return CaptureFiles(path, output=path) if holds_files else None


def _source_files(files: CaptureFiles, options: Options) -> list[Path]:
    del options
    if files.file:
        return [files.file]
    return [path for path in sorted(files.root.iterdir()) if path.suffix == ".csv" or path.name in _BESIDE]


def _read(files: CaptureFiles, options: Options) -> Tables:
    from stepscope.formats.ascend import text
    from stepscope.tables import Facts

    options.progress(f"reading {files.root}")
    return text.read_csv(files.file) if files.file else text.read(files.root, Facts())


READER = Reader(
    name="ascend_text",
    accepts="a csv file of ASCEND_PROFILER_OUTPUT",
    claims=_claims,
    read=_read,
    source_files=_source_files,
    form="text",
)
