# SPDX-License-Identifier: Apache-2.0
"""Digests of captures, read in this process; a capture that cannot be read is a failure of its own and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.capture import Capture, gc_paused
from stepscope.cluster.digest import Digests
from stepscope.cluster.read import store
from stepscope.cluster.read.from_tables import digest
from stepscope.errors import CaptureError
from stepscope.formats import registry
from stepscope.tables.cluster import DIGEST_VERSION
from stepscope.tables.store import fingerprint


@dataclass(frozen=True)
class Outcome:
    """The digest of one capture as bytes, or why there is none."""

    path: str
    data: bytes | None
    rank: int | None = None
    error: str = ""


@dataclass(frozen=True)
class Options:
    """How captures are read.

    Attributes:
        keep_stores: write the store of each capture too.
        cache: read and write digests beside the captures.
    """

    keep_stores: bool = False
    cache: bool = True


def read_digests(paths: Sequence[str], options: Options) -> list[Outcome]:
    """The digests of some captures, in order."""
    return [_guarded(path, options) for path in paths]


def _guarded(path: str, options: Options) -> Outcome:
    try:
        with gc_paused():
            return _read(Path(path), options)
    except CaptureError as problem:
        return Outcome(path, None, error=" ".join(str(problem).split()))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as problem:  # noqa: BLE001 - one rank among many: the others go on
        return Outcome(path, None, error=f"{type(problem).__name__}: {problem}")


def _read(path: Path, options: Options) -> Outcome:
    files = registry.claim(path)
    if files is None:
        raise CaptureError("no reader knows this capture", where=str(path))
    capture = Capture(files)
    key = _key(capture)
    if options.cache:
        known = store.kept(path, key)
        if known is not None:
            return Outcome(str(path), store.to_bytes(known, key), _rank(known))
    tables = capture.load(keep=options.keep_stores, parallel=False)
    rank = tables.facts.rank
    made = digest(tables, rank=rank, path=path.name)
    data = store.to_bytes(made, key)
    if options.cache:
        store.keep(path, data)
    return Outcome(str(path), data, rank if rank >= 0 else None)


def _key(capture: Capture) -> list[Any]:
    return [DIGEST_VERSION, capture.source, fingerprint(capture.source_files(), capture.path)]


def _rank(digests: Digests) -> int | None:
    rank = int(digests["cluster_ranks"]["rank"][0])
    return rank if rank >= 0 else None
