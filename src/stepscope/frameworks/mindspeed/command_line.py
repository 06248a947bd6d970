# SPDX-License-Identifier: Apache-2.0
"""The `--profile*` arguments of Megatron-style trainers (docs/formats/mindspeed-profiler.md 7)."""

from __future__ import annotations

import argparse

from stepscope.frameworks.mindspeed.request import LEVELS, MEGATRON

_HELP = {
    "profile": "record a window of iterations",
    "profile_step_start": "first iteration to record, counted from 1",
    "profile_step_end": "first iteration not to record; -1 records to the end",
    "profile_ranks": "global ranks to record; -1 for all",
    "profile_level": "how much of the device is recorded",
    "profile_export_type": "form of the results",
    "profile_save_path": "folder for captures",
    "profile_data_simplification": "remove intermediate files after the analysis",
    "profile_with_stack": "record call stacks of operators",
    "profile_with_memory": "record memory",
    "profile_record_shapes": "record shapes and types of inputs",
    "profile_with_cpu": "record the CPU beside the device",
}


def add_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add those `--profile*` arguments that the parser does not have yet; Megatron brings some of them."""
    group = parser.add_argument_group("profile")
    for key in MEGATRON:
        option = f"--{key.name.replace('_', '-')}"
        if option in parser._option_string_actions:
            continue
        if isinstance(key.default, bool):
            group.add_argument(option, action="store_true", help=_HELP[key.name])
        elif key.name == "profile_ranks":
            group.add_argument(option, nargs="+", type=int, default=list(key.default), help=_HELP[key.name])
        else:
            choices = {"profile_level": list(LEVELS), "profile_export_type": ["text", "db"]}.get(key.name)
            group.add_argument(option, type=type(key.default), default=key.default, choices=choices, help=_HELP[key.name])
    return parser
