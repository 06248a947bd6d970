# SPDX-License-Identifier: Apache-2.0
"""`stepscope cluster`: all ranks of a run: who is slow, why, and what it costs.

Prints at most 25 lines; exits with 3 when --fail-on fires, with 2 when nothing can be used.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.options import LANGUAGES, add_rank, numbers
from stepscope.errors import CaptureError

if TYPE_CHECKING:
    from stepscope.cluster.read.text_ahead import TextAhead
    from stepscope.cluster.run import Loaded

EXAMPLES = """\
  stepscope cluster runs/llama                             who is slow, why, and what it costs
  stepscope cluster runs/llama --json                      the same as JSON
  stepscope cluster runs/llama --fail-on slow-rank:2%      exit code 3 when a slow rank costs 2 % of a step
  stepscope cluster runs/llama --out insight/              cluster_analysis_output for MindStudio Insight
  stepscope cluster runs/llama --digests small/            keep what is needed to ask again, without the captures
"""
NOTHING_USABLE, FIRED, INTERRUPTED = 2, 3, 130
ALL = "all"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LIMIT = re.compile(r"(?P<kind>[a-z-]+):(?P<share>\d+(?:\.\d+)?)%?")
_RECIPES = ("cluster_time_summary", "compute_op_sum", "ep_load_balance", "freq_analysis", "hccl_sum", "slow_rank")
_KINDS = ("slow-rank", "slow-host", "slow-link", "slow-group", "pipeline-imbalance", "imbalance", "any")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "roots",
        type=_place,
        nargs="+",
        metavar="ROOT",
        help="folder with the captures of all ranks, or digests of them; also s3://, obs://, gs:// or hdfs://",
    )
    parser.add_argument(
        "--step", "--steps", type=numbers, dest="step", metavar="A[:B]", help="only this step, or A to B; also 10,12 (default: all)"
    )
    add_rank(parser)
    parser.add_argument(
        "--run", type=_run, metavar="N|all", help="which run, if there are several (default: the newest); all: a few lines of each"
    )
    parser.add_argument("--baseline", type=_place, metavar="OTHER", help="compare with another run")
    parser.add_argument("--workers", type=_count, metavar="N", help="processes that read captures (default: one per core)")
    parser.add_argument("--perfetto", type=Path, metavar="FILE", help="write all ranks on one clock as an archive for Perfetto")
    parser.add_argument("--unaligned", action="store_true", help="with ranks whose clock could not be aligned")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="let a Dask cluster read them, such as tcp://head:8786")
    parser.add_argument(
        "--map", type=_mapping, action="append", default=[], metavar="FROM=TO", help="where Dask workers find what is in FROM here"
    )
    parser.add_argument(
        "--memory", type=_bytes, metavar="SIZE", help="of each worker, such as 8G; captures that need more are read alone"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write cluster_analysis_output there, as msprof-analyze does for MindStudio Insight"
    )
    parser.add_argument(
        "--format", choices=("text", "db", "both"), help="of these files (default: text when all captures are text, else db)"
    )
    parser.add_argument(
        "--recipes",
        type=_recipes,
        default=(),
        metavar="NAME,...|all",
        help=f"further tables of the database, by the rules of msprof-analyze: {', '.join(_RECIPES)}",
    )
    parser.add_argument("--assume-ranks", action="store_true", help="write them also for captures that do not say their rank")
    parser.add_argument(
        "--digests", type=Path, metavar="DIR", help="write the digests of all ranks there, one Parquet file per table"
    )
    parser.add_argument(
        "--deep", action="store_true", help="read the timeline of every capture; else runs of more than 64 use the small files"
    )
    parser.add_argument("--keep-stores", action="store_true", help="also write the store of each capture")
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write digests beside the captures")
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="print JSON instead of text; with FILE write it there beside the text"
    )
    parser.add_argument(
        "--fail-on",
        type=_limit,
        action="append",
        default=[],
        metavar="KIND:PERCENT",
        help=f"exit with 3 when a finding costs this much of a step; kinds: {', '.join(_KINDS)}",
    )
    parser.add_argument("--lang", choices=LANGUAGES, help="language (default: that of the locale)")


def run(args: argparse.Namespace) -> int:
    # First of all, so that the other process starts while this one loads the rest.
    with _text_ahead(args) as ahead:
        from stepscope.capture import gc_paused
        from stepscope.tables.sealed_folder import keep_what_is_cut

        keep_what_is_cut()
        with gc_paused():
            return _answer(args, ahead)


@contextlib.contextmanager
def _text_ahead(args: argparse.Namespace) -> Iterator[TextAhead | None]:
    """A process that reads text files while digests are made, where files of many captures are written."""
    from stepscope.cluster.read.text_ahead import MANY, TextAhead

    if not args.out or args.recipes or args.format not in (None, "text") or args.workers == 1 or not _has_many(args.roots, MANY):
        yield None
        return
    with TextAhead() as ahead:
        yield ahead


def _has_many(roots: Sequence[Path | str], many: int) -> bool:
    """Whether that many captures may lie there; a folder of hosts has fewer entries, and is not looked into for this."""
    count = 0
    for root in roots:
        with contextlib.suppress(OSError):
            count += len(os.listdir(root))
    return count >= many


def _answer(args: argparse.Namespace, ahead: TextAhead | None) -> int:
    import orjson

    from stepscope.capture import folder_of
    from stepscope.cluster.files import prepare_files, write_files
    from stepscope.cluster.read import store
    from stepscope.cluster.read.engine import read_local
    from stepscope.cluster.read.reading import Options, Outcome
    from stepscope.cluster.report import lines
    from stepscope.cluster.run import Choice, analyse_run, load, load_all
    from stepscope.language import language

    def read(paths: Sequence[str], options: Options) -> Iterator[Outcome]:
        if args.scheduler:
            from stepscope.cluster.read.dask_engine import read_dask

            return read_dask(paths, options, args.scheduler, args.map, args.memory)
        return read_local(paths, options, args.workers, args.memory)

    def read_run(paths: Sequence[str], options: Options) -> Iterator[Outcome]:
        if ahead is not None:
            ahead.read(paths)
        return read(paths, options)

    try:
        if (args.format or args.recipes) and not args.out:
            raise CaptureError("--format and --recipes have nothing to write", fix="say where with --out DIR")
        if args.run == ALL and (args.out or args.perfetto or args.digests or args.baseline or args.fail_on):
            raise CaptureError(
                "--run all only tells, it writes and compares nothing",
                cause="--out, --perfetto, --digests, --baseline and --fail-on are about one run",
                fix="choose one with --run N",
            )
        options = Options(keep_stores=args.keep_stores, cache=not args.no_cache, deep=args.deep)
        ranks = tuple(args.rank) if args.rank else None
        roots = [folder_of(root) if isinstance(root, Path) else root for root in args.roots]
        if args.run == ALL:
            return _tell_all(load_all(roots, Choice(None, args.step, ranks), options, read), args)
        choice = Choice(args.run, args.step, ranks)
        loaded = load(roots, choice, options, read_run)
        if ahead is not None:
            prepare_files(loaded, ahead, assume_ranks=args.assume_ranks)
        baseline = load([args.baseline], Choice(), options, read) if args.baseline else None
        in_full = replace(options, deep=True)
        analysis = analyse_run(loaded, baseline, str(args.baseline or ""), lambda paths: read(paths, in_full))
        files = []
        if args.out:
            form, recipes = args.format or "", args.recipes
            written, more = write_files(
                loaded, analysis, args.out, form, recipes=recipes, assume_ranks=args.assume_ranks, ahead=ahead
            )
            analysis.problems += more
            files += sorted({f"{path.parent}/" for path in written})
        if args.perfetto:
            from stepscope.cluster.archive import write_archive

            analysis.problems += write_archive(args.perfetto, loaded, analysis, unaligned=args.unaligned)
            files.append(str(args.perfetto))
        if args.digests:
            with _writing(args.digests):
                store.write_cluster(args.digests, loaded.digests)
            files.append(str(args.digests))
        content = orjson.dumps(analysis.as_dict(), option=orjson.OPT_INDENT_2) + b"\n"
        if args.json and args.json != "-":
            with _writing(args.json):
                Path(args.json).write_bytes(content)
            files.append(args.json)
    except CaptureError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return NOTHING_USABLE
    except KeyboardInterrupt:
        kept = "" if args.no_cache else "; digests that were finished are kept, and the next run continues there"
        print(f"interrupted{kept}", file=sys.stderr)
        return INTERRUPTED
    if args.json == "-":
        sys.stdout.write(content.decode())
    else:
        print("\n".join(lines(analysis, language(args.lang), files)))
    for kind, share in args.fail_on:
        fired = [one for one in analysis.findings if kind in ("any", one.kind.replace("_", "-")) and one.share >= share]
        if fired:
            return FIRED
    return 0


def _tell_all(runs: Sequence[Loaded], args: argparse.Namespace) -> int:
    """Each run in a few lines, oldest first; as JSON in full."""
    import orjson

    from stepscope.cluster.report import brief
    from stepscope.cluster.run import analyse_run
    from stepscope.language import language

    analyses = [analyse_run(run) for run in runs]
    if args.json:
        found = {"schema": "stepscope.cluster-runs/1", "runs": [one.as_dict() for one in analyses]}
        content = orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n"
        if args.json == "-":
            sys.stdout.write(content.decode())
            return 0
        with _writing(args.json):
            Path(args.json).write_bytes(content)
    print("\n".join(brief(analyses, language(args.lang))))
    return 0


def _run(text: str) -> int | str:
    if text != ALL and not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is neither the number of a run nor all")
    return text if text == ALL else int(text)


@contextlib.contextmanager
def _writing(path: Path | str) -> Iterator[None]:
    """What cannot be written is an error of the call."""
    try:
        yield
    except OSError as problem:
        raise CaptureError(
            "the results cannot be written", where=str(path), cause=problem.strerror or str(problem), fix="choose another place"
        ) from problem


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _recipes(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(word.strip() for word in text.split(","))) if text != "all" else _RECIPES
    unknown = [name for name in names if name not in _RECIPES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(map(repr, unknown))} is not one of {', '.join(_RECIPES)}, or all")
    return names


def _place(text: str) -> Path | str:
    return text if "://" in text else Path(text)


def _mapping(text: str) -> tuple[str, str]:
    here, equals, there = text.partition("=")
    if not (here and equals and there):
        raise argparse.ArgumentTypeError(f"{text!r} is not FROM=TO, such as /home/me/runs=/mnt/runs")
    return here, there


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 8G")
    return round(float(match[1]) * _UNITS[match[2].upper()])


def _limit(text: str) -> tuple[str, float]:
    match = _LIMIT.fullmatch(text)
    if not match or match["kind"] not in _KINDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(_KINDS)} and a share, such as slow-rank:2%")
    return match["kind"], float(match["share"]) / 100
