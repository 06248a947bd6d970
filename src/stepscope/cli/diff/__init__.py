# SPDX-License-Identifier: Apache-2.0
"""`stepscope diff`: why two runs differ, and whether a budget is kept.

Exit codes: 0 good or within budget, 1 regression beyond limit and noise, 2 wrong usage or unreadable, 3 not comparable or
cannot tell.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.options import LANGUAGES, LEVELS, add_rank, add_source, add_step, positive
from stepscope.cli.show import note
from stepscope.errors import CaptureError

if TYPE_CHECKING:
    from stepscope.capture import Capture
    from stepscope.diff import Diff
    from stepscope.diff.gate import Budget
    from stepscope.diff.series import Run
    from stepscope.tables import Tables

FORMATS = ("text", "md", "html", "json")
WITHIN, USAGE, NO_ANSWER = 0, 2, 3
EXAMPLES = """\
  stepscope diff runs/main runs/branch                                        why the second is slower or faster
  stepscope diff main1 main2 main3 -- branch1 branch2 branch3 --by op         several runs a side: noise between runs counts
  stepscope diff runs/main -- runs/branch --gate budget.toml --format md      for CI: the exit code says whether a budget is kept
  stepscope diff --series runs/nightly                                        since which run the step time has changed
"""


def rewrite(arguments: Sequence[str]) -> list[str]:
    """`BASE… -- NEW…` as the parser can read it: options may follow the new side, so `--` becomes an option too."""
    place = arguments.index("--") if "--" in arguments else None
    return list(arguments) if place is None else [*arguments[:place], "--new", *arguments[place + 1 :]]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "stepscope diff BASE… -- NEW… [options]\n       stepscope diff BASE NEW [options]\n       stepscope diff --series DIR"
    )
    parser.add_argument("base", type=Path, nargs="*", metavar="BASE", help="capture, or folder with the captures of all ranks")
    parser.add_argument("--new", type=Path, nargs="+", metavar="NEW", help="the side to explain; `--` is short for it")
    parser.add_argument("--by", choices=LEVELS, default="kernel", help="level of the rows (default: kernel)")
    parser.add_argument("--format", choices=FORMATS, default="text", help="how to print it (default: text)")
    parser.add_argument("--json", action="store_const", dest="format", const="json", help="print JSON: --format json")
    parser.add_argument("--lang", choices=LANGUAGES, help="language (default: that of the locale)")
    parser.add_argument("--top", type=positive, default=10, metavar="N", help="number of rows to show (default: 10)")
    add_rank(parser)
    add_step(parser)
    parser.add_argument("--gate", type=Path, metavar="FILE", help="TOML file with a budget; the exit code says whether it is kept")
    parser.add_argument("--series", type=Path, metavar="DIR", help="find change points over all runs in a folder, oldest first")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to this file instead of printing")
    add_source(parser)


def run(args: argparse.Namespace) -> int:
    if args.series is not None:
        return _series(args)
    base, new = _sides(args)
    from stepscope.diff import words
    from stepscope.diff.gate import read_budget

    try:
        budget = read_budget(args.gate) if args.gate else None
        found = _compare(args, base, new, budget)
    except CaptureError as problem:
        # A script must not take an unreadable file for "cannot tell".
        print(f"error: {problem}", file=sys.stderr)
        return USAGE
    _write(args, _text(found, args, args.format))
    if found.gate is None:
        if args.format == "text" and sys.stdout.isatty():
            note(words.line("next", words.language(args.lang), path=str(new[0])))
        return WITHIN
    _write_for_review(found, args)
    return found.gate.exit


def _sides(args: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    base, new = list(args.base), list(args.new or ())
    if not new and len(base) == 2:
        base, new = base[:1], base[1:]
    if not base or not new:
        print(
            "error: two sides are needed\n  do this: stepscope diff BASE… -- NEW…  (two captures also without --)", file=sys.stderr
        )
        raise SystemExit(USAGE)
    return base, new


def _opened(paths: Sequence[Path], args: argparse.Namespace) -> list[Capture]:
    from stepscope.cli.chosen import captures_at

    return captures_at(paths, source=args.source, ranks=args.rank or ())


def _each(captures: Sequence[Capture], steps: tuple[int, int] | None) -> Iterator[Tables]:
    """Tables of one capture at a time: those of a side need not fit into memory together."""
    from stepscope.analysis.step_range import numbered

    for capture in captures:
        tables = capture.load()
        yield numbered(tables, *steps) if steps else tables


def _compare(args: argparse.Namespace, base: Sequence[Path], new: Sequence[Path], budget: Budget | None) -> Diff:
    from stepscope.diff.engine import Side, compare_sides, record
    from stepscope.diff.gate import gate
    from stepscope.verdict import verdict

    captures = [_opened(paths, args) for paths in (base, new)]
    sides = [Side([record(tables) for tables in _each(side, args.step)]) for side in captures]
    found = compare_sides(sides[0], sides[1], by=args.by)
    if budget is None:
        return found
    findings = verdict(list(_each(captures[1], args.step)), rules=set(budget.rules)).findings if budget.rules else ()
    return found.with_gate(gate(found, budget, findings))


def _text(found: Diff, args: argparse.Namespace, form: str) -> str:
    import shutil

    import orjson

    from stepscope.diff import words
    from stepscope.diff.html import page
    from stepscope.diff.text import lines, markdown

    lang = words.language(args.lang)
    if form == "json":
        return orjson.dumps(found.as_dict(), option=orjson.OPT_INDENT_2).decode() + "\n"
    if form == "html":
        return page(found, lang, top=args.top)
    if form == "md":
        return "\n".join(markdown(found, lang, top=args.top)) + "\n"
    width = min(shutil.get_terminal_size().columns, 140) if sys.stdout.isatty() else 120
    return "\n".join(lines(found, lang, width=width, top=args.top)) + "\n"


def _write(args: argparse.Namespace, text: str) -> None:
    if args.out:
        args.out.write_text(text, encoding="utf-8")
        note(f"wrote {args.out}")
    else:
        print(text, end="")


def _write_for_review(found: Diff, args: argparse.Namespace) -> None:
    """With a budget, JSON and Markdown are always written, beside `--out` or here: the job that posts them runs afterwards."""
    beside = args.out if args.out else Path("stepscope-diff")
    for form in ("json", "md"):
        path = beside.with_suffix(f".{form}")
        if path != args.out:
            path.write_text(_text(found, args, form), encoding="utf-8")
            note(f"wrote {path}")


def _series(args: argparse.Namespace) -> int:
    if args.base or args.new or args.gate or args.format == "html":
        print(
            "error: --series compares the runs of one folder with each other\n"
            "  do this: leave out BASE, NEW, --gate and --format html",
            file=sys.stderr,
        )
        return USAGE
    import orjson

    from stepscope.diff import words
    from stepscope.diff.series import series
    from stepscope.diff.text import escaped

    try:
        found = series(list(_runs(args.series, args)))
    except CaptureError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return USAGE
    if args.format == "json":
        text = orjson.dumps(found.as_dict(), option=orjson.OPT_INDENT_2).decode()
    else:
        told = found.text(words.language(args.lang))
        text = "\n".join(told if args.format == "text" else (escaped(line.strip()) + "\n" for line in told))
    _write(args, text + "\n")
    return WITHIN if found.enough else NO_ANSWER


def _runs(folder: Path, args: argparse.Namespace) -> Iterator[Run]:
    """Every entry of a folder that holds captures, or what a verdict wrote as JSON, is a run."""
    from stepscope.diff.engine import Side, record
    from stepscope.diff.series import run_of, run_of_verdict

    if not folder.is_dir():
        raise CaptureError("there is no such folder", where=str(folder), fix="give the folder that holds one entry per run")
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        kept = run_of_verdict(entry) if entry.suffix == ".json" and entry.is_file() else None
        if kept is not None:
            yield kept
            continue
        try:
            captures = _opened([entry], args)
            recordings, starts = [], []
            for tables in _each(captures, args.step):
                recordings.append(record(tables))
                starts += [
                    first for name in ("steps", "ops", "kernels") if isinstance(first := tables[name]["start_ns"].min(), int)
                ]
        except CaptureError as problem:
            note(f"left out {entry.name}: {problem.what}")
            continue
        yield run_of(entry.name, Side(recordings), min(starts, default=None))
