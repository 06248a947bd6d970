# SPDX-License-Identifier: Apache-2.0
"""`stepscope ctl`: record steps of a job that runs, stop that, or ask each rank how it stands.

The job watches CONFIG_DIR: it was started with PROF_CONFIG_PATH=CONFIG_DIR, or calls dynamic_profile.init(CONFIG_DIR).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.cli.show import note, show
from stepscope.control import board, config, requests
from stepscope.control.board import Seen
from stepscope.control.requests import Outcome, Waiting
from stepscope.errors import CaptureError

NOT_ALL_RANKS = 1
LEVELS = {"none": "Level_none", "0": "Level0", "1": "Level1", "2": "Level2"}
METRICS = (
    "PipeUtilization", "ArithmeticUtilization", "Memory", "MemoryL0", "MemoryUB", "ResourceConflictRatio", "L2Cache",
    "MemoryAccess", "AiCoreNone",
)  # fmt: skip
EXPORTS, HOST_SYSTEM = ("text", "db"), ("cpu", "mem", "disk", "network", "osrt", "numa")
_SWITCHES = {  # option -> key, help
    "memory": ("profile_memory", "note allocations and frees"),
    "stack": ("with_stack", "note the Python call stack of each operator"),
    "shapes": ("record_shapes", "note shapes and types of the operators' inputs"),
    "modules": ("with_modules", "note the calls of modules"),
    "flops": ("with_flops", "note floating-point operations"),
    "analyse": ("analyse", "analyse each capture when it is done; the job waits for it"),
    "async": ("async_mode", "with --analyse: the job does not wait"),
}
_FURTHER = {
    "mstx": ("mstx", "record marks"),
    "l2-cache": ("l2_cache", "count hits and misses of the L2 cache"),
    "op-args": ("record_op_args", "write the operators' arguments beside the capture"),
    "sys-io": ("sys_io", "sample network devices"),
    "sys-interconnection": ("sys_interconnection", "sample HCCS and PCIe"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="CONFIG_DIR", help="the folder that the job watches")
    does = parser.add_subparsers(dest="do", required=True, metavar="start|stop|status")
    _configure_start(does.add_parser("start", help="record some steps, the same ones on all ranks"))
    stop = does.add_parser("stop", help="end the capture that runs and forget the one that waits")
    status = does.add_parser("status", help="how each rank stands: waiting, collecting, done, refused")
    for part in (stop, status):
        part.add_argument("--json", action="store_true", help="print JSON lines instead of a table")
    _configure_waiting(stop)


def run(args: argparse.Namespace) -> int:
    folder = requests.folder_of(args.folder)
    if args.do == "start":
        return _start(folder, args)
    if args.do == "stop":
        outcome = requests.stop(folder, Waiting(args.timeout))
        _show(list(outcome.ranks), as_json=args.json)
        return _unheard(outcome)
    answers = board.read(folder)
    if not answers:
        raise CaptureError(
            "no job has answered here", where=str(folder), fix=f"start one with PROF_CONFIG_PATH={folder}, or dynamic_profile.init"
        )
    _show(answers, as_json=args.json)
    _note_missing(answers)
    return 0


def _configure_start(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=_positive, default=1, metavar="N", help="steps to record (default: 1)")
    parser.add_argument("--warmup", type=_count, default=0, metavar="N", help="steps before them in which nothing is kept")
    parser.add_argument(
        "--start-step",
        type=_step,
        default=None,
        metavar="S|next",
        help="first step (default: next, one that all ranks can reach together)",
    )
    parser.add_argument("--ranks", type=_numbers, metavar="0,3", help="ranks to record (default: all)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where captures go (default: the job's current folder)")
    parser.add_argument(
        "--activities", type=_among(config.ACTIVITIES, upper=True), metavar="cpu,npu", help="sides to record (default: all)"
    )
    parser.add_argument("--level", choices=list(LEVELS), default="0", help="how much of the device (default: 0)")
    parser.add_argument("--aic-metrics", choices=METRICS, metavar="NAME", help=f"AI Core metrics: {', '.join(METRICS)}")
    parser.add_argument("--export", type=_among(EXPORTS), metavar="text,db", help="files of the analysis (default: text)")
    parser.add_argument(
        "--host-sys", type=_among(HOST_SYSTEM), metavar="cpu,mem", help=f"sample the host: {', '.join(HOST_SYSTEM)}"
    )
    parser.add_argument("--gc", type=float, metavar="MS", help="note garbage collections that take longer")
    for option, (_, text) in {**_SWITCHES, **_FURTHER}.items():
        parser.add_argument(f"--{option}", action="store_true", help=text)
    parser.add_argument(
        "--set", action="append", default=[], type=_assignment, metavar="KEY=JSON", help="any other key, such as metadata.lr=0.1"
    )
    parser.add_argument("--wait", action="store_true", help="return when the captures are done, not when the ranks have agreed")
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of a table")
    _configure_waiting(parser)


def _configure_waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="wait no longer for answers (default: by the job's speed)")


def _start(folder: Path, args: argparse.Namespace) -> int:
    waiting = Waiting(args.timeout)
    outcome = requests.start(folder, _wanted(args), ranks=args.ranks, start_step=args.start_step, waiting=waiting)
    agreed = outcome.accepted()
    if args.wait and agreed:
        outcome = requests.finished(folder, outcome, Waiting(args.timeout or float("inf")))
        agreed = outcome.accepted()
    _show(list(outcome.ranks), as_json=args.json)
    if not agreed:
        return _unheard(outcome) or _complain(outcome)
    last = outcome.start_step + args.warmup + args.steps - 1
    which = f"step {last}" if last == outcome.start_step else f"steps {outcome.start_step} to {last}"
    ranks = len(outcome.ranks)
    note(f"{ranks} rank{'s' if ranks > 1 else ''}, {which}; next: stepscope ctl {args.folder} status")
    return 0


def _wanted(args: argparse.Namespace) -> dict[str, Any]:
    """Keys of profiler_config.json from the command line."""
    given = vars(args)
    wanted: dict[str, Any] = {"active": args.steps, "warmup": args.warmup}
    wanted |= {key: True for option, (key, _) in _SWITCHES.items() if given[option]}
    inner: dict[str, Any] = {key: True for option, (key, _) in _FURTHER.items() if given[option.replace("-", "_")]}
    inner["profiler_level"] = LEVELS[args.level]
    inner["aic_metrics"] = args.aic_metrics  # nothing said: by the level
    inner |= {key: value for key, value in (("export_type", args.export), ("host_sys", args.host_sys)) if value}
    if args.gc is not None:
        inner["gc_detect_threshold"] = args.gc
    if args.activities:
        wanted["activities"] = args.activities
    if args.out is not None:
        wanted["prof_dir"] = str(args.out.absolute())
    if args.ranks and args.analyse:
        wanted["async_mode"] = True  # else a capture of chosen ranks is not analysed at all
    wanted["experimental_config"] = {**config.TEMPLATE["experimental_config"], **inner}
    for path, value in args.set:
        _put(wanted, path, value)
    return wanted


def _put(wanted: dict[str, Any], path: list[str], value: Any) -> None:
    if path[0] not in config.KEYS:
        raise CaptureError(f"{path[0]} is no key of {config.CONFIG_FILE}", fix=f"choose among {', '.join(config.KEYS)}")
    place = wanted
    for name in path[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise CaptureError(f"{name} holds nothing below it", where=".".join(path), fix=f"give {name} itself")
    place[path[-1]] = value


def _show(answers: list[Seen], *, as_json: bool) -> None:
    rows = [
        {
            "rank": seen.answer.rank, "state": seen.answer.state, "what": seen.answer.text, "step": seen.answer.step,
            "capture": seen.answer.capture, "problem": seen.answer.problem, "host": seen.answer.host, "pid": seen.answer.pid,
            "seconds ago": round(seen.age_seconds, 1),
        }
        for seen in answers
    ]  # fmt: skip
    texts = dict.fromkeys(("state", "what", "capture", "problem", "host"), pl.String)
    show(pl.DataFrame(rows, schema_overrides=texts), as_json=as_json)


def _unheard(outcome: Outcome) -> int:
    silent = [
        str(seen.answer.rank)
        for seen in outcome.ranks
        if outcome.request_id not in (seen.answer.request_id, seen.answer.queued_id) and not seen.answer.problem
    ]
    if silent:
        note(f"no answer yet from rank {', '.join(silent)}: they may be in a long step; ask again with `status`")
        return NOT_ALL_RANKS
    return 0


def _complain(outcome: Outcome) -> int:
    note(f"not every rank records from step {outcome.start_step}; the reasons are above")
    return NOT_ALL_RANKS


def _note_missing(answers: list[Seen]) -> None:
    live = {seen.answer.rank for seen in answers if seen.live}
    world = max((seen.answer.world_size for seen in answers), default=1)
    if live and len(live) < world:
        note(f"{len(live)} of {world} ranks answer")


def _step(text: str) -> int | None:
    return None if text == "next" else _positive(text)


def _positive(text: str) -> int:
    number = _count(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return number


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _numbers(text: str) -> list[int]:
    return sorted({_count(part.strip()) for part in text.split(",")})


def _among(known: tuple[str, ...], *, upper: bool = False) -> Any:
    def words(text: str) -> list[str]:
        found = [word.strip().upper() if upper else word.strip() for word in text.split(",")]
        unknown = [word for word in found if word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is not among {', '.join(known)}")
        return list(dict.fromkeys(found))

    return words


def _assignment(text: str) -> tuple[list[str], Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=JSON")
    try:
        return key.split("."), json.loads(value)
    except ValueError:
        return key.split("."), value  # a plain word is a text
