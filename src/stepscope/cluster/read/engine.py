# SPDX-License-Identifier: Apache-2.0
"""Where digests are made: in this process or in processes of this machine (`dask_engine.py`: on a Dask cluster).

Whatever the engine, results are sorted before they are used, so that the output is the same byte for byte.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stepscope.child_process import ProcessEnded, answers, serve
from stepscope.cluster.read.memory import estimate
from stepscope.cluster.read.reading import Options, Outcome, read_digests, read_small_files
from stepscope.cluster.read.remote import in_this_process_only

BATCH = 16  # captures per task
ALONE = 4  # fewer captures than this are read in this process: starting others takes longer
TRIES = 3

Progress = Callable[[int, int], None]


def read_local(paths: Sequence[str], options: Options, workers: int | None = None, memory: int | None = None) -> Iterator[Outcome]:
    """Digests by processes of this machine, as they become ready.

    Captures whose small files suffice are read in this process. A process that dies takes its batch along; the captures of the
    batch are tried again one by one, then given up.

    Args:
        memory: bytes that each process may take; a capture that needs more is read while nothing else is.
    """
    small = read_small_files(paths, options)
    yield from small
    read = {outcome.path for outcome in small}
    paths = [path for path in paths if path not in read]
    if not paths:
        return
    jobs = max(1, min(workers or os.cpu_count() or 1, len(paths)))
    if jobs == 1 or len(paths) < ALONE or any(map(in_this_process_only, paths)):
        for path in paths:
            yield from read_digests([path], options)
        return
    large = {path for path in paths if memory is not None and estimate(path) > memory}
    for path in sorted(large):
        yield from _read_by(1, [path], options)
    yield from _read_by(jobs, [path for path in paths if path not in large], options)


def _read_by(jobs: int, paths: Sequence[str], options: Options) -> Iterator[Outcome]:
    """Digests by so many processes."""
    size = max(1, min(BATCH, -(-len(paths) // (2 * jobs))))
    todo = [list(paths[begin : begin + size]) for begin in range(0, len(paths), size)]
    for attempt in range(TRIES):
        failed: list[str] = []
        requests = [{"paths": batch, "keep_stores": options.keep_stores, "cache": options.cache} for batch in todo]
        for number, answer in answers("stepscope.cluster.read.engine:serve_digests", requests, jobs):
            try:
                rows = answer()["outcomes"]
            except ProcessEnded as problem:
                if attempt + 1 < TRIES:
                    failed += todo[number]
                else:
                    yield from (Outcome(path, None, error=f"the process that read it ended ({problem})") for path in todo[number])
                continue
            yield from map(_decoded, rows)
        if not failed:
            return
        todo = [[path] for path in failed]


def serve_digests() -> int:
    """Make digests for another process, one batch after the other."""
    return serve(_answer)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    options = Options(bool(request.get("keep_stores")), bool(request.get("cache", True)))
    return {"outcomes": [_encoded(outcome) for outcome in read_digests(request["paths"], options)]}


def _encoded(outcome: Outcome) -> dict[str, Any]:
    data = base64.b64encode(outcome.data).decode() if isinstance(outcome.data, bytes) else None
    return {"path": outcome.path, "data": data, "rank": outcome.rank, "error": outcome.error, "old": outcome.old}


def _decoded(row: dict[str, Any]) -> Outcome:
    data = None if row["data"] is None else base64.b64decode(row["data"])
    return Outcome(row["path"], data, row["rank"], row["error"], old=bool(row.get("old")))
