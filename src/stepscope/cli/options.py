# SPDX-License-Identifier: Apache-2.0
"""Options that mean the same in every command, and the words that they take.

The words are repeated here, and compared by a test, so that `-h` answers without loading what owns them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

ACTIVITIES = ("CPU", "NPU", "CUDA")  # control/config.py
SOURCES = ("auto", "raw", "parsed", "text", "db")  # formats/reader.py
EXPORTS = ("text", "db", "perfetto", "kineto", "parquet")  # analyser.py
LANGUAGES = ("en", "zh")  # verdict/words.py
SEVERITIES = ("high", "medium", "low")  # verdict/finding.py
GROUPINGS = ("op", "kernel", "api", "module", "step", "mark", "rank")  # top.py
PACKED = ("raw", "text", "store")  # share/pack.py
REDACTIONS = ("paths", "hosts", "stacks", "metadata")  # share/redact.py
FORMS = ("chrome", "kineto", "perfetto", "parquet", "db", "speedscope", "collapsed")  # share/convert.py
TRACKERS = ("wandb", "mlflow")  # share/publish.py
LEVELS = ("part", "module", "op", "kernel")  # diff/align.py
WITHOUT = ("sync", "gc", "alloc", "compile", "checkpoint", "data", "api", "operator", "python", "other")  # verdict/what_if.py


def add_captures(parser: argparse.ArgumentParser, *, text: str = "capture, or folder with the captures of all ranks") -> None:
    parser.add_argument("captures", type=Path, nargs="+", metavar="PATH", help=text)


def add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source", choices=SOURCES, default="auto", help="which data to read if a capture has several kinds (default: auto)"
    )


def add_json(parser: argparse.ArgumentParser, instead_of: str = "a table") -> None:
    parser.add_argument("--json", action="store_true", help=f"print JSON lines instead of {instead_of}")


def add_rank(parser: argparse.ArgumentParser, default: str = "all") -> None:
    parser.add_argument(
        "--rank",
        "--ranks",
        type=_ranks,
        action="extend",
        dest="rank",
        metavar="N",
        help=f"only this rank; also 0,3 or 0-7, or repeat for more (default: {default})",
    )


def _ranks(text: str) -> tuple[int, ...]:
    return () if text == "all" else numbers(text)


def numbers(text: str) -> tuple[int, ...]:
    """The whole numbers of `3`, `0,3` or `0-7`; a colon does for the dash."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.replace(":", "-").partition("-")
        if not first.strip().isdigit() or (dash and not last.strip().isdigit()) or (dash and int(last) < int(first)):
            raise argparse.ArgumentTypeError(f"{part!r} is not a number, nor a range such as 0-7")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def words_of(known: Sequence[str], *, everything: str = "") -> Callable[[str], tuple[str, ...]]:
    """Some of the known words, with commas between; all of them for the word `everything`."""

    def parse(text: str) -> tuple[str, ...]:
        if everything and text == everything:
            return tuple(known)
        chosen = tuple(word.strip() for word in text.split(",") if word.strip())
        unknown = [word for word in chosen if word not in known]
        if unknown or not chosen:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown) or 'nothing'} is not one of {', '.join(known)}")
        return chosen

    return parse


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to this file instead of printing")


def add_step(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--step", "--steps", type=step_range, dest="step", metavar="A[:B]", help="only this step, or A to B (default: all)"
    )


def step_range(text: str) -> tuple[int, int]:
    """The first and last step of `7`, `7:9` or `7-9`."""
    first, colon, last = text.replace("-", ":").partition(":")
    if not first.isdigit() or (colon and not last.isdigit()) or (colon and int(last) < int(first)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a step, nor two as in 7:9")
    return int(first), int(last or first)


def positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)
