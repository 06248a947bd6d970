# SPDX-License-Identifier: Apache-2.0
"""Fuzz the readers with coverage guidance: `python tests/fuzz/run.py [--seconds 120] [--keep DIR] [TARGET …]`.

Each target runs in a process of its own, so that a crash ends only that one. Every different failure is written down once, with its
input and traceback, and fuzzing goes on. Exit code 1 when there was any.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

_SLOW_SHARE = 0.5  # time of a slow target, compared to that of another one
_LONGEST_S = 60  # for one input; more is a failure
_EVERY = 50  # inputs between two notes of the count
# What numbers, texts and structures break on; the fuzzer finds the rest.
_WORDS = (
    "1e300", "-1e300", "inf", "nan", "-1", "0", "4294967295", "9223372036854775807", "-9223372036854775808", "18446744073709551615",
    "9" * 30, "1" * 400, "0.0000000001", "null", "true", "N/A", '\\"', '\\"\\"', "[]", "{}", "[[[[", "\\\\", "\\xff\\xff\\xff\\xff",
    "\\x00\\x00\\x00\\x80", "\\xef\\xbb\\xbf", "\\x0d\\x0a", "\\x09", ";", ",", ":",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the readers with coverage guidance.")
    parser.add_argument("targets", nargs="*", help="names of targets (default: all)")
    parser.add_argument("--seconds", type=float, default=120, help="time for all targets together")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-corpus"), help="folder of corpora, counts and failures")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return _fuzz(args.child, args.keep, args.seconds)
    from targets import targets

    known = targets()
    unknown = [name for name in args.targets if name not in known]
    if unknown:
        parser.error(f"no target {unknown[0]}; there are: {', '.join(known)}")
    chosen = args.targets or list(known)
    shares = {name: _SLOW_SHARE if known[name].slow else 1.0 for name in chosen}
    each = args.seconds * args.jobs / sum(shares.values())
    _run_all({name: max(1.0, each * share) for name, share in shares.items()}, args)
    return _report(chosen, args.keep)


def _run_all(seconds: dict[str, float], args: argparse.Namespace) -> None:
    waiting, running = list(seconds), {}
    while waiting or running:
        while waiting and len(running) < args.jobs:
            name = waiting.pop(0)
            command = [sys.executable, __file__, "--child", name, "--keep", str(args.keep), "--seconds", str(seconds[name])]
            folder = _folder(args.keep, name)
            with (folder / "log").open("ab") as log:
                running[name] = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "POLARS_MAX_THREADS": "1"})
        time.sleep(0.1)
        for name, process in list(running.items()):
            if process.poll() is not None:
                del running[name]
                if process.returncode:
                    (_folder(args.keep, name) / f"failure-exit{process.returncode}").write_text(
                        f"the process ended: see {name}/log\n"
                    )


def _fuzz(name: str, keep: Path, seconds: float) -> int:
    """One target, in this process, until the time is over."""
    import atheris

    with atheris.instrument_imports(include=["stepscope.formats", "stepscope.tables", "stepscope.export", "stepscope.render"]):
        from targets import targets
    target = targets()[name]
    folder = _folder(keep, name)
    count = json.loads((folder / "count").read_text()) if (folder / "count").exists() else 0
    failures: set[str] = set()
    for seed in target.seeds():
        (folder / "corpus" / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    scratch = target.open()

    def one(data: bytes) -> None:
        nonlocal count
        try:
            scratch(data)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a panic of the columnar engine is no Exception
            _note(folder, failures, data, problem)
        count += 1
        if count % _EVERY == 0:
            (folder / "count").write_text(str(count))

    options = [
        f"-max_total_time={int(seconds)}",
        "-max_len=4096" if not target.slow else "-max_len=65536",
        f"-timeout={_LONGEST_S}",
    ]
    (folder / "words").write_text("".join(f'"{word}"\n' for word in _WORDS))
    options += [f"-dict={folder / 'words'}", "-rss_limit_mb=3000", f"-artifact_prefix={folder}/failure-", str(folder / "corpus")]
    atheris.Setup([sys.argv[0], *options], one)
    with scratch:
        atheris.Fuzz()
    return 0


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


def _report(names: list[str], keep: Path) -> int:
    total, failed = 0, 0
    for name in names:
        folder = _folder(keep, name)
        count = int((folder / "count").read_text()) if (folder / "count").exists() else 0
        failures = sorted(path.name for path in folder.glob("failure-*") if path.suffix != ".txt")
        print(f"{name:18} {count:9,} inputs, {len(list((folder / 'corpus').iterdir())):5,} kept, {len(failures)} failures")
        for path in folder.glob("failure-*.txt"):
            print(f"    {path.read_text(errors='replace').splitlines()[0]}  ({path.with_suffix('')})")
        total, failed = total + count, failed + len(failures)
    print(f"{total:,} inputs, {failed} failures; corpora and failures are in {keep}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
