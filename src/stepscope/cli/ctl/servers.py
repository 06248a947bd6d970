# SPDX-License-Identifier: Apache-2.0
"""`stepscope ctl http://a:8000,http://b:8000 …`: profile inference servers over HTTP."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from stepscope.cli.show import note, show
from stepscope.control import servers
from stepscope.control.servers import ServerAnswer
from stepscope.errors import CaptureError

NOT_ALL_SERVERS = 1


def run(addresses: Sequence[str], args: argparse.Namespace) -> int:
    import os

    token = os.environ.get("STEPSCOPE_SERVER_TOKEN")
    if args.do == "status":
        answers = servers.ask_all(addresses, servers.HEALTH, token=token)
        _show(answers, as_json=args.json)
        return _code(answers)
    if args.do == "stop":
        answers = servers.ask_all(addresses, servers.STOP, token=token, seconds=args.timeout)
        _show(answers, as_json=args.json)
        return _code(answers)
    body = _body(args.set)
    if args.seconds is None:
        answers = servers.ask_all(addresses, servers.START, body=body, token=token, seconds=args.timeout)
        _show(answers, as_json=args.json)
        if any(answer.good for answer in answers):
            note(f"profiling until: stepscope ctl {','.join(addresses)} stop")
        return _code(answers)
    started, stopped = servers.record(addresses, args.seconds, body=body, token=token, timeout=args.timeout)
    _show([*started, *stopped], as_json=args.json)
    number = sum(answer.good for answer in stopped)
    note(f"{number} of {len(addresses)} servers profiled for {args.seconds:g} s; their traces lie where each server writes them")
    return _code([*started, *stopped])


def _body(given: list[tuple[list[str], Any]]) -> dict[str, Any] | None:
    """Keys that the server takes, such as num_steps of SGLang; without any nothing is sent."""
    deep = [".".join(path) for path, _ in given if len(path) > 1]
    if deep:
        raise CaptureError(f"{deep[0]} is not a key of a server's request", fix="give KEY=JSON without dots")
    return {path[0]: value for path, value in given} or None


def _show(answers: Sequence[ServerAnswer], *, as_json: bool) -> None:
    import polars as pl

    rows = [
        {
            "server": answer.server, "request": answer.request, "status": answer.status, "answer": answer.text,
            "seconds": round(answer.seconds, 2),
        }
        for answer in answers
    ]  # fmt: skip
    show(pl.DataFrame(rows, schema_overrides={"status": pl.Int64}), as_json=as_json)


def _code(answers: Sequence[ServerAnswer]) -> int:
    return 0 if all(answer.good for answer in answers) else NOT_ALL_SERVERS
