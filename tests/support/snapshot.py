# SPDX-License-Identifier: Apache-2.0
"""Captures of our own as text: their tables, and the files and commands' output that are made of them.

A snapshot is a text of titled sections, so that a difference names the table or file and `git diff` is readable.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import sqlite3
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.analyser import Request, analyse_captures
from stepscope.capture import Capture, open_all
from stepscope.cli import main
from stepscope.top import TOP

FOLDER = Path(__file__).resolve().parents[1] / "captures"
PARTS = ("tables", "outputs")
ROWS = 8  # shown of a table from its beginning; all rows are in the checksums
LINES, WIDTH = 6, 240  # shown of a file
MARK = "=== "

Sections = dict[str, str]


def names() -> list[str]:
    return sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))


def place(name: str, part: str) -> Path:
    return FOLDER / "expected" / name / f"{part}.txt"


def read(path: Path) -> Sections:
    """Sections of a snapshot file by title; none when it is not there."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    pieces = f"\n{text}".split(f"\n{MARK}")[1:]
    return {title: body.strip("\n") for title, _, body in (piece.partition("\n") for piece in pieces)}


def write(path: Path, sections: Sections) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(f"{MARK}{title}\n{body}\n" for title, body in sections.items()), encoding="utf-8")


def unpack(name: str, folder: Path) -> Path:
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def take(name: str, folder: Path) -> dict[str, Sections]:
    """Both snapshots of a capture as it is read now; `folder` is an empty one to work in."""
    captures = open_all(unpack(name, folder / "capture"))
    tables: Sections = {}
    outputs: Sections = {}
    for number, capture in enumerate(captures):
        prefix = f"{number}: " if len(captures) > 1 else ""
        for table, frame in sorted(capture.tables.items()):
            if frame.height:
                tables[prefix + table] = table_text(frame)
        for command in (["info"], *(["top", "--by", by, "--json", "--limit", "5"] for by in TOP)):
            outputs[prefix + " ".join(command)] = said([command[0], str(capture.path), *command[1:]], folder)
        outputs |= {prefix + title: text for title, text in files_of(capture, folder / "out" / str(number))}
    return {"tables": tables, "outputs": outputs}


def table_text(frame: pl.DataFrame) -> str:
    """Row count, constant columns, the first rows, and a checksum per column of all rows; columns of nulls are left out."""
    columns = {name: [_cell(value) for value in frame[name].to_list()] for name in frame.columns}
    same = {name: cells[0] for name, cells in columns.items() if len(set(cells)) == 1}
    shown = [name for name in columns if name not in same]
    lines = [f"{frame.height} rows"]
    lines += [f"always: {name} = {cell}" for name, cell in same.items() if cell != "-"]
    if shown:
        lines.append(" | ".join(shown))
        lines += [" | ".join(row) for row in zip(*(columns[name][:ROWS] for name in shown), strict=True)]
        if frame.height > ROWS:
            lines.append(f"… {frame.height - ROWS} more")
            lines += [f"checksum: {name} {checksum(columns[name])}" for name in shown]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.12g}"  # the last digits depend on the order of additions
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, str | list | dict) else str(value)


def checksum(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def said(arguments: list[str], folder: Path) -> str:
    """What a command prints, without the folder of this run."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    # The engine depends on the machine, and must not change anything else.
    remarks = "".join(line for line in err.getvalue().splitlines(keepends=True) if not line.startswith("engine: "))
    text = f"{out.getvalue()}{remarks}".replace(f"{folder}{os.sep}", "")
    return text.rstrip("\n") if code == 0 else f"exit code {code}\n{text}"


def files_of(capture: Capture, folder: Path) -> Iterator[tuple[str, str]]:
    """Every file that the analysis writes."""
    folder.mkdir(parents=True)
    (result,) = analyse_captures([capture], Request(exports=("text", "db", "perfetto"), out=folder, simplify=False), jobs=1)
    assert result.ok, result.error
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size):
        if path.suffix == ".db":
            yield f"file {path.name}", database_text(path)
        elif path.suffix == ".gz":
            yield f"file {path.name}", file_text(gzip.decompress(path.read_bytes()))
        elif "logs" not in path.parts:
            yield f"file {path.name}", file_text(path.read_bytes())


def file_text(data: bytes) -> str:
    lines = data.decode("utf-8").splitlines()
    shown = [line if len(line) <= WIDTH else f"{line[:WIDTH]}…" for line in lines[:LINES]]
    return "\n".join([f"{len(data)} bytes, {len(lines)} lines, sha256 {hashlib.sha256(data).hexdigest()}", *shown])


def database_text(path: Path) -> str:
    """Tables with their columns, row count and a checksum of the rows; the empty ones by name."""
    lines, empty = [], []
    with contextlib.closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        for table in tables:
            rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
            columns = database.execute(f'SELECT name, type FROM pragma_table_info("{table}")').fetchall()
            if rows:
                shape = ", ".join(f"{name} {kind}".strip() for name, kind in columns)
                lines.append(f"{table} ({shape}): {len(rows)} rows, {checksum(' | '.join(map(_cell, row)) for row in rows)}")
            else:
                empty.append(table)
    return "\n".join([*lines, f"empty: {', '.join(empty)}"] if empty else lines)
