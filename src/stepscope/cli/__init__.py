# SPDX-License-Identifier: Apache-2.0
"""The `stepscope` command: each sub-command translates its arguments into one call."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module

from stepscope import __version__
from stepscope.cli.allocation import keep_freed_memory
from stepscope.errors import CaptureError

COMMANDS = ("analyse", "ctl", "doctor", "info", "query", "report", "run", "top", "verdict", "view", "whatif")
SHORT_COMMANDS = ("analyse", "info", "report", "top", "verdict", "whatif")
GOOD, USAGE, BAD_CAPTURE, OUR_BUG = 0, 2, 3, 70


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="stepscope", description="Show where the time of an AI training or inference run goes.")
    parser.add_argument("--version", action="version", version=f"stepscope {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] and words[0] in SHORT_COMMANDS and not any(word.startswith("--max-memory") for word in words):
        keep_freed_memory()
    modules = {name: import_module(f"stepscope.cli.{name}") for name in _commands_to_import(words)}
    for name, module in modules.items():
        doc = (module.__doc__ or "").split(": ", 1)[1].strip()
        module.configure(commands.add_parser(name, help=doc.split("\n")[0], description=doc))
    args = parser.parse_args(words)
    warnings.showwarning = lambda message, *_rest: print(f"warning: {message}", file=sys.stderr)
    try:
        return int(modules[args.command].run(args))
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
    except BaseException:  # noqa: BLE001 - the process border; a panic of the columnar engine is not an Exception
        traceback.print_exc()
        print(
            "error: this is a bug in stepscope, not a fault of your data\n  do this: report it with the lines above",
            file=sys.stderr,
        )
        return OUR_BUG


def _commands_to_import(words: Sequence[str]) -> Sequence[str]:
    """The command to run, the only one imported; all commands where help lists them."""
    if words[:1] == ["--version"]:
        return ()
    return [word for word in words[:1] if word in COMMANDS] or COMMANDS
