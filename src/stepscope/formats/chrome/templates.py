# SPDX-License-Identifier: Apache-2.0
"""Templates: what the events of a program have in common, byte by byte."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import orjson

from stepscope.formats.chrome.page import Ints, Page

ROUNDS = 64  # templates looked for, and remembered, per number of quotes
_SAMPLE = 32
_QUOTE, _OPENING, _CLOSING = b'"[]'
_LIST = b"list"  # not a word of JSON
_SCALAR = re.compile(rb"[-+.0-9A-Za-z]+")


class Templates:
    """The templates of one file so far: a file repeats them from its first page to its last.

    Several threads may share one; at worst a template is found twice.
    """

    def __init__(self) -> None:
        self._by_quotes: dict[int, list[Template]] = {}

    def likely(self, quotes: int) -> list[Template]:
        """Templates of objects with this number of quotes, the most recently used first."""
        return self._by_quotes.get(quotes, [])

    def remember(self, quotes: int, used: list[Template]) -> None:
        others = [template for template in self.likely(quotes) if template not in used]
        self._by_quotes[quotes] = [*used, *others][:ROUNDS]


@dataclass(frozen=True)
class Value:
    """A value between two fixed stretches of bytes: text between quotes, a bare number or word, or a list."""

    key: str
    quoted: bool
    is_list: bool = False
    quotes: int = 0  # inside a list


@dataclass(frozen=True)
class Template:
    """An object as fixed stretches of bytes with one value between each two.

    A stretch is found by its first quote; the first one by the start of the line, a last one without quote by its end.
    """

    fixed: tuple[bytes, ...]
    values: tuple[Value, ...]
    shared: tuple[tuple[Value, bytes], ...] = ()  # values that are part of a fixed stretch

    @staticmethod
    def of(line: bytes) -> Template | None:
        try:
            if not isinstance(orjson.loads(line), dict):
                return None
        except orjson.JSONDecodeError:
            return None
        return _split(line)

    def narrow(self, page: Page, rows: Ints) -> Template:
        """The template with values that all events of a sample share as part of it; the template itself when few fit."""
        if self.shared or len(rows) < _SAMPLE // 2:
            return self
        found, places = self.find(page, rows[:: max(1, len(rows) // _SAMPLE)])
        if len(found) < _SAMPLE // 2:
            return self
        fixed, values, shared = [self.fixed[0]], [], []
        for number, (value, begin, end) in enumerate(self.spans(places), start=1):
            text = page.data[begin[0] : end[0]]
            if (end - begin == len(text)).all() and (not text or page.equal(begin, text).all()):
                fixed[-1] += text + self.fixed[number]
                shared.append((value, text))
            else:
                fixed.append(self.fixed[number])
                values.append(value)
        return Template(tuple(fixed), tuple(values), tuple(shared))

    @cached_property
    def stretches(self) -> list[tuple[bytes, int, int]]:
        """Each fixed stretch with the place of its first quote in itself (-1: none) and in the object."""
        found, quotes = [], 0
        for text, value in zip(self.fixed, [*self.values, None], strict=True):
            found.append((text, text.find(b'"'), quotes))
            quotes += text.count(b'"') + (value.quotes if value else 0)
        return found

    def find(self, page: Page, rows: Ints) -> tuple[Ints, list[Ints]]:
        """Which of the rows are of this template, and where each fixed stretch begins in them.

        All rows have as many quotes as the template. A stretch that is found at its first quote therefore lies inside of the
        row and behind the one before it; only the end of the last one must be looked at.
        """
        found = np.arange(len(rows))
        places: list[Ints] = []
        first, ends = page.first_quote[rows], page.ends[rows]
        for number, (text, lead, quote) in enumerate(self.stretches):
            if number == 0:
                at = page.starts[rows]
            elif lead >= 0:
                at = page.quotes[first + quote]
                at -= lead
            else:
                at = ends - len(text)
            fits = page.equal(at, text)
            if number == len(self.values):
                fits &= at + len(text) == ends
            if number and not self.values[number - 1].quoted:
                is_value = page.in_brackets if self.values[number - 1].is_list else page.scalar
                fits &= is_value(places[-1] + len(self.fixed[number - 1]), at)
            places.append(at)
            if not fits.all():
                found, first, ends = found[fits], first[fits], ends[fits]
                places = [place[fits] for place in places]
                if not len(found):
                    break
        return found, places

    def spans(self, places: list[Ints]) -> Iterable[tuple[Value, Ints, Ints]]:
        for number, value in enumerate(self.values):
            yield value, places[number] + len(self.fixed[number]), places[number + 1]


def _split(line: bytes) -> Template | None:
    """Cut a valid object without backslashes into fixed stretches and values."""
    line, lists = _without_lists(line)
    fixed: list[bytes] = []
    values: list[Value] = []
    path: list[str] = []
    pending = b""
    parts = line.split(b'"')  # gaps at even places, texts at odd ones
    key = ""
    for number, part in enumerate(parts):
        if number % 2:
            if parts[number + 1].lstrip().startswith(b":"):
                key = part.decode(errors="replace")
                pending += b'"' + part + b'"'
            else:
                fixed.append(pending + b'"')
                values.append(Value(".".join([*path, key]), quoted=True))
                pending = b'"'
            continue
        scalar = _SCALAR.search(part)
        if scalar:
            fixed.append(pending + part[: scalar.start()])
            is_list = scalar.group() == _LIST
            quotes = lists.pop(0).count(b'"') if is_list else 0
            values.append(Value(".".join([*path, key]), quoted=False, is_list=is_list, quotes=quotes))
            pending = part[scalar.end() :]
        else:
            pending += part
        for code in part:
            if code == ord("{") and number:
                if path:
                    return None  # an object inside args may be wanted as text
                path.append(key)
            elif code == ord("}") and path:
                path.pop()
    return Template((*fixed, pending), tuple(values))


def _without_lists(line: bytes) -> tuple[bytes, list[bytes]]:
    """The object with a word in the place of each list, and the lists."""
    lists: list[bytes] = []
    kept = b""
    begin, depth, inside_text = 0, 0, False
    for place, code in enumerate(line):
        if code == _QUOTE:
            inside_text = not inside_text
        elif not inside_text and code == _OPENING:
            if depth == 0:
                kept += line[begin:place] + _LIST
                begin = place
            depth += 1
        elif not inside_text and code == _CLOSING:
            depth -= 1
            if depth == 0:
                lists.append(line[begin : place + 1])
                begin = place + 1
    return kept + line[begin:], lists
