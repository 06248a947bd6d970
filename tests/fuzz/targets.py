# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed: each target is a small folder, the files of it that an input replaces, and the reader that must survive.

The folders are cut from the captures in `tests/captures`, so that one input takes milliseconds. The first byte of an input chooses
the file, the rest is what that file holds.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import shutil
import sqlite3
import struct
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope.analyser import export
from stepscope.analysis.link.capture import link
from stepscope.capture import Capture
from stepscope.errors import CaptureError
from stepscope.formats import cann, framework, mindspore, registry
from stepscope.formats.ascend import kernel_details, memory, operator_details, step_trace_time, task_time
from stepscope.formats.ascend import text as ascend_text
from stepscope.formats.ascend.communication.read import read_extremes, recorded
from stepscope.formats.ascend.db import read as ascend_db
from stepscope.formats.ascend.profiler_info import read_capture_facts
from stepscope.formats.ascend.trace.timeline import read_timeline
from stepscope.formats.cann import layouts
from stepscope.formats.cann.device.side import read_device
from stepscope.formats.cann.folder import open_prof
from stepscope.formats.cann.host.side import read_host
from stepscope.formats.cann.layouts import AICORE_SAMPLE, AICORE_SAMPLE_NEXT, LAYOUTS, SOC_PMU, SOC_PMU_NEXT
from stepscope.formats.cann.records import read_records
from stepscope.formats.cann.sampled.tables import read_sampled
from stepscope.formats.cann.write.folder import ProfWriter
from stepscope.formats.cann.write.old_host import OldHostWriter
from stepscope.formats.cann.write.other_chips import UniqueIdWriter, device_writer
from stepscope.formats.cann.write.settings import Chip, Session
from stepscope.formats.chrome.inflate import blocks
from stepscope.formats.collector import host_counters, loader_fetches, mark_lines, os_calls
from stepscope.formats.framework.clock import FrameworkClock, read_clock
from stepscope.formats.framework.layouts import KINDS
from stepscope.formats.framework.records import read_kind
from stepscope.formats.kineto import read as kineto
from stepscope.formats.mindspore import cpu_files, data_pipeline
from stepscope.formats.mindspore_2020 import read as mindspore_2020
from stepscope.tables import ALL_TABLES, Facts, Tables
from stepscope.tables.store import open_store, read_store, write_store

CAPTURES = Path(__file__).resolve().parents[1] / "captures"
Files = dict[str, bytes]

_LISTS = (pl.List(pl.Int64), pl.List(pl.Float64))
_FORMS = ("text", "db", "perfetto", "kineto", "parquet")
_BINARY_BYTES, _CSV_LINES, _EVENTS_EACH, _DATABASE_ROWS = 1200, 5, 2, 4


@dataclass(frozen=True)
class Target:
    """One reader and the folder it is given. `varied` are the files that inputs replace; the others stay as they are."""

    name: str
    files: Mapping[str, bytes]
    varied: tuple[str, ...]
    read: Callable[[Path], object]
    alone: bool = False  # the other varied files are left out, which is faster
    slow: bool = False  # takes tens of milliseconds; gets a small share of the inputs
    more: tuple[bytes, ...] = ()  # inputs to begin with, beside the files

    def seeds(self) -> list[bytes]:
        return [*(bytes([number]) + self.files.get(name, b"") for number, name in enumerate(self.varied)), *self.more]

    def open(self, root: Path | None = None) -> Scratch:
        return Scratch(self, root)


