# SPDX-License-Identifier: Apache-2.0
"""Files that a profiler exports from its last capture, each written by another process (docs/formats/profiler-api.md 10)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from stepscope.collect import messages, paths
from stepscope.collect.analysis_process import AnalysisProcess, wait_with_progress
from stepscope.collect.recording import Recording

_METRICS = ("self_cpu_time_total", "self_npu_time_total", "self_cuda_time_total")
_DEVICE = re.compile(r"cpu|(npu|cuda):\d+")


def chrome_trace(recording: Recording, path: Any) -> None:
    if recording.settings.experimental.get("_export_type") == ["db"]:
        messages.warning("export_chrome_trace writes JSON text; export_type has no effect")
    _export(recording, path, {"do": "chrome_trace"})


def stacks(recording: Recording, path: Any, metric: Any) -> None:
    if not recording.settings.switches.with_stack:
        messages.warning("export_stacks needs with_stack=True; nothing was written")
        return
    if metric not in _METRICS:
        messages.warning(f"metric={metric!r} is not one of {', '.join(_METRICS)}; using {_METRICS[0]}")
        metric = _METRICS[0]
    if isinstance(path, str) and path and Path(path).suffix != ".log":
        path = str(Path(path).with_suffix(".log"))
        messages.warning(f"stacks are written to a file ending in .log: {path}")
    _export(recording, path, {"do": "stacks", "metric": metric})


def memory_timeline(recording: Recording, path: Any, device: Any) -> None:
    switches = recording.settings.switches
    needed = {
        "record_shapes=True": switches.record_shapes,
        "profile_memory=True": switches.profile_memory,
        "with_stack=True or with_modules=True": switches.with_stack or switches.with_modules,
    }
    missing = [name for name, there in needed.items() if not there]
    if missing:
        messages.warning(f"export_memory_timeline needs {', '.join(missing)}; nothing was written")
        return
    activities = recording.settings.activities
    chosen = device or ("npu:0" if "NPU" in activities else "cuda:0" if "CUDA" in activities else "cpu")
    if not isinstance(chosen, str) or not _DEVICE.fullmatch(chosen):
        messages.error(f"device={device!r} is not cpu, npu:0, cuda:0 and so on; nothing was written")
        return
    kind = chosen.split(":")[0].upper()
    if kind not in activities:
        messages.warning(f"{chosen} was not recorded; exporting the memory of the CPU")
        chosen = "cpu"
    _export(recording, path, {"do": "memory_timeline", "device": chosen})


def _export(recording: Recording, path: Any, request: dict[str, Any]) -> None:
    capture = recording.prof_path
    if not capture or recording.recording:
        messages.warning(f"{request['do']}: there is no finished capture yet; nothing was written")
        return
    if not isinstance(path, str) or not path:
        messages.error(f"{request['do']}: {path!r} is not a path; nothing was written")
        return
    target = paths.resolve_path(path)
    if target.is_dir():
        messages.error(f"{request['do']}: {target} is a folder, not a file; nothing was written")
        return
    paths.ensure_folder(target.parent)
    outcome = wait_with_progress(AnalysisProcess({**request, "capture": capture, "path": str(target)}))
    if not outcome.ok:
        messages.warning(f"{target.name} was not written: {outcome.error}")
