# SPDX-License-Identifier: Apache-2.0
"""Analysis beside the training job: always another process, so that its memory, threads and faults stay there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import stepscope
from stepscope.collect import messages

# Import the package from where this process did; never from the script's folder, which may hold a `types.py`.
_START = "import sys; sys.path.pop(0); sys.path.append({root!r}); from stepscope.worker import main; sys.exit(main(sys.argv[1]))"
# These would start another profiler in the child.
_NOT_INHERITED = ("PROF_CONFIG_PATH", "PROFILER_SAMPLECONFIG", "PROFILING_MODE")


class Outcome(NamedTuple):
    ok: bool
    error: str | None
    seconds: float
    files: tuple[str, ...] = ()


class AnalysisProcess:
    """One running request to the worker.

    Args:
        request: what to do, as stepscope.worker takes it.
        background: leave half of the processors to the training job.
    """

    def __init__(self, request: Mapping[str, Any], *, background: bool = False):
        self._began = time.monotonic()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by wait()
        root = str(Path(stepscope.__file__).parents[1])
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        if background:
            environment.setdefault("POLARS_MAX_THREADS", str(max(1, (os.cpu_count() or 1) // 2)))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START.format(root=root), json.dumps({**request, "background": background})],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )

    def wait(self, progress: Callable[[str], None] = lambda stage: None) -> Outcome:
        """Read the worker's reports until it ends."""
        result: dict[str, Any] = {}
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                report = _report(line)
                if "stage" in report:
                    progress(str(report["stage"]))
                result = report if "ok" in report else result
        code = self._process.wait()
        seconds = time.monotonic() - self._began
        with self._errors as errors:
            if not result:
                return Outcome(False, f"the analysis process ended with {code}: {_tail(errors)}", seconds)
        return Outcome(bool(result["ok"]), result.get("error"), seconds, tuple(result.get("files", ())))


def wait_with_progress(process: AnalysisProcess) -> Outcome:
    """Wait, showing the current phase on one line of a terminal."""
    if not sys.stderr or not sys.stderr.isatty():
        return process.wait()
    outcome = process.wait(lambda stage: print(f"\r\033[K{stage} …", end="", file=sys.stderr, flush=True))
    print("\r\033[K", end="", file=sys.stderr, flush=True)
    return outcome


def analyse_capture(
    capture: Path,
    *,
    background: bool,
    op_args: bool = False,
    afterwards: Callable[[], None] = lambda: None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Analyse a finished capture and print the outcome; a failure gives one warning.

    Args:
        capture: the capture's folder.
        background: return at once; the interpreter waits for the analysis when it ends.
        op_args: write the operators' arguments beside the capture too.
        afterwards: called when the analysis has ended, also after a failure.
        further: other keys of the request to the worker.
    """
    messages.info(f"Start parsing profiling data in {'async' if background else 'sync'} mode at: {capture}")
    process = AnalysisProcess(
        {"do": "analyse", "capture": str(capture), "op_args": op_args, **(extra or {})}, background=background
    )

    def finish() -> None:
        outcome = process.wait() if background else wait_with_progress(process)
        if outcome.ok:
            messages.info(f"All profiling data parsed in a total time of {outcome.seconds:.1f} s: {capture}")
        else:
            messages.warning(f"the analysis failed; the raw data are intact, try `stepscope analyse {capture}`: {outcome.error}")
        afterwards()

    if background:
        # Not a daemon: the interpreter waits for it, as it waits for any thread of the user.
        threading.Thread(target=finish, name="stepscope-analysis", daemon=False).start()
    else:
        finish()


def _report(line: bytes) -> dict[str, Any]:
    try:
        report = json.loads(line)
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}


def _tail(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read()[-2000:].decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no error output"
