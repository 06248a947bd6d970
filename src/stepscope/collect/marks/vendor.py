# SPDX-License-Identifier: Apache-2.0
"""Marks that torch_npu's own profiler records."""

from __future__ import annotations

import inspect
from typing import Any

from stepscope.collect import messages
from stepscope.collect.marks.log import DEFAULT_DOMAIN

_FUNCTIONS = ("mark", "range_start", "range_end", "range_push", "range_pop")
_REFUSED = -1  # what range_push and range_pop return when nothing was recorded


class VendorMarks:
    """Hands marks to torch_npu: versions before 2.6 have no domains, those before 2.11 no nested ranges."""

    def __init__(self, vendor: Any):
        mstx = vendor.npu.mstx
        self._functions = {name: getattr(mstx, name, None) for name in _FUNCTIONS}
        self._takes = {
            name: set(inspect.signature(function).parameters) for name, function in self._functions.items() if function is not None
        }

    def mark(self, message: Any, stream: Any, domain: Any) -> None:
        self._call("mark", message, stream=stream, domain=domain)

    def begin(self, message: Any, stream: Any, domain: Any) -> int:
        return int(self._call("range_start", message, stream=stream, domain=domain) or 0)

    def end(self, number: int, domain: str) -> None:
        self._call("range_end", number, domain=domain)

    def push(self, message: Any, stream: Any, domain: Any) -> int:
        return self._number("range_push", message, stream=stream, domain=domain)

    def pop(self, domain: str) -> int:
        return self._number("range_pop", domain=domain)

    def _number(self, name: str, *values: Any, **options: Any) -> int:
        found = self._call(name, *values, **options)
        return _REFUSED if found is None else int(found)

    def _call(self, name: str, *values: Any, **options: Any) -> Any:
        function = self._functions[name]
        if function is None:
            messages.once(messages.warning, f"this torch_npu has no mstx.{name}; such ranges are not recorded")
            return None
        if options.get("domain", DEFAULT_DOMAIN) != DEFAULT_DOMAIN and "domain" not in self._takes[name]:
            messages.once(messages.warning, "this torch_npu has no domains of marks; all are recorded in one")
        return function(*values, **{key: value for key, value in options.items() if key in self._takes[name]})
