# SPDX-License-Identifier: Apache-2.0
"""Every kind of capture that can be read, in the order in which the readers are tried.

A new format is one folder with a `Reader` and one line here (docs/contributing/add-a-format.md).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stepscope.formats.ascend.db.reader import READER as ASCEND_DATABASE
from stepscope.formats.ascend.trace.reader import READER as ASCEND_TIMELINE
from stepscope.formats.ascend_capture.capture_folder import READER as CAPTURE_FOLDER
from stepscope.formats.ascend_capture.prof_folder import READER as PROF_FOLDER
from stepscope.formats.ascend_capture.text_files import READER as ASCEND_TEXT
from stepscope.formats.kineto.reader import READER as KINETO
from stepscope.formats.memory_snapshot.reader import READER as MEMORY_SNAPSHOT
from stepscope.formats.mindspore.reader import READER as MINDSPORE_RUNTIME
from stepscope.formats.mindspore_2020.reader import READER as MINDSPORE_2020
from stepscope.formats.nsys.reader import READER as NSYS
from stepscope.formats.reader import CaptureFiles, Reader
from stepscope.formats.ring.reader import READER as RING
from stepscope.formats.rocprof.reader import READER as ROCPROF
from stepscope.formats.store.reader import READER as STORE

READERS: tuple[Reader, ...] = (
    PROF_FOLDER,
    CAPTURE_FOLDER,
    ASCEND_TEXT,
    MINDSPORE_RUNTIME,
    MINDSPORE_2020,
    ASCEND_TIMELINE,
    ROCPROF,
    KINETO,
    NSYS,
    MEMORY_SNAPSHOT,
    RING,
    ASCEND_DATABASE,
    STORE,  # last: the tables beside a capture are made from it
)


def claim(path: Path) -> CaptureFiles | None:
    """The capture that `path` itself is; None where no reader knows it, or where it only holds some."""
    for reader in READERS:
        files = reader.claims(path)
        if files is not None:
            return replace(files, format=reader.name)
    return None


def reader_of(files: CaptureFiles) -> Reader:
    """The reader that claimed a capture."""
    return next(reader for reader in READERS if reader.name == files.format)
