# SPDX-License-Identifier: Apache-2.0
"""Captures written to a local folder and moved to their destination in the background.

Many ranks that write to shared storage at once slow each other's training down; a local disk does not.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path

from stepscope.collect import messages, paths
from stepscope.errors import CaptureError


def move_in_background(capture: Path, destination: Path) -> threading.Thread:
    """Move a capture into the folder `destination`; it appears there under its name only when whole."""
    thread = threading.Thread(target=_move_or_say, args=(capture, destination), name="stepscope-spool", daemon=False)
    thread.start()
    return thread


def move(capture: Path, destination: Path) -> Path:
    target = destination / capture.name
    paths.ensure_folder(destination)
    try:
        os.rename(capture, target)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise
    else:
        return target
    partial = paths.temporary(target)
    try:
        shutil.copytree(capture, partial, symlinks=True)
        os.rename(partial, target)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(capture)
    return target


def _move_or_say(capture: Path, destination: Path) -> None:
    try:
        target = move(capture, destination)
    except (OSError, CaptureError) as problem:
        messages.warning(f"the capture stays in {capture}: it cannot be moved to {destination}: {problem}")
    else:
        messages.info(f"the capture is in {target}")
