# SPDX-License-Identifier: Apache-2.0
"""One process of a result: its agents, names and records as frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from stepscope.formats.chrome.inflate import Note
from stepscope.formats.gpu.collectives import COLLECTIVE_KERNEL
from stepscope.formats.rocprof import fields
from stepscope.formats.rocprof.json_lists import Document, Fields
from stepscope.formats.sqlite.texts import per_text
from stepscope.tables import TEXT, issues

_LATEST_NS = 1 << 61  # later times are damage
_CORRELATION_BITS = 40
# Kernels by which the runtime itself copies and fills memory.
_COPY_KERNEL, _FILL_KERNEL = r"^__amd_rocclr_copy", r"^__amd_rocclr_fill"


class Process:
    """The part of a document that lies between two places."""

    def __init__(self, document: Document, place: int, number: int, lost: Note):
        self._document, self._begin, self._end = document, place, document.end(place)
        self._number, self._lost = number, lost
        self.metadata = self._object("metadata")
        agents = self._value("agents", b"[")
        self.gpus = _gpus(agents if isinstance(agents, list) else [])
        self._strings = self._object("strings")

    @property
    def pid(self) -> int:
        pid = self.metadata.get("pid")
        return pid if isinstance(pid, int) else self._number

    def count(self, name: str) -> int:
        return sum(self._document.count(place) for place in self._places(name, b"["))

    def tasks(self) -> pl.DataFrame:
        """Dispatches and copies, with the columns of `kernels`."""
        return pl.concat([self._dispatches(), self._copies()], how="diagonal_relaxed")

    def calls(self) -> pl.DataFrame:
        parts = [self._spans(name, fields.CALL).with_columns(level=pl.lit(level)) for name, level in fields.CALLS.items()]
        rows = pl.concat(parts)
        return rows.select(
            "start_ns",
            "end_ns",
            "level",
            "connection_id",
            pid=pl.lit(self.pid, pl.Int64),
            tid="thread_id",
            name=self._operation(rows),
        )

    def ranges(self) -> pl.DataFrame:
        """Ranges and marks of roctx: pid, tid, start_ns, end_ns, message, and whether it is nested on its thread."""
        rows = self._spans(fields.MARKERS, fields.CALL)
        texts = self._strings.get("marker_api")
        pairs = [item for item in texts if isinstance(item, dict)] if isinstance(texts, list) else []
        known = {item["key"]: str(item.get("value", "")) for item in pairs if isinstance(item.get("key"), int)}
        identity = pl.col("correlation_id.internal")
        message = identity.replace_strict(known, default=None, return_dtype=pl.String()) if known else pl.lit(None, pl.String)
        operation = self._operation(rows).cast(pl.String)
        return rows.select(
            "start_ns", "end_ns", pid=pl.lit(self.pid, pl.Int64), tid="thread_id",
            message=pl.coalesce(message, operation),
            operation=operation,
        )  # fmt: skip

    def _dispatches(self) -> pl.DataFrame:
        rows = self._spans(fields.DISPATCHES, fields.DISPATCH)
        info = "dispatch_info"
        names = self._symbols()
        named = rows.select(kernel_id=pl.col(f"{info}.kernel_id")).join(names, on="kernel_id", how="left", maintain_order="left")
        axes = [pl.col(f"{info}.workgroup_size.{axis}") for axis in "xyz"]
        # Grids are counted in work-items here, in blocks everywhere else (docs/formats/rocprof.md 2.1).
        blocks = [
            pl.when(size.is_between(1, 1 << 31)).then((pl.col(f"{info}.grid_size.{axis}") + size - 1) // size)
            for axis, size in zip("xyz", axes, strict=True)
        ]
        product = blocks[0].cast(pl.Float64) * blocks[1] * blocks[2]
        kind = per_text(named["name"], _kind)
        self._lost(issues.UNNAMED_KIND, named["name"].null_count(), "kernel_id without a symbol")
        unnamed = pl.format("kernel {}", pl.col(f"{info}.kernel_id").cast(pl.String).fill_null("?")).cast(TEXT)
        return rows.select(
            *self._task_columns(pl.col(f"{info}.agent_id.handle"), pl.col(f"{info}.queue_id.handle")),
            name=pl.coalesce(named["name"], unnamed),
            kernel_name=named["kernel_name"],
            registers=named["arch_vgpr_count"],
            kind=kind.fill_null("compute"),
            shared_memory=pl.col(f"{info}.group_segment_size"),
            grid=pl.concat_str(blocks, separator=",").cast(TEXT),
            block=pl.concat_str(axes, separator=",").cast(TEXT),
            block_num=pl.when(product.is_between(0, 2.0**62)).then(blocks[0] * blocks[1] * blocks[2]),
        )

    def _copies(self) -> pl.DataFrame:
        rows = self._spans(fields.COPIES, fields.COPY)
        direction = (
            self._operation(rows).cast(pl.String).replace_strict(fields.COPY_DIRECTIONS, default=None, return_dtype=pl.String())
        )
        to_device = direction == "host to device"
        agent = pl.when(to_device).then("dst_agent_id.handle").otherwise("src_agent_id.handle")
        return rows.select(
            *self._task_columns(agent, pl.lit(None, pl.Int64)),
            "bytes",
            name=pl.format("Memcpy {}", direction.fill_null("unknown direction")).cast(TEXT),
            kind=pl.lit("memcpy").cast(TEXT),
            copy_direction=direction.cast(TEXT),
        )

    def _task_columns(self, agent: pl.Expr, queue: pl.Expr) -> list[pl.Expr]:
        numbers = {handle: number for handle, (number, _) in self.gpus.items()}
        device = agent.replace_strict(numbers, default=None, return_dtype=pl.Int32()) if numbers else pl.lit(None, pl.Int32)
        return [
            pl.col("start_ns"), pl.col("end_ns"), (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64).alias("duration_ns"),
            device.alias("device"),
            pl.coalesce("stream_id.handle", queue).alias("stream"),
            pl.lit(self.pid, pl.Int64).alias("pid"),
            pl.col("connection_id"),
        ]  # fmt: skip

    def _symbols(self) -> pl.DataFrame:
        """Names by kernel_id."""
        rows = self._records("kernel_symbols", fields.SYMBOL)
        name = pl.coalesce("formatted_kernel_name", "demangled_kernel_name", "kernel_name")
        named = (
            rows.filter(pl.col("kernel_name") != "").drop_nulls("kernel_id").unique("kernel_id", keep="last", maintain_order=True)
        )
        return named.select(
            "kernel_id",
            "arch_vgpr_count",
            name=name.cast(TEXT),
            kernel_name=pl.col("kernel_name").str.strip_suffix(".kd").cast(TEXT),
        )

    def _spans(self, name: str, wanted: Fields) -> pl.DataFrame:
        """A list of records with start_ns, end_ns and connection_id; those whose times cannot be are left out and counted."""
        rows = self._records(name, wanted)
        start, end = pl.col("start_timestamp"), pl.col("end_timestamp")
        whole = rows.filter(start.is_between(0, _LATEST_NS) & end.is_between(0, _LATEST_NS))
        self._lost(issues.INCOMPLETE_ROW, rows.height - whole.height, f"{name}: a time that cannot be")
        ordered = whole.filter(end >= start)
        self._lost(issues.ENDS_BEFORE_START, whole.height - ordered.height, name)
        identity = pl.col("correlation_id.internal")
        connection = pl.when(identity.is_between(1, (1 << _CORRELATION_BITS) - 1)).then(
            identity + (self._number << _CORRELATION_BITS)
        )
        return ordered.with_columns(start_ns=start, end_ns=end, connection_id=connection)

    def _records(self, name: str, wanted: Fields) -> pl.DataFrame:
        parts = [self._document.records(place, wanted) for place in self._places(name, b"[")]
        return pl.concat(parts) if parts else self._document.no_records(wanted)

    def _operation(self, rows: pl.DataFrame) -> pl.Series:
        """What a record is about, by its kind and operation; null where the document does not name it."""
        kinds = self._strings.get("buffer_records")
        pairs = [
            (number, operation, name)
            for number, kind in enumerate(kinds if isinstance(kinds, list) else [])
            for operation, name in enumerate(kind.get("operations", []) if isinstance(kind, dict) else [])
            if isinstance(name, str)
        ]
        names = pl.DataFrame(pairs, schema={"kind": pl.Int64, "operation": pl.Int64, "name": TEXT}, orient="row")
        return rows.select("kind", "operation").join(names, on=["kind", "operation"], how="left", maintain_order="left")["name"]

    def _places(self, name: str, opening: bytes) -> list[int]:
        return [place for place in self._document.places(name, opening) if self._begin <= place < self._end]

    def _value(self, name: str, opening: bytes) -> Any:
        places = self._places(name, opening)
        return self._document.value(places[0]) if places else None

    def _object(self, name: str) -> Mapping[str, Any]:
        value = self._value(name, b"{")
        return value if isinstance(value, dict) else {}


def _kind(name: pl.Expr) -> pl.Expr:
    return (
        pl.when(name.str.contains(COLLECTIVE_KERNEL)).then(pl.lit("communication"))
        .when(name.str.contains(_COPY_KERNEL)).then(pl.lit("memcpy"))
        .when(name.str.contains(_FILL_KERNEL)).then(pl.lit("memset"))
        .otherwise(pl.lit("compute"))
    )  # fmt: skip


def _gpus(agents: list[Any]) -> dict[int, tuple[int, Mapping[str, Any]]]:
    """GPUs by handle: their number among the GPUs, and what is said about them."""
    found: dict[int, tuple[int, Mapping[str, Any]]] = {}
    for agent in agents:
        identity = agent.get("id") if isinstance(agent, dict) else None
        handle = identity.get("handle") if isinstance(identity, dict) else None
        if isinstance(handle, int) and agent.get("type") == fields.GPU_AGENT:
            number = agent.get("logical_node_type_id")
            valid = isinstance(number, int) and 0 <= number < 1 << 15
            found[handle] = (number if valid else len(found), agent)
    return found
