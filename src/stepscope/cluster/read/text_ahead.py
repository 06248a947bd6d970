# SPDX-License-Identifier: Apache-2.0
"""The cluster files of many text captures by a second process: it reads and joins them while this one makes and analyses digests.

It does what this process would do, only at the same time; when it ends early, this process does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stepscope.child_process import ProcessEnded, Worker, serve
from stepscope.cluster.finding import Problem
from stepscope.errors import CaptureError

MANY = 64  # captures; fewer are joined sooner than a process starts


class TextAhead:
    """A process that reads the text files of captures as soon as it knows where they lie, and writes those of the run when told."""

    def __init__(self) -> None:
        self._worker = Worker("stepscope.cluster.read.text_ahead:serve_text")
        self._busy = False

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
        self._busy = True

    def write(self, captures: Mapping[int, Sequence[str]], folder: Path) -> tuple[list[Path], list[Problem], bool] | None:
        """Write the files of a run, whose captures were read.

        Args:
            captures: of each rank.
            folder: it exists.

        Returns:
            The files, what could not be read, and whether any rank could; None when the process has ended.

        Raises:
            CaptureError: they cannot be written.
        """
        if not self._busy:
            return None
        try:
            self._worker.send({"write": list(captures.items()), "folder": str(folder)})
            self._worker.receive()  # that all is read
            answer = self._worker.receive()
        except ProcessEnded:
            return None
        self._busy = False
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
        self._read: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        from stepscope.cluster.read.text_files import OUTPUT, joined, read_text
        from stepscope.export.cluster.text import write_text

        if "read" in request:
            for path in request["read"]:
                try:
                    self._read[path] = read_text(Path(path), Path(path) / OUTPUT, -1)
                except CaptureError as problem:
                    self._read[path] = " ".join(str(problem).split())
            return {"read": len(self._read)}
        ranks, problems = [], []
        for rank, paths in request["write"]:
            parts = []
            for path in paths:
                found = self._read[path]
                if isinstance(found, str):
                    problems.append((rank, Path(path).name, found))
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
