# SPDX-License-Identifier: Apache-2.0
"""The verdict in words, English and Chinese, from `texts/`; capture text is put in as it stands, cut at 200 characters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from stepscope.verdict.settings import load_toml

if TYPE_CHECKING:
    from stepscope.verdict.finding import Finding, Lack, Verdict

LANGUAGES = ("en", "zh")
MOST_TEXT = 200  # characters of a name that came from a capture


@cache
def texts(lang: str) -> Mapping[str, Any]:
    words: Mapping[str, Any] = load_toml(f"texts/{lang}.toml")
    return words


def finding_text(rule: str, part: str, lang: str, params: Mapping[str, Any], variant: str = "") -> str:
    """Title, detail or next step of a finding."""
    entry = texts(lang)["rule"][rule]
    chosen = entry.get(variant, entry) if variant else entry
    return fill(chosen[part], params)


def lack_text(lack: str, lang: str, params: Mapping[str, Any]) -> str:
    if lack == "empty":
        params = {"what": texts(lang)["recorded"][params["what"]]}
    return fill(texts(lang)["lack"][lack], params)


def line(name: str, lang: str, **params: Any) -> str:
    return fill(texts(lang)["line"][name], params)


def part_name(part: str, lang: str) -> str:
    return str(texts(lang)["part"].get(part, part))


def lacks(found: Verdict, lang: str) -> tuple[list[str], list[str]]:
    """What limits the answers, and what was not recorded; each once, from the rank where it is most."""
    worst: dict[tuple[str, Any], Lack] = {}
    for lack in (lack for one in found.ranks for lack in one.cannot_tell):
        known = worst.get((lack.lack, lack.params.get("what")))
        if known is None or lack.params.get("share", 0) > known.params.get("share", 0):
            worst[lack.lack, lack.params.get("what")] = lack
    texts_of = [(lack.limits, lack.text(lang)) for lack in worst.values()]
    return [text for limits, text in texts_of if limits], [text for limits, text in texts_of if not limits]


def short_name(finding: Finding, lang: str) -> str:
    """A finding in two or three words."""
    name = str(texts(lang)["short"][finding.rule])
    if finding.rule == "host-python" and not finding.variant:
        return line("between", lang)  # no frame says that it is Python
    late = finding.params.get("late_rank")
    if finding.rule == "peer-wait" and isinstance(late, int) and late >= 0:
        return line("late" if finding.variant in ("global", "ranks") else "late-in-group", lang, rank=late)
    return name


def fill(text: str, params: Mapping[str, Any]) -> str:
    """A text with its parameters."""
    filled = text.format_map({key: plain(value) for key, value in params.items()})
    return re.sub(r"(?<=\d)%", " %", filled)


def plain(value: Any) -> Any:
    """Names of a capture are text that nobody checked: one line, no control characters, not without end."""
    if not isinstance(value, str):
        return value
    clean = re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", value)
    return clean if len(clean) <= MOST_TEXT else f"{clean[: MOST_TEXT - 1]}…"


def answer(found: Verdict, lang: str) -> str:
    """The answer in one line: how long a step is and what would save most of it."""
    if not found.step_ns:
        return line("empty", lang)
    several = any(len(one.steps) > 1 for one in found.ranks)
    head = line(("mean-step" if several else "step") if found.has_steps else "run", lang, ms=found.step_ns / 1e6)
    causes = [one for one in found.findings if one.severity != "info"][:2]
    if not causes:
        from stepscope.verdict.settings import limits

        return f"{head}: {line('nothing', lang, limit=limits()['severity']['low'])}"
    said = [line("cause", lang, share=_seen_share(one), what=short_name(one, lang)) for one in causes]
    return f"{head}: {', '.join(said)}"


def _seen_share(finding: Finding) -> float:
    """The share of the step that a cause is seen in; a part that is only partly to be saved is named by the part."""
    seen = finding.params.get("share")
    return float(seen) if finding.rule == "exposed-communication" and isinstance(seen, float) else finding.share
