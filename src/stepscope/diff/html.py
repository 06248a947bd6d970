# SPDX-License-Identifier: Apache-2.0
"""A diff as one block of HTML without scripts or foreign files, for a page of its own and for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from stepscope.diff import words
from stepscope.diff.result import Diff, Row
from stepscope.diff.text import COLUMNS, MARKS, named_first, shown

STYLE = """
.sd{font:14px/1.45 system-ui,sans-serif;color:#1c2330;background:#fff;max-width:1000px;padding:16px}
.sd h1{font-size:19px;margin:0 0 6px}.sd p{margin:4px 0}.sd .muted{color:#5a6475;font-size:12.5px}
.sd table{border-collapse:collapse;margin:12px 0;width:100%}.sd th,.sd td{padding:3px 8px;text-align:right;white-space:nowrap}
.sd th:first-child,.sd td:first-child,.sd th:last-child,.sd td:last-child{text-align:left;white-space:normal;word-break:break-word}
.sd tr+tr td,.sd tfoot td{border-top:1px solid #e3e7ee}.sd .changed{font-weight:600}
@media (prefers-color-scheme:dark){.sd{color:#dfe4ee;background:#161a22}.sd .muted{color:#98a2b3}
.sd tr+tr td,.sd tfoot td{border-color:#2a3140}}
"""


def block(found: Diff, lang: str = "en", *, top: int = 10) -> str:
    """One `<div>` with its own style, light and dark."""
    return f"<div class='sd'><style>{STYLE}</style>{''.join(_parts(found, lang, top))}</div>"


def page(found: Diff, lang: str = "en", *, top: int = 10) -> str:
    title = escape(words.answer(found, lang))
    head = f"<!doctype html><html lang='{lang}'><meta charset='utf-8'><title>{title}</title>"
    return f"{head}<body>{block(found, lang, top=top)}</body></html>\n"


def _parts(found: Diff, lang: str, top: int) -> Iterator[str]:
    yield f"<h1>{escape(words.answer(found, lang))}</h1>"
    if found.gate is not None:
        yield f"<p><b>{escape(found.gate.text(lang))}</b></p>"
        for one in found.gate.checks:
            yield f"<p>{MARKS[one.status]} {escape(one.name)}: {escape(one.text(lang))}</p>"
    for note in words.notes(found, lang):
        yield f"<p class='muted'>{escape(note)}</p>"
    yield _table(found, found.parts, words.line("part", lang), lang, len(found.parts))
    if found.by != "part":
        yield _table(found, found.rows, words.line(found.by, lang), lang, top)
    yield f"<p class='muted'>{escape(words.line('unit', lang))}</p>"


def _table(found: Diff, rows: Sequence[Row], title: str, lang: str, top: int) -> str:
    rows = named_first(rows, top)
    table = shown(found, rows, lang, top)
    heads = [title, *(words.line(name, lang) for name in COLUMNS), words.line("status", lang)]
    changed = {place for place, row in enumerate(rows[:top]) if row.real}
    body = "".join(
        f"<tr{' class=changed' if place in changed else ''}><td>{escape(line.name)}</td>"
        f"{''.join(f'<td>{text}</td>' for text in table.figures(line.figures))}<td>{escape(line.status)}</td></tr>"
        for place, line in enumerate(table.lines)
    )
    whole = "".join(f"<td>{text}</td>" for text in table.figures(table.whole))
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    foot = f"<tfoot><tr><td>{escape(words.line('sum', lang))}</td>{whole}<td></td></tr></tfoot>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>{foot}</table>"
