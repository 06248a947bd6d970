# SPDX-License-Identifier: Apache-2.0
"""One common step for a request of "the next step": ranks read it at different times, and the first to read it chooses for all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from stepscope.collect import paths
from stepscope.control import board, plan
from stepscope.errors import CaptureError

_PREFIX = "agreed_"


def agreed_start(folder: Path, key: str, job: str, ranks: Sequence[int] | None) -> int | None:
    """The step at which all ranks of this job begin the request `key`; None when the folder does not let them agree."""
    place = folder / board.STATUS_FOLDER
    choice = place / f"{_PREFIX}{key}"
    try:
        if not choice.exists():
            _propose(choice, _common_step(folder, job, ranks))
            _forget_others(choice)
        return int(choice.read_text())
    except (OSError, ValueError, CaptureError):
        return None


def _common_step(folder: Path, job: str, ranks: Sequence[int] | None) -> int:
    answers = [seen for seen in board.of_ranks(board.read(folder), ranks) if seen.live and seen.answer.job == job]
    return plan.common_start(answers, plan.lead_seconds(answers))


def _propose(choice: Path, step: int) -> None:
    """The first rank wins: unlike a rename, a link does not replace what another rank has just written."""
    if not choice.parent.is_dir():
        paths.ensure_folder(choice.parent)
    mine = choice.with_name(f".{choice.name}.{board.of_this_process(0, 1).file_name()}.mine")
    paths.write_file(mine, str(step).encode())
    try:
        os.link(mine, choice)
    except FileExistsError:
        pass
    finally:
        mine.unlink()


def _forget_others(choice: Path) -> None:
    for other in choice.parent.glob(f"{_PREFIX}*"):
        if other != choice:
            other.unlink(missing_ok=True)
