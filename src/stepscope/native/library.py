# SPDX-License-Identifier: Apache-2.0
"""Where a native library comes from: shipped with the package, built earlier and cached, or built now.

A binary fits only one build of torch, so it is stored under a key of everything it depends on: sources, flags, torch's build,
C++ ABI, compiler, machine. A new binary is first tried in a separate process, so that an incompatible one cannot crash a job.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_FLAGS = (
    "-O2",
    "-DNDEBUG",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-lifetime-dse",
    "-fno-plt",
    "-fno-tree-loop-distribute-patterns",
    "-Wl,-z,nodelete",
)
_BUILD_SECONDS = 600
_TRIAL_SECONDS = 120
# A library with few thread-local bytes normally fits the space that the loader reserves; if not, a slower model is used.
_VARIANTS = ((), ("-DOBSERVER_DYNAMIC_TLS",))


@dataclass(frozen=True)
class Library:
    """A native library that passed its trial."""

    path: Path
    origin: str  # "prebuilt" or "built"


def find_library(name: str, trial: str, *, before_build: Callable[[], None] | None = None) -> Library | str:
    """The library `name`, built if needed, or the reason why it is not available.

    Args:
        name: folder of the sources, and of the library.
        trial: Python code that loads the library at `sys.argv[1]` and fails if it does not work.
        before_build: called if the library has to be built, which may take minutes.
    """
    try:
        import torch  # noqa: F401 - checks that it is installed
    except ImportError as fault:
        return f"torch cannot be imported: {fault}"
    source = _source(name)
    if source is None:
        return f"the sources of {name} are not installed"
    shipped = _HERE / "prebuilt" / shipped_name(name, source)
    if shipped.is_file():
        return Library(shipped, "prebuilt")
    compiler = next((path for path in map(shutil.which, _compilers()) if path), None)
    if compiler is None:
        return "no C++ compiler found (g++, c++ or clang++; set CXX to name one)"
    try:
        return _find_cached(name, source, compiler, trial, before_build)
    except (OSError, subprocess.SubprocessError) as fault:
        return f"{name} could not be built: {fault}"


def cross_compile(name: str, compiler: str, target: Path, torch_libraries: Path) -> str:
    """Build a library for another kind of machine, without its trial; returns the compiler's error, or nothing.

    Args:
        name: folder of the sources.
        compiler: such as aarch64-linux-gnu-g++.
        target: the file to write.
        torch_libraries: folder with torch's libraries for that machine; the headers are those of the torch that is installed.
    """
    source = _source(name)
    return _compile(source, compiler, (), target, torch_libraries) if source else f"the sources of {name} are not installed"


def shipped_name(name: str, source: Path | None = None) -> str:
    """The name of a library in a wheel: one of other sources, or for another torch, is never used."""
    import torch

    folder = source or _source(name)
    of_sources = _digest(folder).hexdigest()[:12] if folder else "none"
    return f"{name}-{of_sources}-{torch.version.git_version}-{platform.machine()}.so"


def cache_folder() -> Path:
    """Where built libraries are kept, for this user only."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "stepscope" / "native"


def _source(name: str) -> Path | None:
    """Beside the package when installed, at the root of the repository when developing."""
    for folder in (_HERE / "source" / name, _HERE.parents[2] / "native" / name):
        if folder.is_dir():
            return folder
    return None


def _compilers() -> list[str]:
    return [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]


def _flags() -> tuple[str, ...]:
    """Flags of the compiler; the user's own come last, so that they win."""
    return (*_FLAGS, *shlex.split(os.environ.get("STEPSCOPE_CXXFLAGS", "")))


def _find_cached(name: str, source: Path, compiler: str, trial: str, before_build: Callable[[], None] | None) -> Library | str:
    folder = cache_folder() / f"{name}-{_key(source, compiler)}"
    path, failed = folder / f"lib{name}.so", folder / "failed.txt"
    if not path.is_file() and not failed.is_file():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock(folder / "lock"):
            if not path.is_file() and not failed.is_file():
                if before_build:
                    before_build()
                reason = _build_and_try(source, compiler, trial, folder, path)
                if reason:
                    failed.write_text(reason)
    if not path.is_file():
        return f"{name}: {failed.read_text()} (remove {folder} to try again)"
    return Library(path, "built")


