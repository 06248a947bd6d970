# SPDX-License-Identifier: Apache-2.0
"""A trace as PyTorch's own profiler writes it (docs/formats/kineto.md), for tools that read such traces.

A Kineto trace comes out with the header, categories, ids, dims and times that it had; captures of other devices take the
same form, with the categories that Kineto has for devices of other makers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.analysis.statistics import is_work
from stepscope.errors import CaptureError
from stepscope.export.trace.kineto_values import dims, list_text, quoted, texts_list, thousandths
from stepscope.export.trace.timeline import main_pid
from stepscope.export.trace.view import has_events, write_array
from stepscope.formats.kineto import arg_names as names
from stepscope.render.atomic import replacing
from stepscope.render.gzip_stream import packed
from stepscope.render.json_text import escaped, number
from stepscope.render.lines import Lines, Part, Text, Whole
from stepscope.tables import Facts, Tables, device_word

_SECOND = 1_000_000_000
_USER_SCOPE = 7
_COLLECTIVE_LANES = 10_000  # communication operators that are not kernels get lanes above all streams
_DEVICE_TYPES = {"cpu": 0, "cuda": 1, "hip": 6, "xpu": 12, "mtia": 19, "npu": 20, "privateuseone": 20}  # c10::DeviceType
_SYNC_ARGS = {
    "event_stream": names.WAIT_ON_STREAM,
    "event_connection_id": names.WAIT_ON_RECORD,
    "event_id": names.WAIT_ON_EVENT,
}


def write_kineto(tables: Tables, path: Path) -> Path:
    """Write the trace; compressed when the name ends in `.gz`."""
    if not has_events(tables):
        raise CaptureError("nothing to show: the capture has no event", fix="capture with at least one activity")
    base = _base_ns(tables)
    header = {"schemaVersion": 1, **_header(tables, base), "traceName": path.name}
    with replacing(path) as handle, packed(handle, path.suffix == ".gz") as sink:
        # As PyTorch writes it, with spaces: HolisticTraceAnalysis finds the rank by the text `"rank": `.
        sink.write(memoryview(json.dumps(header, ensure_ascii=False).encode("utf-8", "replace")[:-1] + b', "traceEvents": '))
        write_array(_Trace(tables, base).events(), sink)
        sink.write(memoryview(b"}"))
    return path


def _header(tables: Tables, base: int) -> dict[str, Any]:
    facts = tables.facts
    own = {key: value for key, value in facts.metadata.items() if key != "traceName"} if facts.source == "kineto" else {}
    if facts.source != "kineto":
        own = {
            "displayTimeUnit": "ms",
            "record_shapes": int(facts.record_shapes),
            "with_stack": int(facts.with_stack),
            "profile_memory": int(facts.profile_memory),
            "baseTimeNanoseconds": base,
            **({"host_name": facts.host_name} if facts.host_name else {}),
            **({"distributedInfo": _distributed(tables)} if facts.rank >= 0 else {}),
        }
    return {**own, "deviceProperties": _devices(facts)}


def _distributed(tables: Tables) -> dict[str, Any]:
    most = tables.collectives["rank_size"].max()
    size = {"world_size": most} if isinstance(most, int) else {}
    return {"backend": "hccl" if tables.device_kind == "npu" else "nccl", "rank": tables.facts.rank, **size}


def _devices(facts: Facts) -> list[Mapping[str, Any]]:
    if facts.device_properties:
        return list(facts.device_properties.values())
    return [{"id": device, "name": facts.device_names.get(str(device), "")} for device in facts.device_ids]


def _base_ns(tables: Tables) -> int:
    """What times count from: as the source had it, else a full second before the first event, which floats can hold exactly."""
    if tables.facts.source == "kineto":
        known = tables.facts.metadata.get("baseTimeNanoseconds", 0)
        return known if isinstance(known, int) else 0
    starts = [tables[name]["start_ns"].min() for name in ("ops", "python_calls", "api_calls", "kernels", "collectives", "marks")]
    first = min((start for start in starts if isinstance(start, int)), default=0)
    return first // _SECOND * _SECOND


class _Trace:
    """The events of one capture."""

    def __init__(self, tables: Tables, base_ns: int):
        self._tables, self._base = tables, base_ns
        self._is_npu = tables.device_kind == "npu"
        self._pid = main_pid(tables)
        kernels = tables.kernels.with_row_index("row").cast({"row": pl.Int64})
        self._tasks = kernels.filter(is_work(tables.collectives)) if self._is_npu else kernels
        # Before 2023 the External id of device tasks repeated the correlation id.
        self._repeats = kernels.height > 0 and not kernels["external_id"].count() and not self._is_npu

    def events(self) -> Iterator[Lines]:
        yield self._metadata()
        yield from self._operators()
        yield self._python_calls()
        yield from self._calls()
        yield from self._device_tasks()
        yield from self._collectives()
        yield self._waits()
        yield self._annotations()
        yield self._memory()
        yield from self._arrows()
        yield from self._session()

    def _operators(self) -> Iterator[Lines]:
        ops = self._tables.ops
        ops = self._on_host(ops).with_columns(
            shapes=dims(ops["shapes"], ops["dtypes"]),
            dtypes=texts_list(ops["dtypes"]),
            stack=quoted(ops["stack"]) if not self._tables.python_calls.height else pl.lit(None, pl.String),
            modules=quoted(ops["modules"]),
        )
        known = {
            names.EXTERNAL_ID: pl.col("external_id"),
            names.SEQUENCE_NUMBER: pl.col("seq"),
            names.FWD_THREAD_ID: pl.when(pl.col("seq").is_not_null()).then(pl.col("fwd_thread").fill_null(0)),
            names.INPUT_DIMS: pl.col("shapes"),
            names.INPUT_TYPE: pl.col("dtypes"),
            names.CALL_STACK: pl.col("stack"),
            names.MODULE_HIERARCHY: pl.col("modules"),
            names.FLOPS: pl.col("flops"),
        }
        of_a_step = pl.col("name").cast(pl.String).str.starts_with("ProfilerStep#")
        annotated = (pl.col("scope") == _USER_SCOPE).fill_null(False) | of_a_step
        for category, chosen in (("cpu_op", ~annotated), ("user_annotation", annotated)):
            yield self._spans(ops.filter(chosen.fill_null(False)), category, known)

    def _python_calls(self) -> Lines:
        known = {
            names.PYTHON_ID: pl.col("call_id"),
            names.PYTHON_PARENT_ID: pl.when(pl.col("parent_id") > 0).then("parent_id"),
            names.PYTHON_MODULE_ID: pl.col("module_id"),
        }
        return self._spans(self._on_host(self._tables.python_calls), "python_function", known)

    def _calls(self) -> Iterator[Lines]:
        calls = self._on_host(self._tables.api_calls).drop_nulls("level").sort("start_ns", maintain_order=True)
        category = pl.lit("privateuse1_runtime") if self._is_npu else pl.col("level").cast(pl.String)
        known = {names.EXTERNAL_ID: pl.col("external_id"), names.CORRELATION: pl.col("connection_id")}
        yield self._spans(calls, category, known)

    def _device_tasks(self) -> Iterator[Lines]:
        # In one order whatever their kind, as Kineto writes them: tools sort by time and leave equal times as they stand.
        tasks = _on_device(self._tasks).sort("start_ns", maintain_order=True)
        tasks = tasks.with_columns(grid=list_text(tasks["grid"]), block=list_text(tasks["block"]))
        length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
        common = {
            names.EXTERNAL_ID: pl.col("connection_id" if self._repeats else "external_id"),
            names.DEVICE: pl.col("device"),
            names.STREAM: pl.col("stream"),
            names.CORRELATION: pl.col("connection_id"),
        }
        copied = {names.BYTES: pl.col("bytes"), names.BANDWIDTH: _number(pl.coalesce("bandwidth", pl.col("bytes") / length))}
        shaped = {
            names.REGISTERS_PER_THREAD: pl.col("registers"),
            names.SHARED_MEMORY: pl.col("shared_memory"),
            names.BLOCKS_PER_SM: _number(pl.col("blocks_per_sm")),
            names.GRID: pl.col("grid"),
            names.BLOCK: pl.col("block"),
            names.OCCUPANCY: _number(pl.col("occupancy")),
        }
        kind = pl.col("kind").cast(pl.String)
        category = kind.replace_strict({"memcpy": "gpu_memcpy", "memset": "gpu_memset"}, default="kernel")
        if self._tables.facts.source == "kineto":  # of other sources it is the device's word, not a category
            category = pl.coalesce(pl.col("task_type").cast(pl.String), category)
        copies = kind.is_in(["memcpy", "memset"]).fill_null(False)
        known = {name: pl.when(copies).then(value) for name, value in copied.items()}
        known |= {name: pl.when(~copies).then(value) for name, value in {**shaped, **_COLLECTIVE_ARGS}.items()}
        yield self._spans(self._described(tasks), category, {**common, **known})

    def _described(self, tasks: pl.DataFrame) -> pl.DataFrame:
        """Kernels with what is recorded of the collective that they are."""
        said = self._tables.collectives.filter(pl.col("kernel").is_not_null() & pl.col("count").is_not_null())
        said = said.select("kernel", *(pl.col(name).alias(f"{name} of group") for name in _COLLECTIVE_COLUMNS))
        return tasks.join(said, left_on="row", right_on="kernel", how="left", maintain_order="left")

    def _collectives(self) -> Iterator[Lines]:
        """Communication operators that are not one kernel: a lane above the streams for each group."""
        rows = self._tables.collectives.filter(pl.col("kernel").is_null())
        group = pl.col("group").cast(pl.String).fill_null("").rank("dense").cast(pl.Int64)
        rows = _on_device(rows.with_columns(stream=_COLLECTIVE_LANES + group))
        rows = rows.with_columns(pl.col(name).alias(f"{name} of group") for name in _COLLECTIVE_COLUMNS)
        known = {
            names.DEVICE: pl.col("device"),
            names.STREAM: pl.col("stream"),
            names.CORRELATION: pl.col("connection_id"),
            **_COLLECTIVE_ARGS,
        }
        yield self._spans(rows, "kernel", known)

    def _waits(self) -> Lines:
        waits = self._tables.waits
        waits = waits.with_columns(kind=quoted(waits["name"]), tid=pl.col("stream").fill_null(-1), pid=pl.col("device"))
        known = {
            names.CUDA_SYNC_KIND: pl.col("kind"),
            **{name: pl.col(key) for key, name in _SYNC_ARGS.items()},
            names.EXTERNAL_ID: pl.col("connection_id" if self._repeats else "external_id"),
            names.STREAM: pl.col("stream").fill_null(2**32 - 1),
            names.CORRELATION: pl.col("connection_id"),
            names.DEVICE: pl.col("device"),
        }
        return self._spans(waits, "cuda_sync", known)

    def _annotations(self) -> Lines:
        marks = self._tables.marks.drop_nulls("device_start_ns")
        marks = _on_device(marks.with_columns(start_ns="device_start_ns", end_ns=pl.coalesce("device_end_ns", "device_start_ns")))
        return self._spans(marks.rename({"message": "name"}), "gpu_user_annotation", {names.EXTERNAL_ID: pl.col("connection_id")})

    def _memory(self) -> Lines:
        rows = self._tables.memory_events.filter(pl.col("bytes").is_not_null())
        rows = rows.with_columns(pl.col("pid").fill_null(self._pid), pl.col("tid").fill_null(0))
        kind = pl.col("device_type").cast(pl.String).replace_strict(_DEVICE_TYPES, default=None, return_dtype=pl.Int64)
        known = {
            names.TOTAL_RESERVED: _number(pl.col("total_reserved").cast(pl.Float64)),
            names.EVENT_BYTES: pl.col("bytes"),
            names.TOTAL_ALLOCATED: _number(pl.col("total_allocated").cast(pl.Float64)),
            names.ADDR: pl.col("ptr"),
            names.DEVICE_ID: pl.col("device").fill_null(-1),
            names.DEVICE_TYPE: kind,
        }
        place: list[Part] = ['"pid": ', Whole("pid"), ', "tid": ', Whole("tid"), ', "ts": ', self._at("time_ns")]
        return Lines(rows, [', {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", ', *place, *_args(known)])

    def _arrows(self) -> Iterator[Lines]:
        flows = self._tables.flows
        for kind in flows["kind"].unique().drop_nulls().cast(pl.String).sort().to_list():
            rows = flows.filter(pl.col("kind") == kind)
            for side, phase in (("from", "s"), ("to", "f")):
                ends = rows.select("id", pid=f"{side}_pid", tid=f"{side}_tid", start_ns=f"{side}_ns").drop_nulls()
                yield self._ends(ends, phase, escaped(kind))
        tasks = _on_device(self._tasks).filter(pl.col("launch_ns").is_not_null() & pl.col("connection_id").is_not_null())
        first = tasks.unique("connection_id", keep="first", maintain_order=True)
        calls = first.select(pl.lit(self._pid).alias("pid"), tid="launch_tid", start_ns="launch_ns", id="connection_id")
        yield self._ends(calls.drop_nulls(), "s", "ac2g")
        yield self._ends(tasks.with_columns(id="connection_id"), "f", "ac2g")

    def _session(self) -> Iterator[Lines]:
        start, end = self._tables.facts.session_start_ns, self._tables.facts.session_end_ns
        if start is None or end is None:
            return
        rows = pl.DataFrame({"start_ns": [start], "end_ns": [end]})
        place = '"pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "ts": '
        head = f', {{"ph": "X", "cat": "Trace", {place}'
        yield Lines(rows, [head, self._at("start_ns"), ', "dur": ', self._lasting(), ', "args": {"Op count": 0}}'])

    def _metadata(self) -> Lines:
        """Names of processes: the host's, and one per device under the device's number."""
        name = escaped(self._tables.facts.process_name or "python")
        host = self._tables.ops["pid"].drop_nulls().unique().sort().to_list() or [self._pid]
        labels = {pid: ("CPU", pid) for pid in host}
        word = device_word(self._tables.device_kind)
        devices = pl.concat([self._tables[table]["device"].cast(pl.Int64) for table in ("kernels", "collectives", "waits")])
        labels |= {device: (f"{word} {device}", 16_777_216 + device) for device in devices.drop_nulls().unique().sort().to_list()}
        rows = []
        for pid, (label, sort) in labels.items():
            for kind, value in (("name", f'"{name}"'), ("labels", f'"{label}"'), ("sort_index", str(sort))):
                rows.append(
                    f', {{"name": "process_{kind}", "ph": "M", "ts": 0, "pid": {pid}, "tid": 0, "args": {{"{kind}": {value}}}}}'
                )
        return Lines(pl.DataFrame({"line": rows}, schema={"line": pl.String}), [pl.col("line")])

    def _on_host(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.col("pid").fill_null(self._pid), pl.col("tid").fill_null(0))

    def _at(self, column: str) -> pl.Expr:
        return thousandths(pl.col(column) - self._base)

    def _lasting(self) -> pl.Expr:
        return thousandths(pl.col("end_ns") - pl.col("start_ns"))

    def _spans(self, frame: pl.DataFrame, category: str | pl.Expr, known: Mapping[str, pl.Expr]) -> Lines:
        word = escaped(category) if isinstance(category, str) else category
        head: list[Part] = [', {"ph": "X", "cat": "', word, '", "name": "']
        place: list[Part] = ['", "pid": ', Whole("pid"), ', "tid": ', Whole("tid"), ', "ts": ', self._at("start_ns")]
        return Lines(frame, [*head, Text("name"), *place, ', "dur": ', self._lasting(), *_args(known)])

    def _ends(self, frame: pl.DataFrame, phase: str, kind: str) -> Lines:
        bound = ', "bp": "e"' if phase == "f" else ""
        place: list[Part] = [', "pid": ', Whole("pid"), ', "tid": ', Whole("tid"), ', "ts": ', self._at("start_ns")]
        return Lines(frame, [f', {{"ph": "{phase}", "id": ', Whole("id"), *place, f', "cat": "{kind}", "name": "{kind}"{bound}}}'])


def _on_device(frame: pl.DataFrame) -> pl.DataFrame:
    """Kineto's processes and threads of devices are their numbers and those of their streams."""
    return frame.with_columns(pid=pl.col("device").fill_null(0), tid=pl.col("stream").fill_null(0))


def _number(value: pl.Expr) -> pl.Expr:
    """A number as JSON; whole ones without a point, as they were."""
    return number(value).str.strip_suffix(".0")


def _text(name: str) -> pl.Expr:
    return pl.lit('"') + pl.col(name).cast(pl.String).str.replace_all(r'["\\]', "") + pl.lit('"')


_COLLECTIVE_COLUMNS = ("op_type", "count", "data_type", "rank_size", "group", "group_name")
_COLLECTIVE_ARGS = {
    names.COLLECTIVE_NAME: _text("op_type of group"),
    names.IN_MSG_NELEMS: pl.col("count of group"),
    names.DTYPE: _text("data_type of group"),
    names.GROUP_SIZE: pl.col("rank_size of group"),
    names.PROCESS_GROUP_NAME: _text("group of group"),
    names.PROCESS_GROUP_DESCRIPTION: _text("group_name of group"),
}


def _args(known: Mapping[str, pl.Expr]) -> list[Part]:
    """The arguments that a row has; those it has not are left out."""
    texts = [(pl.lit(f'"{name}": ') + value.cast(pl.String)) for name, value in known.items()]
    return [', "args": {', pl.concat_str(texts, separator=", ", ignore_nulls=True), "}}"]
