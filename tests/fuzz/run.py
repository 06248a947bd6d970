# SPDX-License-Identifier: Apache-2.0
"""Fuzz the readers with coverage guidance: `python tests/fuzz/run.py [--seconds 120] [--inputs N] [--keep DIR] [TARGET …]`.

Each target runs in a process of its own, so that a crash ends only that one. Every different failure is written down once, with its
input and traceback, and fuzzing goes on. Exit code 1 when there was any.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import multiprocessing
import os
import shutil
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import ForkProcess
from pathlib import Path

_SLOW_SHARE = 0.5  # time of a slow target, compared to that of another one
_LONGEST_S = 60  # for one input; more is a failure
# What numbers, texts and structures break on; the fuzzer finds the rest.
_WORDS = (
    "1e300", "-1e300", "inf", "nan", "-1", "0", "4294967295", "9223372036854775807", "-9223372036854775808", "18446744073709551615",
    "9" * 30, "1" * 400, "0.0000000001", "null", "true", "N/A", '\\"', '\\"\\"', "[]", "{}", "[[[[", "\\\\", "\\xff\\xff\\xff\\xff",
    "\\x00\\x00\\x00\\x80", "\\xef\\xbb\\xbf", "\\x0d\\x0a", "\\x09", ";", ",", ":",
)  # fmt: skip
# The instrumented modules take seconds to import: once, and each target is a fork. This process never calls the columnar engine,
# whose threads a fork would not have.
_FORK = multiprocessing.get_context("fork")


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the readers with coverage guidance.")
    parser.add_argument("targets", nargs="*", help="names of targets (default: all)")
    parser.add_argument("--seconds", type=float, default=120, help="time for all targets together")
    parser.add_argument("--inputs", type=int, help="a target ends after so many inputs, too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-corpus"), help="folder of corpora, counts and failures")
    args = parser.parse_args()
    os.environ["POLARS_MAX_THREADS"] = "1"
    _import_instrumented()
    with ProcessPoolExecutor(1, _FORK) as pool:
        known = pool.submit(_slow_ones).result()
    unknown = [name for name in args.targets if name not in known]
    if unknown:
        parser.error(f"no target {unknown[0]}; there are: {', '.join(known)}")
    chosen = args.targets or list(known)
    shares = {name: _SLOW_SHARE if known[name] else 1.0 for name in chosen}
    each = args.seconds * args.jobs / sum(shares.values())
    _run_all({name: max(1.0, each * share) for name, share in shares.items()}, args)
    return _report(chosen, args.keep)


def _import_instrumented() -> None:
    import atheris

    with atheris.instrument_imports(include=["stepscope.formats", "stepscope.tables", "stepscope.export", "stepscope.render"]):
        import targets  # noqa: F401


def _slow_ones() -> dict[str, bool]:
    """Every target, and whether it is slow."""
    from targets import targets

    return {name: target.slow for name, target in targets().items()}


def _run_all(seconds: dict[str, float], args: argparse.Namespace) -> None:
    from targets import temporary_folder

    waiting = list(seconds)
    running: dict[str, tuple[ForkProcess, ctypes.c_uint64, Path]] = {}
    while waiting or running:
        while waiting and len(running) < args.jobs:
            name = waiting.pop(0)
            done, scratch = _FORK.Value("Q", 0, lock=False), temporary_folder()
            process = _FORK.Process(target=_fuzz, args=(name, args, seconds[name], done, scratch))
            process.start()
            running[name] = process, done, scratch
        time.sleep(0.1)
        for name, (process, done, scratch) in list(running.items()):
            if process.is_alive():
                continue
            del running[name]
            shutil.rmtree(scratch, ignore_errors=True)  # the fuzzer ends its process without any tidying
            folder = _folder(args.keep, name)
            (folder / "count").write_text(str(_count(folder) + done.value))
            if process.exitcode:
                (folder / f"failure-exit{process.exitcode}").write_text(f"the process ended: see {name}/log\n")


def _fuzz(name: str, args: argparse.Namespace, seconds: float, done: ctypes.c_uint64, root: Path) -> None:
    """One target, in this process, until the time is over."""
    import atheris
    from targets import targets

    target = targets()[name]
    folder = _folder(args.keep, name)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log, stream.fileno())
    failures: set[str] = set()
    for seed in target.seeds():
        (folder / "corpus" / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    read = target.open(root)

    def one(data: bytes) -> None:
        try:
            read(data)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a panic of the columnar engine is no Exception
            _note(folder, failures, data, problem)
        done.value += 1

    options = [
        f"-max_total_time={int(seconds)}",
        "-max_len=4096" if not target.slow else "-max_len=65536",
        f"-timeout={_LONGEST_S}",
        f"-report_slow_units={_LONGEST_S}",  # else 10 s, which a busy machine makes of one
    ]
    options += [f"-runs={args.inputs}"] if args.inputs else []
    (folder / "words").write_text("".join(f'"{word}"\n' for word in _WORDS))
    options += [f"-dict={folder / 'words'}", "-rss_limit_mb=8000", f"-artifact_prefix={folder}/failure-", str(folder / "corpus")]
    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


def _note(folder: Path, failures: set[str], data: bytes, problem: BaseException) -> None:
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if "stepscope" in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    key = hashlib.sha256(f"{type(problem).__name__} {place}".encode()).hexdigest()[:12]
    if key not in failures:
        failures.add(key)
        (folder / f"failure-{key}").write_bytes(data)
        text = "".join(traceback.format_exception(problem))
        (folder / f"failure-{key}.txt").write_text(f"{type(problem).__name__} at {place}\n{text}", errors="backslashreplace")


def _folder(keep: Path, name: str) -> Path:
    folder = keep / name.replace(" ", "_")
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    return folder


def _count(folder: Path) -> int:
    return int((folder / "count").read_text()) if (folder / "count").exists() else 0


def _report(names: list[str], keep: Path) -> int:
    total, failed = 0, 0
    for name in names:
        folder = _folder(keep, name)
        count = _count(folder)
        failures = sorted(path.name for path in folder.glob("failure-*") if path.suffix != ".txt")
        print(f"{name:18} {count:9,} inputs, {len(list((folder / 'corpus').iterdir())):5,} kept, {len(failures)} failures")
        for path in folder.glob("failure-*.txt"):
            print(f"    {path.read_text(errors='replace').splitlines()[0]}  ({path.with_suffix('')})")
        total, failed = total + count, failed + len(failures)
    print(f"{total:,} inputs, {failed} failures; corpora and failures are in {keep}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
