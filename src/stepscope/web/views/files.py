# SPDX-License-Identifier: Apache-2.0
"""The Files view: what was read, what it became, what was lost; and looks into the files themselves."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from stepscope.analysis import quality
from stepscope.tables import ALL_TABLES
from stepscope.web.discovery import shown_path
from stepscope.web.guard import inside
from stepscope.web.loaded import LoadedCapture
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem

MOST_PARTS = 64
MOST_SOURCE = 10_000_000
AROUND = 10


def files(capture: LoadedCapture) -> dict[str, Any]:
    facts = asdict(capture.facts)
    info, metadata = facts.pop("profiler_info"), facts.pop("metadata")
    tables = capture.tables
    return {
        "files": [_file(path, capture.root) for path in listed(capture)],
        "tables": [_table(name, tables[name].height, tables[name].columns) for name in tables.filled()],
        "facts": facts,
        "profiler_info": info,
        "metadata": metadata,
        "quality": _quality(capture),
        "load_s": capture.load_s,
    }


def listed(capture: LoadedCapture) -> list[Path]:
    """Source files and everything beside them in the parsed output."""
    output = capture.files.output
    beside = [path for path in output.iterdir() if path.is_file() and not path.is_symlink()] if output and output.is_dir() else []
    return sorted({*capture.source_files, *beside})


def _file(path: Path, root: Path) -> dict[str, Any]:
    try:
        status = path.stat()
    except OSError:
        return {"path": shown_path(path, root), "bytes": None, "modified": None}
    return {"path": shown_path(path, root), "bytes": status.st_size, "modified": status.st_mtime}


def _table(name: str, rows: int, columns: list[str]) -> dict[str, Any]:
    known = {column.name: column for column in ALL_TABLES[name].columns}
    described = []
    for column in columns:
        one = known.get(column)
        kind = str(one.dtype if one else ALL_TABLES[name].extra)
        described.append(
            {"name": column, "type": kind, "unit": one.unit if one else "", "doc": one.doc if one else "Hardware counter."}
        )
    return {"name": name, "rows": rows, "doc": ALL_TABLES[name].doc, "columns": described}


def _quality(capture: LoadedCapture) -> dict[str, Any]:
    described = quality.as_dict(capture.tables.quality)
    for one in described["issues"]:
        one["places"] = [_clean(place, capture.root) for place in one["places"]]
    return described


def _clean(row: dict[str, Any], root: Path) -> dict[str, Any]:
    return {
        key: value.replace(f"{root}/", "").replace(str(root), root.name) if isinstance(value, str) else value
        for key, value in row.items()
    }


def preview(capture: LoadedCapture, query: Query, *, follow_links: bool = False) -> bytes:
    """The first bytes of one of the listed files."""
    size = query.number("bytes", 65536, least=1, most=1_000_000)
    base = capture.root if capture.root.is_dir() else capture.root.parent
    path = inside(base, query.text("path"), follow_links=follow_links)
    known = {known.resolve() for known in listed(capture)}
    if path not in known:
        raise Problem(404, "not_found", "not a file of this capture", hint="see the list of files")
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as problem:
        raise Problem(404, "not_found", "the file cannot be read", detail=problem.strerror or "") from None


def source(root: Path | None, query: Query) -> dict[str, Any]:
    """Lines around one line of a source file below the folder that the user allowed."""
    relative, lines = source_text(root, query.text("file"))
    line = query.number("line", 1, least=1, most=10_000_000)
    first = max(1, line - AROUND)
    return {"file": relative, "line": line, "first": first, "lines": lines[first - 1 : line + AROUND]}


def source_text(root: Path | None, file: str) -> tuple[str, list[str]]:
    """A source file below the folder that the user allowed: its path there, and its lines.

    Stacks name files by their path on the machine that recorded them: of a path that does not lie below the folder, the longest
    end that does is taken.

    Raises:
        Problem: there is no such file, or none may be shown.
    """
    refusal = Problem(403, "outside", "no source preview for this file", hint="start with --source-root FOLDER to see the code")
    if root is None:
        raise refusal
    base = root.resolve()
    relative = file.removeprefix(f"{base}/")
    parts = relative.lstrip("/").split("/")
    for place in range(min(len(parts), MOST_PARTS)) if relative.startswith("/") else range(1):
        shorter = "/".join(parts[place:])
        path = inside(base, shorter)
        try:
            if path.suffix == ".py" and path.is_file() and path.stat().st_size <= MOST_SOURCE:
                return shorter, path.read_text(errors="replace").splitlines()
        except OSError:
            raise refusal from None
    raise refusal
