# SPDX-License-Identifier: Apache-2.0
"""All ranks on one clock as one archive for Perfetto (58 or later): a trace per rank, and a manifest that relates their clocks."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from stepscope.capture import Capture
from stepscope.cluster.analyse import Analysis
from stepscope.cluster.finding import Problem
from stepscope.cluster.run import Loaded
from stepscope.errors import CaptureError
from stepscope.export.trace.perfetto import write_perfetto
from stepscope.formats import registry
from stepscope.render.atomic import replacing

MANIFEST = "perfetto_manifest.json"
LEAST_DRIFT_NS = 1_000  # over the whole capture: less is not seen


def write_archive(path: Path, loaded: Loaded, analysis: Analysis, *, unaligned: bool = False) -> list[Problem]:
    """Write the archive; ranks whose clock is not aligned are left out, unless asked for, and named.

    Raises:
        CaptureError: there are no captures, or none can be shown.
    """
    if not loaded.captures or any("://" in one for several in loaded.captures.values() for one in several):
        raise CaptureError(
            "--perfetto needs the captures on a disk", cause="digests and captures on object storage have no timeline here",
            fix="give the folder that holds the captures",
        )  # fmt: skip
    clocks, problems = analysis.clocks, []
    hosts = dict(analysis.digests["cluster_ranks"].select("rank", "host").iter_rows())
    files: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="stepscope-") as folder:
        zero: int | None = None
        for place, rank in enumerate(clocks.ranks):
            if clocks.reason[place] and not unaligned:
                problems.append(Problem("left_out", {"reason": clocks.reason[place]}, rank))
                continue
            try:
                name, base = _write_rank(Path(folder), rank, loaded.captures.get(rank, []), float(clocks.drift[place]))
            except CaptureError as problem:
                problems.append(Problem("failed", {"path": f"rank {rank}", "error": " ".join(str(problem).split())}, rank))
                continue
            zero = base if zero is None else zero
            offset = 0 if clocks.reason[place] else round(float(clocks.offset_ns[place]))
            relation: dict[str, Any] = {"offset_ns": base - zero - offset}
            if files:
                relation["sync_to"] = {"file": files[0]["path"]}
            machine = f"{hosts.get(rank) or 'host'} rank {rank}"
            files.append({"path": name, "machine": {"name": machine}, "clocks": relation})
        if not files:
            raise CaptureError("no rank can be shown", where=str(path), fix="see the problems, or add --unaligned")
        doubt = [float(clocks.sigma_ns[place]) for place, reason in enumerate(clocks.reason) if not reason]
        content = {"version": 1, "files": files, "attributes": {"stepscope.uncertainty_ns.max": round(max(doubt, default=0.0))}}
        _pack(path, Path(folder), orjson.dumps({"perfetto_manifest": content}), [str(one["path"]) for one in files])
    return problems


def _write_rank(folder: Path, rank: int, captures: Sequence[str], drift: float) -> tuple[str, int]:
    """The trace of one rank; its name and the moment on the rank's clock from which its times count."""
    if not captures:
        raise CaptureError("its capture is not known")
    files = registry.claim(Path(captures[0]))
    if files is None:
        raise CaptureError("no reader knows this capture", where=captures[0])
    name = f"rank-{rank:05d}.json"
    write_perfetto(Capture(files).load(keep=False, parallel=False), folder / name)
    trace = orjson.loads((folder / name).read_bytes())
    base = int(trace["otherData"]["baseTimeNanoseconds"])
    length = max((event.get("ts", 0) + event.get("dur", 0) for event in trace["traceEvents"]), default=0) * 1000
    if abs(drift) * length > LEAST_DRIFT_NS:
        for event in trace["traceEvents"]:
            for key in ("ts", "dur"):
                if key in event:
                    event[key] = round(event[key] * (1 - drift), 3)
        (folder / name).write_bytes(orjson.dumps(trace))
    return name, base


def _pack(path: Path, folder: Path, manifest: bytes, names: Sequence[str]) -> None:
    """The manifest comes first; times of files are left out, so that the same run gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as handle, tarfile.open(fileobj=handle, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo(MANIFEST)
        entry.size = len(manifest)
        archive.addfile(entry, io.BytesIO(manifest))
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = (folder / name).stat().st_size
            with (folder / name).open("rb") as source:
                archive.addfile(entry, source)
