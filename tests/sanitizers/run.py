# SPDX-License-Identifier: Apache-2.0
"""Run the tests of the native libraries with sanitizers: `run.py address thread` (`make sanitize`).

The libraries are built with the sanitizer in a cache of their own; Python and torch are not, so the sanitizer's runtime is
preloaded. Each sanitizer aborts the process at its first finding, which fails the test that started it.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepscope" / "sanitized"
# For each library the tests that work it hardest: threads that come and go, limits, faults; streams, events, collectives.
TESTS = (
    "tests/unit/collect/tiers/test_observer.py",
    "tests/faults/test_observer_faults.py",
    "tests/unit/simnpu/test_device.py",
    "tests/unit/simnpu/test_streams.py",
    "tests/unit/simnpu/test_collectives.py",
)
# It measures the memory of the process, which a sanitizer multiplies.
LEFT_OUT = ("test_memory_stays_bounded",)


@dataclass(frozen=True)
class Sanitizer:
    flags: str
    runtime: str
    options: dict[str, str]


def suppressions(name: str) -> str:
    return f"suppressions={HERE / name}"


SANITIZERS = {
    "address": Sanitizer(
        # vptr: types of torch are compared by address across libraries, where they differ.
        flags="-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1 -O1",
        runtime="libasan.so",
        options={
            # Python and torch leave memory to the end of the process on purpose: leaks would be theirs.
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
            "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
        },
    ),
    "thread": Sanitizer(
        flags="-fsanitize=thread -fno-omit-frame-pointer -g1 -O1",
        runtime="libtsan.so",
        options={
            "TSAN_OPTIONS": f"halt_on_error=1:abort_on_error=1:ignore_noninstrumented_modules=1:{suppressions('thread.supp')}",
        },
    ),
}


def run(name: str, arguments: list[str]) -> int:
    sanitizer = SANITIZERS[name]
    environment = {
        **os.environ,
        **sanitizer.options,
        "STEPSCOPE_CXXFLAGS": sanitizer.flags,
        "XDG_CACHE_HOME": str(CACHE),
        "PYTHONPATH": str(ROOT / "src"),
        # libstdc++ too: the runtime looks for what it replaces in it when the process starts.
        "LD_PRELOAD": f"{_library(sanitizer.runtime)} {_library('libstdc++.so')}",
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *TESTS]
    command += ["-k", " and ".join(f"not {test}" for test in LEFT_OUT), *arguments]
    print(f"{name}: {' '.join(command)}", flush=True)
    # Without it the kernel may place the program where the shadow memory of the sanitizer belongs.
    return subprocess.run(["setarch", platform.machine(), "-R", *command], env=environment, cwd=ROOT, check=False).returncode


def _library(name: str) -> str:
    """Where the compiler has one of its own libraries."""
    compiler = os.environ.get("CXX", "g++")
    path = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(path).is_file():
        sys.exit(f"{compiler} has no {name}: install the sanitizers of this compiler (Debian: libasan8, libtsan2, with g++)")
    return str(Path(path).resolve())


if __name__ == "__main__":
    names = [word for word in sys.argv[1:] if word in SANITIZERS]
    failed = [name for name in names if run(name, [word for word in sys.argv[1:] if word not in SANITIZERS])]
    sys.exit(f"findings, or tests that failed, with: {', '.join(failed)}" if failed else 0)
