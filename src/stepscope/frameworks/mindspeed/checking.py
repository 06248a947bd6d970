# SPDX-License-Identifier: Apache-2.0
"""Keys of a configuration and their valid values; invalid values are reported in one error, unknown keys in one warning."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stepscope.collect import messages
from stepscope.errors import CaptureError


@dataclass(frozen=True)
class Key:
    """One key: its default, which values it accepts, and the same in words."""

    name: str
    default: Any
    accepts: Callable[[Any], bool]
    allowed: str


def flag(name: str, default: bool) -> Key:
    return Key(name, default, lambda value: isinstance(value, bool), "true or false")


def word(name: str, default: str, *words: str) -> Key:
    return Key(name, default, lambda value: isinstance(value, str) and value in words, quote(words))


def number(name: str, default: int, least: int) -> Key:
    return Key(name, default, lambda value: whole(value) and value >= least, f"a whole number from {least}")


def text(name: str, default: str | None) -> Key:
    return Key(name, default, lambda value: isinstance(value, str) and value != "", "a non-empty string")


def ranks(name: str, default: tuple[int, ...]) -> Key:
    return Key(name, default, _ranks, "a list of ranks from 0, or -1 for all")


def words(name: str, default: str, *known: str) -> Key:
    def some(value: Any) -> bool:
        listed = [value] if isinstance(value, str) else value
        return isinstance(listed, (list, tuple)) and bool(listed) and all(item in known for item in listed)

    return Key(name, default, some, f"{quote(known)} or a list of them")


def whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _ranks(value: Any) -> bool:
    listed = [value] if whole(value) else value
    return isinstance(listed, (list, tuple)) and bool(listed) and all(whole(rank) and rank >= -1 for rank in listed)


def quote(values: Iterable[str]) -> str:
    return ", ".join(f'"{value}"' for value in values)


class ConfigCheck:
    """Reads blocks of one configuration and collects their problems.

    Args:
        source: the file or object, as the error names it.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._problems: list[str] = []
        self._unknown: list[str] = []

    def block(
        self, given: Mapping[str, Any], keys: Iterable[Key], *, prefix: str = "", others: Iterable[str] = ()
    ) -> dict[str, Any]:
        """The value of each key, or its default where the key is absent or invalid; `others` are read elsewhere."""
        known = {key.name: key for key in keys}
        allowed = [*known, *others]
        for name in given:
            if name not in allowed:
                near = difflib.get_close_matches(str(name), allowed, 1)
                advice = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(allowed)}"
                self._unknown.append(f"{prefix}{name} ({advice})")
        values = {}
        for name, key in known.items():
            value = given.get(name, key.default)
            if name in given and not key.accepts(value):
                self.wrong(f"{prefix}{name} = {value!r}", f"allowed: {key.allowed}")
                value = key.default
            values[name] = value
        return values

    def wrong(self, what: str, why: str) -> None:
        self._problems.append(f"{what}: {why}")

    def finish(self, *, used: bool = True) -> None:
        """Raise one error that lists all problems, if there are any; only a warning if the profiler is not used anyway."""
        if self._unknown:
            effect = "is unknown and has no effect" if len(self._unknown) == 1 else "are unknown and have no effect"
            messages.warning(f"{self._source}: {', '.join(self._unknown)} {effect}")
        if not self._problems:
            return
        many = len(self._problems)
        what = f"{many} setting{'s' if many > 1 else ''} of the profiler {'are' if many > 1 else 'is'} invalid"
        if not used:
            messages.warning(f"{what}, but it is switched off: {self._source}: {'; '.join(self._problems)}")
            return
        raise CaptureError(
            what,
            where=self._source,
            cause="".join(f"\n    {problem}" for problem in self._problems),
            fix="correct the listed keys, or remove them to use their defaults",
        )
