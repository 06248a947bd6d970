# SPDX-License-Identifier: Apache-2.0
"""All text files of a capture, each exactly when its switches say so (docs/formats/outputs.md 1.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stepscope.errors import CaptureError
from stepscope.export import (
    communication_json,
    flops_csv,
    hardware_csv,
    kernel_details,
    memory_csv,
    operator_details,
    statistics_csv,
    step_trace_time,
    task_time,
)
from stepscope.export.outputs import Condition, Output
from stepscope.export.trace import view as trace_view
from stepscope.formats.ascend.trace import FILE
from stepscope.render.atomic import make_output_folder
from stepscope.tables import Facts, Tables


def write_text(tables: Tables, folder: Path, outputs: Sequence[Output] | None = None) -> list[Path]:
    """Write every file that the settings and the data of the capture call for.

    Args:
        tables: linked tables.
        folder: where to; created when absent.
        outputs: only these of `outputs_of`.

    Returns:
        The files written, the largest one last.

    Raises:
        CaptureError: the folder cannot be written to or the disk is full. Files named there as kept are whole.
    """
    make_output_folder(folder)
    facts = tables.facts
    written: list[Path] = []
    for output in outputs_of(facts) if outputs is None else outputs:
        if output.wanted(facts):
            try:
                written += output.write(tables, folder)
            except CaptureError as error:
                kept = ", ".join(path.name for path in written) or "none"
                cause = "; ".join(part for part in (error.cause, f"complete files kept: {kept}") if part)
                raise CaptureError(error.what, where=error.where, cause=cause, fix=error.fix) from error
    return written


def outputs_of(facts: Facts) -> Sequence[Output]:
    """What a framework's captures may be given, the timeline last: it costs as much as all the others."""
    if facts.framework == "mindspore":
        from stepscope.export import mindspore

        return mindspore.OUTPUTS
    return OUTPUTS


def _on_device(facts: Facts) -> bool:
    return not facts.activities or any(name != "CPU" for name in facts.activities)


def _on_host(facts: Facts) -> bool:
    return not facts.activities or "CPU" in facts.activities


def _level(*levels: str) -> Condition:
    """A device capture at one of the levels; one that does not say its level."""
    return lambda facts: _on_device(facts) and (not facts.level or facts.level in levels)


def _switch(name: str, of: Condition = _on_device) -> Condition:
    """A device capture with the switch on; one that does not say its settings."""
    return lambda facts: of(facts) and (not facts.level or bool(getattr(facts, name)))


def _both(one: Condition, other: Condition) -> Condition:
    return lambda facts: one(facts) and other(facts)


_ANY_LEVEL = _level("Level0", "Level1", "Level2")
_DETAILED = _level("Level1", "Level2")


def _write_trace_view(tables: Tables, folder: Path) -> list[Path]:
    return trace_view.write(tables, folder / FILE)


# The long ones first, but for the timeline: who writes two at a time has short ones left at the end.
OUTPUTS = (
    Output(kernel_details.write, _ANY_LEVEL),
    Output(memory_csv.write_memory_record, _switch("profile_memory", of=lambda facts: True)),
    Output(operator_details.write, _on_host),
    Output(memory_csv.write_operator_memory, _switch("profile_memory", of=lambda facts: True)),
    Output(task_time.write, _ANY_LEVEL),
    Output(flops_csv.write, _on_host),
    Output(step_trace_time.write, _ANY_LEVEL),
    Output(statistics_csv.write_op_statistic, _DETAILED),
    Output(statistics_csv.write_api_statistic, _DETAILED),
    Output(communication_json.write, _DETAILED),
    Output(hardware_csv.write_data_preprocess, _level("Level2")),
    Output(memory_csv.write_module_memory, _both(_ANY_LEVEL, _switch("profile_memory"))),
    Output(hardware_csv.write_l2_cache, _switch("l2_cache")),
    Output(hardware_csv.write_soc_pmu, _switch("l2_cache")),
    Output(hardware_csv.write_pcie, _switch("sys_interconnection")),
    Output(hardware_csv.write_hccs, _switch("sys_interconnection")),
    Output(hardware_csv.write_nic, _switch("sys_io")),
    Output(hardware_csv.write_roce, _switch("sys_io")),
    Output(_write_trace_view),
)
