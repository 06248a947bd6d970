# SPDX-License-Identifier: Apache-2.0
"""A diff as lines for a terminal and as Markdown. Shown figures add up as shown, in every row and every column."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from stepscope.diff import words
from stepscope.diff.result import Diff, Row

MARKS = {"pass": "✓", "fail": "✗", "cannot tell": "?"}
COLUMNS = ("base", "new", "delta", "calls", "price")
MOST_NAME = 60


@dataclass(frozen=True)
class Line:
    """One line of the table: a name, figures in units of the last shown digit, and what the tests say."""

    name: str
    figures: tuple[int, ...]
    status: str


@dataclass(frozen=True)
class Shown:
    """The table as it is printed: lines, their sum, and the digits after the point of a millisecond."""

    lines: tuple[Line, ...]
    whole: tuple[int, ...]
    digits: int

    def figure(self, units: int, *, sign: bool) -> str:
        text = f"{units / 10**self.digits:+.{self.digits}f}" if sign else f"{units / 10**self.digits:.{self.digits}f}"
        return text if units or not sign else text.replace("+", " ").strip()

    def figures(self, units: Sequence[int]) -> list[str]:
        return [self.figure(value, sign=place > 1) for place, value in enumerate(units)]


def named_first(rows: Sequence[Row], top: int) -> list[Row]:
    """The rows in their order, those that have a line of their own first: changes, then the largest.

    What is folded into the last line is then smaller than what has a line, also where rows stand by how sure they are.
    """
    order = sorted(range(len(rows)), key=lambda place: (not rows[place].real, -abs(rows[place].delta_ns), place))
    named = set(order[:top])
    return [rows[place] for place in sorted(range(len(rows)), key=lambda place: (place not in named, place))]


def shown(found: Diff, rows: Sequence[Row], lang: str, top: int) -> Shown:
    """Round rows so that they sum to the rounded whole (largest remainder); change and price follow from the others."""
    rows = named_first(rows, top)
    digits = words.digits(found)
    unit = Fraction(1_000_000, 10**digits)
    base, new = (_rounded([getattr(row, name) / unit for row in rows]) for name in ("base_ns", "new_ns"))
    # A row whose change is all calls, or all price, is shown so; only the others are rounded.
    mixed = [place for place, row in enumerate(rows) if row.calls_ns and row.price_ns]
    calls = {place: new[place] - base[place] if row.calls_ns else 0 for place, row in enumerate(rows)}
    calls |= dict(zip(mixed, _rounded([rows[place].calls_ns / unit for place in mixed]), strict=True))
    figures = [
        (base[place], new[place], new[place] - base[place], calls[place], new[place] - base[place] - calls[place])
        for place in range(len(rows))
    ]
    lines = [Line(_label(row, lang), figures[place], status_of(found, row, lang)) for place, row in enumerate(rows[:top])]
    rest = figures[top:]
    if rest:
        lines.append(Line(words.line("more", lang, count=len(rest)), _column_sums(rest), ""))
    return Shown(tuple(lines), _column_sums(figures), digits)


def _column_sums(figures: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*figures, strict=True)) if figures else (0,) * len(COLUMNS)


def _rounded(values: Sequence[Fraction]) -> list[int]:
    """Whole numbers that sum to the rounded sum; those cut most are rounded up."""
    whole = [value.numerator // value.denominator for value in values]
    left = round(sum(values, Fraction(0))) - sum(whole)
    order = sorted(range(len(values)), key=lambda place: (whole[place] - values[place], place))
    for place in order[:left]:
        whole[place] += 1
    return whole


def _label(row: Row, lang: str) -> str:
    part = words.part_name(row.part, lang)
    name = words.row_name(row, lang)
    if row.match == "implementation":
        name = f"{row.op}: {name}"
    elif row.kernel and row.kernel != row.op and row.match != "replaced":
        name = f"{row.op} · {row.kernel}" if row.op else row.kernel
    name = words.plain(name)
    return part if name == part else f"{part}: {name}"


def status_of(found: Diff, row: Row, lang: str) -> str:
    """What the tests say about a row, and whether one side lacks it."""
    if row.match in ("base", "new"):
        said = words.line("gone" if row.match == "base" else "added", lang)
        return f"{said}, {words.status(row.status, lang)}" if row.real else said
    return words.row_status(found, row, lang)


def lines(found: Diff, lang: str = "en", *, width: int = 100, top: int = 10) -> Iterator[str]:
    """The answer, whether it can be compared at all, the parts, the rows, and the budget."""
    yield from _wrapped(words.answer(found, lang), width)
    for note in words.notes(found, lang):
        yield from _wrapped(note, width, indent="  ")
    yield ""
    yield from _table(found, found.parts, words.line("part", lang), lang, width, len(found.parts))
    if found.by != "part":
        yield ""
        yield from _table(found, found.rows, words.line(found.by, lang), lang, width, top)
    yield from _wrapped(words.line("unit", lang), width)
    if found.gate is not None:
        yield ""
        yield found.gate.text(lang)
        for one in found.gate.checks:
            text = words.line("gate-row", lang, mark=MARKS[one.status], name=one.name, text=one.text(lang))
            yield from _wrapped(text, width, indent="  ")


def _table(found: Diff, rows: Sequence[Row], title: str, lang: str, width: int, top: int) -> Iterator[str]:
    table = shown(found, rows, lang, top)
    heads = [words.line(name, lang) for name in COLUMNS]
    cells = [table.figures(line.figures) for line in table.lines]
    whole = table.figures(table.whole)
    sizes = [max(map(_width, column)) for column in zip(heads, whole, *cells, strict=True)]
    names = [_cut(line.name, max(20, width - sum(sizes) - 2 * len(sizes) - 24)) for line in table.lines]
    first = max(map(_width, [title, words.line("sum", lang), *names]))

    def row(name: str, figures: Sequence[str], last: str) -> str:
        return "  ".join(
            [_pad(name, first), *(_pad(text, size, left=True) for text, size in zip(figures, sizes, strict=True)), last]
        ).rstrip()

    yield row(title, heads, words.line("status", lang))
    for name, figures, line in zip(names, cells, table.lines, strict=True):
        yield row(name, figures, line.status)
    yield row(words.line("sum", lang), whole, "")


def _width(text: str) -> int:
    """Columns on a terminal; Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _pad(text: str, size: int, *, left: bool = False) -> str:
    blank = " " * (size - _width(text))
    return blank + text if left else text + blank


