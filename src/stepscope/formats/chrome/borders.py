# SPDX-License-Identifier: Apache-2.0
"""Where one event of a Chrome trace ends and the next begins, found in raw bytes without parsing them.

The JSON objects of a list are split by pattern where that is safe and by counting brackets outside of strings where
it is not. Nothing here makes a Python object per byte; the exact way makes one slice per event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_QUOTE, _BACKSLASH, _LINE_END, _BLANK = b'"\\\n '
_BLOCK_BYTES = 1 << 20  # this much, and what it is compared with, stays in the cache
_KINDS = np.zeros(256, np.int8)
_KINDS[_QUOTE] = 2
_KINDS[[ord("{"), ord("[")]] = 1
_KINDS[[ord("}"), ord("]")]] = -1

_LIKELY_BORDER = re.compile(rb"\}\s*,\s*\{")
# Raw line ends cannot occur inside a JSON string, so they may be blanked before anything else is known.
_BLANKS = bytes.maketrans(b"\r\n\t", b"   ")


@dataclass(frozen=True)
class Pieces:
    """The whole events of a stretch of bytes, one per line, and what follows them."""

    lines: bytes
    rest: bytes  # from the first byte after the last whole event
    closed: bool = False  # the list ended: `rest` begins with its closing bracket
    skipped: bytes = b""  # bytes between events other than commas and blanks, one piece per line


@dataclass(frozen=True)
class Events:
    """Where events lie in bytes; there are no line ends inside events."""

    text: bytes
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    @staticmethod
    def of_lines(lines: bytes) -> Events:
        breaks = np.flatnonzero(np.frombuffer(lines, np.uint8) == _LINE_END)
        return _between(lines, breaks, breaks + 1)

    def line(self, number: int) -> bytes:
        return self.text[self.starts[number] : self.ends[number]]

    def lines(self) -> bytes:
        return b"\n".join([self.text[a:b] for a, b in zip(self.starts.tolist(), self.ends.tolist(), strict=True)])


def _between(text: bytes, ends: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> Events:
    """Events that fill the bytes but for gaps, given by where one ends and the next starts."""
    return Events(text, np.concatenate([np.zeros(1, np.int64), starts]), np.concatenate([ends, np.array([len(text)])]))


def flat(data: bytes) -> bytes:
    """The same JSON without line ends or tabs; nothing moves."""
    return data.translate(_BLANKS) if b"\n" in data or b"\r" in data or b"\t" in data else data


def separator(data: bytes) -> bytes | None:
    """Bytes from the end of the first event to the start of the second, such as `}, {`; None when there is no second.

    When brackets do not balance, the first bytes that look like it.
    """
    starts, ends, _ = _borders(data)
    border = data[ends[0] - 1 : starts[1] + 1] if len(starts) > 1 else b""
    if border[1:-1].strip() == b",":
        return border
    guess = _LIKELY_BORDER.search(data)
    return guess.group() if guess else None


def by_pattern(data: bytes, border: bytes, size: int) -> tuple[list[memoryview], bytes]:
    """Cut at occurrences of the separator into stretches of about `size` bytes; the bytes from the last one on are the rest."""
    end = data.rfind(border)
    if end < 0:
        return [], data
    stretches, begin, whole = [], 0, memoryview(data)  # no other thread runs while bytes are copied
    while end - begin > size and (cut := data.find(border, begin + size, end)) >= 0:
        stretches.append(whole[begin : cut + 1])
        begin = cut + len(border) - 1
    return [*stretches, whole[begin : end + 1]], data[end + len(border) - 1 :]


def events_of(stretch: bytes | memoryview, border: bytes) -> Events:
    """Cut at every separator; right if and only if every piece is an object by itself.

    A cut at a wrong place leaves a beginning of an object before it, and no beginning of an object is an object, so
    parsing the pieces reveals it.
    """
    stretch = bytes(stretch)
    text, borders = _by_line_ends(stretch, border) if b"\n" in border else _by_braces(flat(stretch), border)
    return _between(text, borders + 1, borders + len(border) - 1)


def _by_braces(text: bytes, border: bytes) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Where the separator occurs: first where its braces do, because few other bytes are braces."""
    codes = np.frombuffer(text, np.uint8)
    last = len(border) - 1
    found = []
    for begin in range(0, max(0, len(codes) - last), _BLOCK_BYTES):
        end = min(begin + _BLOCK_BYTES, len(codes) - last)
        flags = codes[begin:end] == border[0]
        flags &= codes[begin + last : end + last] == border[last]
        found.append(np.flatnonzero(flags) + begin)
    return text, _matching(codes, np.concatenate([np.zeros(0, np.int64), *found]), border)


