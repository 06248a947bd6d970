# SPDX-License-Identifier: Apache-2.0
"""`stepscope mcp`: answer an agent's questions about captures over the Model Context Protocol (stdin and stdout).

Needs the extra: pip install 'stepscope[mcp]'. Everything is read-only and limited to captures below FOLDER.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

EXAMPLES = """\
  stepscope mcp runs/      what an agent's configuration starts: {"command": "stepscope", "args": ["mcp", "/data/runs"]}
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders", type=Path, nargs="*", default=[Path()], metavar="FOLDER", help="where captures lie (default: here)"
    )


def run(args: argparse.Namespace) -> int:
    absent = [str(folder) for folder in args.folders if not folder.is_dir()]
    if absent:
        print(f"error: {', '.join(absent)}: no such folder\n  do this: name folders that hold captures", file=sys.stderr)
        return 2
    try:
        from stepscope.agents.server import serve
    except ModuleNotFoundError as problem:
        if not (problem.name or "").startswith("mcp"):
            raise
        print("error: the MCP SDK is not installed\n  do this: pip install 'stepscope[mcp]'", file=sys.stderr)
        return 2
    serve(args.folders)
    return 0
