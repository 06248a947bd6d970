# SPDX-License-Identifier: Apache-2.0
"""The files of a run in `cluster_analysis_output/`, and in its database also what we found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from stepscope.cluster.analyse import Analysis
from stepscope.cluster.finding import Problem
from stepscope.cluster.read.text_ahead import TextAhead
from stepscope.cluster.read.text_files import form_of, joined
from stepscope.cluster.run import Loaded
from stepscope.errors import CaptureError
from stepscope.export.cluster.ranks import DB, TEXT, RankFiles
from stepscope.export.cluster.text import write_text
from stepscope.render.atomic import make_output_folder

FOLDER = "cluster_analysis_output"
BOTH = "both"
_FOREIGN = ("kineto", "nsys", "rocprof")


def prepare_files(loaded: Loaded, ahead: TextAhead, *, assume_ranks: bool = False) -> None:
    """Let a process that reads the text files of the captures make those of the run, if text is all that is written.

    Nothing in them depends on the analysis, which goes on meanwhile; `write_files` waits for them and has them written.

    Raises:
        CaptureError: nothing can be written.
    """
    _refuse_without_ranks(loaded, assume_ranks)
    ahead.prepare(dict(sorted(loaded.captures.items())))


def write_files(
    loaded: Loaded,
    analysis: Analysis,
    out: Path,
    form: str = "",
    *,
    recipes: Sequence[str] = (),
    assume_ranks: bool = False,
    ahead: TextAhead | None = None,
) -> tuple[list[Path], list[Problem]]:
    """Write the files below a folder; also what could not be used for them.

    Args:
        form: text, db or both; empty for text when all captures are text, else db.
        recipes: names of further tables; they are in the database, whatever the form.
        assume_ranks: also for captures that do not say their rank.
        ahead: a process that has made the text files (`prepare_files`).

    Raises:
        CaptureError: nothing can be written.
    """
    prepared = ahead.prepared() if ahead is not None else None
    if ahead is not None and prepared is not None:
        problems, any_rank = prepared
        if not any_rank:
            raise _nothing(loaded.captures, problems)
        done = ahead.write(make_output_folder(out / FOLDER))
        if done is not None:
            return done, problems
    _refuse_without_ranks(loaded, assume_ranks)
    paths = {rank: [Path(one) for one in several] for rank, several in sorted(loaded.captures.items())}
    forms = {form_of(path) for several in paths.values() for path in several}
    if not form:
        form = TEXT if forms == {TEXT} else DB
    if recipes and form == TEXT:
        form = BOTH
    ranks, problems = _read(paths, TEXT if form == TEXT else "")
    if not ranks:
        raise _nothing(paths, problems)
    folder = make_output_folder(out / FOLDER)
    written = []
    if form in (TEXT, BOTH):
        written += write_text(ranks, folder)
    if form in (DB, BOTH):
        from stepscope.cluster.database_tables import own_tables
        from stepscope.export.cluster.database import write_database

        more = own_tables(analysis)
        if recipes:
            from stepscope.cluster.read.recipe_rows import read_recipe_rows
            from stepscope.export.cluster.recipes import recipe_tables

            rows, unread = read_recipe_rows(paths)
            problems += unread
            more |= recipe_tables(rows, recipes)
        written += write_database(ranks, folder, more)
    return written, problems


def _nothing(paths: Mapping[int, Sequence[Path | str]], problems: Sequence[Problem]) -> CaptureError:
    return CaptureError(
        "no rank has files for cluster_analysis_output",
        where=", ".join(str(path) for several in list(paths.values())[:3] for path in several),
        cause="; ".join(str(problem.params["error"]) for problem in problems[:3]),
        fix="see the errors of the single captures",
    )


def _refuse_without_ranks(loaded: Loaded, assume_ranks: bool) -> None:
    if not loaded.captures:
        raise CaptureError(
            "cluster_analysis_output cannot be written from digests",
            cause="its figures are in the files of the captures, not in the digests",
            fix="give the folder that holds the captures",
        )
    sources = loaded.digests["cluster_ranks"]["source"].unique().drop_nulls().sort().to_list()
    if sources and all(source in _FOREIGN for source in sources):
        raise CaptureError(
            "cluster_analysis_output is for captures of NPUs",
            cause=f"these are captures of {', '.join(sources)}",
            fix="leave out --out; --json and --digests write what is known",
        )
    if loaded.invented and not assume_ranks:
        raise CaptureError(
            f"{len(loaded.invented)} captures do not say their rank",
            cause="the files name ranks by number",
            fix="pass --assume-ranks to number them by device and name",
        )


def _read(paths: dict[int, list[Path]], wanted: str) -> tuple[list[RankFiles], list[Problem]]:
    from stepscope.cluster.read.rank_files import read_rank_files

    ranks, problems = [], []
    for rank, several in paths.items():
        parts = []
        for path in several:
            try:
                parts.append(read_rank_files(path, rank, wanted))
            except CaptureError as problem:
                problems.append(Problem("files", {"path": path.name, "error": " ".join(str(problem).split())}, rank))
        if parts:
            ranks.append(joined(parts))
    return ranks, problems
