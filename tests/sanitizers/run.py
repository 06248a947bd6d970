# SPDX-License-Identifier: Apache-2.0
"""Run the native libraries under sanitizers: `run.py address thread` (`make sanitize`).

The libraries are built with the sanitizer into a cache of their own. Python and torch are not, so the sanitizer's runtime is
preloaded, and only what happens in our code is reported. The first finding ends the process. Nothing is suppressed; what is
switched off stands beside its flag.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepscope" / "sanitized"
STRESS = tuple((sys.executable, str(HERE / "stress.py"), library) for library in ("observer", "simnpu"))
TESTS = (
    *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
    # The first measures the memory of the process, which a sanitizer multiplies. The second forks while threads of the device
    # start: the allocator of AddressSanitizer (gcc 12) does not hold its locks over a fork, and the child hangs in it now and then.
    *("-k", "not test_memory_stays_bounded and not test_a_forked_child_is_told_instead_of_hanging"),
    "tests/unit/collect/tiers/test_observer.py",
    "tests/faults/job/test_observer_faults.py",
    "tests/unit/simnpu/test_device.py",
    "tests/unit/simnpu/test_streams.py",
    "tests/unit/simnpu/test_collectives.py",
)


@dataclass(frozen=True)
class Sanitizer:
    flags: str
    runtime: str
    options: dict[str, str]
    commands: tuple[tuple[str, ...], ...]
    fault: str  # C++ with a fault that must be found, or the sanitizer sees nothing here


SANITIZERS = {
    "address": Sanitizer(
        # vptr: it compares types of torch by address across libraries, where they differ.
        flags="-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1 -O1",
        runtime="libasan.so",
        # Leaks: Python and torch leave memory to the end of the process on purpose.
        options={"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1"},
        commands=(*STRESS, TESTS),
        fault='extern "C" int fault() { volatile int* p = new int(1); delete p; return *p; }',
    ),
    "thread": Sanitizer(
        flags="-fsanitize=thread -fno-omit-frame-pointer -g1 -O1",
        runtime="libtsan.so",
        # Modules that are not instrumented: the locks of Python and torch that are atomics cannot be seen.
        options={"TSAN_OPTIONS": "halt_on_error=1:ignore_noninstrumented_modules=1"},
        commands=STRESS,  # the tests import polars, which crashes beside this sanitizer
        fault="""
            #include <thread>
            int value;
            void count() { for (int i = 0; i < 100000; i++) value++; }
            extern "C" int fault() { std::thread other(count); count(); other.join(); return value; }
        """,
    ),
}


def run(name: str) -> bool:
    """Run everything that is meant for this sanitizer; whether all went well."""
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
    if not _finds_a_fault(sanitizer, environment):
        print(f"{name}: the sanitizer does not find the fault that was made for it", file=sys.stderr)
        return False
    well = True
    for command in sanitizer.commands:
        print(f"{name}: {' '.join(command)}", flush=True)
        well &= subprocess.run(_fixed_places(command), env=environment, cwd=ROOT, check=False).returncode == 0
    return well


def _finds_a_fault(sanitizer: Sanitizer, environment: dict[str, str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "fault.cpp", Path(folder) / "fault.so"
        source.write_text(sanitizer.fault)
        flags = sanitizer.flags.split()
        subprocess.run([_compiler(), *flags, "-fPIC", "-shared", str(source), "-o", str(library)], check=True)
        command = (sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(library)!r}).fault()")
        return subprocess.run(_fixed_places(command), env=environment, capture_output=True, check=False).returncode != 0


def _fixed_places(command: tuple[str, ...]) -> list[str]:
    """The kernel may otherwise place the program where the shadow memory of a sanitizer belongs."""
    return ["setarch", platform.machine(), "-R", *command]


def _library(name: str) -> Path:
    """Where the compiler has one of its own libraries."""
    found = subprocess.run([_compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_file():
        sys.exit(f"{_compiler()} has no {name}: install its sanitizers")
    return Path(found).resolve()


def _compiler() -> str:
    return os.environ.get("CXX", "g++")


if __name__ == "__main__":
    failed = [name for name in sys.argv[1:] if not run(name)]
    sys.exit(f"findings, or commands that failed, with: {', '.join(failed)}" if failed else 0)