class Scratch:
    """The folder of a target on disk; each call puts one input into it, reads it, and puts the file back."""

    def __init__(self, target: Target, root: Path | None = None):
        self.target = target
        self.root = root or temporary_folder()
        self.always = {name: content for name, content in target.files.items() if not (target.alone and name in target.varied)}
        for name, content in self.always.items():
            self._put(name, content)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def __call__(self, data: bytes) -> None:
        """Read the folder with this input; only what a reader must never raise comes out."""
        if not data:
            return
        name = self.target.varied[data[0] % len(self.target.varied)]
        self._put(name, data[1:])
        try:
            self.target.read(self.root)
        except CaptureError:
            pass
        finally:
            if name in self.always:
                self._put(name, self.always[name])
            else:
                (self.root / name).unlink(missing_ok=True)

    def _put(self, name: str, content: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # not emptied in place: arrays may still be mapped to it
        path.write_bytes(content)


def temporary_folder() -> Path:
    """A new folder, in memory where that is possible."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="stepscope-fuzz-", dir=memory if memory.is_dir() else None))


@cache
def _archive(name: str) -> Files:
    """Files of an archived capture by their path below the capture's own folder."""
    with tarfile.open(CAPTURES / f"{name}.tar.xz") as archive:
        found = {item.name: archive.extractfile(item).read() for item in archive.getmembers() if item.isfile()}  # type: ignore[union-attr]
    return {
        path.partition("/")[2] or path: content
        for path, content in sorted(found.items())
        if not path.endswith((".done", ".complete"))
    }


def _below(files: Mapping[str, bytes], folder: str) -> Files:
    """Files below a folder whose name begins so, by their path inside it, cut to a size that is read quickly."""
    found = {}
    for path, content in files.items():
        head, _, rest = path.partition("/")
        if rest and head.startswith(folder):
            found[rest] = _cut(rest, content)
    return found


def _cut(name: str, content: bytes) -> bytes:
    if name.endswith(".csv"):
        return b"".join(content.splitlines(keepends=True)[:_CSV_LINES])
    if name.endswith((".txt", ".jsonl", ".dispatch")):
        return b"".join(content.splitlines(keepends=True)[: 4 * _CSV_LINES])
    if name.rpartition("/")[2].startswith("trace_view") or name.endswith(".trace.json"):
        return _cut_trace(content)
    if name.endswith(".db"):
        return _cut_database(content)
    return content if name.endswith(".json") else content[:_BINARY_BYTES]


def _cut_trace(content: bytes) -> bytes:
    """A few events of each kind."""
    whole = json.loads(content)
    events: list[dict[str, Any]] = whole if isinstance(whole, list) else whole["traceEvents"]
    seen: dict[tuple[object, ...], int] = {}
    kept = []
    for event in events:
        kind = event.get("ph"), event.get("cat"), tuple(sorted(event.get("args") or ()))
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= _EVENTS_EACH:
            kept.append(event)
    return json.dumps(kept if isinstance(whole, list) else {**whole, "traceEvents": kept}).encode()


def _cut_database(content: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cut.db"
        path.write_bytes(content)
        with sqlite3.connect(path) as database:
            names = [row[0] for row in database.execute("select name from sqlite_master where type = 'table'")]
            for name in names:
                if name != "STRING_IDS":
                    database.execute(f'delete from "{name}" where rowid not in (select rowid from "{name}" limit {_DATABASE_ROWS})')
            database.execute("delete from STRING_IDS where rowid > 40") if "STRING_IDS" in names else None
        database.execute("vacuum")
        database.close()
        return path.read_bytes()


def _varied(files: Iterable[str], *ends: str) -> tuple[str, ...]:
    return tuple(name for name in sorted(files) if name.endswith(ends))


# The readers, each on the smallest folder that it accepts.


def _read_framework(folder: Path) -> object:
    return framework.read(folder, FrameworkClock(), parallel=False)


def _read_collector(folder: Path) -> object:
    clock = FrameworkClock()
    return [read(folder, clock) for read in (mark_lines.read, host_counters.read, loader_fetches.read, os_calls.read)]


def _read_settings(folder: Path) -> object:
    facts, _ = read_capture_facts(folder, raw=True)
    facts.table()
    return read_clock(folder, folder / "PROF", facts.profiler_info), open_prof(folder / "PROF")


def _read_cann_sides(folder: Path) -> object:
    prof = open_prof(folder)
    return read_host(prof), [read_device(part, True) for part in prof.devices]


def _read_sampled(folder: Path) -> object:
    return read_sampled(open_prof(folder))


def _read_cann(folder: Path) -> object:
    return cann.read(folder)


def _read_text(folder: Path) -> object:
    return ascend_text.read(folder, Facts())


def _read_kineto(folder: Path) -> object:
    return [kineto.read(path) for path in sorted(folder.iterdir())]


def _unpack(folder: Path) -> object:
    return sum(len(block) for path in folder.iterdir() for block in blocks(path, 1 << 16, lambda issue, count, detail: None))


def _read_database(folder: Path) -> object:
    return ascend_db.read(folder / "ascend_pytorch_profiler.db", Facts(source="ascend_db"))


def _read_mindspore(folder: Path) -> object:
    return mindspore.read(folder, None, {"ms_version": "2.7.0"}, (None, None))


def _read_mindspore_data(folder: Path) -> object:
    quality: list[Any] = []
    return data_pipeline.read(folder, quality), cpu_files.read(folder, Tables().ops, device=0, pid=1, quality=quality)


def _claim(folder: Path) -> object:
    return [registry.claim(path) for path in (folder, *sorted(folder.iterdir()))]


def _read_store(folder: Path) -> object:
    tables = read_store(folder, [["source", 1, 1]])
    return None if tables is None else [tables[name].rows() for name in tables.filled()]


def _export(folder: Path) -> object:
    """All the way: open, read, link, write every file."""
    files = registry.claim(folder / "x_ascend_pt")
    if files is None:
        return None
    tables = link(Capture(files).load(keep=False, parallel=False), parallel=False)
    with tempfile.TemporaryDirectory(dir=folder) as out:
        return export(tables, ("text", "db", "perfetto"), Path(out), lambda stage: None, parallel=False)


def _export_tables(folder: Path) -> object:
    """A store that somebody sent, with other values in one column, written in one form; the input says which, and the values."""
    data = (folder / "values").read_bytes()
    choice, values = data[:4].ljust(4, b"\0"), data[4:]
    tables = _linked()[choice[3] % len(_linked())]
    columns = [(name, column) for name in tables.filled() for column, kind in tables[name].schema.items() if kind not in _LISTS]
    name, column = columns[int.from_bytes(choice[:2], "little") % len(columns)]
    frame = tables[name].with_columns(_values(values, tables[name].height, tables[name].schema[column]).alias(column))
    write_store(folder / "store", tables.replace(**{name: ALL_TABLES[name].sort(frame)}), [])
    form = _FORMS[choice[2] % len(_FORMS)]
    with tempfile.TemporaryDirectory(dir=folder) as out:
        return export(link(open_store(folder / "store"), parallel=False), [form], Path(out), lambda stage: None, parallel=False)


def _values(data: bytes, count: int, dtype: pl.DataType) -> pl.Series:
    """As many values of a type as there are rows, from any bytes: eight are a number, a line is a text, 0xfe at the end a null."""
    if dtype in (pl.String, pl.Categorical):
        found: list[Any] = [None if line.endswith(b"\xfe") else line.decode("utf-8", "replace") for line in data.split(b"\n")]
    else:
        words = [data[at : at + 8].ljust(8, b"\0") for at in range(0, len(data) or 1, 8)]
        kind = "<d" if dtype.is_float() else "<q"
        found = [None if word[7] == 0xFE else struct.unpack(kind, word)[0] for word in words]
    whole = list(itertools.islice(itertools.cycle(found), count))
    return pl.Series(whole, dtype=None if any(value is not None for value in whole) else dtype).cast(dtype, strict=False)


def _odd_columns() -> tuple[bytes, ...]:
    """Inputs of `_export_tables`: for each capture and form, a number, a text and a fraction that are seldom seen."""
    values = struct.pack("<q", -(2**63)), b"a,b\n\xfe", struct.pack("<d", math.inf)
    choices = itertools.product(range(3), range(len(_FORMS)), enumerate(values))
    return tuple(bytes([0, 37 * at & 255, 0, form, capture]) + value for capture, form, (at, value) in choices)


def _csv(read: Callable[..., object], **options: Any) -> Callable[[Path], object]:
    return lambda folder: read([path for path in sorted(folder.iterdir()) if path.suffix == ".csv"], quality=[], **options)


def _read_communication(folder: Path) -> object:
    known, extremes = folder / "communication.json", folder / "communication_matrix.json"
    return recorded(known, None), read_extremes(extremes, quality=[])


def _read_timeline(folder: Path) -> object:
    return read_timeline([folder / "trace_view.json"], quality=[])


def _decode(folder: Path) -> object:
    (path,) = folder.iterdir()
    return [read_kind(folder, kind) for kind in KINDS.values() if path.name.startswith(kind.prefixes)]


def _read_layouts(folder: Path) -> object:
    part = open_prof(folder).devices[0]
    return [read_records(part, layout) for layout in LAYOUTS if part.slices(layout.file)]


# The folders.


def _stored(tables: Tables) -> Files:
    with tempfile.TemporaryDirectory() as folder:
        write_store(Path(folder) / "s", tables, [["source", 1, 1]])
        return {path.name: path.read_bytes() for path in (Path(folder) / "s").iterdir()}


def _tables() -> Tables:
    """Of the smallest capture, with operators, kernels and memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, content in _below(_archive("cpu"), "FRAMEWORK").items():
            (folder / path).write_bytes(content)
        return framework.read(folder, FrameworkClock(), parallel=False)


def _layout_folder() -> Files:
    """One record of every layout that a device may have, with the bytes that its first field must hold."""
    return {f"device_0/data/{layout.file}.0.slice_0": bytes(layout.size) for layout in LAYOUTS} | {
        "device_0/info.json.0": b"{}", "device_0/sample.json": b"{}", "device_0/start_info.0": b"{}",
        "device_0/host_start.log.0": b"", "device_0/dev_start.log.0": b"",
    }  # fmt: skip


_AT = 1_700_000_000_000_000_000
_CHIPS = {"310": 0, "910A": 1, "310P": 4, "950": 15}


def _chip_folder(platform: int) -> Files:
    """Two tasks with counters, blocks, sizes and what else the chip records, and the host's records of 2021 about them."""
    session = Session(42, _AT, 5_000_000_000_000, chip=Chip(platform=platform, counter_mhz=1000.0), metrics="PipeUtilization")
    at = np.array([_AT + 1000, _AT + 3000])
    with tempfile.TemporaryDirectory() as folder, ProfWriter(Path(folder), session) as writer:
        device, task = device_writer(writer, 0), np.array([1, 2])
        device.tasks(stream=5, task=task, start_ns=at, end_ns=at + 900)
        span = {"start_ns": at, "end_ns": at + 900}
        device.counters(stream=5, task=task, core="AIC", cycles=900, counters=np.ones((2, 8)), **span)
        inside = {"task": task, "core_id": 3, "block": 0, "start_ns": at + 10, "end_ns": at + 90}
        if isinstance(device, UniqueIdWriter):
            device.fusions(task=task, type=1, start_ns=at + 10, end_ns=at + 90)
            device.blocks(vector=0, **inside)
            device.counted_blocks(vector=1, cycles=9, counters=np.ones((2, 10)), **inside)
            device.block_sizes(task=task, blocks=8, at_ns=at)
        elif platform:
            device.blocks(stream=5, cycles=9, **inside)
            device.block_sizes(stream=5, task=task, blocks=8, at_ns=at)
        host = OldHostWriter(writer, 0)
        host.operators(name=["Add", "Mul"], op_type=[1, 2], core=0, stream=5, task=task, at_ns=at, blocks=8)
        host.tasks(task_type=["KERNEL_AICORE"] * 2, stream=5, task=task, at_ns=at)
        host.calls(name=["aclmdlExecute"], start_ns=at[:1], end_ns=at[:1] + 7, tid=1, acl="acl_model")
        host.steps(index=[1, 1], tag=[0, 1], at_ns=at)
        host.hashes({1: "Add", 2: "Mul"})
        writer.close(_AT + 9000)
        files = {str(path.relative_to(writer.path)): path.read_bytes() for path in sorted(writer.path.rglob("*")) if path.is_file()}
    return {path: content for path, content in files.items() if not path.endswith(".done")}


def _sample_folder(platform: int) -> Files:
    """The same chip with its cores sampled, and the counters of its cache by task."""
    sample, cache = (AICORE_SAMPLE_NEXT, SOC_PMU_NEXT) if platform == _CHIPS["950"] else (AICORE_SAMPLE, SOC_PMU)
    rows, rates = np.zeros(2, sample.dtype), np.zeros(2, cache.dtype)
    rows["counters"], rows["cycles"], rows["counter"] = 5, 100, [5_000_000_001_000, 5_000_000_002_000]
    rates["data_type"], rates["stream"], rates["task"], rates["events"] = 1, 5, [1, 2], 7
    settings = {
        "ai_core_profiling_mode": "sample-based", "ai_core_metrics": "PipeUtilization",
        "ai_core_profiling_events": "0x501,0x301,0x1" if sample is AICORE_SAMPLE_NEXT else "0x8,0xa,0x9",
        "l2CacheTaskProfilingEvents": "0x00,0x81,0x82,0x83,0x74,0x75",
    }  # fmt: skip
    return _chip_folder(platform) | {
        "device_0/sample.json": json.dumps(settings).encode(),
        "device_0/data/aicore.data.0.slice_0": rows.tobytes(),
        "device_0/data/aiVectorCore.data.0.slice_0": rows.tobytes(),
        "device_0/data/socpmu.data.0.slice_0": rates.tobytes(),
    }


def _read_2020(folder: Path) -> object:
    return mindspore_2020.read(folder)


def _folder_of_2020() -> Files:
    hwts = _chip_folder(1)["device_0/data/hwts.data.0.slice_0"]
    aicore = _chip_folder(1)["device_0/data/aicore.data.0.slice_0"]
    trace = np.zeros(4, layouts.TRAINING_TRACE.dtype)
    trace["tag"], trace["counter"] = [1, 3, 4, 255], [100, 120, 140, 200]
    return {
        "hwts.log.data.45.dev.profiler_default_tag.0.slice_0": hwts,
        "aicore.data.43.dev.profiler_default_tag.0.slice_0": aicore,
        "training_trace.46.dev.profiler_default_tag.0.slice_0": trace.tobytes(),
        "Framework.host.vm.task_desc_info.0.slice_0": b"Default/Mul-op1 2 1 3\n",
        "Framework.host.vm.graph_desc_info.0.slice_0": b'op_name:Default/Mul-op1 op_type:Mul input_id:0 input_format:NCHW '
        b'input_data_type:40 input_shape:"2,3"\n',
        "Framework.host.vm.point.0.slice_0": b"1 Default/Cast-op6\n3 Default/AllReduce-op9\n",
        "DATA_PREPROCESS.dev.AICPU.0.slice_0": b"[1] Node:InitData, Run start:2298200409, Run end:2298200538 Thread[ 1] process "
        b"device[0]:aicpu[ 0] task end, tickDrvTopHalf=1,tickDrvBottomHalf=2, tickBeforeRun=3,tickAfterRun=4, dispatchTime=100 us, "
        b"totalTime=1567 us.",
    }  # fmt: skip


_COLLECTED = {
    "x.mstx.jsonl": b"",
    "x.host_counters.csv": b"1000,cpu,,usage,12.5\n2000,memory,,used,1024\n",
    "x.loader_worker_12.csv": b"0,1000,2000,32\n1,2000,x\n",
    "x.os_calls.txt": b'12 1.000000 read(3, "x", 1) = 1 <0.000010>\n',
    "x.os_call_anchors.csv": b"1000,1000000000\n",
}
_COMMUNICATION = {
    "communication.json": json.dumps(
        {"step": {"p2p": {}, "collective": {"hcom_allReduce__1@2": {
            "Communication Time Info": {"Start Timestamp(us)": 1.5, "Elapse Time(ms)": 2, "Transit Time(ms)": 1, "Wait Time(ms)": 1,
                                        "Synchronization Time(ms)": 1, "Idle Time(ms)": 0, "Wait Time Ratio": 0.5,
                                        "Synchronization Time Ratio": 0.5},
            "Communication Bandwidth Info": {"RDMA": {"Transit Size(MB)": 1, "Transit Time(ms)": 1, "Bandwidth(GB/s)": 1,
                                                      "Large Packet Ratio": 0, "Size Distribution": {"1.5": [2, 1.0]}}}}}}}
    ).encode(),
    "communication_matrix.json": json.dumps(
        {"step": {"p2p": {}, "collective": {"allreduce-top1@2": {"0-1": {
            "Transport Type": "HCCS", "Transit Size(MB)": 1, "Transit Time(ms)": 1, "Bandwidth(GB/s)": 1, "Op Name": "x"}}}}}
    ).encode(),
}  # fmt: skip


@cache
def _linked() -> tuple[Tables, ...]:
    """What whole captures give, in the tables that exports are made of."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        for number, archive in enumerate(("npu-level1", "npu-level2", "mindspore-steps")):
            root = Path(name, f"{number}_ascend_pt")
            for path, content in _archive(archive).items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(content)
            claimed = registry.claim(root)
            assert claimed is not None
            found.append(link(Capture(claimed).load(keep=False, parallel=False), parallel=False))
    return tuple(found)


@cache
def targets() -> dict[str, Target]:
    """Every target by name."""
    level1, level2, raw = (_archive(name) for name in ("npu-level1", "npu-level2", "prof-raw"))
    records = _below(level1, "FRAMEWORK")
    prof = {path: _cut(path, content) for path, content in raw.items()}
    sampled = {**prof, **{path: content for path, content in _below(level2, "PROF_").items() if "device_0/data" in path}}
    settings = {f"PROF/{path}": content for path, content in prof.items() if "/data/" not in path}
    settings |= {path: content for path, content in level1.items() if path.startswith("profiler_")}
    text = _below(_archive("ascend-text"), "ASCEND_PROFILER_OUTPUT")
    database = _below(_archive("ascend-db"), "ASCEND_PROFILER_OUTPUT")
    trace = _cut("x.trace.json", next(iter(_archive("kineto-cpu").values())))
    ms = _below(_archive("mindspore-steps"), "FRAMEWORK") | _below(_archive("mindspore-data"), "FRAMEWORK")
    whole = {f"x_ascend_pt/ASCEND_PROFILER_OUTPUT/{path}": content for path, content in text.items()}
    chips, of_2020 = {name: _chip_folder(number) for name, number in _CHIPS.items()}, _folder_of_2020()
    found = [
        Target("decode", records, tuple(records), _decode, alone=True),
        Target("framework", records, tuple(records), _read_framework, slow=True),
        Target("collector", _COLLECTED, tuple(_COLLECTED), _read_collector, alone=True),
        Target("settings", settings, tuple(settings), _read_settings),
        Target("layouts", _layout_folder(), _varied(_layout_folder(), ".slice_0"), _read_layouts, alone=True),
        Target("cann sides", prof, tuple(prof), _read_cann_sides, slow=True),
        Target("cann", prof, tuple(prof), _read_cann, slow=True),
        *(Target(f"chip {name}", folder, tuple(folder), _read_cann, slow=True) for name, folder in chips.items()),
        *(
            Target(f"samples {name}", files, _varied(files, ".slice_0", "sample.json"), _read_sampled, alone=True)
            for name, files in ((name, _sample_folder(_CHIPS[name])) for name in ("910A", "950"))
        ),
        Target("mindspore 2020", of_2020, tuple(of_2020), _read_2020, slow=True),
        Target("sampled", sampled, _varied(sampled, ".slice_0"), _read_sampled, alone=True),
        Target("kernel_details", *_one(text, "kernel_details.csv"), _csv(kernel_details.read)),
        Target("operator_details", *_one(text, "operator_details.csv"), _csv(operator_details.read)),
        Target("memory_record", *_one(text, "memory_record.csv"), _csv(memory.read_records, device=None)),
        Target("operator_memory", *_one(text, "operator_memory.csv"), _csv(memory.read_allocations, device=None)),
        Target("npu_module_mem", *_one(text, "npu_module_mem.csv"), _csv(memory.read_modules, device=None)),
        Target("step_trace_time", *_one(text, "step_trace_time.csv"), _csv(step_trace_time.read)),
        Target("task_time", *_one(text, "task_time.csv"), _csv(task_time.read, device=None)),
        Target("communication", _COMMUNICATION, tuple(_COMMUNICATION), _read_communication),
        Target("timeline", *_one(text, "trace_view.json"), _read_timeline, slow=True),
        Target("text", text, _varied(text, ".csv", ".json"), _read_text, slow=True),
        Target("database", database, _varied(database, ".db"), _read_database, slow=True),
        Target("kineto", {"a.json": trace}, ("a.json",), _read_kineto, slow=True),
        Target("gzip", {"a.json.gz": gzip.compress(trace, mtime=0)}, ("a.json.gz",), _unpack),
        Target("mindspore", ms, tuple(ms), _read_mindspore, slow=True),
        Target("mindspore data", ms, _varied(ms, ".txt", ".json", ".csv"), _read_mindspore_data, alone=True),
        Target("claims", {**text, "b.json": trace}, ("trace_view.json", "b.json", "c.db", "d.json.gz"), _claim),
        Target("store", _stored(_tables()), tuple(_stored(_tables())), _read_store),
        Target("tables", {"values": b""}, ("values",), _export_tables, slow=True, more=_odd_columns()),
        Target("export", whole, _varied(whole, ".csv", ".json"), _export, slow=True),
    ]
    return {target.name: target for target in found}


def _one(files: Mapping[str, bytes], name: str) -> tuple[Files, tuple[str, ...]]:
    return {name: files[name]}, (name,)
