# SPDX-License-Identifier: Apache-2.0
"""What msprof itself writes for a PROF_* folder, from our tables: file by file the same set (docs/formats/cann.md 7.2, 7.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stepscope.export import kernel_details, statistics_csv, task_time
from stepscope.export.msprof import database as database_file
from stepscope.export.msprof import trace
from stepscope.render.atomic import make_output_folder
from stepscope.tables import Facts, Tables

__all__ = ["write_msprof", "write_msprof_database"]


@dataclass(frozen=True)
class Output:
    """A file, what writes it, and whether the settings of a capture ask for it. Without rows it is not written anyway."""

    name: str
    write: Callable[[Tables, Path], list[Path]]
    wanted: Callable[[Facts], bool] = lambda facts: True


def _has_types(facts: Facts) -> bool:
    """Level 0 does not record of which type an operator is."""
    return facts.level != "Level0"


OUTPUTS = (
    Output("op_summary_{}.csv", kernel_details.write_op_summary),
    Output("op_statistic_{}.csv", statistics_csv.write_op_statistic_of_msprof, _has_types),
    Output("api_statistic_{}.csv", statistics_csv.write_api_statistic_of_msprof),
    Output("task_time_{}.csv", task_time.write_of_msprof),
    Output("communication_statistic_{}.csv", statistics_csv.write_communication_statistic_of_msprof, _has_types),
    Output("msprof_{}.json", trace.write),
)


def write_msprof(tables: Tables, folder: Path, stamp: str, *, database: bool = True) -> list[Path]:
    """Write every file that the settings and the data of the capture call for.

    Args:
        tables: of one PROF_* folder; linked or not.
        folder: where to; created when absent.
        stamp: the time in the names of the files, 14 digits.
        database: whether the database is one of them.

    Returns:
        The files written; each is whole.

    Raises:
        CaptureError: the folder cannot be written to or the disk is full.
    """
    make_output_folder(folder)
    facts = tables.facts
    written: list[Path] = []
    for output in OUTPUTS:
        if output.wanted(facts):
            written += output.write(tables, folder / output.name.format(stamp))
    return [*written, *(write_msprof_database(tables, folder, stamp) if database else ())]


def write_msprof_database(tables: Tables, folder: Path, stamp: str) -> list[Path]:
    """Write msprof_*.db into a folder that exists; none when there is nothing to put into it."""
    return database_file.write(tables, folder / f"msprof_{stamp}.db")
