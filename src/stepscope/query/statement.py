# SPDX-License-Identifier: Apache-2.0
"""Whether a text is one question that only reads tables.

The engine itself can read files (`read_csv('…')`), and the process that runs it can open none; this check comes first, so that
what is not possible is named in a sentence.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from stepscope.query import QueryError

MOST_CHARACTERS = 10_000
_READING = ("select", "with", "explain", "show", "describe", "desc")
_CHANGING = frozenset(["insert", "update", "delete", "create", "drop", "alter", "truncate", "attach", "into"])
_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^']|'')*'|\$(\w*)\$.*?\$\3\$)|(?P<quoted>"(?:[^"]|"")*"|`[^`]*`)"""
    r"""|(?P<word>[^\W\d]\w*)|(?P<other>.)""",
    re.DOTALL,
)
_ALLOWED = "one SELECT over the tables of the capture (also WITH, EXPLAIN, SHOW TABLES, DESCRIBE table)"


class Statement(NamedTuple):
    """What a checked text asks for."""

    kind: str  # select, show or describe
    names: frozenset[str]  # every word that may name a relation
    subject: str = ""  # what is described


def parse(text: str) -> Statement:
    """The kind of a checked text and the names in it."""
    kept = [(kind, token) for kind, token in _tokens(text) if kind != "space"]
    words = [token.strip('"`') for kind, token in kept if kind in ("word", "quoted")]
    first = words[0].lower() if words else ""
    if first == "show" and [word.lower() for word in words[:2]] == ["show", "columns"] and len(words) > 2:
        return Statement("describe", frozenset(), words[-1])
    if first == "show":
        return Statement("show", frozenset())
    if first in ("describe", "desc"):
        return Statement("describe", frozenset(), words[-1] if len(words) > 1 else "")
    return Statement("select", frozenset(words))


def _tokens(text: str) -> list[tuple[str, str]]:
    return [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(text)]


def check(text: str) -> str:
    """The statement without a semicolon at its end.

    Raises:
        QueryError: it is empty, too long, more than one statement, or does anything but read tables.
    """
    if len(text) > MOST_CHARACTERS:
        raise QueryError("the query is too long", cause=f"{len(text):,} characters", fix=f"use at most {MOST_CHARACTERS:,}")
    kept = [(kind, token) for kind, token in _tokens(text) if kind != "space"]
    while kept and kept[-1] == ("other", ";"):
        kept.pop()
    if not kept:
        raise QueryError("the query is empty", fix=f"write {_ALLOWED}")
    if ("other", ";") in kept:
        raise _refused("more than one statement")
    if kept[0][0] != "word" or kept[0][1].lower() not in _READING:
        raise _refused(f"it begins with {kept[0][1][:40]!r}")
    for before, (kind, token), after in zip(["", *(token.lower() for _, token in kept)], kept, _following(kept), strict=False):
        name = token.strip('"`').lower()
        if kind == "word" and name in _CHANGING and after != "(" and before not in ("as", "."):
            raise _refused(f"{token.upper()} changes data or files")
        if kind in ("word", "quoted") and after == "(" and name.startswith(("read_", "scan_")):
            raise _refused(f"{token} reads files")
    return text.rstrip().rstrip(";")


def _following(tokens: list[tuple[str, str]]) -> list[str]:
    return [*(token for _, token in tokens[1:]), ""]


def _refused(cause: str) -> QueryError:
    return QueryError("the query is not allowed", cause=cause, fix=f"use {_ALLOWED}")
