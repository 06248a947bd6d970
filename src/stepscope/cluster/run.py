# SPDX-License-Identifier: Apache-2.0
"""A run from its folder: discover the captures, make their digests, analyse them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from stepscope.cluster.analyse import Analysis, analyse
from stepscope.cluster.compare import compare
from stepscope.cluster.digest import Digests, MemberLists, union_digests
from stepscope.cluster.finding import Problem
from stepscope.cluster.read import store
from stepscope.cluster.read.discover import GAP_NS, Read, discover, runs_of, settle_ranks
from stepscope.cluster.read.engine import read_local
from stepscope.cluster.read.reading import Options, Outcome
from stepscope.cluster.read.remote import is_remote
from stepscope.cluster.read.second_look import Reader, SecondLook
from stepscope.cluster.words import ranges
from stepscope.errors import CaptureError

Engine = Callable[[Sequence[str], Options], Iterator[Outcome]]


@dataclass(frozen=True)
class Choice:
    """Which part of what lies at the roots is analysed.

    Attributes:
        run: number of the run from 1, oldest first; None for the newest.
        steps: only these; None for all.
        ranks: only these; None for all.
    """

    run: int | None = None
    steps: tuple[int, ...] | None = None
    ranks: tuple[int, ...] | None = None


@dataclass
class Loaded:
    """The digests of a run and what was wrong on the way to them.

    Attributes:
        captures: where the captures of each rank lie; empty when only digests were given.
        invented: ranks whose numbers the captures do not say.
        shallow: captures of which only small files were read.
    """

    digests: Digests
    problems: list[Problem] = field(default_factory=list)
    captures: dict[int, list[str]] = field(default_factory=dict)
    invented: list[int] = field(default_factory=list)
    shallow: set[str] = field(default_factory=set)


def load(
    roots: Sequence[Path | str], choice: Choice | None = None, options: Options | None = None, engine: Engine | None = None
) -> Loaded:
    """The digests of one run.

    Raises:
        CaptureError: nothing at the roots can be used.
    """
    choice, options = choice or Choice(), options or Options()
    if len(roots) == 1 and not is_remote(roots[0]) and store.is_cluster_store(Path(roots[0])):
        return _chosen(Loaded(store.read_cluster(Path(roots[0]))), choice)
    found = discover(roots)
    return settle((engine or read_local)(found.paths, options), _base(roots), choice, found.problems)


def load_all(roots: Sequence[Path | str], choice: Choice, options: Options, engine: Engine) -> list[Loaded]:
    """The digests of every run, oldest first; of a folder with digests, the one that is there.

    Raises:
        CaptureError: nothing at the roots can be used.
    """
    if len(roots) == 1 and not is_remote(roots[0]) and store.is_cluster_store(Path(roots[0])):
        return [load(roots, choice)]
    found = discover(roots)
    outcomes = list(engine(found.paths, options))
    first = settle(outcomes, _base(roots), replace(choice, run=1), found.problems)
    count = next((one.params["count"] for one in first.problems if one.kind == "several_runs"), 1)
    return [first, *(settle(outcomes, _base(roots), replace(choice, run=run), found.problems) for run in range(2, count + 1))]


def _base(roots: Sequence[Path | str]) -> str:
    """What all roots lie in; nothing for several of which one is an address."""
    if any(map(is_remote, roots)):
        return str(roots[0]).rstrip("/") if len(roots) == 1 else ""
    base = os.path.commonpath([os.path.abspath(root) for root in roots])
    return os.path.dirname(base) if os.path.isfile(base) else base


def settle(outcomes: Iterable[Outcome], base: str, choice: Choice | None = None, problems: Sequence[Problem] = ()) -> Loaded:
    """The digests of one run from those of single captures, in whatever order they come.

    Args:
        base: folder; captures are named by their path below it.
        problems: what is known to be wrong already.

    Raises:
        CaptureError: no capture can be used, or there is no such run.
    """
    choice, problems = choice or Choice(), list(problems)
    read: list[Read] = []
    lists = MemberLists()
    shallow: set[str] = set()
    for outcome in sorted(outcomes, key=lambda one: one.path):
        digests = store.from_bytes(outcome.data) if isinstance(outcome.data, bytes) else outcome.data
        if outcome.shallow:
            shallow.add(outcome.path)
        shown = _below(outcome.path, base)
        if digests is None:
            problems.append(Problem("failed", {"path": shown, "error": outcome.error or "its digest is damaged"}))
        else:
            if outcome.old:
                problems.append(Problem("old_digest", {"path": shown}))
            read.append(Read(shown, lists.take(digests), outcome.rank, outcome.path))
    if not read:
        raise CaptureError(
            "none of the captures can be read",
            where=base,
            cause="; ".join(str(problem.params.get("error")) for problem in problems[:3]),
            fix="see the errors of the single captures",
        )
    if shallow:
        problems.append(Problem("shallow", {"count": len(shallow)}))
    runs = runs_of(read)
    number = choice.run if choice.run is not None else _default_run(runs)
    if not 1 <= number <= len(runs):
        raise CaptureError(f"there is no run {number}", where=base, fix=f"choose a run from 1 to {len(runs)}")
    if len(runs) > 1:
        sizes = ", ".join(f"{place}: {len(run)} captures" for place, run in enumerate(runs, 1))
        problems.append(Problem("several_runs", {"count": len(runs), "runs": sizes, "chosen": number}))
    settled = settle_ranks(runs[number - 1])
    digests = _located(lists.give(union_digests(settled.digests)), settled.shown)
    return _chosen(Loaded(digests, [*problems, *settled.problems], settled.captures, settled.invented, shallow), choice)


def _default_run(runs: Sequence[Sequence[Read]]) -> int:
    """Number of the newest run; of runs at one time, such as those of NPUs and of a stray GPU capture, the largest."""
    begin = min(one.start_ns for one in runs[-1])
    beside = [place for place, run in enumerate(runs) if max(one.end_ns for one in run) > begin - GAP_NS]
    return max(beside, key=lambda place: (len(runs[place]), place)) + 1


def _below(path: str, base: str) -> str:
    if is_remote(path):
        return (path.removeprefix(base).strip("/") if base else path) or path
    return os.path.relpath(path, base) if base else path


# Profilers put the host's name in front of a capture's name; people put captures of a host into a folder of its own.
_HOST_IN_NAME = re.compile(r"(?P<host>[^/]+?)_\d+[._]\d{9,}[^/]*(?:\.pt\.trace\.json(?:\.gz)?|_ascend_pt|_ascend_ms)")
_HOST_FOLDER = re.compile(r"(?i)(?:host|node|server|machine)[-_.]?\d+")


def _located(digests: Digests, paths: Mapping[int, str]) -> Digests:
    """The digests with where the capture of each rank is, and its host by that if it does not say."""
    ranks = digests["cluster_ranks"]
    shown = [paths[rank] for rank in ranks["rank"].to_list()]
    hosts = pl.Series("host", map(_host, shown), dtype=pl.String)
    ranks = ranks.with_columns(pl.Series("path", shown, dtype=pl.String), pl.col("host").fill_null(hosts))
    return Digests({**digests.frames, "cluster_ranks": ranks})


def _host(path: str) -> str | None:
    named = _HOST_IN_NAME.fullmatch(os.path.basename(path))
    return named["host"] if named else next((part for part in path.split(os.sep)[:-1] if _HOST_FOLDER.fullmatch(part)), None)


def _chosen(loaded: Loaded, choice: Choice) -> Loaded:
    digests = loaded.digests
    if choice.ranks is not None:
        known, digests = digests.ranks, digests.filter(choice.ranks)
        if not digests.ranks:
            raise CaptureError("no rank is left", cause="none of the chosen ranks was found", fix=f"choose from {ranges(known)}")
    if choice.steps is not None:
        wanted = list(choice.steps)
        steps = sorted(digests["cluster_steps"]["step"].drop_nulls().unique().to_list())
        if not set(steps) & set(wanted):
            raise CaptureError("no step is left", cause="none of the chosen steps was found", fix=f"choose from {ranges(steps)}")
        digests = Digests(
            {
                name: frame.filter(pl.col("step").is_in(wanted)) if "step" in frame.columns else frame
                for name, frame in digests.frames.items()
            }
        )
    left = set(digests.ranks)
    captures = {rank: paths for rank, paths in loaded.captures.items() if rank in left}
    return replace(loaded, digests=digests, captures=captures)


def analyse_run(loaded: Loaded, baseline: Loaded | None = None, baseline_name: str = "", read: Reader | None = None) -> Analysis:
    """The analysis of loaded digests, beside that of a baseline run if there is one.

    Args:
        read: reads captures in full: suspects of which only small files were read, and a few of their peers.
    """

    def analysed(run: Loaded) -> Analysis:
        shallow = {rank for rank, paths in run.captures.items() if run.shallow & set(paths)}
        closer = SecondLook(run.captures, shallow, read) if read is not None and shallow else None
        return analyse(run.digests, run.problems, closer=closer)

    analysis = analysed(loaded)
    if baseline is not None:
        analysis.baseline = compare(analysed(baseline), analysis, baseline_name)
        if not analysis.baseline:
            analysis.problems.append(Problem("no_baseline", {"path": baseline_name}))
    return analysis
