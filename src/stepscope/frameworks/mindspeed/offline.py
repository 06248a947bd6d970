# SPDX-License-Identifier: Apache-2.0
"""`python -m mindspeed_mm.tools.profiler`: analyses the captures of a run (docs/formats/mindspeed-profiler.md 5)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from stepscope.errors import CaptureError
from stepscope.frameworks.mindspeed.request import mm_request
from stepscope.profiler import analyse


def main(arguments: Sequence[str] | None = None) -> int:
    """Analyse; 0 if every capture was, 2 for wrong arguments, 3 if one was not or there is none."""
    parser = argparse.ArgumentParser("mindspeed_mm.tools.profiler", description="Analyse the captures of a run.")
    parser.add_argument("--mm-tool", metavar="FILE", help="tools.json or YAML; its static_param.save_path is analysed")
    parser.add_argument("--profiler-path", metavar="DIR", help="a capture, or a folder of captures, instead")
    parser.add_argument("--max-process-number", type=int, metavar="N", help="captures analysed at the same time")
    parser.add_argument("--export-type", action="append", choices=("text", "db"), help="what to write; may be repeated")
    given = parser.parse_args(arguments)
    folder = given.profiler_path
    if folder is None and given.mm_tool is None:
        parser.error("give --profiler-path DIR, or --mm-tool FILE to use its static_param.save_path")
    if folder is None:
        try:
            folder = mm_request(given.mm_tool).save_path
        except CaptureError as problem:
            print(f"error: {problem}", file=sys.stderr)
            return 3
    results = analyse(folder, given.max_process_number, given.export_type)
    return 0 if results and all(result.ok for result in results) else 3
