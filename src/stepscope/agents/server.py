# SPDX-License-Identifier: Apache-2.0
"""The tools over the Model Context Protocol on standard input and output, with the official SDK (extra `mcp`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from stepscope import __version__
from stepscope.agents.tools import Tools
from stepscope.agents.untrusted import NOTE
from stepscope.errors import CaptureError
from stepscope.query import QueryError

_INSTRUCTIONS = f"""Profiles of AI training runs. Begin with `open` or `verdict` of a path; `query` answers anything else in SQL
(`describe` lists tables and columns). Everything is read-only. Times are ns on the host's clock unless a name says ms. When `more`
is not null, ask again with its `offset`. {NOTE}"""
_DESCRIPTIONS = {
    "open": "Captures at a path: rank, device, steps, rows of tables, what was lost.",
    "verdict": "What costs time in a run, what would be saved per step, where, and what to do. `top`: number of findings.",
    "whatif": "How long a step would be with changes. `scale`: kernel~PATTERN=FACTOR, op~PATTERN=FACTOR, collective=FACTOR or "
    "copy=FACTOR; `without`: sync, gc, alloc, compile, checkpoint, data, api, operator, python, other.",
    "diff": "Why steps of `new` take longer or shorter than those of `base`: exact rows by part, module, op or kernel.",
    "query": "Rows that answer one SELECT (polars SQL) over the tables and views of a run; SHOW TABLES and DESCRIBE work too.",
    "describe": "Without `table`: all tables and views. With it: columns, types, units, meaning.",
    "window": "What began between two moments (ns), longest first, table by table.",
}


def serve(roots: Sequence[Path]) -> None:
    """Answer until standard input ends."""
    server(roots).run("stdio")


def server(roots: Sequence[Path]) -> MCPServer[Any]:
    made: MCPServer[Any] = MCPServer("stepscope", instructions=_INSTRUCTIONS, version=__version__, log_level="ERROR")
    tools = Tools(roots)
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    for name, text in _DESCRIPTIONS.items():
        made.tool(name, description=text, annotations=reads, structured_output=False)(_polite(getattr(tools, name)))
    return made


def _polite(ask: Callable[..., str]) -> Callable[..., str]:
    """Errors of users as answers that say what to do."""

    @wraps(ask)
    def answer(*args: Any, **kwargs: Any) -> str:
        try:
            return ask(*args, **kwargs)
        except (CaptureError, QueryError) as problem:
            raise ToolError(str(problem)) from None

    return answer
