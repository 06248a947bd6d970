# SPDX-License-Identifier: Apache-2.0
"""The parts of JSON Schema that our own schemas use; an unknown word in a schema is an error, so that none is left unchecked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float), "null": type(None)
}  # fmt: skip
WORDS = {
    "$schema", "$id", "$defs", "$ref", "title", "type", "required", "properties", "additionalProperties", "items", "enum", "const",
    "pattern",
}  # fmt: skip


def mistakes(value: Any, schema: dict[str, Any]) -> list[str]:
    return list(_mistakes(value, schema, schema, "$"))


def _mistakes(value: Any, schema: dict[str, Any], root: dict[str, Any], place: str) -> Iterator[str]:
    assert schema.keys() <= WORDS, f"not understood: {schema.keys() - WORDS}"
    if "$ref" in schema:
        yield from _mistakes(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, place)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool)) for kind in kinds):
        yield f"{place}: {value!r} is not {' or '.join(kinds)}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{place}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is not one of {schema['enum']}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield f"{place}: {value!r} does not match {schema['pattern']}"
    if isinstance(value, dict):
        yield from (f"{place}: {name} is missing" for name in schema.get("required", ()) if name not in value)
        for name, inner in value.items():
            rule = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if rule is not None:
                yield from _mistakes(inner, rule, root, f"{place}.{name}")
    if isinstance(value, list) and "items" in schema:
        for number, inner in enumerate(value):
            yield from _mistakes(inner, schema["items"], root, f"{place}[{number}]")
