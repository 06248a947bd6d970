# SPDX-License-Identifier: Apache-2.0
"""The `stepscope` command: each sub-command translates its arguments into one call."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from stepscope import __version__
from stepscope.errors import CaptureError

# Here, so that `stepscope -h` loads no command.
COMMANDS = {
    "analyse": "write every documented file of one or more captures",
    "cluster": "analyse all ranks of a run: who is slow, why, and what it costs",
    "completion": "print the completion script of a shell",
    "convert": "write captures for other programs: Chrome, Perfetto, Parquet, databases, flame graphs",
    "ctl": "start or stop profiling in a running job, or show each rank's status",
    "diff": "say why two runs differ, and whether a budget is kept",
    "doctor": "say whether this machine is ready, and what to do where it is not",
    "info": "show what a capture contains: steps, switches, sizes, data quality",
    "mcp": "answer an agent's questions about captures (Model Context Protocol)",
    "merge": "put captures of one run into one folder",
    "pack": "put captures into one file to share, if wanted without names",
    "publish": "put key figures and the report of a run into wandb or mlflow",
    "query": "ask a question in SQL about the tables of one or more captures",
    "record": "run any command, such as torchrun, and record steps of the training scripts below it",
    "report": "write a run as one HTML file that opens anywhere, offline",
    "run": "run a training script on simulated NPUs, optionally with profiling",
    "slice": "cut steps, seconds or ranks out of a run",
    "top": "show where the time goes, by operator, kernel, module, step, mark or rank",
    "unpack": "put the captures of a pack into a folder",
    "verdict": "say what costs time, what would be saved, where, and what to do",
    "view": "open captures in the browser",
    "watch": "show the last steps of jobs on this machine, or serve them as metrics",
    "whatif": "say how long a step would be if something took more or less time",
}
_FOLDERS = dict.fromkeys(("convert", "merge", "pack", "publish", "slice", "unpack"), "share.")  # below cli/
SHORT_COMMANDS = ("analyse", "diff", "info", "report", "top", "verdict", "whatif")
_START_SCRIPTS = ("doctor", "record", "run")  # of users, who have their own settings of threads
_OPENS_STORES = (*SHORT_COMMANDS, "convert", "mcp", "query", "view")
GOOD, USAGE, BAD_CAPTURE, OUR_BUG = 0, 2, 3, 70
atexit.register(gc.freeze)  # the interpreter's last search for garbage would look at all that is freed anyway
_EXAMPLES = """\
examples:
  stepscope run --profile steps=3:5 train.py     record three steps on simulated NPUs
  stepscope verdict runs/                        what costs time, and what to do
  stepscope top runs/ --by kernel                the longest kernels
  stepscope view runs/                           the timeline and everything else, in the browser

exit codes: 0 done, 1 a finding or a problem, 2 wrong usage, 3 a capture cannot be used, 70 a bug in stepscope
"""


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words:
        parser({}).print_help(sys.stderr)
        return USAGE
    if not words[0].startswith("-") and words[0] not in COMMANDS:
        print(f"error: there is no command {words[0]}{_nearest(words[0], COMMANDS)}", file=sys.stderr)
        print("  do this: stepscope -h lists all commands", file=sys.stderr)
        return USAGE
    # Only the command to run is loaded; the others are names with a line of help.
    name = words[0] if words and words[0] in COMMANDS else ""
    module = module_of(name) if name else None
    rewrite = getattr(module, "rewrite", list)
    args = parser({name: module} if module else {}).parse_args(rewrite(words))
    if module is None:  # `stepscope -- top …`
        return main(words[words.index(args.command) :])
    if name not in _START_SCRIPTS:
        from stepscope.cli.process.allocation import keep_freed_memory, start_no_algebra_threads

        start_no_algebra_threads()
        if name in SHORT_COMMANDS and not any(word.startswith("--max-memory") for word in words):
            keep_freed_memory()
    if name in _OPENS_STORES:
        from stepscope.tables.sealed_folder import keep_what_is_cut

        keep_what_is_cut()
    return _run(module, args)


def module_of(command: str) -> Any:
    """The module of a command."""
    return import_module(f"stepscope.cli.{_FOLDERS.get(command, '')}{command}")


class _Parser(argparse.ArgumentParser):
    """What a command does not know is said below its own usage, with the nearest option that it has."""

    def parse_known_args(self, *arguments: Any, **named: Any) -> Any:
        found, unknown = super().parse_known_args(*arguments, **named)
        if unknown:
            option = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
            self.error(f"unrecognized arguments: {' '.join(unknown)}{_nearest(option, self._option_string_actions)}")
        return found, unknown


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib

    names = {name.lstrip("-"): name for name in known}
    near = difflib.get_close_matches(word.lstrip("-"), names, 1)
    return f"; did you mean {names[near[0]]}?" if near else ""


def parser(modules: dict[str, Any]) -> argparse.ArgumentParser:
    """The parser of all commands; those that were loaded know their options."""
    made = _Parser(
        prog="stepscope",
        description="Show where the time of an AI training or inference run goes.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"stepscope {__version__}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, line in COMMANDS.items():
        if modules and name not in modules:
            continue
        module = modules.get(name)
        description = module.__doc__.split(": ", 1)[1].strip() if module else line
        epilog = f"examples:\n{module.EXAMPLES}" if module else None
        sub = commands.add_parser(
            name, help=line, description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if module:
            module.configure(sub)
    return made


def _run(module: Any, args: argparse.Namespace) -> int:
    import warnings

    from stepscope.cli.process.interrupts import interrupts_kept

    warnings.showwarning = lambda message, *_rest: print(f"warning: {message}", file=sys.stderr)
    try:
        with interrupts_kept():
            return int(module.run(args))
    except CaptureError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return BAD_CAPTURE
    except BrokenPipeError:
        # The reader of our output, such as head, has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    except KeyboardInterrupt:
        print("interrupted; no incomplete files were left behind", file=sys.stderr)
        return 130
    except SystemExit:
        raise
    except BaseException as problem:  # noqa: BLE001 - the process border; a panic of the columnar engine is not an Exception
        if isinstance(problem, OSError) and _is_about(problem, getattr(args, "out", None)):
            print(f"error: cannot write {args.out}\n  cause: {problem.strerror}\n  do this: name another --out", file=sys.stderr)
            return USAGE
        import traceback

        traceback.print_exc()
        print(
            "error: this is a bug in stepscope, not a fault of your data\n  do this: report it with the lines above",
            file=sys.stderr,
        )
        return OUR_BUG


def _is_about(problem: OSError, out: object) -> bool:
    """Whether it is the place that the user named for results which cannot be written."""
    return (
        isinstance(out, os.PathLike)
        and isinstance(problem.filename, str)
        and os.path.abspath(problem.filename).startswith(os.path.abspath(out))
    )
