# SPDX-License-Identifier: Apache-2.0
"""Numbers that stand for texts in records, computed as by the vendor's runtime (docs/formats/cann.md 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_STEPS = (29, 131)  # of the upper and the lower half of a number
_MASK = 0xFFFF_FFFF


def text_hash(text: str) -> int:
    """The number of one text; 0 for an empty one."""
    upper = lower = 0
    for byte in text.encode("utf-8", "replace"):
        upper = (upper * _STEPS[0] + byte) & _MASK
        lower = (lower * _STEPS[1] + byte) & _MASK
    return upper << 32 | lower


def text_hashes(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """The numbers of many texts, one step for the n-th byte of all of them."""
    raw = [text.encode("utf-8", "replace") for text in texts]
    length = np.fromiter(map(len, raw), np.int64, len(raw))
    widest = int(length.max(initial=0))
    table = np.frombuffer(b"".join(text.ljust(widest, b"\0") for text in raw), np.uint8).reshape(len(raw), widest)
    halves = [np.zeros(len(raw), np.uint32) for _ in _STEPS]
    for at in range(widest):
        reached = at < length
        for half, step in zip(halves, _STEPS, strict=True):
            np.copyto(half, half * np.uint32(step) + table[:, at], where=reached)
    return np.asarray(halves[0].astype(np.uint64) << np.uint64(32) | halves[1], np.uint64)


class HashDictionary:
    """Texts seen so far and the lines of the dictionary file that were not yet written."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {0: ""}
        self._numbers: dict[str, int] = {"": 0}
        self._fresh: list[str] = []

    def number(self, text: str) -> int:
        return self._numbers.get(text) or self._enter(text, text_hash(text)) if text else 0

    def numbers(self, texts: Sequence[str]) -> npt.NDArray[np.uint64]:
        unknown = list(dict.fromkeys(text for text in texts if text not in self._numbers))
        for text, number in zip(unknown, text_hashes(unknown).tolist(), strict=True):
            self._enter(text, number)
        return np.fromiter((self._numbers[text] for text in texts), np.uint64, len(texts))

    def fresh_lines(self) -> str:
        """Lines for the texts that came since the last call."""
        lines, self._fresh = self._fresh, []
        return "".join(lines)

    def _enter(self, text: str, number: int) -> int:
        while self._texts.get(number, text) != text or not number:  # readers need one text per number, not this number
            number = (number + 1) & 0xFFFF_FFFF_FFFF_FFFF
        self._texts[number], self._numbers[text] = text, number
        shown = text.replace("\r", " ").replace("\n", " ")  # an entry is one line
        self._fresh.append(f"{number}:{shown}\n")
        return number
