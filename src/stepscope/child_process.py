# SPDX-License-Identifier: Apache-2.0
"""Processes of our own: started as a module of this package, never by importing the user's script again.

Requests and answers are lines of JSON, so that a process that dies takes one request with it and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

# The package comes from where this process found it, even if another version is installed; the script's folder, which may hold a
# `types.py`, is not searched.
_START = (
    "import sys; sys.path[:] = [{root!r}, *filter(None, sys.path)]; import stepscope; sys.path.append(sys.path.pop(0)); "
    "from {module} import {name}; sys.exit({name}({arguments}))"
)
# These would start a profiler in the child.
_NOT_INHERITED = ("PROF_CONFIG_PATH", "PROFILER_SAMPLECONFIG", "PROFILING_MODE")
_LOADING_NICENESS = 10
_END_SECONDS = 5.0  # for removing what is half written


def command(entry: str, *arguments: str) -> list[str]:
    """The command that calls the function `entry` (`module:name`) of this package with its arguments in a new process."""
    module, name = entry.split(":")
    root = str(Path(__file__).parents[1])
    given = ", ".join(f"sys.argv[{number + 1}]" for number in range(len(arguments)))
    return [sys.executable, "-c", _START.format(root=root, module=module, name=name, arguments=given), *arguments]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}


def report(line: bytes) -> dict[str, Any]:
    """The JSON object in a line; an empty one for anything else, such as what a library printed."""
    try:
        content = json.loads(line)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def last_line(errors: IO[bytes]) -> str:
    """The last line that a process wrote to its standard error, which is why it ended."""
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - 2000))
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no error output"


def how_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"signal {-code}"


class ProcessEnded(Exception):
    """A process ended before it answered; the text says how."""


def answers(
    entry: str, requests: Sequence[Mapping[str, Any]], jobs: int, defaults: Mapping[str, str] | None = None
) -> Iterator[tuple[int, Callable[[], dict[str, Any]]]]:
    """Let `jobs` processes work off the requests.

    Args:
        entry: `module:name` of a function that calls `serve`.
        requests: what to send, as JSON objects.
        jobs: number of processes; each is used for several requests.
        defaults: variables of the environment that the user has not set.

    Yields:
        The number of a request and a function that gives its answer or raises ProcessEnded, as they become ready.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed

    with (
        _Workers(entry, {**(defaults or {}), **environment()}) as workers,
        ThreadPoolExecutor(jobs, thread_name_prefix="stepscope-worker") as threads,
    ):
        waiting = {threads.submit(workers.ask, request): number for number, request in enumerate(requests)}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            workers.interrupt()
            raise


def serve(handle: Callable[[dict[str, Any]], Mapping[str, Any]]) -> int:
    """Answer each line of standard input with a line, until it ends; called in the process that was started."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process hears of it too, and ends it
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # half-written folders are removed
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(handle(json.loads(line))) + "\n")
        sys.stdout.flush()
    return 0


def wait_for_request(entry: str, *modules: str) -> int:
    """Load modules, then call `entry` (`module:name`) with the line that standard input brings; nothing when it brings none.

    Called in a process that is started before there is something to do for it.
    """
    loading = threading.Thread(target=_load, args=modules, daemon=True)
    loading.start()
    request = sys.stdin.buffer.readline()
    if not request:
        os._exit(0)  # also while the thread still loads
    with contextlib.suppress(OSError):  # somebody waits now; not everybody may say so
        os.setpriority(os.PRIO_PROCESS, loading.native_id or 0, 0)
    loading.join()
    module, name = entry.split(":")
    return int(getattr(import_module(module), name)(request.decode()))


def _load(*modules: str) -> None:
    # Of this thread alone: others work meanwhile, and whoever waits for the answer later wants it at once.
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOADING_NICENESS)
    for name in modules:
        with contextlib.suppress(ImportError):  # the entry says it again
            import_module(name)


class _Workers:
    """Processes that wait for requests; started when needed, used again, replaced when they end."""

    def __init__(self, entry: str, variables: Mapping[str, str]):
        self._entry, self._variables = entry, variables
        self._idle: list[Worker] = []
        self._all: list[Worker] = []
        self._lock = threading.Lock()
        self._interrupted = False

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self._all:
            worker.close()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            worker = self._idle.pop() if self._idle else self._start()
        answer = worker.ask(request)
        with self._lock:
            self._idle.append(worker)
        return answer

    def interrupt(self) -> None:
        """End them in the middle of their work."""
        with self._lock:
            self._interrupted = True
            for worker in self._all:
                worker.process.terminate()
            for worker in self._all:
                worker.wait()

    def _start(self) -> Worker:
        if self._interrupted:
            raise ProcessEnded("interrupted")
        self._all.append(Worker(self._entry, self._variables))
        return self._all[-1]


class Worker:
    """A process that answers requests until its input ends."""

    def __init__(self, entry: str, variables: Mapping[str, str] | None = None):
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self.process = subprocess.Popen(
            command(entry), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=variables or environment()
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.send(request)
        return self.receive()

    def send(self, request: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended, and the end of its output says so
            self._input.write(json.dumps(request).encode() + b"\n")
            self._input.flush()

    def receive(self) -> dict[str, Any]:
        """The answer to the first request that has none yet.

        Raises:
            ProcessEnded: before it answered.
        """
        for line in self._output:
            answer = report(line)
            if answer:
                return answer
        raise ProcessEnded(f"{how_ended(self.process.wait())}: {last_line(self._errors)}")

    def wait(self) -> None:
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._input.close()  # which ends `serve`
        self.wait()
        self._output.close()
        self._errors.close()
