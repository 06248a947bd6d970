# SPDX-License-Identifier: Apache-2.0
"""How many bytes of a capture's files are read so far, told to whoever watches them.

Readers note how far they are in a file, from whichever thread they run in; where nobody watches the file that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

Tell = Callable[[str, int, int], None]

_LOCK = Lock()
_WATCHES: dict[Path, Watch] = {}


class Watch:
    """Files that are read together, and how far each of them is."""

    def __init__(self, files: Iterable[Path], tell: Tell):
        self._tell = tell
        self._sizes = {path: path.stat().st_size for path in files if path.is_file()}
        self._read = dict.fromkeys(self._sizes, 0)
        self.total = sum(self._sizes.values())

    @property
    def files(self) -> list[Path]:
        return list(self._sizes)

    def advance(self, path: Path, place: int | None) -> None:
        """A file that is read a second time counts once."""
        with _LOCK:
            size = self._sizes[path]
            self._read[path] = max(self._read[path], size if place is None else min(place, size))
            read = sum(self._read.values())
        self._tell(path.name, read, self.total)


@contextmanager
def watched(files: Iterable[Path], tell: Tell) -> Iterator[None]:
    """While this lasts, `tell(name of the file, bytes read, bytes in all)` is called whenever a reader gets on.

    What `tell` raises ends the reading.
    """
    watch = Watch(files, tell)
    with _LOCK:
        _WATCHES.update(dict.fromkeys(watch.files, watch))
    try:
        yield
    finally:
        with _LOCK:
            for path in watch.files:
                if _WATCHES.get(path) is watch:
                    del _WATCHES[path]


def note(path: Path, place: int | None = None) -> None:
    """A reader is at this place of a file; None: it has all of it."""
    watch = _WATCHES.get(path)
    if watch is not None:
        watch.advance(path, place)
