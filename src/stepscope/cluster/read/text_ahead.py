# SPDX-License-Identifier: Apache-2.0
"""The cluster files of many text captures by a second process: it reads and joins them while this one makes and analyses digests.

It does what this process would do, only at the same time; when it ends early, this process does it. What it has made it writes when
it is told, as the last thing: a command that fails changes no file.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from stepscope.child_process import ProcessEnded, Worker, serve
from stepscope.cluster.finding import Problem
from stepscope.errors import CaptureError

if TYPE_CHECKING:
    from stepscope.export.cluster.ranks import RankFiles

MANY = 64  # captures; fewer are joined sooner than a process starts


class TextAhead:
    """A process that reads the text files of captures as soon as it knows where they lie, and makes those of the run of them.

    Nothing is on disk before `write`.
    """

    def __init__(self) -> None:
        self._worker = Worker("stepscope.cluster.read.text_ahead:serve_text")
        # A pipe is full after the paths of some hundred captures, and is emptied when those before are read.
        self._requests: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()
        self._turn: dict[str, int] = {}
        self._prepared: dict[str, Any] | None = None
        self._prepares = self._writes = False

    def __enter__(self) -> TextAhead:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._writes:
            self._worker.process.terminate()  # half-written files are removed
        else:
            self._worker.process.kill()  # it has nothing left to do but to free what it has read
        self._requests.put(None)
        self._sender.join()
        self._worker.close()

    def _send(self) -> None:
        for request in iter(self._requests.get, None):
            self._worker.send(request)

    def read(self, paths: Sequence[str]) -> None:
        """Begin to read; does not wait."""
        self._requests.put({"read": list(paths)})
        self._turn = {path: turn for turn, path in enumerate(paths)}

    def prepare(self, captures: Mapping[int, Sequence[str]]) -> None:
        """Begin to make the files of a run, whose captures were read, if all of them have these files; does not wait.

        Args:
            captures: of each rank.
        """
        if self._turn:
            self._requests.put({"prepare": [(rank, [self._turn[path] for path in paths]) for rank, paths in captures.items()]})
            self._prepares, self._prepared = True, None

    def prepared(self) -> tuple[list[Problem], bool] | None:
        """Wait until the files are made.

        Returns:
            What could not be read, and whether any rank could; None when they were not made: not all captures have them, nobody
            asked, or the process has ended.
        """
        if not self._prepares:
            return None
        try:
            if self._prepared is None:
                self._worker.receive()  # that all is read
                self._prepared = self._worker.receive()
        except ProcessEnded:
            return None
        if "unfit" in self._prepared:
            return None
        problems = [Problem("files", {"path": path, "error": error}, rank) for rank, path, error in self._prepared["problems"]]
        return problems, bool(self._prepared["ranks"])

    def write(self, folder: Path) -> list[Path] | None:
        """Write the files that `prepared` has waited for, all of them or none.

        Args:
            folder: it exists.

        Returns:
            The files; None when the process has ended.

        Raises:
            CaptureError: they cannot be written.
        """
        self._writes = True
        try:
            self._requests.put({"write": str(folder)})
            answer = self._worker.receive()
        except ProcessEnded:
            return None
        self._writes = False
        if "failed" in answer:
            what, where, cause, fix = answer["failed"]
            raise CaptureError(what, where=where, cause=cause, fix=fix)
        return [Path(path) for path in answer["written"]]


def serve_text() -> int:
    """Read and write for another process."""
    import gc

    gc.disable()  # millions of dictionaries, none of them garbage before the end
    return serve(_Server().answer)


class _Server:
    def __init__(self) -> None:
        self._paths: list[str] = []
        self._read: list[RankFiles | str | None] = []  # text is why a capture cannot be read; None: it has other files
        self._contents: dict[str, bytes] = {}  # of the files of the run

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "read" in request:
            return self._read_all(request["read"])
        return self._prepare(request["prepare"]) if "prepare" in request else self._write(Path(request["write"]))

    def _read_all(self, paths: list[str]) -> dict[str, Any]:
        from stepscope.cluster.read.text_files import OUTPUT, form_of, read_text
        from stepscope.export.cluster.ranks import TEXT

        self._paths, self._read = paths, []
        for path in map(Path, paths):
            try:
                self._read.append(read_text(path, path / OUTPUT, -1) if form_of(path) == TEXT else None)
            except CaptureError as problem:
                self._read.append(" ".join(str(problem).split()))
        return {"read": len(self._read)}

    def _prepare(self, captures: list[tuple[int, list[int]]]) -> dict[str, Any]:
        from stepscope.cluster.read.text_files import joined
        from stepscope.export.cluster.text import text_contents

        ranks, problems = [], []
        for rank, turns in captures:
            parts = []
            for turn in turns:
                found = self._read[turn]
                if found is None:
                    return {"unfit": True}
                if isinstance(found, str):
                    problems.append((rank, Path(self._paths[turn]).name, found))
                else:
                    found.rank = rank
                    parts.append(found)
            if parts:
                ranks.append(joined(parts))
        self._contents = text_contents(ranks) if ranks else {}
        return {"problems": problems, "ranks": len(ranks)}

    def _write(self, folder: Path) -> dict[str, Any]:
        from stepscope.export.cluster.text import write_contents

        try:
            written = write_contents(self._contents, folder)
        except CaptureError as problem:
            return {"failed": (problem.what, problem.where, problem.cause, problem.fix)}
        return {"written": [str(path) for path in written]}
