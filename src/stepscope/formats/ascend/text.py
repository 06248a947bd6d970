# SPDX-License-Identifier: Apache-2.0
"""The text files of ASCEND_PROFILER_OUTPUT, layout generations G1 to G3 (docs/formats/outputs.md 0).

operator_details, step_trace_time, op_statistic, api_statistic and communication_matrix count only where the events they were
made of are missing.
"""

from __future__ import annotations

from pathlib import Path

from stepscope.errors import CaptureError
from stepscope.formats.ascend import kernel_details, trace
from stepscope.formats.ascend.cells import header
from stepscope.formats.ascend.parsed import ParsedFiles, read_parsed
from stepscope.tables import Facts, Tables

# Name of the file, and the one msprof gives to the same content.
_CSV = {
    "kernel_details": "op_summary",
    "task_time": "task_time",
    "operator_details": "operator_details",
    "step_trace_time": "step_trace_time",
    "op_statistic": "op_statistic",
    "api_statistic": "api_statistic",
    "memory_record": "memory_record",
    "operator_memory": "operator_memory",
    "npu_module_mem": "npu_module_mem",
    "l2_cache": "l2_cache",
    "soc_pmu": "soc_pmu",
    "data_preprocess": "aicpu",
    "pcie": "pcie",
    "hccs": "hccs",
    "nic": "nic",
    "roce": "roce",
}


def read(output: Path, facts: Facts) -> Tables:
    """Tables of a parsed capture; `meta` holds `facts`, completed by what the files say.

    Raises:
        CaptureError: the folder holds no text file with a usable row.
    """
    files = find_files(output, device=facts.device_ids[0] if len(facts.device_ids) == 1 else None)
    if not files.any():
        raise CaptureError(
            "the folder has no parsed text files",
            where=str(output),
            cause=f"neither {trace.FILE} nor a csv file is there",
            fix="analyse the raw capture again with export type text",
        )
    return _tables(files, facts)


def read_trace(trace: Path, *, most_bytes: int | None = None) -> Tables:
    """Tables of a timeline that lies by itself, without the folder it came from; packed, it may unpack to `most_bytes`."""
    return _tables(ParsedFiles(timeline=(trace,), most_bytes=most_bytes), Facts())


def read_csv(path: Path, kind: str) -> Tables:
    """Tables of one csv file that lies by itself; its kind is the name it has in msprof."""
    return _tables(ParsedFiles(csv={kind: (path,)}), Facts(device_kind="npu"))


def read_communication(path: Path, *, of_links: bool) -> Tables:
    """Tables of communication.json, or of communication_matrix.json, that lies by itself."""
    files = ParsedFiles(extremes=path) if of_links else ParsedFiles(communication=path)
    return _tables(files, Facts(device_kind="npu"))


def _tables(files: ParsedFiles, facts: Facts) -> Tables:
    parsed = read_parsed(files)
    completed = facts.replace(
        source="ascend_text",
        device_kind=facts.device_kind or ("npu" if parsed.device_ids else ""),
        generation=generation(files) or parsed.generation,
        device_ids=tuple(sorted({*facts.device_ids, *parsed.device_ids})),
    )
    return parsed.tables.replace(meta=completed.table())


def find_files(output: Path, *, device: int | None = None) -> ParsedFiles:
    return ParsedFiles(
        timeline=_existing(output / trace.FILE) or _existing(output / f"{trace.FILE}.gz"),
        csv={kind: _existing(output / f"{name}.csv") for name, kind in _CSV.items()},
        communication=next(iter(_existing(output / "communication.json")), None),
        # The matrix of this folder holds extremes and sums of many operators, not single ones (docs/formats/outputs.md 9.3).
        extremes=next(iter(_existing(output / "communication_matrix.json")), None),
        device=device,
    )


def generation(files: ParsedFiles) -> str:
    """G1, G2 or G3 by the columns of the csv files; empty when they do not tell (docs/formats/outputs.md 4)."""
    found = (kernel_details.generation(header(path)) for path in files.of("op_summary"))
    return next(filter(None, found), "")


def _existing(path: Path) -> tuple[Path, ...]:
    return (path,) if path.is_file() and not path.is_symlink() else ()