def _cut(text: str, size: int) -> str:
    if _width(text) <= size:
        return text
    kept = text
    while _width(kept) > size - 1:
        kept = kept[:-1]
    return f"{kept}…"


def _wrapped(text: str, width: int, *, indent: str = "") -> Iterator[str]:
    yield from textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False) or [""]


def markdown(found: Diff, lang: str = "en", *, top: int = 10) -> Iterator[str]:
    """The same as Markdown, for a pull request."""
    if found.gate is not None:
        yield f"**{found.gate.text(lang)}**\n"
    yield f"**{escaped(words.answer(found, lang))}**\n"
    for note in words.notes(found, lang):
        yield f"- {escaped(note)}"
    if found.gate is not None:
        yield ""
        for one in found.gate.checks:
            yield f"- {MARKS[one.status]} {escaped(one.name)}: {escaped(one.text(lang))}"
    yield ""
    yield from _markdown_table(found, found.parts, words.line("part", lang), lang, len(found.parts))
    if found.by != "part":
        yield ""
        yield from _markdown_table(found, found.rows, words.line(found.by, lang), lang, top)
    yield f"\n{escaped(words.line('unit', lang))}"


def _markdown_table(found: Diff, rows: Sequence[Row], title: str, lang: str, top: int) -> Iterator[str]:
    table = shown(found, rows, lang, top)
    heads = [title, *(words.line(name, lang) for name in COLUMNS), words.line("status", lang)]
    yield f"| {' | '.join(heads)} |"
    yield f"| --- |{' ---: |' * len(COLUMNS)} --- |"
    for line in table.lines:
        yield f"| {escaped(_cut(line.name, MOST_NAME))} | {' | '.join(table.figures(line.figures))} | {line.status} |"
    yield f"| **{words.line('sum', lang)}** | {' | '.join(table.figures(table.whole))} | |"


def escaped(text: str) -> str:
    """Text of a capture must not become markup, nor a mention or a link."""
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>|#@!~" else char for char in text)
