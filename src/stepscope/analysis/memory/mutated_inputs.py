# SPDX-License-Identifier: Apache-2.0
"""Which inputs an operator changes in place, judged by its name: the operator schemas belong to the framework, not to us."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stepscope.tables.tensor_text import Input

_OPERATOR = re.compile(r"[A-Za-z]\w*::\w+(\.\w+)?")
_IN_PLACE_DUNDER = re.compile(r"__i\w+__")

# Operators whose changed inputs are not just the first one, by name without namespace.
_CHANGED = {
    "_amp_foreach_non_finite_check_and_unscale_": (0, 1),
    "_amp_update_scale_": (0, 1),
    "_batch_norm_with_update": (3, 4),
    "_copy_from": (1,),
    "_copy_from_and_resize": (1,),
    "_fused_adagrad_": (0, 1, 2, 3),
    "_fused_adam_": (0, 1, 2, 3, 4),
    "_fused_adamw_": (0, 1, 2, 3, 4),
    "_fused_sgd_": (0, 1, 2),
    "_native_batch_norm_legit": (3, 4),
    "record_stream": (0,),
    "set_data": (0,),
}
# The profiler drops the overload name, so `out=` shows only as one tensor more than these operators take without it.
_ARGUMENTS = {
    "add": 3, "addmm": 5, "bmm": 2, "cat": 2, "div": 2, "eq": 2, "exp": 1, "index_select": 3, "matmul": 2, "mm": 2, "mul": 2,
    "neg": 1, "pow": 2, "sigmoid": 1, "sqrt": 1, "stack": 2, "sub": 3, "tanh": 1, "where": 3,
}  # fmt: skip


def is_operator(name: str) -> bool:
    """Whether the range is an operator of a library (`aten::mm`), not a user range or a part of the autograd engine."""
    return _OPERATOR.fullmatch(name) is not None


def changed_inputs(name: str, inputs: Sequence[Input]) -> tuple[int, ...]:
    """Positions of the inputs that the operator writes to."""
    base, _, overload = name.partition("::")[2].partition(".")
    if base in _CHANGED:
        return _CHANGED[base]
    if _IN_PLACE_DUNDER.fullmatch(base) or (base.endswith("_") and not base.endswith("__")):
        return (0,)
    tensors = [place for place, value in enumerate(inputs) if not isinstance(value, str) and value is not None]
    if (base.endswith("_out") or overload.endswith("out")) and tensors:
        return (tensors[-1],)
    last = len(inputs) - 1
    if _ARGUMENTS.get(base) == last and last in tensors:
        return (last,)
    return ()
