# SPDX-License-Identifier: Apache-2.0
"""HTML in which every text is text: only what this module builds is markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


EMPTY = Markup("")
_VOID = {"br", "hr", "meta", "rect", "path", "line", "circle"}


def tag(kind: str, *inside: object, **attributes: object) -> Markup:
    """An element. Names of attributes may end in `_` (class_) and have `_` for `-`; None leaves one out."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for name, value in attributes.items() if value is not None
    )
    if kind in _VOID and not inside:
        return Markup(f"<{kind}{named}/>" if kind not in ("br", "hr", "meta") else f"<{kind}{named}>")
    return Markup(f"<{kind}{named}>{joined(*inside)}</{kind}>")


def joined(*parts: object) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else "" if part is None else escape(str(part)) for part in parts))


def number(value: Any, digits: int = 3) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.{digits}f}" if isinstance(value, float) else str(value)


def time_text(us: float) -> str:
    """A duration with the unit that suits it."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(us) >= size:
            return f"{us / size:,.4g} {unit}"
    return f"{us:,.4g} us"


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], *, bars: int | None = None, note: str = "") -> Markup:
    """A table; the cells of column `bars` carry a bar as long as their share of the largest."""
    rows = [list(row) for row in rows]
    largest = max((float(str(row[bars] or 0)) for row in rows), default=0.0) if bars is not None else 0.0
    wholes = [bool(rows) and all(isinstance(row[place], (int, float, type(None))) for row in rows) for place in range(len(titles))]
    body = [
        tag("tr", *(_cell(value, place == bars and largest > 0, largest, wholes[place]) for place, value in enumerate(row)))
        for row in rows
    ]
    head = tag("tr", *(tag("th", title, scope="col", class_="n" if wholes[place] else None) for place, title in enumerate(titles)))
    shown = tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="wide")
    return joined(shown, tag("p", note, class_="note") if note else EMPTY)


def _cell(value: Any, with_bar: bool, largest: float, is_number: bool) -> Markup:
    share = f"--share:{100 * float(value or 0) / largest:.2f}%" if with_bar else None
    kind = " ".join(word for word, there in (("n", is_number), ("bar", with_bar)) if there)
    return tag("td", value if isinstance(value, Markup) else number(value), class_=kind or None, style=share)
