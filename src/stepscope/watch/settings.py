# SPDX-License-Identifier: Apache-2.0
"""What `stepscope.watch` does, as one line of text: `k=1.5,record=3,port=9464,out=stepscope-watch`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

DEFAULT_PORT = 9464
DEFAULT_OUT = "stepscope-watch"
_ON, _OFF = ("1", "on", "yes", "true"), ("0", "off", "no", "false")


def default_rings() -> Path:
    """A folder of this user in memory that files share: a disk that is full or slow would make training wait, or end it."""
    shared = Path("/dev/shm")
    root = shared if os.access(shared, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return root / f"stepscope-watch-{os.getuid()}"


@dataclass(frozen=True)
class Settings:
    """What is watched, when a capture is requested, and where everything goes.

    Args:
        k: a step is an outlier if it is longer than so many medians (and than the other two limits, see `rule`).
        record: how many steps a capture of an outlier has; 0: none is requested.
        ranks: the ranks to record; None for all.
        captures: most captures in an hour.
        gigabytes: disk space for captures; the oldest are deleted.
        out: folder of captures and requests; all machines of a job must share it.
        rings: folder of the rings, on this machine; None for the one of this user in shared memory.
        port: serve metrics of all ranks of this machine there; None: not.
        otlp: send metrics of all ranks of this machine there; empty: not.
        histogram: whether metrics have the histogram of step durations.
        job: label of the metrics; empty: what the launcher or the script is called.
        role: label of the metrics, such as actor.
    """

    k: float = 1.5
    record: int = 3
    ranks: tuple[int, ...] | None = None
    captures: int = 3
    gigabytes: float = 2.0
    out: str = DEFAULT_OUT
    rings: str | None = None
    port: int | None = None
    otlp: str = ""
    histogram: bool = True
    job: str = ""
    role: str = "train"

    def ring_folder(self) -> Path:
        return Path(os.path.abspath(os.path.expanduser(self.rings))) if self.rings else default_rings()


def parse(text: str) -> Settings | None:
    """The settings that a text describes; None where it says off.

    Raises:
        ValueError: the text is invalid; the message is meant for the user.
    """
    if text.strip().lower() in _OFF:
        return None
    values: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word.lower() in _ON:
            continue
        key, given, value = word.partition("=")
        if key not in _READERS or not given:
            raise ValueError(f"unknown word {word!r}; known words are 1, {', '.join(f'{name}=…' for name in _READERS)}")
        try:
            values[key] = _READERS[key](value)
        except ValueError as problem:
            raise ValueError(f"{word}: {problem}") from None
    return replace(Settings(), **values)


def _number(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not least <= number <= most:
            raise ValueError(f"not a number from {least:g} to {most:g}")
        return number

    return read


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdigit() or not least <= int(text) <= most:
            raise ValueError(f"not a whole number from {least} to {most}")
        return int(text)

    return read


def _some(text: str) -> str:
    if not text:
        raise ValueError("no value")
    return text


def _address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("not an address such as http://localhost:4318")
    return text


def _ranks(text: str) -> tuple[int, ...]:
    ranks: list[int] = []
    for part in text.split("+"):
        first, between, last = part.partition(":")
        if not first.isdigit() or (between and not last.isdigit()):
            raise ValueError("not ranks such as 0+4:7")
        ranks.extend(range(int(first), int(last if between else first) + 1))
    return tuple(ranks)


def _switch(text: str) -> bool:
    if text not in (*_ON, *_OFF):
        raise ValueError("not on or off")
    return text in _ON


_READERS: dict[str, Callable[[str], Any]] = {
    "k": _number(1.05, 1000),
    "record": _whole(0, 1000),
    "ranks": _ranks,
    "captures": _whole(0, 1000),
    "gigabytes": _number(0.001, 1_000_000),
    "out": _some,
    "rings": _some,
    "port": _whole(1, 65535),
    "otlp": _address,
    "histogram": _switch,
    "job": _some,
    "role": _some,
}
