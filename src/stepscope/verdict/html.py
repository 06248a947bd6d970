# SPDX-License-Identifier: Apache-2.0
"""A verdict as one block of HTML without scripts or foreign files, for a page of its own and for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from stepscope.verdict import words
from stepscope.verdict.finding import Finding, Verdict
from stepscope.verdict.text import percentages, place_text, ranks_text, together_line

STYLE = """
.sv{font:14px/1.45 system-ui,sans-serif;color:#1c2330;background:#fff;max-width:860px;padding:16px}
.sv h1{font-size:19px;margin:0 0 6px}.sv p{margin:4px 0}
.sv .bar{display:flex;height:22px;margin:10px 0;border-radius:3px;overflow:hidden}
.sv .bar i{display:block;min-width:1px}.sv .key{font-size:12px;color:#5a6475}.sv ol{padding-left:20px}.sv li{margin:10px 0}
.sv .sev{font-size:12px;font-weight:600}.sv .muted{color:#5a6475;font-size:12.5px}
@media (prefers-color-scheme:dark){.sv{color:#dfe4ee;background:#161a22}.sv .key,.sv .muted{color:#98a2b3}}
"""
COLOURS = ("#3366cc", "#e6883c", "#8a9bb5", "#2e9e6b", "#b95fc2", "#c9a227", "#d1495b", "#4fb3bf", "#77685d", "#9bbf4d")


def block(found: Verdict, lang: str = "en", *, top: int = 5) -> str:
    """One `<div>` with its own style, light and dark."""
    return f"<div class='sv'><style>{STYLE}</style>{''.join(_parts(found, lang, top))}</div>"


def page(found: Verdict, lang: str = "en", *, top: int = 5) -> str:
    title = escape(words.answer(found, lang))
    head = f"<!doctype html><html lang='{lang}'><meta charset='utf-8'><title>{title}</title>"
    return f"{head}<body>{block(found, lang, top=top)}</body></html>\n"


def _parts(found: Verdict, lang: str, top: int) -> Iterator[str]:
    if not found.complete:
        yield f"<p><b>{escape(words.line('unfinished', lang))}</b></p>"
    yield f"<h1>{escape(words.answer(found, lang))}</h1>"
    if together := together_line(found, lang):
        yield f"<p>{escape(together)}</p>"
    for rank in found.ranks:
        parts = {name: value for name, value in rank.partition.items() if name != "total" and value > 0}
        shares = percentages(parts)
        if shares:
            yield _bar(parts, shares, lang, f"rank {rank.rank}" if rank.rank is not None else "")
    shown = [one for one in found.findings if one.severity != "info"][:top]
    if shown:
        yield "<ol>" + "".join(_finding(one, lang, several=len(found.ranks) > 1) for one in shown) + "</ol>"
    for one in found.findings:
        if one.severity == "info":
            yield f"<p class='muted'>{escape(one.text('title', lang))}</p>"
    limits, absent = words.lacks(found, lang)
    if limits or absent:
        yield f"<p class='muted'>{escape(words.line('cannot', lang))} {escape('; '.join([*limits, *absent]))}</p>"


def _bar(parts: dict[str, float], shares: dict[str, int], lang: str, label: str) -> str:
    order = sorted(parts, key=lambda name: -parts[name])
    whole = sum(parts.values())
    cells = "".join(
        f"<i style='width:{100 * parts[name] / whole:.3f}%;background:{COLOURS[place % len(COLOURS)]}'"
        f" title='{escape(words.part_name(name, lang))} {parts[name] / 1e6:.2f} ms'></i>"
        for place, name in enumerate(order)
    )
    key = " · ".join(
        f"<span style='color:{COLOURS[place % len(COLOURS)]}'>■</span> {escape(words.part_name(name, lang))} {shares[name]} %"
        for place, name in enumerate(order)
        if shares[name]
    )
    return f"<div class='key'>{escape(label)} {whole / 1e6:.1f} ms</div><div class='bar'>{cells}</div><div class='key'>{key}</div>"


def _finding(finding: Finding, lang: str, *, several: bool) -> str:
    saved = words.line("saved", lang, ms=finding.saved_ms, share=finding.share)
    if finding.upper_ns is not None and finding.upper_ns > 1.05 * finding.saved_ns:
        saved = words.line("upper", lang, ms=finding.saved_ms, upper=finding.upper_ns / 1e6)
    sure = words.line("confidence", lang, level=words.line(finding.confidence, lang))
    about = f"{words.line(finding.severity, lang)} · {saved} · {sure}"
    if several and finding.ranks:
        about += f" · {ranks_text(finding, lang)}"
    place = place_text(finding)
    where = f"<p class='muted'>{escape(words.line('where', lang, text=place))}</p>" if place else ""
    return (
        f"<li><b>{escape(finding.text('title', lang))}</b><p class='sev'>{escape(about)}</p>"
        f"<p>{escape(finding.text('detail', lang))}</p>"
        f"{where}<p>{escape(words.line('next', lang, text=finding.text('next', lang)))}</p></li>"
    )
