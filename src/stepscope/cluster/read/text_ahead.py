# SPDX-License-Identifier: Apache-2.0
"""The cluster files of many text captures by a second process: it reads and joins them while this one makes and analyses digests.

It does what this process would do, only at the same time; when it ends early, this process does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.child_process import ProcessEnded, Worker, serve
from stepscope.cluster.finding import Problem
from stepscope.errors import CaptureError

if TYPE_CHECKING:
    from stepscope.export.cluster.ranks import RankFiles

MANY = 64  # captures; fewer are joined sooner than a process starts


class TextAhead:
    """A process that reads the text files of captures as soon as it knows where they lie, and writes those of the run when told."""

    def __init__(self) -> None:
        self._worker = Worker("stepscope.cluster.read.text_ahead:serve_text")
        self._turn: dict[str, int] = {}
        self._busy = self._writes = False

    def __enter__(self) -> TextAhead:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._busy:
            self._worker.process.terminate()  # half-written files are removed
        else:
            self._worker.process.kill()  # it has nothing left to do but to free what it has read
        self._worker.close()

    def read(self, paths: Sequence[str]) -> None:
        """Begin to read; does not wait."""
        self._worker.send({"read": list(paths)})
        self._turn = {path: turn for turn, path in enumerate(paths)}
        self._busy = True

    def write(self, captures: Mapping[int, Sequence[str]], folder: Path) -> None:
        """Begin to write the files of a run, whose captures were read, if all of them have these files; does not wait.

        Args:
            captures: of each rank.
            folder: it exists.
        """
        if self._busy:
            # By turn: a request that is longer than a pipe would wait until all is read.
            turns = [(rank, [self._turn[path] for path in paths]) for rank, paths in captures.items()]
            self._worker.send({"write": turns, "folder": str(folder)})
            self._writes = True

    def written(self) -> tuple[list[Path], list[Problem], bool] | None:
        """Wait for the files.

        Returns:
            The files, what could not be read, and whether any rank could; None when they were not written: not all captures have
            them, nobody asked, or the process has ended.

        Raises:
            CaptureError: they cannot be written.
        """
        if not self._writes:
            return None
        try:
            self._worker.receive()  # that all is read
            answer = self._worker.receive()
        except ProcessEnded:
            return None
        self._busy = self._writes = False
        if "unfit" in answer:
            return None
        if "failed" in answer:
            what, where, cause, fix = answer["failed"]
            raise CaptureError(what, where=where, cause=cause, fix=fix)
        problems = [Problem("files", {"path": path, "error": error}, rank) for rank, path, error in answer["problems"]]
        return [Path(path) for path in answer["written"]], problems, bool(answer["ranks"])


def serve_text() -> int:
    """Read and write for another process."""
    import gc

    gc.disable()  # millions of dictionaries, none of them garbage before the end
    return serve(_Server().answer)


class _Server:
    def __init__(self) -> None:
        self._paths: list[str] = []
        self._read: list[RankFiles | str | None] = []  # text is why a capture cannot be read; None: it has other files

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        from stepscope.cluster.read.text_files import OUTPUT, form_of, joined, read_text
        from stepscope.export.cluster.ranks import TEXT
        from stepscope.export.cluster.text import write_text

        if "read" in request:
            self._paths, self._read = request["read"], []
            for path in map(Path, self._paths):
                try:
                    self._read.append(read_text(path, path / OUTPUT, -1) if form_of(path) == TEXT else None)
                except CaptureError as problem:
                    self._read.append(" ".join(str(problem).split()))
            return {"read": len(self._read)}
        ranks, problems = [], []
        for rank, turns in request["write"]:
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
        try:
            written = write_text(ranks, Path(request["folder"])) if ranks else []
        except CaptureError as problem:
            return {"failed": (problem.what, problem.where, problem.cause, problem.fix)}
        return {"written": [str(path) for path in written], "problems": problems, "ranks": len(ranks)}
