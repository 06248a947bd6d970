# SPDX-License-Identifier: Apache-2.0
"""Names of the same thing in two captures: without what differs from run to run, from build to build or between devices."""

from __future__ import annotations

import re

_ARGUMENTS = re.compile(r"[<(].*", re.DOTALL)  # template arguments and parameters, which name types of a build
_HASH = re.compile(r"_?[0-9a-f]{8,}(?![a-z])")
_NUMBER = re.compile(r"_?\d{3,}")
_RETURN = re.compile(r"^(?:__global__\s+)?(?:void|static|inline)\s+")
_PREFIX = re.compile(
    r"^(?:aclnn|aclop|npu_|npu::|cuda_|hip_|aten::_|aten::|c10d::|torch::|at::native::|at_npu::native::|at::|nn\.module: )"
)
_SEPARATORS = re.compile(r"[_\W]+$")


def normal(name: str) -> str:
    """A name without hashes, template arguments, numbers of three or more digits and words of one device; lower case."""
    short = _RETURN.sub("", name)
    short = _ARGUMENTS.sub("", short).lower()
    while (stripped := _PREFIX.sub("", short)) != short:
        short = stripped
    short = _NUMBER.sub("", _HASH.sub("", short))
    return _SEPARATORS.sub("", short) or name.lower()


def normal_path(path: str) -> str:
    """A module path, each of its names normalised; numbers stay, because they tell blocks of a model apart."""
    return "/".join(part.lower() for part in path.split("/"))
