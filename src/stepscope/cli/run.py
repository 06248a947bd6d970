# SPDX-License-Identifier: Apache-2.0
"""`stepscope run`: run a training script on simulated NPUs, optionally with profiling.

The script runs as with `python train.py`; `import torch_npu` and the device `npu` are available.
"""

from __future__ import annotations

import argparse

from stepscope.errors import CaptureError

# stepscope.compat changes what a process imports, so only `run` itself imports it.

EXAMPLES = """\
  stepscope run train.py --epochs 1
  stepscope run --profile steps=3:5,level=1,memory train.py
  stepscope run --nproc 4 train.py
  stepscope run --nproc 4 --profile steps=3:8 --sim-fault rank=3,kind=frequency,factor=0.8 train.py
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "stepscope run [--devices N] [--nproc N] [--profile WHAT] [--sim-fault FAULT] (SCRIPT | -m MODULE) [ARGUMENTS]"
    parser.add_argument("--devices", type=_positive, metavar="N", help="simulated NPUs (default: one per process, at least 2)")
    parser.add_argument("--nproc", type=_positive, metavar="N", default=1, help="start N processes, as torchrun does")
    parser.add_argument(
        "--profile",
        type=plan_text,
        metavar="WHAT",
        help="profile steps of a script without profiling code, such as steps=3:5,level=1,memory,stack,out=DIR",
    )
    parser.add_argument(
        "--sim-fault",
        type=_fault,
        action="append",
        default=[],
        metavar="FAULT",
        help="make one rank slow, such as rank=3,kind=frequency,factor=0.8; also kind=kernel,op=addmm,factor=0.4, "
        "kind=link,peer=2,factor=0.2, kind=dispatch,us=100, kind=allocation,ms=5, kind=data_loading,ms=20, kind=gc,ms=20,every=2",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="run a module instead of a file")
    parser.add_argument("script", metavar="SCRIPT", help="script to run; with -m, a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")


def run(args: argparse.Namespace) -> int:
    from importlib.util import find_spec

    if args.profile and find_spec("torch") is None:
        raise CaptureError(
            "nothing can be recorded",
            cause="torch is not installed in this Python",
            fix="pip install 'stepscope[torch]'; captures are read without it",
        )
    from stepscope.compat.launch import Launch  # which changes what this process imports

    command = (*(["-m"] if args.module else []), args.script, *args.arguments)
    _check_ranks(args.sim_fault, args.nproc)
    faults = tuple(args.sim_fault)
    Launch(command, devices=args.devices, processes=args.nproc, profile=args.profile, faults=faults).replace_this_process()


def plan_text(text: str) -> str:
    from stepscope.integrations.plan import parse

    try:
        parse(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    return text


def _fault(text: str) -> str:
    from stepscope.simnpu import faults

    try:
        faults.parse(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    return text


def _check_ranks(texts: list[str], processes: int) -> None:
    from stepscope.simnpu import faults

    absent = [rank for fault in map(faults.parse, texts) for rank in (fault.rank, fault.peer) if rank >= processes]
    if absent:
        raise SystemExit(f"error: there is no rank {absent[0]} for --sim-fault: --nproc starts {processes}")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)
