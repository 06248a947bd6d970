# SPDX-License-Identifier: Apache-2.0
"""Compiles a library ahead of its first use, for this user or for a wheel."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from stepscope.native.library import find_library, shipped_name


def compile_ahead(name: str, trial: str, program: str, without: str) -> int:
    """The command behind `python -m PROGRAM [--into FOLDER]`; returns its exit code.

    Args:
        name: name of the library.
        trial: as `find_library` takes it.
        program: name of the module that is run.
        without: what happens without the library.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}", description=f"Compile the library `{name}` ahead of its first use."
    )
    parser.add_argument("--into", type=Path, help="write the library to this folder, under its name in a wheel")
    args = parser.parse_args()
    found = find_library(name, trial)
    if isinstance(found, str):
        print(f"the library `{name}` was not built: {found}\n{without}", file=sys.stderr)
        return 1 if args.into else 0
    if args.into:
        args.into.mkdir(parents=True, exist_ok=True)
        target = args.into / shipped_name(name)
        shutil.copyfile(found.path, target)
        print(target)
    return 0
