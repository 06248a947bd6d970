# SPDX-License-Identifier: Apache-2.0
"""`stepscope record`: run any command, such as torchrun, and record steps of the training scripts below it.

Everything after `--` runs as it is, on the devices that it uses; scripts need no change. The exit code is the command's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from stepscope.cli.run import plan_text

EXAMPLES = """  stepscope record -- python train.py
  stepscope record --profile steps=10:12,memory,out=runs -- torchrun --nproc-per-node 8 train.py
"""
USAGE = 2
_CLOCK_SECONDS = 1.0  # file systems stamp with a coarser clock
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "stepscope record [--profile WHAT] -- COMMAND [ARGUMENTS]"
    parser.add_argument(
        "--profile",
        type=plan_text,
        metavar="WHAT",
        default="steps=3:5",
        help="steps and settings, such as steps=10:12,memory,stack,ranks=0+4:7,out=DIR (default: steps=3:5)",
    )
    parser.add_argument("words", metavar="COMMAND", nargs=argparse.REMAINDER, help="command to run, with its arguments")


def run(args: argparse.Namespace) -> int:
    from stepscope.integrations.plan import parse

    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not words or shutil.which(words[0]) is None:
        problem = f"{words[0]} is not a program on PATH, nor the path of one" if words else "there is no command to run"
        print(f"error: {problem}\n  do this: stepscope record -- python train.py", file=sys.stderr)
        return USAGE
    plan = parse(args.profile)
    began = time.time() - _CLOCK_SECONDS
    # Of this command alone: in a job that is recorded itself, another process speaks.
    outer = {name: value for name, value in os.environ.items() if name != "STEPSCOPE_PROFILE_PID"}
    code = _wait(subprocess.Popen(words, env={**outer, "STEPSCOPE_PROFILE": args.profile}))
    captures = sorted(path for path in Path(plan.folder).glob("*_ascend_pt") if path.stat().st_mtime > began)
    if captures:
        shown = captures[0] if len(captures) == 1 else plan.folder
        number = "1 capture" if len(captures) == 1 else f"{len(captures)} captures"
        print(f"{number} in {plan.folder}; next: stepscope verdict {shown}", file=sys.stderr)
    else:
        print(
            f"no capture was written to {plan.folder}: either the steps were not reached, or the Python that ran does not have "
            f"stepscope (this one: {sys.executable}) or torch 2.5 or later",
            file=sys.stderr,
        )
    if code < 0:  # as the command ended, so do we
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _wait(process: subprocess.Popen[bytes]) -> int:
    """The exit code of the command; what a scheduler sends to us reaches it too."""
    for number in _FORWARDED:
        signal.signal(number, lambda got, _frame: process.send_signal(got))
    if sys.stdin.isatty():  # the terminal has sent it to both of us
        signal.signal(signal.SIGINT, lambda _got, _frame: None)
    return process.wait()
