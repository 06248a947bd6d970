# SPDX-License-Identifier: Apache-2.0
"""`stepscope view`: open captures in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.cli.show import note

EXAMPLES = """\
  stepscope view runs/                                the page in the browser; new captures appear by themselves
  stepscope view runs/ --host 0.0.0.0 --port 8080 --no-browser
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="folder of runs, capture folder, trace or database")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=_port, default=0, help="port to listen on (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, do not open a browser")
    parser.add_argument(
        "--no-token", action="store_true", help="do not require a token, even if other machines can reach the address"
    )
    parser.add_argument("--no-sql", action="store_true", help="switch off SQL queries")
    parser.add_argument("--source-root", type=Path, help="show source lines of files below this folder")
    parser.add_argument("--gate", type=Path, metavar="FILE", help="hold what Diff shows against a budget (docs/diff.md)")
    parser.add_argument("--follow-links", action="store_true", help="follow symbolic links that lead outside the given folders")


def run(args: argparse.Namespace) -> int:
    # Imported here, because other commands start faster without a web server.
    import webbrowser
    from threading import Timer

    from stepscope.capture import folder_of
    from stepscope.diff.gate import read_budget
    from stepscope.web.request import Settings
    from stepscope.web.server import Address, Server

    paths = [folder_of(path) for path in args.paths]
    budget = read_budget(args.gate) if args.gate else None
    settings = Settings(sql=not args.no_sql, source_root=args.source_root, follow_links=args.follow_links, budget=budget)
    server = Server(paths, Address(args.host, args.port, with_token=not args.no_token), settings)
    print(server.url, flush=True)
    runs = server.catalogue.listing()
    if runs["empty"]:
        note(f"{runs['empty']['title']}: {runs['empty']['detail']}")
        note("the page lists the supported layouts; new captures appear automatically")
    note("press Ctrl+C to stop")
    if not args.no_browser:
        Timer(0.3, webbrowser.open, [server.url]).start()
    server.run()
    return 0


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)
