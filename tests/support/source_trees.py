"""The project's own source, parsed once for all tests that ask about it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import stepscope

SOURCE = Path(stepscope.__file__).resolve().parent


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))
