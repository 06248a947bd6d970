# SPDX-License-Identifier: Apache-2.0
"""The settings and circumstances of a capture, typed; stored as table `meta`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import orjson
import polars as pl

from stepscope.tables.capture_facts import META

# How sure the reader of a kind of raw record is, best first.
EVIDENCE = {
    "bytes": "checked on real bytes",
    "output": "checked on the vendor's output of a real run",
    "reference": "checked against the reference parser",
    "source": "from public source code, not checked",
}


def evidence_text(evidence: Mapping[str, str]) -> str:
    """One line: kinds of records by how sure their reader is, the surest first."""
    groups = [(words, [kind for kind, found in evidence.items() if found == mark]) for mark, words in EVIDENCE.items()]
    return "; ".join(f"{', '.join(kinds)} {words}" for words, kinds in groups if kinds)


def device_word(kind: str) -> str:
    """What devices of a kind are called."""
    return "GPU" if kind in ("cuda", "rocm") else kind.upper()


@dataclass(frozen=True)
class Facts:
    """What a capture says about itself; the defaults mean unknown."""

    source: str = ""  # what it was read from: framework+msprof, ascend_text, ascend_db, kineto, …
    framework: str = "pytorch"
    device_kind: str = ""  # npu, cuda, rocm, cpu, or another accelerator: xpu, mtia, hpu, …
    generation: str = ""  # layout generation of parsed files: G1, G2, G3
    rank: int = -1
    process_name: str = ""  # program of the process that was captured, such as python
    host_name: str = ""
    host_uid: str = ""
    device_ids: tuple[int, ...] = ()
    device_names: Mapping[str, str] = field(default_factory=dict)  # device id -> chip name
    platform: int | None = None  # number of the chip's generation, as raw data of NPUs give it
    evidence: Mapping[str, str] = field(default_factory=dict)  # kind of raw record -> how sure its reader is
    device_properties: Mapping[str, Any] = field(default_factory=dict)  # device id -> what the source says about it
    modelled: tuple[str, ...] = ()  # which data of a simulated device are modelled, not measured
    activities: tuple[str, ...] = ()  # CPU, NPU, CUDA
    level: str = ""  # Level_none, Level0, Level1, Level2; empty when unknown
    aic_metrics: str = ""
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False
    l2_cache: bool = False
    mstx: bool = False
    op_attr: bool = False
    sys_io: bool = False
    sys_interconnection: bool = False
    host_sys: tuple[str, ...] = ()
    gc_threshold: float | None = None
    data_simplification: bool = False
    export_type: tuple[str, ...] = ("text",)
    schedule: Mapping[str, Any] | None = None
    session_start_ns: int | None = None
    session_end_ns: int | None = None
    torch_npu_version: str = ""
    cann_version: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)  # profiler_metadata.json, user keys included
    profiler_info: Mapping[str, Any] = field(default_factory=dict)  # profiler_info*.json as it stands

    def table(self) -> pl.DataFrame:
        rows = [(key, orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()) for key, value in asdict(self).items()]
        return pl.DataFrame(rows, schema=META.schema, orient="row")

    @classmethod
    def of(cls, meta: pl.DataFrame) -> Facts:
        names = {item.name for item in fields(cls)}
        values: dict[str, Any] = {key: orjson.loads(text) for key, text in meta.iter_rows() if key in names}
        shaped: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
        return cls(**shaped)

    def replace(self, **changes: Any) -> Facts:
        return replace(self, **changes)

    def check(self) -> Facts:
        """Return the facts when each is of its type, as those that somebody sent may not be.

        Raises:
            TypeError: one is not.
        """
        for name, wanted in get_type_hints(type(self)).items():
            if not _fits(getattr(self, name), wanted):
                raise TypeError(f"{name} is {getattr(self, name)!r}")
        return self


def _fits(value: object, wanted: Any) -> bool:
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin is UnionType:
        return any(_fits(value, part) for part in parts)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, parts[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(item, parts[1]) for item in value.values())
    return wanted is Any or type(value) is wanted or (wanted is float and type(value) is int)
