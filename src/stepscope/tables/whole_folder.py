# SPDX-License-Identifier: Apache-2.0
"""A folder that is whole or absent: filled under another name, then put in the place of the old one.

A killed process can leave its half-built folder behind, or die in the instant between the two renames. The names carry
the process number, so the next one to build there removes or puts back what a dead process left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODE = 0o750


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """A new, empty folder beside `target` that replaces it when the block ends well; else nothing changes."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=MODE)
    _tidy(target)
    new, old = (target.with_name(f".{target.name.lstrip('.')}.{word}-{os.getpid()}") for word in ("building", "old"))
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    os.chmod(new, MODE)
    try:
        yield new
        if target.exists():
            os.rename(target, old)
        os.rename(new, target)
    except BaseException:
        if old.exists() and not target.exists():
            os.rename(old, target)
        raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _tidy(target: Path) -> None:
    """Remove what processes that are gone have left; put an old folder back when no new one came."""
    stem = f".{target.name.lstrip('.')}"
    for left in sorted(target.parent.glob(f"{stem}.old-*")):
        if _gone(left) and not target.exists():
            os.rename(left, target)
    for left in (*target.parent.glob(f"{stem}.building-*"), *target.parent.glob(f"{stem}.old-*")):
        if _gone(left):
            shutil.rmtree(left, ignore_errors=True)


def _gone(left: Path) -> bool:
    number = left.name.rpartition("-")[2]
    if not number.isdigit() or int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