def _by_line_ends(data: bytes, border: bytes) -> tuple[bytes, npt.NDArray[np.int64]]:
    """The bytes with blanks for line ends and tabs, and where the separator occurs; line ends are easily found."""
    codes = np.frombuffer(bytearray(data), np.uint8)
    controls = np.flatnonzero(codes < _BLANK)
    first = border.index(b"\n")
    borders = controls[codes[controls] == _LINE_END] - first
    borders = _matching(codes, borders[(borders >= 0) & (borders <= len(codes) - len(border))], border)
    codes[controls] = _BLANK
    return codes.tobytes(), borders


def _matching(codes: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], text: bytes) -> npt.NDArray[np.int64]:
    for offset, code in enumerate(text):
        places = places[codes[places + offset] == code]
    return places


def by_brackets(data: bytes) -> Pieces:
    """Split by counting brackets outside of strings; right for any JSON."""
    text = flat(data)
    starts, ends, closing = _borders(text)
    begin, stop = starts.tolist(), ends.tolist()
    lines = b"\n".join([text[a:b] for a, b in zip(begin, stop, strict=True)])
    last = stop[-1] if stop else 0
    rest_at = closing if closing is not None else last
    between = [text[a:b] for a, b in zip([0, *stop], begin, strict=False)]
    skipped = [*between, text[last:rest_at] if closing is not None else b""]
    strange = b"\n".join([piece for piece in skipped if piece.strip(b" ,")])
    return Pieces(lines, text[rest_at:].lstrip(b" ,"), closing is not None, strange)


def _borders(flat: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int | None]:
    """Start and end of every whole element of the list, and the place of the list's own closing bracket."""
    at, steps = brackets(flat)
    depth = np.cumsum(steps, dtype=np.int32)
    over = np.flatnonzero(depth < 0)
    closing = int(at[over[0]]) if len(over) else None
    if len(over):
        at, steps, depth = at[: over[0]], steps[: over[0]], depth[: over[0]]
    starts = at[(depth == 1) & (steps == 1)]
    ends = at[(depth == 0) & (steps == -1)] + 1
    return starts[: len(ends)], ends, closing


def brackets(text: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]:
    """Where brackets and braces are outside of strings, and 1 for each that opens, -1 for each that closes."""
    codes = np.frombuffer(text, np.uint8)
    kinds = _KINDS[codes]
    at = np.flatnonzero(kinds)
    kinds = kinds[at]
    quotes = kinds == 2
    quotes[quotes] = ~_escaped(codes, at[quotes])
    outside = (np.cumsum(quotes, dtype=np.int32) & 1) == 0
    found = (kinds != 2) & outside
    return at[found], kinds[found]


def _escaped(codes: npt.NDArray[np.uint8], quotes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which quotes follow an odd number of backslashes."""
    odd = np.zeros(len(quotes), np.bool_)
    which = np.arange(len(quotes))
    back = 1
    while len(which):
        which = which[quotes[which] >= back]
        which = which[codes[quotes[which] - back] == _BACKSLASH]
        odd[which] = back % 2 == 1
        back += 1
    return odd
