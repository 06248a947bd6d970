# SPDX-License-Identifier: Apache-2.0
"""The C++ kernels of the analyser (`native/codec`): rows as text, pages of databases, events of traces, records, csv cells.

They need neither torch nor Python headers, so one binary per kind of machine serves all versions of both. It comes with the wheel;
else it is built after the first analysis, at low priority, for the next ones. Without it (or with `STEPSCOPE_KERNELS=0`) the
analyser does the same with polars and numpy, byte by byte.

`python -m stepscope.native.codec [--into FOLDER]` builds it ahead of its first use, or for a wheel.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SWITCH = "STEPSCOPE_KERNELS"
NAME = "codec"
_HERE = Path(__file__).resolve().parent
_FLAGS = (
    *("-std=c++17", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-plt"),
    # The user's machine may have an older libstdc++ than the one that built a wheel.
    *("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL"),
)
_BUILD_SECONDS = 300
_TRIAL_SECONDS = 60
_TRIAL = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
out, reached, number = ctypes.create_string_buffer(16), ctypes.c_int64(), ctypes.c_int64
assert library.render(None, 0, number(0), number(5), out, number(16), number(0), ctypes.byref(reached)) == 0
assert reached.value == 5
"""


@dataclass(frozen=True)
class Codec:
    """The loaded library and where it comes from: "prebuilt" or "built"."""

    functions: ctypes.CDLL
    origin: str


def codec() -> ctypes.CDLL | None:
    """The library, or None where the work is left to polars and numpy."""
    found = find_codec()
    return found.functions if isinstance(found, Codec) else None


def find_codec() -> Codec | str:
    """The library, or the reason why it is not used; decided once for the process and each value of the switch."""
    return _find(os.environ.get(SWITCH, ""))


def describe_codec() -> str:
    """One line for `stepscope info`."""
    found = find_codec()
    return f"C++ kernels ({found.origin})" if isinstance(found, Codec) else f"polars and numpy ({found})"


@lru_cache(maxsize=4)
def _find(switch: str) -> Codec | str:
    if switch == "0":
        return f"{SWITCH}=0"
    source = _source()
    if source is None:
        return "the sources of the kernels are not installed"
    places = (("prebuilt", _HERE / "prebuilt" / shipped_name(source)), ("built", _built(source)))
    reason = "not built yet"
    for origin, path in places:
        if path.is_file():
            try:
                return Codec(ctypes.CDLL(str(path)), origin)
            except OSError as problem:  # made for a newer system
                reason = f"cannot be loaded: {problem}"
    failed = _failure(source)
    return failed.read_text().strip() if failed.is_file() else reason


def shipped_name(source: Path, machine: str = "") -> str:
    """The name of the library in a wheel: one of other sources is never used."""
    return f"{NAME}-{_digest(source)}-{machine or platform.machine()}.so"


def build() -> str:
    """Build the library unless it is there; returns why it could not be built, or nothing."""
    source = _source()
    if source is None:
        return "the sources of the kernels are not installed"
    path, failed = _built(source), _failure(source)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (path.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.is_file():
                return ""
            reason = _build_and_try(source, path)
            if reason:
                failed.write_text(reason)
        return reason
    except (OSError, subprocess.SubprocessError) as problem:
        return f"the kernels could not be built: {problem}"


def build_in_background() -> None:
    """Build the library for later analyses, if that was not tried before; this process does not wait for it."""
    source = _source()
    if source is None or isinstance(find_codec(), Codec) or os.environ.get(SWITCH) == "0":
        return
    if _built(source).is_file() or _failure(source).is_file() or _compiler() is None:
        return
    command = [sys.executable, "-c", f"import os; os.nice(10); from {__name__} import build; build()"]
    none = subprocess.DEVNULL
    try:
        # From where this package was found; a session of its own, which the end of this process does not end.
        subprocess.Popen(command, stdin=none, stdout=none, stderr=none, cwd=_HERE.parents[1], start_new_session=True)
    except OSError:
        return  # as slow as before


def _build_and_try(source: Path, path: Path) -> str:
    compiler = _compiler()
    if compiler is None:
        return "no C++ compiler found (g++, c++ or clang++; set CXX to name one)"
    handle, name = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(handle)
    try:
        files = [str(file) for file in sorted(source.glob("*.cpp"))]
        reason = _run([compiler, *_FLAGS, *_own_flags(), *files, "-o", name], _BUILD_SECONDS)
        reason = reason or _run([sys.executable, "-c", _TRIAL, name], _TRIAL_SECONDS)
        if not reason:
            os.chmod(name, 0o700)
            os.replace(name, path)
        return reason
    finally:
        Path(name).unlink(missing_ok=True)


def _run(command: list[str], seconds: int) -> str:
    # What is preloaded is meant for the job, not for the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment, check=False)
    return (
        ""
        if done.returncode == 0
        else f"{Path(command[0]).name} failed: {' | '.join(done.stderr.strip().splitlines()[-4:])[-600:]}"
    )


def _source() -> Path | None:
    """Beside the package when installed, at the root of the repository when developing."""
    for folder in (_HERE / "source" / NAME, _HERE.parents[2] / "native" / NAME):
        if folder.is_dir():
            return folder
    return None


@lru_cache(maxsize=2)
def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(source.glob("*.*")):
        if file.suffix in {".cpp", ".h"}:
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _built(source: Path) -> Path:
    """A home folder may be shared by machines of several kinds and systems."""
    system = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    own = hashlib.sha256(repr((system, _own_flags())).encode()).hexdigest()[:8]
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "stepscope" / "native" / f"{NAME}-{_digest(source)}-{platform.machine()}-{own}" / f"lib{NAME}.so"


def _failure(source: Path) -> Path:
    return _built(source).with_name("failed.txt")


def _own_flags() -> list[str]:
    return os.environ.get("STEPSCOPE_CXXFLAGS", "").split()


def _compiler() -> str | None:
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    return next((path for path in map(shutil.which, names) if path), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name if __spec__ else NAME}", description="Build the C++ kernels.")
    parser.add_argument("--into", type=Path, help="write the library to this folder, under its name in a wheel")
    parser.add_argument("--name", metavar="MACHINE", help="print its name in a wheel for x86_64 or aarch64, and build nothing")
    args = parser.parse_args()
    source = _source()
    if args.name and source is not None:
        print(shipped_name(source, args.name))
        return 0
    reason = build()
    if reason or source is None:
        print(f"the C++ kernels were not built: {reason}\nthe analyser does without them", file=sys.stderr)
        return 1 if args.into else 0
    if args.into:
        args.into.mkdir(parents=True, exist_ok=True)
        print(shutil.copyfile(_built(source), args.into / shipped_name(source)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
