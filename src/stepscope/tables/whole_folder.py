# SPDX-License-Identifier: Apache-2.0
"""Folders that are whole or absent: built under another name, renamed when complete.

Several machines may share the disk, and containers share process numbers: a temporary name says on which machine and in which
container it was made, and is random besides. Whoever finishes last has the folder.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MODE = 0o750
TRIES = 100
LEFT_SECONDS = 24 * 3600.0  # what another machine has not touched for so long, nobody finishes
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
_OWNED = re.compile(r"-(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}$")


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """A new, empty folder beside `target` that replaces it when the block ends well; else nothing changes."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=MODE)
    _tidy(target)
    new, old = (_temporary(target, word) for word in ("building", "old"))
    try:
        new.mkdir()
        os.chmod(new, MODE)
        yield new
        _replace(target, new, old)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@functools.cache
def machine() -> str:
    """A short name of this machine since it was started, and of this container: process numbers are unique below it."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:8]


def _temporary(target: Path, word: str) -> Path:
    return target.with_name(f".{target.name.lstrip('.')}.{word}-{machine()}-{os.getpid()}-{secrets.token_hex(4)}")


def _replace(target: Path, new: Path, old: Path) -> None:
    """Put `new` in the place of `target`; another process may do the same at this moment."""
    for _ in range(TRIES):
        moved = _moved(target, old)
        try:
            os.rename(new, target)
        except BaseException as problem:
            if isinstance(problem, OSError) and problem.errno in _TAKEN:
                shutil.rmtree(old, ignore_errors=True)  # another process was faster: what it has put there is next
                continue
            if moved:
                os.rename(old, target)
            raise
        return
    raise OSError(errno.EBUSY, "other processes replace the folder all the time", str(target))


def _moved(target: Path, old: Path) -> bool:
    try:
        os.rename(target, old)
    except FileNotFoundError:
        return False
    return True


def _tidy(target: Path) -> None:
    """Remove what processes that are gone have left; put an old folder back when no new one came."""
    stem = f".{target.name.lstrip('.')}"
    for left in sorted(target.parent.glob(f"{stem}.old-*")):
        if _gone(left) and not target.exists():
            with suppress(OSError):  # another process tidies too
                os.rename(left, target)
    for left in (*target.parent.glob(f"{stem}.building-*"), *target.parent.glob(f"{stem}.old-*")):
        if _gone(left):
            shutil.rmtree(left, ignore_errors=True)


def _gone(left: Path) -> bool:
    """Whether nobody works on a temporary folder any more."""
    owner = _OWNED.search(left.name)
    if owner and owner["machine"] == machine():
        return int(owner["pid"]) != os.getpid() and not _runs(int(owner["pid"]))
    try:
        return time.time() - left.stat().st_mtime > LEFT_SECONDS
    except OSError:
        return False


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
