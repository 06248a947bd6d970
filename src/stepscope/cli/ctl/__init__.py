# SPDX-License-Identifier: Apache-2.0
"""`stepscope ctl`: start or stop profiling in a running job, or show each rank's status.

The job must watch CONFIG_DIR: start it with PROF_CONFIG_PATH=CONFIG_DIR, or call dynamic_profile.init(CONFIG_DIR) in it.
Inference servers (vLLM, SGLang) are named by their addresses instead; their profiler must be on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.cli.options import ACTIVITIES
from stepscope.cli.show import note, show
from stepscope.errors import CaptureError

if TYPE_CHECKING:
    from stepscope.control.board import AgedAnswer
    from stepscope.control.requests import Outcome

NOT_ALL_RANKS = 1
LEVELS = {"none": "Level_none", "0": "Level0", "1": "Level1", "2": "Level2"}
METRICS = (
    "PipeUtilization", "ArithmeticUtilization", "Memory", "MemoryL0", "MemoryUB", "ResourceConflictRatio", "L2Cache",
    "MemoryAccess", "AiCoreNone",
)  # fmt: skip
EXPORTS, HOST_SYSTEM = ("text", "db"), ("cpu", "mem", "disk", "network", "osrt", "numa")
_SWITCHES = {  # option -> key, help
    "memory": ("profile_memory", "record allocations and frees"),
    "stack": ("with_stack", "record the Python call stack of each operator"),
    "shapes": ("record_shapes", "record shapes and dtypes of operator inputs"),
    "modules": ("with_modules", "record module calls"),
    "flops": ("with_flops", "record floating-point operations"),
    "analyse": ("analyse", "analyse each capture when it is complete; the job waits for it"),
    "async": ("async_mode", "with --analyse: do not make the job wait"),
}
_EXPERIMENTAL = {
    "mstx": ("mstx", "record mstx marks"),
    "l2-cache": ("l2_cache", "record L2 cache hits and misses"),
    "op-args": ("record_op_args", "write operator arguments to a folder beside the capture"),
    "sys-io": ("sys_io", "sample network devices"),
    "sys-interconnection": ("sys_interconnection", "sample HCCS and PCIe"),
}

EXAMPLES = """\
  stepscope ctl config/ start --steps 3 --level 1 --wait    three steps on all ranks, from the next one
  stepscope ctl config/ start --ranks 0,3 --memory --stack
  stepscope ctl config/ status
  stepscope ctl http://a:8000,http://b:8000 start --seconds 2
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="CONFIG_DIR|URL,URL", help="folder that the job watches, or addresses of inference servers"
    )
    actions = parser.add_subparsers(dest="do", required=True, metavar="start|stop|status")
    _configure_start(actions.add_parser("start", help="record some steps, the same on all ranks"))
    stop = actions.add_parser("stop", help="end the running capture and cancel a waiting one")
    status = actions.add_parser("status", help="show the state of each rank: waiting, collecting, done, refused")
    for part in (stop, status):
        part.add_argument("--json", action="store_true", help="print JSON lines instead of a table")
    _configure_waiting(stop)


def run(args: argparse.Namespace) -> int:
    from stepscope.control import board, requests, servers

    addresses = servers.addresses(args.folder)
    if addresses is not None:
        from stepscope.cli.ctl.servers import run as run_servers

        return run_servers(addresses, args)
    if args.do == "start" and args.seconds is not None:
        raise CaptureError("--seconds is for inference servers", where=args.folder, fix="give --steps N for a training job")
    folder = requests.watched_folder(Path(args.folder))
    if args.do == "start":
        return _start(folder, args)
    if args.do == "stop":
        outcome = requests.stop(folder, requests.Patience(args.timeout))
        _show(list(outcome.ranks), as_json=args.json)
        return _report_silent(outcome)
    answers = board.read(folder)
    if not answers:
        raise CaptureError(
            "no job has used this folder",
            where=str(folder),
            fix=f"start one with PROF_CONFIG_PATH={folder}, or dynamic_profile.init",
        )
    _show(answers, as_json=args.json)
    _report_missing(answers)
    return 0


def _configure_start(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=_positive, default=1, metavar="N", help="number of steps to record (default: 1)")
    parser.add_argument("--seconds", type=_seconds, metavar="S", help="inference servers: profile so long, then stop")
    parser.add_argument("--warmup", type=_count, default=0, metavar="N", help="number of warm-up steps before them (default: 0)")
    parser.add_argument(
        "--start-step",
        type=_step,
        default=None,
        metavar="S|next",
        help="first step, or next for one that all ranks can begin together (default: next)",
    )
    parser.add_argument("--ranks", type=_numbers, metavar="0,3", help="ranks to record (default: all)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for captures (default: the job's current folder)")
    parser.add_argument(
        "--activities", type=_list_of(ACTIVITIES, upper=True), metavar="cpu,npu", help="activities to record (default: all)"
    )
    parser.add_argument("--level", choices=list(LEVELS), default="0", help="profiler level of the device (default: 0)")
    parser.add_argument("--aic-metrics", choices=METRICS, metavar="NAME", help=f"AI Core metrics: {', '.join(METRICS)}")
    parser.add_argument("--export", type=_list_of(EXPORTS), metavar="text,db", help="results of the analysis (default: text)")
    parser.add_argument(
        "--host-sys", type=_list_of(HOST_SYSTEM), metavar="cpu,mem", help=f"sample the host: {', '.join(HOST_SYSTEM)}"
    )
    parser.add_argument("--gc", type=float, metavar="MS", help="record garbage collections of at least MS milliseconds")
    for option, (_, text) in {**_SWITCHES, **_EXPERIMENTAL}.items():
        parser.add_argument(f"--{option}", action="store_true", help=text)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=_assignment,
        metavar="KEY=JSON",
        help="set any other key of profiler_config.json, such as metadata.lr=0.1; of servers: of the request, such as num_steps=5",
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait until the captures are complete, not only until all ranks have accepted"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of a table")
    _configure_waiting(parser)


