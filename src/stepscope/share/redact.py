# SPDX-License-Identifier: Apache-2.0
"""Take names out of tables before they are shared: paths, hosts, stacks, metadata.

Each column is changed through its distinct values, far fewer than rows.
"""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from stepscope.share.names import MAY_NAME, USER, Names, named_in, split_names
from stepscope.tables import ALL_TABLES, Facts, Tables, issues, lost

KINDS = ("paths", "hosts", "stacks", "metadata")
# Only these facts stay with `metadata`: settings, versions and shapes of the run, none of which names anybody.
PUBLIC_FACTS = (
    "source", "framework", "device_kind", "generation", "rank", "device_ids", "device_names", "platform", "evidence", "modelled",
    "activities", "level", "aic_metrics", "record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules", "l2_cache",
    "mstx", "op_attr", "sys_io", "sys_interconnection", "host_sys", "gc_threshold", "data_simplification", "export_type",
    "schedule", "session_start_ns", "session_end_ns", "torch_npu_version", "cann_version",
)  # fmt: skip
_GROUP_KINDS = re.compile(r"(?:default|world|hccl_world|tp|dp|pp|cp|ep|mp|sp|dp_cp|tp_cp|embd|exp|mp_exp)(?:_group)?(?:_\d+)?|\d+")
_OF_PROCESSES = re.compile(r"(?:\w+_)?[pt]id")
_OF_STACKS = {"ops": ("stack", "modules"), "op_times": ("stack",)}
_HOMES = r"home[/\\]|[Uu]sers[/\\]|~[\w.-]+/"
_FOLDER = re.compile(r"(?P<host>.+?)_\d+_\d{14,20}.*|(?P<traced>.+?)[_.]\d+\.\d+.*\.pt\.trace\.json(?:\.gz)?")
# `host_name`, `node`, `server_id`; not `host_sys`.
_HOST_KEY = re.compile(
    r"(?:.*[._\s-])?(?:host|node|user|machine|server|login|log|master|pod|rdzv|endpoint|nodelist)"
    r"[_\s-]?(?:name|id|uid|ip|addr|address|endpoint|list)?s?",
    re.IGNORECASE,
)


class Redaction:
    """One pack: the same name becomes the same hash in all of its captures."""

    def __init__(self, kinds: frozenset[str], tables: Sequence[Tables], paths: Sequence[Path], salt: str | None = None):
        self.kinds = kinds
        self.tables = tables
        self.paths = paths
        self._salt = salt

    def all(self) -> list[Tables]:
        return [self._one(tables) for tables in self.tables]

    def _one(self, tables: Tables) -> Tables:
        if "stacks" in self.kinds:
            tables = _without_stacks(tables)
        frames = {}
        processes = _processes(tables) if "hosts" in self.kinds else {}
        for name in tables.filled():
            frame = tables[name]
            if name != "meta":
                frame = self._numbers(self._texts(frame), processes)
            frames[name] = ALL_TABLES[name].sort(frame) if name not in _NUMBERED else frame
        detail = ", ".join(sorted(self.kinds))
        new = Tables(frames).replace(meta=self._facts(tables.facts, processes).table())
        return new.with_quality(lost(issues.REDACTED, "pack", 1, detail))

    def _texts(self, frame: pl.DataFrame) -> pl.DataFrame:
        changes = []
        for name, dtype in frame.schema.items():
            if dtype in (pl.String, pl.Categorical):
                distinct = frame[name].cast(pl.String).unique().drop_nulls().to_list()
                moved = {old: new for old in distinct if (new := self.text(old)) != old}
                if moved:
                    changes.append(pl.col(name).cast(pl.String).replace(moved).cast(dtype))
        return frame.with_columns(changes)

    def _numbers(self, frame: pl.DataFrame, processes: dict[int, int]) -> pl.DataFrame:
        columns = [name for name in frame.columns if _OF_PROCESSES.fullmatch(name)]
        return frame.with_columns(pl.col(name).replace(processes) for name in columns) if processes else frame

    def _facts(self, facts: Facts, processes: dict[int, int]) -> Facts:
        if "metadata" in self.kinds:
            kept = {name: getattr(facts, name) for name in PUBLIC_FACTS}
            facts = Facts(**kept, metadata=_public_metadata(facts.metadata))
        if "stacks" in self.kinds:
            facts = facts.replace(with_stack=False, with_modules=False)
        if "hosts" in self.kinds:
            facts = facts.replace(host_name=self._names.hash("h", facts.host_name), host_uid=self._names.hash("h", facts.host_uid))
            facts = facts.replace(**{name: _renumbered(value, name, processes) for name, value in vars(facts).items()})
        changed = {name: _mapped(value, self.text) for name, value in vars(facts).items()}
        return facts.replace(**{name: tuple(value) if isinstance(value, list) else value for name, value in changed.items()})

    def text(self, text: str) -> str:
        """A text without the names."""
        return self._names.replace(text)

    @cached_property
    def _names(self) -> Names:
        users: set[str] = set()
        if self.kinds & {"paths", "hosts"}:
            users = {match[1] or match[2] for text in self._all_texts(_HOMES) for match in USER.finditer(text)}
            with suppress(OSError, KeyError):
                users.add(getpass.getuser())
        return Names(
            hosts=set(self._known_hosts()) if "hosts" in self.kinds else (),
            users=users,
            named=set(self._named()) if "hosts" in self.kinds else (),
            paths="paths" in self.kinds,
            addresses="hosts" in self.kinds,
            base_names="stacks" not in self.kinds,
            salt=self._salt,
        )

    def _known_hosts(self) -> Iterable[str]:
        yield socket.gethostname()
        yield socket.gethostname().partition(".")[0]
        for path in self.paths:
            for name in (path.name, path.parent.name):
                found = _FOLDER.fullmatch(name)
                if found:
                    yield found["host"] or found["traced"]
        for tables in self.tables:
            facts = tables.facts
            yield from (facts.host_name, facts.host_name.partition(".")[0], facts.host_uid)
            for content in (facts.metadata, facts.profiler_info, facts.device_properties):
                yield from _host_values(content)
            for name in tables.filled():
                for column in {"group", "group_name"} & set(tables[name].columns):
                    for text in tables[name][column].cast(pl.String).unique().drop_nulls().to_list():
                        if not _GROUP_KINDS.fullmatch(text):
                            yield text
                            yield text.partition("%")[0]  # host%port_…

    def _named(self) -> Iterable[str]:
        for text in self._all_texts(MAY_NAME):
            yield from named_in(text)
        for tables in self.tables:
            for content in (tables.facts.metadata, tables.facts.profiler_info, tables.facts.device_properties):
                for text in _texts_in(content):
                    yield from named_in(text)

    def _all_texts(self, pattern: str) -> Iterable[str]:
        """Texts of columns that hold a pattern, each once."""
        for tables in self.tables:
            for name in tables.filled():
                for column, dtype in tables[name].schema.items():
                    if dtype in (pl.String, pl.Categorical):
                        texts = tables[name][column].unique().drop_nulls().cast(pl.String)
                        yield from texts.filter(texts.str.contains(pattern)).to_list()


