# SPDX-License-Identifier: Apache-2.0
"""Scripts that begin with torch imported: each runs in a fork of a process that has done so, which takes most of a short one.

The fork happens before torch has any thread, and the script ends as in a process of its own: with its exit code or signal, its
handlers at exit, its two streams.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class WarmTorch:
    """A process that waits for scripts; use it in `with`."""

    def __enter__(self) -> WarmTorch:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        return self

    def __exit__(self, *problem: object) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def run(self, script: Path, *, env: Mapping[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
        """The script, run in its own folder.

        Raises:
            subprocess.TimeoutExpired: it was ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
            job = {"script": str(script), "env": dict(env), "out": out.name, "err": err.name, "timeout": timeout}
            print(json.dumps(job), file=self._process.stdin, flush=True)
            code = json.loads(self._process.stdout.readline())
            if code is None:
                raise subprocess.TimeoutExpired([str(script)], timeout, out.read(), err.read())
            return subprocess.CompletedProcess([str(script)], code, out.read(), err.read())


def _jobs() -> dict[str, Any] | None:
    """Start a process for each job. Returns in each of them with its job, and in the first process with None at the end."""
    import signal
    import time

    for line in sys.stdin:
        job: dict[str, Any] = json.loads(line)
        child = os.fork()
        if not child:
            return job
        deadline = time.monotonic() + job["timeout"]
        while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        if ended[0]:
            print(json.dumps(os.waitstatus_to_exitcode(ended[1])), flush=True)
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            print("null", flush=True)
    return None


def _become(job: Mapping[str, Any]) -> None:
    os.chdir(Path(job["script"]).parent)
    os.environ.clear()
    os.environ.update(job["env"])
    for number, name, mode in ((0, os.devnull, os.O_RDONLY), (1, job["out"], os.O_WRONLY), (2, job["err"], os.O_WRONLY)):
        opened = os.open(name, mode)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = [job["script"]]
    sys.path[0] = str(Path(job["script"]).parent)


if __name__ == "__main__":
    import torch  # noqa: F401

    import stepscope.profiler  # noqa: F401

    if (job := _jobs()) is not None:
        _become(job)
        exec(compile(Path(job["script"]).read_bytes(), job["script"], "exec"), {"__name__": "__main__", "__file__": job["script"]})
