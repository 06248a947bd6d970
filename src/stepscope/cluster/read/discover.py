# SPDX-License-Identifier: Apache-2.0
"""Which captures belong to a run: every capture below a folder, and which of them are of one time."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stepscope.cluster.digest import Digests, union_digests
from stepscope.cluster.finding import Problem
from stepscope.cluster.read import remote
from stepscope.errors import CaptureError
from stepscope.formats import registry

DEPTH = 5
GAP_NS = 600 * 10**9  # captures further apart are of different runs
_HEAD = 1 << 20  # bytes of a JSON file that are looked at
_NOT_CAPTURES = ("cluster_analysis_output", "stepscope_output")


@dataclass(frozen=True)
class Found:
    """Captures below a root, as paths or addresses, and what was seen on the way."""

    paths: list[str]
    problems: list[Problem]


def discover(roots: Sequence[Path | str]) -> Found:
    """Every capture at or below the roots, down to five levels; symbolic links are not followed.

    Raises:
        CaptureError: a root does not exist, or nothing below is a capture.
    """
    found: list[str] = []
    problems: list[Problem] = []
    for place in roots:
        if remote.is_remote(place):
            found += _discover_remote(str(place), problems)
            continue
        root = Path(os.path.expanduser(place))
        if not root.exists():
            raise CaptureError(
                "no such file or folder",
                where=str(root),
                fix="check the path; give the folder that holds the captures of all ranks",
            )
        paths: list[Path] = []
        _walk(root, DEPTH, paths, problems, top=True)
        found += map(str, paths)
    if not found:
        raise CaptureError(
            "no capture here", where=", ".join(map(str, roots)), cause=f"looked {DEPTH} levels deep",
            fix="give the folder that holds the captures of all ranks, or a folder that --digests wrote",
        )  # fmt: skip
    return Found(list(dict.fromkeys(found)), problems)


def _discover_remote(url: str, problems: list[Problem]) -> list[str]:
    """Addresses of the captures below one."""
    with remote.skeleton(url) as root:
        paths: list[Path] = []
        seen: list[Problem] = []
        _walk(root, DEPTH, paths, seen, top=True)
        for problem in seen:
            params = {name: str(value).replace(str(root), url) for name, value in problem.params.items()}
            problems.append(Problem(problem.kind, params, problem.rank))
        return [remote.join(url, path.relative_to(root).as_posix()) for path in paths]


def _walk(path: Path, depth: int, paths: list[Path], problems: list[Problem], *, top: bool = False) -> None:
    files = registry.claim(path)
    if files is not None and not _holds_ranks(path):
        paths.append(files.root)
        return
    if depth == 0 or not path.is_dir():
        return
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as problem:
        problems.append(Problem("failed", {"path": str(path), "error": str(problem)}))
        return
    claimed: list[tuple[Path, bool]] = []
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _NOT_CAPTURES:
            continue
        if entry.is_symlink():
            problems.append(Problem("link", {"path": entry.path}))
        elif entry.is_dir():
            _walk(Path(entry.path), depth - 1, paths, problems)
        elif entry.name.endswith((".json", ".json.gz", ".db", ".sqlite")):
            files = registry.claim(Path(entry.path))
            if files is not None and _may_be_trace(Path(entry.path)):
                claimed.append((files.root, files.file is None))
    # Databases and traces beside PROF folders are other forms of the same.
    if not any(one.name.startswith("PROF_") and one.parent == path for one in paths):
        paths += [one for one, _ in claimed]


def _may_be_trace(path: Path) -> bool:
    """Whether a JSON file that does not bear the name of a trace has events; settings and reports lie beside captures."""
    name = path.name.removesuffix(".gz")
    if not name.endswith(".json") or name.endswith(".pt.trace.json"):
        return True
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            head = file.read(_HEAD)
    except (OSError, EOFError):
        return True
    return b'"traceEvents"' in head or head.lstrip()[:1] == b"["


def _holds_ranks(path: Path) -> bool:
    """A folder with several capture folders of a framework inside is not one capture."""
    if not path.is_dir():
        return False
    try:
        inner = [entry.name for entry in os.scandir(path) if entry.is_dir() and entry.name.endswith(("_ascend_pt", "_ascend_ms"))]
    except OSError:
        return False
    return bool(inner)


@dataclass
class Read:
    """One capture that was read.

    Attributes:
        path: as it is shown, below the root.
        rank: what the capture says, None when it does not.
        source: where it lies.
    """

    path: str
    digests: Digests
    rank: int | None
    source: str = ""

    def __post_init__(self) -> None:
        ranks = self.digests["cluster_ranks"]
        self.start_ns, self.end_ns, self.device = (int(ranks[name][0] or 0) for name in ("start_ns", "end_ns", "device"))
        self.family = "gpu" if ranks["source"][0] in ("kineto", "nsys", "rocprof") else "npu"


def runs_of(read: Sequence[Read]) -> list[list[Read]]:
    """Captures of one time together, oldest run first; GPU and NPU captures are never of one run."""
    runs: list[list[Read]] = []
    for family in sorted({one.family for one in read}):
        reach = None
        for one in sorted((one for one in read if one.family == family), key=lambda one: (one.start_ns, one.path)):
            if reach is None or one.start_ns > reach + GAP_NS:
                runs.append([])
                reach = one.end_ns
            runs[-1].append(one)
            reach = max(reach, one.end_ns)
    return sorted(runs, key=lambda run: (min(one.start_ns for one in run), run[0].path))


@dataclass
class Settled:
    """One digest per rank, and the captures that it is of.

    Attributes:
        captures: where they lie.
        shown: path of the first one below the root.
        invented: ranks whose numbers the captures do not say.
    """

    digests: list[Digests]
    captures: dict[int, list[str]]
    shown: dict[int, str]
    invented: list[int]
    problems: list[Problem]


def settle_ranks(run: Sequence[Read]) -> Settled:
    """One digest per rank: numbers for captures without one, and a choice between captures of one rank at one time."""
    problems: list[Problem] = []
    captures: dict[int, list[str]] = {}
    shown: dict[int, str] = {}
    nameless = [one for one in run if one.rank is None]
    taken = {one.rank for one in run if one.rank is not None}
    free = (number for number in range(len(run) + len(taken) + 1) if number not in taken)
    numbered = [(one.rank, one) for one in run if one.rank is not None]
    order = sorted(nameless, key=lambda one: (one.device, one.path))
    invented = [(next(free), one) for one in order]
    numbered += invented
    if nameless:
        problems.append(Problem("no_rank", {"count": len(nameless)}))
    by_rank: dict[int, list[Read]] = {}
    for rank, one in sorted(numbered, key=lambda pair: (pair[0], pair[1].start_ns, pair[1].path)):
        assert rank is not None
        by_rank.setdefault(rank, []).append(one)
    kept: list[Digests] = []
    for rank, several in by_rank.items():
        chosen: list[Read] = []
        for one in sorted(several, key=lambda one: (-one.digests["cluster_calls"].height, one.path)):
            clash = next((other for other in chosen if one.start_ns < other.end_ns and other.start_ns < one.end_ns), None)
            if clash is not None:
                problems.append(Problem("duplicate", {"path": one.path, "kept": clash.path}, rank))
            else:
                chosen.append(one)
        chosen.sort(key=lambda one: one.start_ns)
        if len(chosen) > 1:
            problems.append(Problem("two_spans", {}, rank))
        kept.append(_joined(rank, chosen))
        captures[rank], shown[rank] = [one.source for one in chosen], chosen[0].path
    return Settled(kept, captures, shown, [rank for rank, _ in invented], problems)


def _joined(rank: int, parts: Sequence[Read]) -> Digests:
    """Captures of one rank one after the other; a step that is in both counts where it comes first."""
    if len(parts) == 1 and parts[0].rank == rank:
        return parts[0].digests
    frames: dict[str, list[pl.DataFrame]] = {}
    steps: set[int] = set()
    for part in parts:
        own = part.digests
        fresh = [step for step in own["cluster_steps"]["step"].to_list() if step not in steps]
        steps |= set(fresh)
        for name, frame in own.frames.items():
            if "step" in frame.columns:
                frame = frame.filter(pl.col("step").is_in(fresh) | pl.col("step").is_null())
            if name == "cluster_ranks" and frames.get(name):
                continue
            if "rank" in frame.columns:
                frame = frame.with_columns(rank=pl.lit(rank, pl.Int64))
            frames.setdefault(name, []).append(frame)
    return union_digests([Digests({name: pl.concat(several) for name, several in frames.items()})])
