# SPDX-License-Identifier: Apache-2.0
"""Parameters of a request, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from stepscope.web.problems import bad_parameter

LARGEST = (1 << 63) - 1


class Query:
    """Named values as text, each read with the type and the bounds that the route allows."""

    def __init__(self, values: Mapping[str, Sequence[str]] | None = None, body: Any = None, **single: object):
        self._values = {name: list(texts) for name, texts in (values or {}).items()}
        self._values |= {name: [str(value)] for name, value in single.items() if value is not None}
        self.body = body

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, [default])[0]

    def optional(self, name: str) -> str | None:
        """Null when absent or empty."""
        return self.text(name) or None

    def texts(self, name: str) -> list[str]:
        """All values of a parameter that may be repeated or hold commas."""
        return [part for text in self._values.get(name, []) for part in text.split(",") if part]

    def every(self, name: str) -> list[str]:
        """All values of a parameter that may be repeated; commas belong to the value."""
        return [text for text in self._values.get(name, []) if text]

    def choice(self, name: str, among: Sequence[str], default: str | None = None) -> str:
        value = self.text(name) or (among[0] if default is None else default)
        if value not in among:
            raise bad_parameter(name, f"one of {', '.join(among)}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        return self.choice(name, ("0", "1"), "1" if default else "0") == "1"

    def whole(self, name: str, default: int | None = None, *, least: int = 0, most: int = LARGEST) -> int | None:
        text = self.text(name)
        if not text:
            return default
        return whole_number(name, text, least, most)

    def number(self, name: str, default: int, *, least: int = 0, most: int = LARGEST) -> int:
        value = self.whole(name, default, least=least, most=most)
        assert value is not None
        return value

    def numbers(self, name: str) -> list[int] | None:
        """Comma-separated whole numbers; null when absent."""
        return [whole_number(name, text, 0, LARGEST) for text in self.texts(name)] if self.optional(name) else None

    def json(self, name: str, kind: type, default: Any) -> Any:
        text = self.optional(name)
        if text is None:
            return default
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as problem:
            raise bad_parameter(name, f"not valid JSON ({problem})") from None
        if not isinstance(value, kind):
            raise bad_parameter(name, f"a JSON {'object' if kind is dict else 'list'}")
        return value

    def window(self, length_ns: int) -> tuple[int, int]:
        """`from` and `to` in ns; the whole capture where they are left out."""
        low, high = self.number("from", 0), self.number("to", length_ns + 1)
        if low > high:
            raise bad_parameter("from", "not after to")
        return low, high


def whole_number(name: str, value: object, least: int, most: int) -> int:
    """A whole number from text or JSON; fractions of ns that a browser computes are cut."""
    number: int
    try:
        if isinstance(value, str):
            text = value.strip()
            if len(text) > 40:
                raise ValueError
            number = int(text) if text.lstrip("-").isdigit() else math.floor(float(text))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            number = math.floor(value)
        else:
            raise ValueError
    except (ValueError, OverflowError):
        raise bad_parameter(name, "a whole number") from None
    if not least <= number <= most:
        raise bad_parameter(name, f"from {least} to {most}")
    return number
