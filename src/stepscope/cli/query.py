# SPDX-License-Identifier: Apache-2.0
"""`stepscope query`: ask a question in SQL about the tables of one or more captures.

SHOW TABLES lists what can be asked, DESCRIBE kernels the columns of a table. The question runs in a process of its own that can
open no file, writes nothing and is ended at its limits.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.options import add_rank, add_source

if TYPE_CHECKING:
    import subprocess

FORMATS = ("table", "csv", "json", "parquet", "md")
_BY_SUFFIX = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet", ".md": "md"}
EXAMPLES = """\
  stepscope query runs/step_100 "SHOW TABLES"
  stepscope query runs/step_100 "SELECT name, sum(exclusive_ns) / 1e6 AS ms FROM v_kernels GROUP BY name ORDER BY ms DESC LIMIT 10"
  stepscope query runs/rank_* "SELECT rank, step, total_ms FROM v_steps ORDER BY total_ms DESC" --format csv --out steps.csv
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="PATH… SQL", help="captures (or folders with the captures of all ranks), then the question"
    )
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="read the question from this file")
    parser.add_argument("--format", choices=FORMATS, help="how to print the rows (default: table, or by the ending of --out)")
    parser.add_argument("--json", action="store_const", dest="format", const="json", help="print JSON lines: --format json")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to this file instead of printing")
    add_rank(parser)
    add_source(parser)
    parser.add_argument("--limit", type=_limit, default=1000, metavar="N", help="rows to give, at most 10000 (default: 1000)")
    parser.add_argument("--timeout", type=_seconds, default=10.0, metavar="SECONDS", help="give the question up then (default: 10)")
    parser.add_argument("--explain", action="store_true", help="show how the question would be answered")


def run(args: argparse.Namespace) -> int:
    paths, sql = _question(args)
    form = args.format or (_BY_SUFFIX.get(args.out.suffix, "table") if args.out else "table")
    if form == "parquet" and args.out is None and sys.stdout.isatty():
        return _usage("a Parquet file cannot be shown on a terminal", "add --out FILE")
    from stepscope.query.process import end, start

    process = start()  # it loads its engine while this process loads the same
    try:
        return _answer(args, process, paths, sql, form)
    finally:
        end(process)


def _answer(args: argparse.Namespace, process: subprocess.Popen[bytes], paths: list[str], sql: str, form: str) -> int:
    from stepscope.cli.chosen import chosen_captures
    from stepscope.cli.show import note
    from stepscope.query import QueryError
    from stepscope.query.ask import answer_about, engine
    from stepscope.query.text import rendered

    args.captures = paths
    captures = chosen_captures(args)
    engine(args.timeout).adopt(process)
    try:
        answer = answer_about(captures, f"EXPLAIN {sql}" if args.explain else sql, limit=args.limit, timeout=args.timeout)
    except QueryError as problem:
        note(f"error: {problem}")
        return 2
    data = rendered(answer.frame, form)
    if args.out:
        args.out.write_bytes(data)
        note(f"wrote {args.out}: {answer.frame.height} rows")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    if answer.more:
        note(f"only the first {answer.frame.height} rows: --limit")
    if answer.numbered:
        note("several captures have the same rank: the column capture tells them apart; join on it too")
    return 0


def _question(args: argparse.Namespace) -> tuple[list[str], str]:
    if args.file is not None:
        try:
            return args.words, args.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            sys.exit(_usage(f"{args.file} cannot be read: {problem}", "give a text file with one SELECT"))
    if len(args.words) < 2:
        sys.exit(_usage("a path and a question are needed", 'write: stepscope query PATH "SELECT …"'))
    return args.words[:-1], args.words[-1]


def _usage(what: str, fix: str) -> int:
    print(f"error: {what}\n  do this: {fix}", file=sys.stderr)
    return 2


def _limit(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 10000")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds up to 3600")
    return value
