# SPDX-License-Identifier: Apache-2.0
"""Starts a script so that it finds the simulated NPU: a plain Python with a prepared environment.

This process becomes that Python, so arguments, exit code, signals and tracebacks are the script's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import NoReturn

from stepscope.autoload import ANALYSE
from stepscope.compat import END_FOLDER, install_in_children
from stepscope.integrations.script import MAIN_PROCESS
from stepscope.simnpu import faults


@dataclass(frozen=True)
class Launch:
    """What to start: the words after `python`, and the environment of the script.

    Args:
        command: script and arguments, or `-m`, module and arguments.
        devices: number of simulated devices; None leaves it to the environment.
        processes: number of processes; more than one are started as torchrun does.
        profile: what to record of a script without profiling code, as `--profile` takes it.
        faults: of simulated devices, as `--sim-fault` takes them.
    """

    command: tuple[str, ...]
    devices: int | None = None
    processes: int = 1
    profile: str | None = None
    faults: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        words = list(self.command)
        if self.processes > 1:
            words = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.processes}", *words]
        # -W, -X and the like, as given to the Python that runs now.
        return [sys.executable, *subprocess._args_from_interpreter_flags(), *words]  # type: ignore[attr-defined]

    def environment(self) -> dict[str, str]:
        variables = dict(os.environ)
        install_in_children(variables)
        if self.devices is not None:
            variables["STEPSCOPE_SIM_DEVICES"] = str(self.devices)
        if self.profile is not None:
            variables["STEPSCOPE_PROFILE"] = self.profile
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, (END_FOLDER, variables.get("PYTHONPATH"))))
            variables[ANALYSE] = "1"
            variables[MAIN_PROCESS] = str(os.getpid())  # which this process keeps when it becomes that Python
        if self.faults:
            faults.for_children(self.faults, variables)
        if self.processes > 1:
            variables.setdefault("OMP_NUM_THREADS", "1")  # as torchrun sets it, without its five-line notice
        return variables

    def replace_this_process(self) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        arguments = self.arguments()
        os.execve(arguments[0], arguments, self.environment())
