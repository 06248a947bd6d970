# SPDX-License-Identifier: Apache-2.0
"""Fuzz the C++ kernels of the analyser under ASan and UBSan: `run_codec.py [--inputs N] [--seed N] [FILE]...`.

The reader of events gets traces whose pieces are damaged: the files, or made-up ones without any; each is also cut at every
thousandth byte (`--step`). The writers of rows and pages get random columns, and what they write is read back; the readers of
framework records and of csv lines get damaged ones, and what they find is held against a plain walk.
The first finding ends the run with its report.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "native" / "codec"
FLAGS = ["-std=c++17", "-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step", type=int, default=1000)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("files", type=Path, nargs="*")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reader = _compiled(args.compiler, Path(folder, "events"), NATIVE / "events.cpp", HERE / "codec_events.cpp")
        writers = _compiled(
            args.compiler, Path(folder, "writers"), NATIVE / "rows.cpp", NATIVE / "pages.cpp", HERE / "codec_writers.cpp"
        )
        records = _compiled(args.compiler, Path(folder, "records"), NATIVE / "records.cpp", HERE / "codec_records.cpp")
        cells = _compiled(args.compiler, Path(folder, "cells"), NATIVE / "cells.cpp", HERE / "codec_cells.cpp")
        files = [_plain(path, Path(folder) / f"{number}.json") for number, path in enumerate(args.files)] or [
            _made_up(Path(folder))
        ]
        damages = (str(args.inputs), str(args.seed))
        for command in (
            (reader, *damages, *files),
            (reader, "truncate", str(args.step), *files),
            (writers, *damages),
            (records, *damages),
            (cells, *damages),
        ):
            if subprocess.run(command, check=False).returncode:
                return 1
    return 0


def _compiled(compiler: str, program: Path, *sources: Path) -> Path:
    subprocess.run([compiler, *FLAGS, *map(str, sources), "-o", str(program)], check=True)
    return program


def _plain(path: Path, target: Path) -> Path:
    """The trace without its compression."""
    if path.suffix != ".gz":
        return path
    target.write_bytes(gzip.decompress(path.read_bytes()))
    return target


def _made_up(folder: Path) -> Path:
    chance = random.Random(1)
    events = [
        {
            "ph": chance.choice("XsfMC"),
            "name": chance.choice(["aten::add", 'Kernel "<é>"\n', "x" * 40]),
            "pid": chance.choice([4321, "Spans", "7"]),
            "tid": number % 5,
            "ts": chance.choice([f"173640544387{number}.060", 1736405443871356.06, number / 8]),
            "dur": chance.choice([3.6500000000000004, number, "0.020"]),
            "id": 1736405443876953510 + number,
            "args": {
                "External id": number,
                "Input Dims": [[number, 2], [], [3.5]],
                "Thread Id": chance.choice([12, "N/A", None, 12.0]),
                "size(Byte)": chance.choice([1e-7, 28092288, "NaN"]),
                "is": chance.choice([True, "false", 1]),
                "other": {"deep": [{"er": None}]},
            },
        }
        for number in range(2000)
    ]
    target = folder / "made-up.json"
    target.write_text(json.dumps(events))
    return target


if __name__ == "__main__":
    sys.exit(main())
