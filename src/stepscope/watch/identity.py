# SPDX-License-Identifier: Apache-2.0
"""Who writes a ring, and whether that process still runs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from stepscope.collect import metadata
from stepscope.control import board
from stepscope.watch.settings import Settings

SILENT_SECONDS = 300.0  # of a process in another container, whose number means nothing here
_JOB_NAMES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "OTEL_SERVICE_NAME")
_LONGEST = 200


def of_this_process(settings: Settings) -> dict[str, Any]:
    rank = str(metadata.rank())
    me = board.of_this_process(int(rank) if rank.isdigit() else 0, metadata.world_size())
    return {
        "job": (settings.job or _job())[:_LONGEST],
        "role": settings.role[:_LONGEST],
        "rank": me.rank,
        "host": me.host,
        "pid": me.pid,
        "born": me.born,
        "namespace": me.namespace,
        "began_ns": time.time_ns(),
    }


def alive(identity: dict[str, Any], path: Path) -> bool:
    """Whether the process that writes a ring still runs."""
    here = board.of_this_process(0, 1)
    if identity.get("host") == here.host and identity.get("namespace") == here.namespace:
        pid = identity.get("pid")
        return isinstance(pid, int) and board.start_ticks(pid) == identity.get("born")
    try:
        return time.time() - path.stat().st_mtime < SILENT_SECONDS
    except OSError:
        return False


def _job() -> str:
    named = (os.environ.get(name, "") for name in _JOB_NAMES)
    script = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    return next((name for name in named if name not in ("", "none")), script)
