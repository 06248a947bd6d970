# SPDX-License-Identifier: Apache-2.0
"""How much memory reading a capture takes, by the sizes of its files."""

from __future__ import annotations

import os
from pathlib import Path

from stepscope.cluster.read import remote

# Times the size of the file. A store is mapped, databases and raw records become columns, JSON is parsed.
_TIMES = ((".json.gz", 40.0), (".json", 4.0), (".arrow", 0.2), (".parquet", 1.0))
OTHER_TIMES = 1.5


def estimate(path: str) -> int:
    """Bytes that a process needs to read the capture at a path; 0 for one that cannot be looked at."""
    if remote.is_remote(path):
        return sum(round(_times(name) * size) for name, size in remote.sizes(path).items())
    here = Path(path)
    if here.is_file():
        return round(_times(here.name) * here.stat().st_size)
    total = 0.0
    for folder, _, names in os.walk(here):
        for name in names:
            try:
                total += _times(name) * os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return round(total)


def _times(name: str) -> float:
    return next((times for end, times in _TIMES if name.endswith(end)), OTHER_TIMES)