def _key(source: Path, compiler: str) -> str:
    import torch

    command = [compiler, "--version"]
    version = subprocess.run(command, capture_output=True, check=True, timeout=_TRIAL_SECONDS, env=_without_preload()).stdout
    digest = _digest(source)
    facts = (torch.__version__, torch.version.git_version, torch._C._GLIBCXX_USE_CXX11_ABI, platform.machine(), _flags())
    digest.update(repr(facts).encode() + version)
    return digest.hexdigest()[:24]


def _digest(source: Path) -> hashlib._Hash:
    digest = hashlib.sha256()
    for file in sorted(source.rglob("*")):
        if file.suffix in {".cpp", ".h"}:
            digest.update(file.relative_to(source).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Several ranks of a job start at the same time: one builds, the others wait."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_and_try(source: Path, compiler: str, trial: str, folder: Path, path: Path) -> str:
    """Build variants until one passes its trial; returns why none did, or nothing."""
    reason = ""
    for variant in _VARIANTS:
        handle, name = tempfile.mkstemp(suffix=".so", dir=folder)
        os.close(handle)
        library = Path(name)
        try:
            reason = _compile(source, compiler, variant, library) or _try(trial, library)
            if not reason:
                library.rename(path)
                return ""
        finally:
            library.unlink(missing_ok=True)
        if "static TLS" not in reason:
            break
    return reason


def _compile(source: Path, compiler: str, variant: tuple[str, ...], target: Path, torch_libraries: Path | None = None) -> str:
    """Compile the sources in parallel and link them; returns the compiler's error, or nothing."""
    files, build = sorted(source.rglob("*.cpp")), [compiler, *_flags(), *variant, f"-I{source}", *_torch_flags()]
    if len(files) == 1:
        return _run([*build, str(files[0]), "-o", str(target), *_torch_libraries(torch_libraries)])
    unit = [word for word in build if word != "-shared" and not word.startswith("-Wl,")]
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        objects = [str(Path(folder) / f"{number}.o") for number in range(len(files))]
        commands = [[*unit, "-c", str(file), "-o", library] for file, library in zip(files, objects, strict=True)]
        # Each compiler process needs up to a gigabyte of memory.
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            failed = next(filter(None, pool.map(_run, commands)), "")
        return failed or _run([*build, *objects, "-o", str(target), *_torch_libraries(torch_libraries)])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_SECONDS, env=_without_preload(), check=False)
    return "" if done.returncode == 0 else f"the compiler failed: {_tail(done.stderr)}"


def _without_preload() -> dict[str, str]:
    """The environment of the compiler: what is preloaded (a sanitizer, an allocator) is meant for the job and its trial."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def _torch_flags() -> list[str]:
    import torch

    include = Path(torch.__file__).parent / "include"
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    # torch needs C++20 from 2.13 on; older headers and compilers have C++17.
    standard = "c++20" if (major, minor) >= (2, 13) else "c++17"
    places = (include, include / "torch" / "csrc" / "api" / "include", include / "kineto")
    folders = [f for path in places for f in ("-isystem", str(path))]
    return [f"-std={standard}", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", *folders]


def _torch_libraries(folder: Path | None = None) -> list[str]:
    import torch

    return [f"-L{folder or Path(torch.__file__).parent / 'lib'}", "-ltorch_cpu", "-lc10"]


def _try(trial: str, library: Path) -> str:
    """Run the trial in another process: an incompatible library may crash instead of failing.

    One that was ended by a signal runs a second time: on a busy machine, a thread of torch that asks for the interpreter while it
    shuts down ends the process ("terminate called without an active exception"), and the failure would be kept for ever.
    """
    path = os.pathsep.join([str(_HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", trial, str(library)],
            capture_output=True,
            text=True,
            timeout=_TRIAL_SECONDS,
            # Under `stepscope run` torch would load the library under trial, and wait for this build to end.
            env={**os.environ, "PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            check=False,
        )
        if done.returncode >= 0:
            break
    return "" if done.returncode == 0 else f"the library did not pass its trial: {_tail(done.stderr) or f'exit {done.returncode}'}"


def _tail(text: str) -> str:
    return " | ".join(text.strip().splitlines()[-6:])[-800:]
