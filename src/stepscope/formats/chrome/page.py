# SPDX-License-Identifier: Apache-2.0
"""The bytes of many JSON objects, with fast lookups of what is where."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from stepscope.formats.chrome.borders import Events

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_QUOTE, _BACKSLASH, _OPENING, _CLOSING = b'"\\[]'
_PADDING = b"\n" * 16  # so that a view can be read at any place
_FEW_WORDS = 6  # up to so many are compared one by one, more of them all at once
_NOWHERE: Ints = np.zeros(0, np.int64)
_FIRST_OF_SCALAR, _LAST_OF_SCALAR = np.zeros((2, 256), np.bool_)
_FIRST_OF_SCALAR[list(b"-0123456789tfn")] = True
_LAST_OF_SCALAR[list(b"0123456789el")] = True


class Page:
    """The bytes, and where quotes are in them."""

    def __init__(self, events: Events):
        self.events, self.starts, self.ends = events, events.starts, events.ends
        self.data = events.text + _PADDING
        self.ascii = events.text.isascii()
        self.codes = np.frombuffer(self.data, np.uint8)
        self.height = len(self.starts)
        self.quotes = np.flatnonzero(self.codes == _QUOTE)
        self.first_quote = np.searchsorted(self.quotes, self.starts)
        strange = np.flatnonzero(self.codes == _BACKSLASH) if b"\\" in self.data else _NOWHERE
        self.unfit = np.unique(np.searchsorted(self.ends, strange))

    def by_quotes(self) -> Iterable[tuple[int, Ints]]:
        """The fit rows, those with the same number of quotes together, and that number."""
        fit = np.delete(np.arange(self.height), self.unfit)
        counts = np.diff(self.first_quote, append=len(self.quotes))[fit]
        order = np.argsort(counts, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(counts[order])) + 1):
            yield int(counts[rows[0]]) if len(rows) else 0, fit[rows]

    def bytes_at(self, places: Ints, size: int) -> Words:
        """The bytes at each place, eight in one number; one gather of whole stretches is far cheaper than many of words.

        Places ascend. Beyond the end there is the padding, whose line ends occur in no text.
        """
        every = np.ndarray((len(self.data) - size + 1,), f"V{size}", self.data, strides=(1,))
        if len(places) and places[-1] >= len(every):
            places = np.minimum(places, len(every) - 1)
        words: Words = every[places].view("<u8").reshape(len(places), size // 8)
        return words

    def equal(self, at: Ints, text: bytes) -> npt.NDArray[np.bool_]:
        """Whether these bytes are at each of the places."""
        sought, mask = _words(text)
        words = self.bytes_at(at, 8 * len(sought))
        same: npt.NDArray[np.bool_] = (words[:, -1] & mask) == sought[-1]
        if len(sought) > _FEW_WORDS:
            rest = words[:, :-1] == sought[:-1]
            return same if rest.all() else same & rest.all(axis=1)
        for column, word in enumerate(sought[:-1]):
            same &= words[:, column] == word
        return same

    def scalar(self, begin: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        """Whether bare values are numbers, true, false or null; anything else at an end (bracket, comma, the N of NaN) means
        another shape of object."""
        plausible: npt.NDArray[np.bool_] = _FIRST_OF_SCALAR[self.codes[begin]] & _LAST_OF_SCALAR[self.codes[end - 1]]
        return (end > begin) & plausible

    def in_brackets(self, begin: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        inside: npt.NDArray[np.bool_] = (self.codes[begin] == _OPENING) & (self.codes[end - 1] == _CLOSING)
        return inside & (end > begin)


@lru_cache(maxsize=1024)
def _words(text: bytes) -> tuple[Words, np.uint64]:
    """Text as words, zeros behind it, and which bits of the last word it fills."""
    words = np.frombuffer(text + b"\0" * (-len(text) % 8), "<u8")
    return words, np.uint64((1 << 8 * ((len(text) - 1) % 8 + 1)) - 1)
