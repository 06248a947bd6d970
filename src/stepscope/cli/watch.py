# SPDX-License-Identifier: Apache-2.0
"""`stepscope watch`: show the last steps of jobs on this machine that run with STEPSCOPE_WATCH=1, or serve them as metrics."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.cli.options import add_json
from stepscope.cli.show import note, show
from stepscope.errors import CaptureError

EXAMPLES = """\
  stepscope watch                                ranks on this machine: last step, speed, outliers
  stepscope watch --serve                        http://127.0.0.1:9464/metrics for Prometheus, one per machine
  stepscope watch --serve --bind 0.0.0.0 --token-file token
  stepscope watch --serve --no-http --otlp http://collector:4318
"""


def configure(parser: argparse.ArgumentParser) -> None:
    from stepscope.watch.settings import DEFAULT_PORT

    parser.add_argument(
        "rings", type=Path, nargs="?", metavar="FOLDER", help="folder of the rings (default: the one of this user on this machine)"
    )
    parser.add_argument("--serve", action="store_true", help="serve metrics until interrupted")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"port of --serve, 0 for any (default: {DEFAULT_PORT})")
    parser.add_argument("--bind", default="127.0.0.1", metavar="ADDRESS", help="address of --serve; others need --token-file")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file with the bearer token that requests must carry")
    parser.add_argument(
        "--otlp",
        nargs="?",
        const="",
        metavar="URL",
        help="also send metrics as OTLP/HTTP JSON every 30 s (default URL: OTEL_EXPORTER_OTLP_ENDPOINT)",
    )
    parser.add_argument("--no-http", action="store_true", help="with --otlp: send only")
    parser.add_argument("--no-histogram", action="store_true", help="leave out the histogram: 13 series per rank instead of 31")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from stepscope.watch.settings import default_rings

    folder = args.rings or default_rings()
    if args.serve:
        return _serve(folder, args)
    rows = _rows(folder)
    if not rows:
        note(f"no job is watched on this machine ({folder}); start one with STEPSCOPE_WATCH=1")
        return 0
    import polars as pl

    show(pl.DataFrame(rows), as_json=args.json, title=str(folder))
    if not args.json:
        note(f"next: stepscope top {folder} --by step")
    return 0


def _serve(folder: Path, args: argparse.Namespace) -> int:
    from stepscope.watch import exporter, otlp
    from stepscope.watch.server import Place, read_token

    address = "" if args.otlp is None else otlp.endpoint(args.otlp)
    if args.otlp is not None and not address:
        raise CaptureError(
            "no address to send metrics to", cause="OTEL_EXPORTER_OTLP_ENDPOINT is not set", fix="give --otlp http://host:4318"
        )
    token = read_token(args.token_file) if args.token_file else None
    place = None if args.no_http else Place(args.bind, args.port, token)
    try:
        exporter.serve(folder, place, address, histogram=not args.no_histogram, pid=None, say=note)
    except KeyboardInterrupt:
        note("stopped")
    return 0


def _rows(folder: Path) -> list[dict[str, object]]:
    from stepscope.watch.rings import live_states

    rows: list[dict[str, object]] = []
    for state in live_states(folder):
        last = state.last
        steps = last.get("steps", 0)
        rows.append(
            {
                "job": state.labels()["job"],
                "rank": state.identity.get("rank"),
                "pid": state.identity.get("pid"),
                "step": last.get("step"),
                "last_ms": (last["end"] - last["start"]) / 1e6 if last else None,
                "mean_ms": last["total_step"] / steps / 1e6 if last else None,
                "data_wait_share": last["total_data_wait"] / last["total_step"] if last and last["total_step"] else None,
                "outliers": last.get("total_outliers"),
            }
        )
    return rows
