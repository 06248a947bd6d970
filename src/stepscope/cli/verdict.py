# SPDX-License-Identifier: Apache-2.0
"""`stepscope verdict`: what costs time, what would be saved, where, and what to do."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import orjson

from stepscope.capture import SOURCES, open_all
from stepscope.cli.show import note
from stepscope.verdict import Verdict, verdict, words
from stepscope.verdict.catalogue import BY_NAME
from stepscope.verdict.finding import SEVERITIES
from stepscope.verdict.html import page
from stepscope.verdict.settings import limits
from stepscope.verdict.text import lines, markdown

FORMATS = ("text", "md", "html", "json")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("captures", type=Path, nargs="+", metavar="PATH", help="capture, or folder with the captures of all ranks")
    parser.add_argument("--format", choices=FORMATS, default="text", help="how to print it (default: text)")
    parser.add_argument("--lang", choices=words.LANGUAGES, help="language (default: that of the locale)")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="number of findings to show (default: 5)")
    parser.add_argument("--rules", type=_rules, metavar="A,B", help="ask these rules only")
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with limits of rules that replace the default ones")
    parser.add_argument("--fail-on", choices=SEVERITIES[:3], help="exit with 1 when a finding is this severe or more")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to this file instead of printing")
    parser.add_argument(
        "--source", choices=SOURCES, default="auto", help="which data to read if a capture has several kinds (default: auto)"
    )


def run(args: argparse.Namespace) -> int:
    given = limits(args.config)
    captures = [capture for path in args.captures for capture in open_all(path, source=args.source)]
    found = verdict([capture.tables for capture in captures], rules=args.rules, given=given)
    text = _text(found, args)
    if args.out:
        args.out.write_text(text, encoding="utf-8")
        note(f"wrote {args.out}")
    else:
        print(text, end="")
    if args.format == "text" and sys.stdout.isatty():
        note(f"next: stepscope view {args.captures[0]}")
    failed = args.fail_on and SEVERITIES.index(found.worst()) <= SEVERITIES.index(args.fail_on)
    return 1 if failed else 0


def _text(found: Verdict, args: argparse.Namespace) -> str:
    lang = words.language(args.lang)
    if args.format == "json":
        return orjson.dumps(found.as_dict(), option=orjson.OPT_INDENT_2).decode() + "\n"
    if args.format == "html":
        return page(found, lang, top=args.top)
    if args.format == "md":
        return "\n".join(markdown(found, lang, top=args.top)) + "\n"
    width = min(shutil.get_terminal_size().columns, 100) if sys.stdout.isatty() else 80
    return "\n".join(lines(found, lang, width=width, top=args.top)) + "\n"


def _rules(text: str) -> tuple[str, ...]:
    chosen = tuple(word.strip() for word in text.split(",") if word.strip())
    unknown = [word for word in chosen if word not in BY_NAME]
    if unknown or not chosen:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown) or 'nothing'} is not one of {', '.join(BY_NAME)}")
    return chosen