# Rows of these are named by their number, and they are sorted by times and numbers that keep their order.
_NUMBERED = ("ops", "kernels", "collectives")


def _processes(tables: Tables) -> dict[int, int]:
    """Processes and threads by numbers from 1, in the same order."""
    columns = [
        tables[name][column].drop_nulls().unique()
        for name in tables.filled()
        for column in tables[name].columns
        if _OF_PROCESSES.fullmatch(column)
    ]
    found = sorted({number for column in columns for number in column.to_list() if number > 0})
    return {number: place for place, number in enumerate(found, 1)}


def _without_stacks(tables: Tables) -> Tables:
    frames: dict[str, pl.DataFrame] = {
        "python_calls": ALL_TABLES["python_calls"].empty(),
        "param_tensors": ALL_TABLES["param_tensors"].empty(),
    }
    for name, columns in _OF_STACKS.items():
        frame = tables[name]
        frames[name] = frame.with_columns(pl.lit(None, frame.schema[column]).alias(column) for column in columns)
    return tables.replace(**frames)


def _public_metadata(metadata: Any) -> dict[str, Any]:
    """Sizes of the parallel layout, and which ranks form a group: what an analysis of all ranks needs."""
    layout = metadata.get("distributed_args")
    groups = metadata.get("parallel_group_info")
    public: dict[str, Any] = {}
    if isinstance(layout, dict):
        public["distributed_args"] = {str(key): value for key, value in layout.items() if isinstance(value, int | float)}
    if isinstance(groups, dict):
        public["parallel_group_info"] = {
            str(key): {
                name: value
                for name, value in group.items()
                if name in ("group_name", "group_rank", "global_ranks")
                and (name != "group_name" or (isinstance(value, str) and _GROUP_KINDS.fullmatch(value)))
            }
            for key, group in groups.items()
            if isinstance(group, dict)
        }
    return public


def _host_values(content: Any, key: str = "") -> Iterable[str]:
    """Texts below keys that name a machine or a user, and the names of process groups."""
    if isinstance(content, str):
        if _HOST_KEY.fullmatch(key):
            yield content
            yield from split_names(content)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _host_values(value, key)
    elif isinstance(content, dict):
        for name, value in content.items():
            if "%" in str(name):
                yield str(name)
                yield str(name).partition("%")[0]
            yield from _host_values(value, str(name))


def _texts_in(content: Any) -> Iterable[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        yield " ".join(value for value in content if isinstance(value, str))  # a command line by its words
        for value in content:
            yield from _texts_in(value)
    elif isinstance(content, dict):
        for value in content.values():
            yield from _texts_in(value)


def _renumbered(content: Any, key: str, processes: dict[int, int]) -> Any:
    """The same content with other numbers of processes and threads; 0 for those that no table knows."""
    if isinstance(content, int) and not isinstance(content, bool):
        return processes.get(content, 0) if content > 0 and _OF_PROCESSES.fullmatch(key.lower()) else content
    if isinstance(content, list | tuple):
        return type(content)(_renumbered(value, key, processes) for value in content)
    if isinstance(content, Mapping):
        return {name: _renumbered(value, str(name), processes) for name, value in content.items()}
    return content


def _mapped(content: Any, change: Callable[[str], str]) -> Any:
    if isinstance(content, str):
        # Programs put JSON into strings of JSON.
        if content[:1] in "{[" and content:
            with suppress(orjson.JSONDecodeError):
                return orjson.dumps(_mapped(orjson.loads(content), change)).decode()
        return change(content)
    if isinstance(content, list | tuple):
        return type(content)(_mapped(value, change) for value in content)
    if isinstance(content, dict):
        return {change(str(key)): _mapped(value, change) for key, value in content.items()}
    return content
