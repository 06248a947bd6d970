# SPDX-License-Identifier: Apache-2.0
"""The simulated NPU's part of a capture: a thread that writes what the device did, from start to stop.

Only this thread and `stop` touch the device capture; the training thread waits for its device once, at the end, as it does
with the collector of the hardware.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.collect.clocks import now, raw_ns
from stepscope.collect.guard import warn_on_failure
from stepscope.collect.metadata import rank as rank_of_process
from stepscope.collect.settings import Settings
from stepscope.simnpu import loaded

if TYPE_CHECKING:
    from stepscope.simnpu.capture import CaptureSwitches

INTERVAL_SECONDS = 0.1
DEVICE = "npu_sim"
_LEVELS = {"Level_none": -1, "Level0": 0, "Level1": 1, "Level2": 2}
_METRICS = {
    "ACL_AICORE_PIPE_UTILIZATION": "PipeUtilization",
    "ACL_AICORE_ARITHMETIC_UTILIZATION": "ArithmeticUtilization",
    "ACL_AICORE_MEMORY_BANDWIDTH": "Memory",
    "ACL_AICORE_L0B_AND_WIDTH": "MemoryL0",
    "ACL_AICORE_MEMORY_UB": "MemoryUB",
    "ACL_AICORE_RESOURCE_CONFLICT_RATIO": "ResourceConflictRatio",
    "ACL_AICORE_L2_CACHE": "L2Cache",
    "ACL_AICORE_MEMORY_ACCESS": "MemoryAccess",
}


def available() -> bool:
    """Whether this process has the simulated device."""
    return loaded()


def is_recorded(settings: Settings) -> bool:
    """Whether a capture with these settings records the simulated device."""
    return "NPU" in settings.activities and loaded()


def about() -> dict[str, Any]:
    """What profiler_info.json says about the device: that it is simulated, and which of its data are modelled."""
    from stepscope.simnpu.capture import CHIP, MODELLED

    # With a model of time, kernels last at least as long as it says.
    times = ["kernel times"] if os.environ.get("STEPSCOPE_SIM_KERNEL_TIME", "0") not in ("", "0") else []
    workspaces = ["sizes of workspaces"] if os.environ.get("TASK_QUEUE_ENABLE") == "2" else []
    return {"device": DEVICE, "device_name": CHIP.name, "modelled": [*times, *MODELLED, *workspaces]}


def metadata() -> dict[str, Any]:
    """What profiler_metadata.json says about it; this also reaches the databases."""
    experimental = about()
    return {"simulated": experimental["device_name"], "modelled": experimental["modelled"]}


class SimulatedDevice:
    """Writes the PROF folder of one capture, and the device's records in FRAMEWORK.

    Args:
        capture: the capture's folder.
        settings: what to record.
        flush_host: writes out the host's records; called before the device's, so that a killed process leaves no kernel
            without its operator.
    """

    def __init__(self, capture: Path, settings: Settings, flush_host: Callable[[], None] = lambda: None):
        from stepscope.simnpu import framework_records
        from stepscope.simnpu.capture import DeviceCapture
        from stepscope.simnpu.records import Records

        framework_records.prepare()
        self._flush_host = flush_host

        self._records = Records()
        self._device = DeviceCapture(capture, _switches(settings), self._records)
        self._framework, self._marks = capture / "FRAMEWORK", settings.marks
        self._end = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="stepscope-device", daemon=True)

    def start(self) -> None:
        import torch

        begin = now()
        # A device that was not used has nothing to record; it joins with its first task.
        current = torch.npu.current_device()
        reserved = {number: torch.npu.memory_reserved(number) for number in range(torch.npu.device_count())}
        self._device.start(begin.raw_ns, begin.unix_ns, {n: size for n, size in reserved.items() if size or n == current})
        self._thread.start()

    def stop(self) -> None:
        """Wait for the device, write what is left and close the folder; a second call does nothing."""
        if self._end.is_set():
            return
        self._records.wait_idle()
        self._records.stop()
        self._end.set()
        if self._thread.ident is None:
            return  # never started
        self._thread.join()
        self._write(self._finish)

    @property
    def dropped(self) -> dict[str, int]:
        """Records lost because buffers were full, for profiler_info.json."""
        lost = self._records.lost()
        return {"device records": lost} if lost else {}

    def _run(self) -> None:
        while not self._end.wait(INTERVAL_SECONDS):
            self._write(self._take)

    def _write(self, work: Callable[[], bool]) -> None:
        """Run `work`; its failure ends the device's part of the capture, and what was written stays."""
        self._failed = self._failed or not warn_on_failure("writing the device's records", work)

    def _take(self) -> bool:
        self._flush_host()
        self._device.take(raw_ns())
        return True

    def _finish(self) -> bool:
        self._device.take(raw_ns(), last=True)
        if self._marks:
            # Imported only now: loading polars takes longer than many a script.
            from stepscope.formats.collector.mark_lines import read_raw

            self._device.marks(read_raw(self._framework).to_dicts())
        self._device.close(now().unix_ns)
        return True


def _switches(settings: Settings) -> CaptureSwitches:
    from stepscope.simnpu.capture import CaptureSwitches

    experimental = settings.experimental
    rank = rank_of_process()
    return CaptureSwitches(
        level=_LEVELS.get(str(experimental.get("_profiler_level", "Level0")), 0),
        metrics=_METRICS.get(str(experimental.get("_aic_metrics", "")), ""),
        l2_cache=bool(experimental.get("_l2_cache")),
        attributes=bool(experimental.get("_op_attr")),
        memory=settings.switches.profile_memory,
        links=bool(experimental.get("_sys_interconnection")),
        ports=bool(experimental.get("_sys_io")),
        framework="CPU" in settings.activities,
        marks_only=settings.ranges_only,
        communication=settings.marks and settings.wants_domain("communication"),
        rank=int(rank) if rank is not None and str(rank).isdecimal() else None,
    )
