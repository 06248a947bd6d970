# SPDX-License-Identifier: Apache-2.0
"""Digests of captures, read in this process; a capture that cannot be read is a failure of its own and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope import __version__
from stepscope.capture import Capture, gc_paused
from stepscope.cluster.digest import Digests
from stepscope.cluster.read import remote, store
from stepscope.cluster.read.from_tables import digest
from stepscope.cluster.read.lean import read_lean
from stepscope.errors import CaptureError
from stepscope.formats import registry
from stepscope.tables.cluster import DIGEST_VERSION
from stepscope.tables.store import fingerprint

# What must be the same for digests to mean the same.
MADE_BY = (__version__, DIGEST_VERSION)
FEW = 64  # captures of a run of which everything is read, a third of a second each


@dataclass(frozen=True)
class Outcome:
    """The digest of one capture, as bytes when it comes from another process, or why there is none.

    Attributes:
        shallow: only the small files were read, though the capture has a timeline.
        old: a digest of another version was there and was made again.
    """

    path: str
    data: bytes | Digests | None
    rank: int | None = None
    error: str = ""
    shallow: bool = False
    old: bool = False


@dataclass(frozen=True)
class Options:
    """How captures are read.

    Attributes:
        keep_stores: write the store of each capture too.
        cache: read and write digests beside the captures.
        deep: read the timeline of every capture; else runs of many captures are read from their small files.
    """

    keep_stores: bool = False
    cache: bool = True
    deep: bool = False


def read_digests(paths: Sequence[str], options: Options) -> list[Outcome]:
    """The digests of some captures, in order."""
    return [_guarded(path, options) for path in paths]


def read_small_files(paths: Sequence[str], options: Options) -> list[Outcome]:
    """The digests of those captures whose small files suffice.

    Of few captures all files are read, where there are more. A digest from small files is not kept: reading it again takes as long.
    """
    if options.keep_stores:
        return []
    with gc_paused():
        found = read_lean([path for path in paths if not remote.is_remote(path)], deep=options.deep or len(paths) <= FEW)
    return [Outcome(path, one.digests, one.rank, shallow=one.shallow) for path, one in found.items()]


def _guarded(path: str, options: Options) -> Outcome:
    try:
        with gc_paused():
            return _read_remote(path, options) if remote.is_remote(path) else _read(Path(path), options)
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
    old = options.cache and store.keep(path, data) and store.remove_older(path)
    return Outcome(str(path), data, rank if rank >= 0 else None, old=old)


def _read_remote(url: str, options: Options) -> Outcome:
    """The digest of a capture on object storage; it is kept in the user's cache, as long as the files there are the same."""
    key = [*MADE_BY, url, remote.fingerprint(url)]
    if options.cache:
        known = store.kept(url, key)
        if known is not None:
            return Outcome(url, store.to_bytes(known, key), _rank(known))
    with remote.copied(url) as path:
        small = read_small_files([str(path)], Options(cache=False))
        made = small[0] if small else _read(path, Options(cache=False))
    digests = store.from_bytes(made.data) if isinstance(made.data, bytes) else made.data
    assert digests is not None
    data = store.to_bytes(digests, key)
    if options.cache:
        store.keep(url, data)
    return Outcome(url, data, made.rank)


def _key(capture: Capture) -> list[Any]:
    return [*MADE_BY, capture.source, fingerprint(capture.source_files(), capture.path)]


def _rank(digests: Digests) -> int | None:
    rank = int(digests["cluster_ranks"]["rank"][0])
    return rank if rank >= 0 else None
