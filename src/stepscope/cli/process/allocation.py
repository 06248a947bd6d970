# SPDX-License-Identifier: Apache-2.0
"""Memory of short commands: freed memory is kept, since as much is needed again in a moment.

Returning every large column to the operating system and asking for zeroed pages again costs a tenth of the time of an
analysis, up to a fifth for a large raw folder.
"""

from __future__ import annotations

import ctypes
import os
import sys

# The allocator gives memory back little by little during this time: within seconds, next to nothing of it.
_KEPT_MS = 60_000
# One arena: what one thread frees, another takes. Without the oversize threshold, blocks of more than 8 MiB would be given back at
# once all the same.
_JEMALLOC = f"dirty_decay_ms:{_KEPT_MS},muzzy_decay_ms:{_KEPT_MS},narenas:1,oversize_threshold:0"
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8  # parameter numbers of mallopt
_GLIBC = {
    _MMAP_THRESHOLD: 32 << 20,  # the maximum
    _TRIM_THRESHOLD: 1 << 30,
    _TOP_PAD: 64 << 20,
    _ARENA_MAX: 1,  # arenas of other threads hold 64 MiB, too little for columns
}


def start_no_algebra_threads() -> None:
    """Call this before numpy is loaded. There is no algebra here: its threads would only wait, and spin meanwhile."""
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def keep_freed_memory() -> None:
    """Call this before polars is loaded: its allocator reads its settings only once."""
    if "polars" not in sys.modules:
        os.environ.setdefault("_RJEM_MALLOC_CONF", _JEMALLOC)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it, other C libraries may not
    if mallopt is not None:
        for setting, value in _GLIBC.items():
            mallopt(setting, value)
