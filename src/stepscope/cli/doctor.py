# SPDX-License-Identifier: Apache-2.0
"""`stepscope doctor`: test this machine: record on an NPU, analyse, compare with the vendor's tool, write one report.

Takes about two minutes on an NPU; without one the simulated NPU is tested. Exit code 1 when something is wrong.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from stepscope.cli.show import note

EXAMPLES = """\
  stepscope doctor --npu                      about two minutes, one report in this folder
  stepscope doctor --npu --keep /tmp/check    keep captures and results too
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--npu", action="store_true", required=True, help="test NPUs, real or simulated")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder of the report (default: this one)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep captures and results in this new folder")


def run(args: argparse.Namespace) -> int:
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