def _configure_waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="how long to wait for answers (default: depends on the job's speed)"
    )


def _start(folder: Path, args: argparse.Namespace) -> int:
    from stepscope.control import config, requests

    patience = requests.Patience(args.timeout)
    outcome = requests.start(folder, _config_keys(args), ranks=args.ranks, start_step=args.start_step, patience=patience)
    agreed = outcome.all_accepted()
    if args.wait and agreed:
        outcome = requests.wait_until_done(folder, outcome, requests.Patience(args.timeout or float("inf")))
        agreed = outcome.all_accepted()
    _show(list(outcome.ranks), as_json=args.json)
    if not agreed:
        return _report_silent(outcome) or _report_refused(outcome)
    number = args.warmup + args.steps
    last = outcome.start_step + number - 1
    if outcome.start_step == config.NEXT_STEP:
        steps = "the next step" if number == 1 else f"the next {number} steps"
    else:
        steps = f"step {last}" if number == 1 else f"steps {outcome.start_step} to {last}"
    ranks = len(outcome.ranks)
    note(f"{ranks} rank{'s' if ranks > 1 else ''}, {steps}; next: stepscope ctl {args.folder} status")
    return 0


def _config_keys(args: argparse.Namespace) -> dict[str, Any]:
    """Keys of profiler_config.json from the command line."""
    from stepscope.control import config

    options = vars(args)
    keys: dict[str, Any] = {"active": args.steps, "warmup": args.warmup}
    keys |= {key: True for option, (key, _) in _SWITCHES.items() if options[option]}
    inner: dict[str, Any] = {key: True for option, (key, _) in _EXPERIMENTAL.items() if options[option.replace("-", "_")]}
    inner["profiler_level"] = LEVELS[args.level]
    inner["aic_metrics"] = args.aic_metrics  # None: the level decides
    inner |= {key: value for key, value in (("export_type", args.export), ("host_sys", args.host_sys)) if value}
    if args.gc is not None:
        inner["gc_detect_threshold"] = args.gc
    if args.activities:
        keys["activities"] = args.activities
    if args.out is not None:
        keys["prof_dir"] = str(args.out.absolute())
    if args.ranks and args.analyse:
        keys["async_mode"] = True  # otherwise captures of selected ranks are not analysed at all
    keys["experimental_config"] = {**config.TEMPLATE["experimental_config"], **inner}
    for path, value in args.set:
        _put(keys, path, value)
    return keys


def _put(keys: dict[str, Any], path: list[str], value: Any) -> None:
    from stepscope.control import config

    if path[0] not in config.KEYS:
        raise CaptureError(f"{path[0]} is not a key of {config.CONFIG_FILE}", fix=f"use one of {', '.join(config.KEYS)}")
    place = keys
    for name in path[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise CaptureError(f"{name} is not an object", where=".".join(path), fix=f"set {name} itself")
    place[path[-1]] = value


def _show(answers: list[AgedAnswer], *, as_json: bool) -> None:
    import polars as pl

    rows = [
        {
            "rank": aged.answer.rank, "state": aged.answer.state, "what": aged.answer.text, "step": aged.answer.step,
            "capture": aged.answer.capture,
            "analysis": _analysis(aged.answer.capture), "problem": aged.answer.problem,
            "host": aged.answer.host, "pid": aged.answer.pid,
            "age_s": round(aged.age_seconds, 1),
        }
        for aged in answers
    ]  # fmt: skip
    texts = dict.fromkeys(("state", "what", "capture", "analysis", "problem", "host"), pl.String)
    show(pl.DataFrame(rows, schema_overrides=texts), as_json=as_json)


def _analysis(capture: str | None) -> str | None:
    """The state of the capture's analysis in the background: waiting, running, failed, …"""
    if not capture:
        return None
    from stepscope.analysis_queue import state_of

    found = state_of(Path(capture))
    return found.state if found else None


def _report_silent(outcome: Outcome) -> int:
    silent = [
        str(aged.answer.rank)
        for aged in outcome.ranks
        if outcome.request_id not in (aged.answer.request_id, aged.answer.queued_id) and not aged.answer.problem
    ]
    if silent:
        note(f"no answer yet from rank {', '.join(silent)}: they may be in a long step; ask again with `status`")
        return NOT_ALL_RANKS
    return 0


def _report_refused(outcome: Outcome) -> int:
    from stepscope.control import config

    when = "the next step" if outcome.start_step == config.NEXT_STEP else f"step {outcome.start_step}"
    note(f"not every rank records from {when} on; see the reasons above")
    return NOT_ALL_RANKS


def _report_missing(answers: list[AgedAnswer]) -> None:
    live = {aged.answer.rank for aged in answers if aged.live}
    world = max((aged.answer.world_size for aged in answers), default=1)
    if live and len(live) < world:
        note(f"{len(live)} of {world} ranks are answering")


def _step(text: str) -> int | None:
    return None if text == "next" else _positive(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


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


def _list_of(known: tuple[str, ...], *, upper: bool = False) -> Any:
    def words(text: str) -> list[str]:
        chosen = [word.strip().upper() if upper else word.strip() for word in text.split(",")]
        unknown = [word for word in chosen if word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is not one of {', '.join(known)}")
        return list(dict.fromkeys(chosen))

    return words


def _assignment(text: str) -> tuple[list[str], Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=JSON")
    try:
        import json

        return key.split("."), json.loads(value)
    except ValueError:
        return key.split("."), value  # a plain word is a string
