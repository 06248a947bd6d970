# SPDX-License-Identifier: Apache-2.0
"""The reference page of all chips, made from their table: `python -m stepscope.formats.cann.chip_reference`."""

from __future__ import annotations

from collections.abc import Iterable

from stepscope.formats.cann.chips import CHIPS, RECORD_FILES, SAMPLED, TASK_FILES, Chip
from stepscope.tables.facts import EVIDENCE

_INTRO = """# Chips

[中文](chips.zh-CN.md)

Which chips raw `PROF_*` folders may come from, how each records its tasks, and how sure the reader of each kind of record is.
`stepscope info PATH` shows the last part for the records that a capture has (line `reader`). The records themselves are described
in [cann.md](cann.md), sections 4 and 6.

This page is generated from the table of chips (`make docs`).
"""
_MARKS = {"bytes": "real bytes", "output": "vendor's output", "reference": "reference parser", "source": "source only"}


def page() -> str:
    return "\n".join([_INTRO, *_names(), *_records(), *_evidence()])


def _names() -> list[str]:
    lines = [
        "## Names and defaults",
        "",
        "Frequencies are the collector's defaults in MHz; those of a capture's `info.json` go before them.",
        "",
        "| `platform_version` | chip | collector's name | scheduler | counter | core |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows = (
        (number, chip.name, chip.writer, chip.scheduler, _frequency(chip.counter_mhz), _frequency(chip.core_mhz))
        for number, chip in CHIPS.items()
    )
    return [*lines, *map(_line, rows), ""]


def _records() -> list[str]:
    lines = [
        "## What is read",
        "",
        "| `platform_version` | task times from | types of tasks | rounds of task numbers | parts of tasks | columns of counters |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    return [*lines, *(_line(_read(number, chip)) for number, chip in CHIPS.items()), ""]


def _read(number: int, chip: Chip) -> tuple[object, ...]:
    if not chip.readable:
        return number, "not read", "", "", "", ""
    files = ", ".join(f"`{file}`" for file in TASK_FILES[chip.tasks])
    named = ", ".join(name for name, _, _ in chip.states.values())
    files += f"; `ts_track.data` for {named}" if named else ""
    return (
        number,
        files,
        f"{len(chip.types)} known" if chip.types else "not in the records",
        "by flips" if chip.has_batches else "numbers are unique" if chip.unique_ids else "not told apart",
        "yes" if chip.has_contexts else "no",
        "once" if chip.one_core else "of both kinds of cores",
    )


def _evidence() -> list[str]:
    kinds = [*RECORD_FILES, SAMPLED]
    lines = [
        "## How sure the readers are",
        "",
        *(f"- {_MARKS[mark]}: {words}." for mark, words in EVIDENCE.items()),
        "",
        _line(("`platform_version`", *kinds)),
        _line(["---"] * (len(kinds) + 1)),
    ]
    rows = ((number, *(_MARKS[chip.sure[kind]] if kind in chip.sure else "–" for kind in kinds)) for number, chip in CHIPS.items())
    return [*lines, *map(_line, (row for row, chip in zip(rows, CHIPS.values(), strict=True) if chip.readable)), ""]


def _frequency(mhz: float | None) -> str:
    return "–" if mhz is None else f"{mhz:g}"


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


if __name__ == "__main__":
    print(page(), end="")
