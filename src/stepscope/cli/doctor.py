# SPDX-License-Identifier: Apache-2.0
"""`stepscope doctor`: whether this machine is ready to record and to analyse, and what to do where it is not.

With --npu: record on an NPU, analyse, compare with the vendor's tool and write one report; about two minutes on an NPU, and
without one the simulated NPU is tested. Exit code 1 when something is wrong.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.cli.options import LANGUAGES
from stepscope.cli.show import note, size_text

EXAMPLES = """\
  stepscope doctor                            versions, devices, collector, caches, permissions, a trial capture
  stepscope doctor --json --no-trial          one JSON object per line, within a second
  stepscope doctor --clean                    remove caches: built libraries, unpacked packs, stores of read-only captures
  stepscope doctor --npu                      about two minutes, one report in this folder
  stepscope doctor --npu --keep /tmp/check    keep captures and results too
"""
_MARKS = {"ok": ("ok", "正常"), "warn": ("warn", "警告"), "fail": ("FAIL", "失败")}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of text")
    parser.add_argument("--lang", choices=LANGUAGES, help="language (default: that of the locale)")
    parser.add_argument("--no-trial", action="store_true", help="record nothing")
    parser.add_argument("--clean", action="store_true", help="remove the caches; they are made again when needed")
    parser.add_argument("--npu", action="store_true", help="test NPUs, real or simulated")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder of the report of --npu (default: this one)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep captures and results of --npu in this new folder")


def run(args: argparse.Namespace) -> int:
    if args.npu:
        return _test_npu(args)
    if args.clean:
        from stepscope.doctor.machine import clean

        print(f"removed {size_text(clean())}")
        return 0
    return _examine(args)


def _examine(args: argparse.Namespace) -> int:
    import orjson

    from stepscope.doctor.machine import examine
    from stepscope.language import language

    chinese = language(args.lang) == "zh"
    lines = examine(trial=not args.no_trial)
    for line in lines:
        if args.json:
            print(orjson.dumps(line.as_dict()).decode())
            continue
        print(f"{_MARKS[line.state][chinese]:<5} {line.name}: {line.text[chinese]}")
        if line.fix:
            print(f"      {'处理' if chinese else 'do this'}: {line.fix[chinese]}")
    return 1 if any(line.state == "fail" for line in lines) else 0


def _test_npu(args: argparse.Namespace) -> int:
    import shutil
    import tempfile

    from stepscope.doctor import npu

    folder = args.keep or Path(tempfile.mkdtemp(prefix="stepscope-doctor-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        report = npu.examine(folder, note)
    finally:
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    path = npu.write(report, args.out)
    for problem in report.problems:
        print(f"problem: {problem}")
    print(f"{path}: {'attach it to an issue' if report.problems else 'everything that was checked is right'}")
    return 1 if report.problems else 0
