# SPDX-License-Identifier: Apache-2.0
"""Starts a script so that it finds the simulated NPU: a plain Python with an environment of its own.

This process becomes that Python, so arguments, exit code, signals and tracebacks are the script's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import NoReturn

from stepscope.compat import install_in_children


@dataclass(frozen=True)
class Launch:
    """What to start: the words after `python`, and what the script shall find.

    Args:
        command: script and arguments, or `-m`, module and arguments.
        devices: number of simulated devices; None leaves it to the environment.
        processes: more than one: that many, as torchrun starts them.
        profile: what to record of a script without profiling code, as `--profile` takes it.
    """

    command: tuple[str, ...]
    devices: int | None = None
    processes: int = 1
    profile: str | None = None

    def arguments(self) -> list[str]:
        words = list(self.command)
        if self.processes > 1:
            words = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.processes}", *words]
        # -W, -X and the like, as given to the Python that runs now.
        return [sys.executable, *subprocess._args_from_interpreter_flags(), *words]  # type: ignore[attr-defined]

    def environment(self) -> dict[str, str]:
        made = dict(os.environ)
        install_in_children(made)
        if self.devices is not None:
            made["STEPSCOPE_SIM_DEVICES"] = str(self.devices)
        if self.profile is not None:
            made["STEPSCOPE_PROFILE"] = self.profile
        if self.processes > 1:
            made.setdefault("OMP_NUM_THREADS", "1")  # what torchrun would set, with a notice of five lines
        return made

    def replace_this_process(self) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        arguments = self.arguments()
        os.execve(arguments[0], arguments, self.environment())
