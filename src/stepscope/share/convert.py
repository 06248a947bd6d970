# SPDX-License-Identifier: Apache-2.0
"""One capture in the form of another program: one writer per form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stepscope.render.atomic import make_output_folder
from stepscope.tables import Tables


def convert(tables: Tables, form: str, folder: Path, name: str) -> Path:
    """Write the tables of one capture in the given form; the file or folder written."""
    make_output_folder(folder)
    return FORMS[form](tables, folder, name)


def _kineto(tables: Tables, folder: Path, name: str) -> Path:
    from stepscope.export.trace.kineto import write_kineto

    return write_kineto(tables, folder / f"{name}.pt.trace.json.gz")


def _perfetto(tables: Tables, folder: Path, name: str) -> Path:
    from stepscope.export.trace.perfetto import write_perfetto

    return write_perfetto(tables, folder / f"{name}.perfetto.json.gz")


def _parquet(tables: Tables, folder: Path, name: str) -> Path:
    from stepscope.export.parquet import write_parquet

    write_parquet(tables, folder / name)
    return folder / name


def _database(tables: Tables, folder: Path, name: str) -> Path:
    from stepscope.export.ascend_db import write_profiler_db

    path = folder / f"{name}.db"
    write_profiler_db(tables, path)
    return path


def _speedscope(tables: Tables, folder: Path, name: str) -> Path:
    from stepscope.export.flame_graphs import write_speedscope

    return write_speedscope(tables, folder / f"{name}.speedscope.json", name)


def _collapsed(tables: Tables, folder: Path, name: str) -> Path:
    from stepscope.export.flame_graphs import write_collapsed

    return write_collapsed(tables, folder / f"{name}.collapsed.txt")


FORMS: dict[str, Callable[[Tables, Path, str], Path]] = {
    "chrome": _kineto,
    "kineto": _kineto,
    "perfetto": _perfetto,
    "parquet": _parquet,
    "db": _database,
    "speedscope": _speedscope,
    "collapsed": _collapsed,
}
