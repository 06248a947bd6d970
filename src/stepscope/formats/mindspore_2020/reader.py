# SPDX-License-Identifier: Apache-2.0
"""The reader of folders that MindSpore of 2020 left; its code is imported when such a folder is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.formats.mindspore_2020.files import by_device, is_folder_of_2020, settings_of
from stepscope.formats.reader import CaptureFiles, Options, Reader

if TYPE_CHECKING:
    from stepscope.tables import Tables


def _claims(path: Path) -> CaptureFiles | None:
    return CaptureFiles(root=path) if is_folder_of_2020(path) else None


def _read(files: CaptureFiles, options: Options) -> Tables:
    from stepscope.formats.mindspore_2020.read import read

    options.progress("reading records of MindSpore 2020")
    return read(files.root)


def _source_files(files: CaptureFiles, options: Options) -> list[Path]:
    del options
    devices = by_device(files.root)
    records = [path for kinds in devices.values() for paths in kinds.values() for _, path in paths]
    return [*records, *(path for device in devices for path in settings_of(files.root, device))]


READER = Reader(
    name="mindspore_2020",
    accepts="a folder of records of MindSpore 2020",
    claims=_claims,
    read=_read,
    source_files=_source_files,
    form="records",
)
