# SPDX-License-Identifier: Apache-2.0
"""Two folders of results, cell by cell: ours and those of the vendor's tool."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import orjson

_STAMP = re.compile(r"_\d{8,}(?=\.)")  # the vendor's names end in the time of the export
_MOST_EXAMPLES = 5


@dataclass(frozen=True)
class FileComparison:
    """How one file of ours compares with the vendor's."""

    name: str
    cells: int  # compared
    different: int
    remarks: tuple[str, ...] = ()  # other rows or columns, and the first differences

    @property
    def equal(self) -> bool:
        return not self.different and not self.remarks


def compare_folders(ours: Path, theirs: Path) -> list[FileComparison]:
    """Every csv and JSON file that either folder has, by name."""
    sides = [{_STAMP.sub("", path.name): path for path in _files(folder)} for folder in (ours, theirs)]
    found = []
    for name in sorted({*sides[0], *sides[1]}):
        missing = [side for side, files in zip(("ours", "the vendor's"), sides, strict=True) if name not in files]
        if missing:
            found.append(FileComparison(name, 0, 0, (f"missing in {missing[0]} files",)))
        else:
            found.append(_compare(name, sides[0][name], sides[1][name]))
    return found


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.suffix in (".csv", ".json") and path.is_file())


def _compare(name: str, ours: Path, theirs: Path) -> FileComparison:
    pair = (ours, theirs)
    if name.endswith(".csv"):
        return _tables(name, *(list(csv.DictReader(path.read_text(errors="replace").splitlines())) for path in pair))
    documents = [orjson.loads(path.read_bytes()) for path in pair]
    return _values(name, *(_events(item) if isinstance(item, list) else dict(_leaves(item)) for item in documents))


def _tables(name: str, ours: list[dict[str, str]], theirs: list[dict[str, str]]) -> FileComparison:
    titles = [list(rows[0]) if rows else [] for rows in (ours, theirs)]
    common = [title for title in titles[1] if title in titles[0]]
    remarks = []
    if len(ours) != len(theirs):
        remarks.append(f"{len(ours)} rows of ours, {len(theirs)} of theirs")
    for side, other, label in ((titles[0], titles[1], "ours"), (titles[1], titles[0], "theirs")):
        only = [title for title in side if title not in other]
        if only and ours and theirs:
            remarks.append(f"columns only in {label}: {', '.join(only)}")
    pairs = [
        (f"row {number} {title}", mine[title], other[title])
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=False), start=2)
        for title in common
    ]
    return _result(name, pairs, remarks)


def _values(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> FileComparison:
    pairs = [(key, ours.get(key, "missing"), theirs.get(key, "missing")) for key in sorted({*ours, *theirs})]
    return _result(name, pairs, [])


def _result(name: str, pairs: list[tuple[str, Any, Any]], remarks: list[str]) -> FileComparison:
    different = [f"{place}: {mine} here, {other} there" for place, mine, other in pairs if not _same(mine, other)]
    return FileComparison(name, len(pairs), len(different), (*remarks, *different[:_MOST_EXAMPLES]))


def _same(one: Any, other: Any) -> bool:
    """Equal as text or as decimal numbers; 1.50 is 1.5."""
    if one == other:
        return True
    try:
        return Decimal(str(one).strip()) == Decimal(str(other).strip())
    except InvalidOperation:
        return False


def _events(events: list[Any]) -> dict[str, Any]:
    """A timeline by its kinds of events: times are in the csv files too, numbers of processes are each tool's own."""
    counted = Counter(f"{event.get('ph')} {event.get('name')}" for event in events if isinstance(event, dict))
    return dict(counted)


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield place, value
        return
    for key, inner in items:
        yield from _leaves(inner, f"{place}/{key}")
