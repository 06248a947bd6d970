# SPDX-License-Identifier: Apache-2.0
"""The text of a communication mark (docs/formats/profiler-api.md 18.4). No columnar engine: the training process writes it."""

from __future__ import annotations

import orjson

_DATA_TYPES = {
    **{name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    "float16": "fp16", "float32": "fp32", "float64": "fp64", "bfloat16": "bfp16",
    **{name: name for name in ("fp16", "fp32", "fp64", "bfp16")},
}  # fmt: skip


def communication_message(
    *, stream: int, count: int, data_type: str, group: str, op: str, source: int | None = None, destination: int | None = None
) -> str:
    """The text of a communication mark (docs/formats/profiler-api.md 18.4); `data_type` as torch or HCCL calls it."""
    peers = {"srcRank": source, "destRank": destination}
    parts = {
        "streamId": stream, "count": count, "dataType": _DATA_TYPES.get(data_type.lower(), "na"),
        **{name: rank for name, rank in peers.items() if rank is not None}, "groupName": group, "opName": op,
    }  # fmt: skip
    return "{" + ",".join(f"{_quoted(name)}: {_quoted(str(value))}" for name, value in parts.items()) + "}"


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode()
