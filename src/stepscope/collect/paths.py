# SPDX-License-Identifier: Apache-2.0
"""Folders and files of a capture: which paths are accepted, how folders are named and created.

The rules are those of docs/formats/framework.md 1.2 to 1.4.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from pathlib import Path

from stepscope.collect import messages
from stepscope.errors import CaptureError

FOLDER_MODE, FILE_MODE = 0o750, 0o640
LONGEST_PATH, LONGEST_NAME = 4096, 255
_PORTABLE = re.compile(r"[./_\-~\s0-9A-Za-z\u4e00-\u9fa5]*")
_STAMP_DIGITS = 17
_NAME_SHOWN = 60  # characters, so that the rest fits whatever their bytes


def longest_worker_name() -> int:
    """How many characters fit before the process id, the time and the suffix."""
    return LONGEST_NAME - len(f"_{os.getpid()}_{'0' * _STAMP_DIGITS}_ascend_pt")


def resolve_path(text: str | os.PathLike[str]) -> Path:
    """A user's path, expanded and resolved.

    Raises:
        CaptureError: the path is empty or longer than file systems allow.
    """
    if not str(text):
        raise CaptureError("the path is empty", fix="give the path of a folder")
    path = Path(os.path.expanduser(text))
    if not _PORTABLE.fullmatch(str(path)):
        messages.once(
            messages.warning, f"{path}: use only letters, digits and underscores in paths; other tools may reject this one"
        )
    if path.is_symlink():
        messages.once(messages.warning, f"{path} is a symbolic link; {path.resolve()} is used")
    whole = Path(os.path.abspath(path.resolve() if path.is_symlink() else path))
    if len(str(whole)) > LONGEST_PATH:
        raise CaptureError(
            f"the path is longer than {LONGEST_PATH} characters", where=str(whole)[:80] + "…", fix="give a shorter one"
        )
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in whole.parts):
        raise CaptureError(
            f"a name in the path is longer than {LONGEST_NAME}", where=str(whole)[:80] + "…", fix="give a shorter one"
        )
    return whole


def writable_folder(text: str | os.PathLike[str]) -> Path:
    """The folder at a user's path, created if missing.

    Raises:
        CaptureError: the path is a file, or the folder is not writable.
    """
    folder = resolve_path(text)
    ensure_folder(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CaptureError("the folder is not writable", where=str(folder), cause="no permission", fix=f"chmod u+wx {folder}")
    return folder


def ensure_folder(folder: Path) -> None:
    """Create every missing level with mode 0750 at most; existing folders keep their mode."""
    missing = [level for level in (folder, *folder.parents) if not level.exists()]
    try:
        for level in reversed(missing):
            try:
                level.mkdir(mode=FOLDER_MODE)
            except FileExistsError:
                if not level.is_dir():
                    raise
    except OSError as problem:
        raise CaptureError(
            "cannot create the folder", where=str(folder), cause=problem.strerror, fix="choose another one"
        ) from problem
    if not folder.is_dir():
        raise CaptureError("the path is a file, not a folder", where=str(folder), fix="choose another path")


def new_capture_folder(
    parent: Path, worker: str | None, *, now_ms: int | None = None, ending: str = "_ascend_pt", utc: bool = False
) -> Path:
    """Create `{worker}_{pid}_{time}_ascend_pt`, with the next free millisecond if that name exists."""
    moment = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    while True:
        seconds, milliseconds = divmod(moment, 1000)
        stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(seconds) if utc else time.localtime(seconds)) + f"{milliseconds:03d}"
        folder = parent / f"{worker or socket.gethostname()}_{os.getpid()}_{stamp}{ending}"
        try:
            folder.mkdir(mode=FOLDER_MODE)
        except FileExistsError:
            moment += 1
        except OSError as problem:
            cause = problem.strerror
            raise CaptureError(
                "cannot create the capture's folder", where=str(folder), cause=cause, fix="choose another one"
            ) from problem
        else:
            return folder


def temporary(path: Path) -> Path:
    """A new name beside `path`; random, since machines may share the folder, and containers their process numbers."""
    return path.with_name(f".{path.name[:_NAME_SHOWN]}.{secrets.token_hex(8)}.partial")


def write_file(path: Path, content: bytes) -> None:
    """Write a file of mode 0640 atomically."""
    partial = temporary(path)
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as file:
            file.write(content)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def narrow(path: Path) -> None:
    """Remove the permissions beyond 0640 that another program gave a file."""
    os.chmod(path, path.stat().st_mode & FILE_MODE)
