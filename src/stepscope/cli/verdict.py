# SPDX-License-Identifier: Apache-2.0
"""`stepscope verdict`: what costs time, what would be saved, where, and what to do."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.options import LANGUAGES, SEVERITIES, add_captures, add_rank, add_source, add_step
from stepscope.cli.show import note

if TYPE_CHECKING:
    from stepscope.verdict import Verdict

FORMATS = ("text", "md", "html", "json")
EXAMPLES = """\
  stepscope verdict runs/                                  the answer in one line, then findings
  stepscope verdict runs/ --format md --out verdict.md     for a merge request
  stepscope verdict runs/ --fail-on medium --lang zh       exit code 1 for findings of medium or more, in Chinese
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_captures(parser)
    parser.add_argument("--format", choices=FORMATS, default="text", help="how to print it (default: text)")
    parser.add_argument("--json", action="store_const", dest="format", const="json", help="print JSON: --format json")
    add_rank(parser)
    add_step(parser)
    parser.add_argument("--lang", choices=LANGUAGES, help="language (default: that of the locale)")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="number of findings to show (default: 5)")
    parser.add_argument("--rules", type=_rules, metavar="A,B", help="ask these rules only")
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with limits of rules that replace the default ones")
    parser.add_argument("--fail-on", choices=SEVERITIES, help="exit with 1 when a finding is this severe or more")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to this file instead of printing")
    add_source(parser)


def run(args: argparse.Namespace) -> int:
    from stepscope.cli.chosen import chosen_tables
    from stepscope.verdict import verdict
    from stepscope.verdict.settings import limits

    given = limits(args.config)
    found = verdict(list(chosen_tables(args)), rules=args.rules, given=given)
    text = _text(found, args)
    if args.out:
        args.out.write_text(text, encoding="utf-8")
        note(f"wrote {args.out}")
    else:
        print(text, end="")
    if args.format == "text" and sys.stdout.isatty():
        note(f"next: stepscope view {args.captures[0]}")
    failed = args.fail_on and found.worst() in SEVERITIES[: SEVERITIES.index(args.fail_on) + 1]
    return 1 if failed else 0


def _text(found: Verdict, args: argparse.Namespace) -> str:
    import shutil

    import orjson

    from stepscope.language import language
    from stepscope.verdict.html import page
    from stepscope.verdict.text import lines, markdown

    lang = language(args.lang)
    if args.format == "json":
        return orjson.dumps(found.as_dict(), option=orjson.OPT_INDENT_2).decode() + "\n"
    if args.format == "html":
        return page(found, lang, top=args.top)
    if args.format == "md":
        return "\n".join(markdown(found, lang, top=args.top)) + "\n"
    width = min(shutil.get_terminal_size().columns, 100) if sys.stdout.isatty() else 80
    return "\n".join(lines(found, lang, width=width, top=args.top)) + "\n"


def _rules(text: str) -> tuple[str, ...]:
    from stepscope.verdict.catalogue import BY_NAME

    chosen = tuple(word.strip() for word in text.split(",") if word.strip())
    unknown = [word for word in chosen if word not in BY_NAME]
    if unknown or not chosen:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown) or 'nothing'} is not one of {', '.join(BY_NAME)}")
    return chosen
