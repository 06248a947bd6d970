# SPDX-License-Identifier: Apache-2.0
"""A verdict as lines for a terminal and as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from stepscope.verdict import words
from stepscope.verdict.finding import Finding, RankVerdict, Verdict

BAR = 50
_FILLS = "█▓▒░▚▞▤▥▦▧▨▩"


def lines(found: Verdict, lang: str = "en", *, width: int = 80, top: int = 5) -> Iterator[str]:
    """The answer, where the step goes, the findings, and what the capture cannot tell."""
    if not found.complete:
        yield words.line("unfinished", lang)
    yield words.answer(found, lang)
    if together := together_line(found, lang):
        yield from _wrapped(together, "", width)
    worst = max(found.ranks, key=lambda one: one.partition.get("total", 0.0), default=None)
    if worst is not None and worst.partition.get("total"):
        yield ""
        yield from _bar(worst, lang, width, several=len(found.ranks) > 1)
    shown = [one for one in found.findings if one.severity != "info"][:top]
    for number, finding in enumerate(shown, 1):
        yield ""
        yield from _finding(number, finding, lang, width, several=len(found.ranks) > 1)
    notes = [one for one in found.findings if one.severity == "info"]
    if notes:
        yield ""
        for one in notes:
            yield from _wrapped(f"{words.line('info', lang)}: {one.text('title', lang)}", "    ", width, first="  ")
    limits, absent = words.lacks(found, lang)
    if limits or absent:
        yield ""
        yield words.line("cannot", lang)
        for lack in [*limits, *([("；" if lang == "zh" else "; ").join(absent)] if absent else [])]:
            yield from _wrapped(f"- {lack}", "  ", width)


def together_line(found: Verdict, lang: str) -> str:
    total = max((one.partition.get("total", 0.0) for one in found.ranks), default=0.0)
    if not found.together_ns or found.together_ns < 0.02 * total or found.together_ns >= total:
        return ""
    left = total - found.together_ns
    return words.line("together", lang, ms=left / 1e6, factor=total / left)


def percentages(parts: Mapping[str, float]) -> dict[str, int]:
    """Whole percentages that sum to 100 (largest remainder); parts without time are left out."""
    total = sum(parts.values())
    if total <= 0:
        return {}
    exact = {name: 100 * value / total for name, value in parts.items() if value > 0}
    whole = {name: int(value) for name, value in exact.items()}
    left = 100 - sum(whole.values())
    for name in sorted(exact, key=lambda one: whole[one] - exact[one])[:left]:
        whole[name] += 1
    return whole


def _bar(rank: RankVerdict, lang: str, width: int, *, several: bool) -> Iterator[str]:
    parts = {name: value for name, value in rank.partition.items() if name != "total"}
    shares = percentages(parts)
    order = sorted(shares, key=lambda one: -shares[one])
    cells = percentages({name: parts[name] * BAR / 100 for name in order})
    bar = "".join(_FILLS[place % len(_FILLS)] * round(cells[name] * BAR / 100) for place, name in enumerate(order))
    head = f"rank {rank.rank}" if rank.rank is not None else words.line("parts", lang)
    if several and rank.rank is not None:
        head = words.line("slowest", lang, rank=rank.rank)  # the answer and all shares are of its step
    yield f"{head}: {bar}"
    said = [
        f"{_FILLS[place % len(_FILLS)]} {words.part_name(name, lang)} {shares[name]} %"
        for place, name in enumerate(order)
        if shares[name]
    ]
    yield from _wrapped("  ".join(said), "", width)


def _finding(number: int, finding: Finding, lang: str, width: int, *, several: bool) -> Iterator[str]:
    saved = words.line("saved", lang, ms=finding.saved_ms, share=finding.share)
    if finding.upper_ns is not None and finding.upper_ns > 1.05 * finding.saved_ns:
        saved = words.line("upper", lang, ms=finding.saved_ms, upper=finding.upper_ns / 1e6)
    about = [words.line(finding.severity, lang), saved, words.line("confidence", lang, level=words.line(finding.confidence, lang))]
    if several and finding.ranks:
        about.append(ranks_text(finding, lang))
    yield from _wrapped(f"{number}. {finding.text('title', lang)}", "   ", width)
    yield from _wrapped(" · ".join(about), "   ", width, first="   ")
    yield from _wrapped(finding.text("detail", lang), "   ", width, first="   ")
    if place := place_text(finding):
        yield from _wrapped(words.line("where", lang, text=place), "   ", width, first="   ")
    yield from _wrapped(words.line("next", lang, text=finding.text("next", lang)), "   ", width, first="   ")


def ranks_text(finding: Finding, lang: str) -> str:
    """Ranks of a merged finding as ranges, with the worst."""
    if len(finding.ranks) == 1:
        return f"rank {finding.rank}"
    return words.line("ranks", lang, ranks=_ranges(finding.ranks), rank=finding.rank)


def _ranges(numbers: tuple[int, ...]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}–{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts)


def place_text(finding: Finding) -> str:
    """The first place of a finding: operator, module and source line, as far as known."""
    place = next(iter(finding.where), None)
    return " · ".join(part for part in (place.op, place.module, place.stack) if part) if place else ""


def _wrapped(text: str, indent: str, width: int, *, first: str = "") -> Iterator[str]:
    yield from textwrap.wrap(text, width, initial_indent=first, subsequent_indent=indent, break_long_words=False) or [""]


def markdown(found: Verdict, lang: str = "en", *, top: int = 5) -> Iterator[str]:
    """The same as Markdown, for a pull request or a page."""
    if not found.complete:
        yield f"> {words.line('unfinished', lang)}\n"
    yield f"**{_escaped(words.answer(found, lang))}**\n"
    if together := together_line(found, lang):
        yield f"{together}\n"
    worst = max(found.ranks, key=lambda one: one.partition.get("total", 0.0), default=None)
    if worst is not None and worst.partition.get("total"):
        parts = {name: value for name, value in worst.partition.items() if name != "total"}
        yield "| | ms | % |\n| --- | ---: | ---: |"
        for name, share in percentages(parts).items():
            yield f"| {words.part_name(name, lang)} | {parts[name] / 1e6:.2f} | {share} |"
        yield ""
    for finding in [one for one in found.findings if one.severity != "info"][:top]:
        saved = words.line("saved", lang, ms=finding.saved_ms, share=finding.share)
        yield f"1. **{_escaped(finding.text('title', lang))}** — {saved}. {_escaped(finding.text('detail', lang))}"
        yield f"   {_escaped(words.line('next', lang, text=finding.text('next', lang)))}"
    limits, absent = words.lacks(found, lang)
    if limits or absent:
        yield f"\n{words.line('cannot', lang)} {_escaped('; '.join([*limits, *absent]))}"


def _escaped(text: str) -> str:
    """Text of a capture must not become markup."""
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>|#" else char for char in text)
