# SPDX-License-Identifier: Apache-2.0
"""Whether requests in a folder may be followed: whoever can write there decides where a job of this user writes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

ROOTS = "STEPSCOPE_PROF_ROOTS"
_OUR_NAMES = ("status", "log")


def distrust_of_folder(folder: Path) -> str | None:
    """Why requests in this folder are not followed; None when they are.

    The folder belongs to this user or root and others cannot write to it, nor swap it for another one from a folder above.
    """
    # Jobs ask this every second: paths as text take a third of the time of `Path`.
    named = os.fspath(folder)
    try:
        for place in (named, *(os.path.join(named, name) for name in _OUR_NAMES)):
            if _is_link(place):
                return f"{place} is a symbolic link; use the real folder"
        status = os.lstat(named)
        if status.st_uid not in (os.geteuid(), 0):
            return f"{folder} belongs to another user (uid {status.st_uid}); use a folder of your own"
        if status.st_mode & stat.S_IWOTH:
            return f"{folder} is writable by everyone; run chmod o-w {folder}"
        place = os.path.realpath(named)
        while place != (above := os.path.dirname(place)):
            place, mode = above, os.lstat(above).st_mode
            # In a folder such as /tmp nobody can rename what belongs to others.
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return f"{place} is writable by everyone; run chmod o-w {place}"
    except OSError as why:
        return f"{folder} cannot be checked: {why.strerror}"
    return None


def _is_link(place: str) -> bool:
    """Whether a link stands there; `os.path.islink` would also deny it of what cannot be looked at."""
    try:
        return stat.S_ISLNK(os.lstat(place).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def distrust_of_file(path: str, status: os.stat_result) -> str | None:
    """Why an open file in a trusted folder is not followed; None when it is."""
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a regular file"
    if status.st_mode & stat.S_IWOTH:
        return f"{path} is writable by everyone; run chmod o-w {path}"
    return None


def outside_roots(prof_dir: str) -> str | None:
    """Why captures may not go to this folder; None when they may.

    They may go below the current folder, the home folder and the folders in STEPSCOPE_PROF_ROOTS.
    """
    try:
        wanted = Path(prof_dir).expanduser().resolve()
        allowed = _roots()
    except (OSError, RuntimeError, ValueError) as why:
        return f"prof_dir {prof_dir} cannot be resolved: {why}"
    # A job in a container often runs in `/`, which would allow everything.
    if wanted == Path.cwd() or any(wanted.is_relative_to(root) for root in allowed if root != Path(root.anchor)):
        return None
    places = ", ".join(str(root) for root in allowed)
    return f"prof_dir {prof_dir} is outside {places}; allow it by {ROOTS}=FOLDER:FOLDER in the job's environment"


def _roots() -> list[Path]:
    named = [Path(text) for text in os.environ.get(ROOTS, "").split(os.pathsep) if text]
    home = os.path.expanduser("~")  # stays "~" for a user without a home
    return [root.resolve() for root in (Path.cwd(), *([Path(home)] if os.path.isabs(home) else []), *named)]
