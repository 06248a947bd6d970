# SPDX-License-Identifier: Apache-2.0
"""What the vendor's tool leaves in the PROF folders of a capture beside the raw data, kept with data_simplification=False.

`mindstudio_profiler_output`, `msprof_*.db`, `analyze` where there is communication, and a log (docs/formats/profiler-api.md 21).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from stepscope.capture import Capture
from stepscope.formats.ascend.msprof_output import ANALYZE, LOG, OUTPUT
from stepscope.formats.ascend_capture import prof_folder
from stepscope.formats.cann.folder import stamp_of
from stepscope.formats.reader import CaptureFiles, Progress
from stepscope.tables import Facts, Tables


def is_wanted(facts: Facts) -> bool:
    """Whether the capture was made with data_simplification off; captures that do not say so stay as they are."""
    config = facts.profiler_info.get("config")
    experimental = config.get("experimental_config") if isinstance(config, dict) else None
    return isinstance(experimental, dict) and "_data_simplification" in experimental and not facts.data_simplification


def write(files: CaptureFiles, exports: Iterable[str], progress: Progress, *, parallel: bool = True) -> list[Path]:
    """Write the files of every PROF folder that has readable raw data and no files of the vendor's own tool.

    Args:
        files: the capture.
        exports: `text` for all files, `db` for the databases.
        progress: told about the stage.
        parallel: whether to use several threads.

    Returns:
        The files written.

    Raises:
        CaptureError: a folder cannot be written to, or the disk is full.
    """
    wanted = set(exports)
    written: list[Path] = []
    for prof in files.profs:
        stamp = stamp_of(prof.name)
        if "raw" not in prof_folder.forms(prof) or _has_others(prof, stamp):
            continue
        progress("writing the vendor's files")
        # Alone, without the framework around it: as the vendor's tool sees it.
        tables = Capture(CaptureFiles(root=prof, format=prof_folder.READER.name, profs=(prof,))).load(keep=False, parallel=parallel)
        made = _write(tables, prof, stamp, wanted)
        if made:
            written += [*made, _write_log(prof, made)]
    return written


def _has_others(prof: Path, stamp: str) -> bool:
    """Whether files of the vendor's tool lie there: theirs carry the time of the analysis, ours that of the collection."""
    found = [*(prof / OUTPUT).glob("*"), *prof.glob("msprof_*.db")]
    return any(stamp not in path.name for path in found)


def _write(tables: Tables, prof: Path, stamp: str, wanted: set[str]) -> list[Path]:
    from stepscope.export import communication_json
    from stepscope.export.analysis_db import write_communication_db
    from stepscope.export.msprof import write_msprof, write_msprof_database
    from stepscope.render.atomic import make_output_folder

    made = write_msprof_database(tables, prof, stamp)
    if "text" in wanted:
        made += write_msprof(tables, prof / OUTPUT, stamp, database=False)
    if tables.collectives.height and tables.facts.level != "Level0":
        folder = make_output_folder(prof / ANALYZE)
        made += communication_json.write(tables, folder) if "text" in wanted else write_communication_db(tables, folder)
    return made


def _write_log(prof: Path, made: Iterable[Path]) -> Path:
    from stepscope.render.atomic import make_output_folder, replacing

    path = make_output_folder(prof / LOG) / f"stepscope_{time.strftime('%Y%m%d%H%M%S')}.log"
    with replacing(path) as handle:
        handle.write("".join(f"written {file.relative_to(prof)}, {file.stat().st_size} bytes\n" for file in made).encode())
    return path
