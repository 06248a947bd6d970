# SPDX-License-Identifier: Apache-2.0
"""The files that MindSpore users know, from the same tables (docs/formats/mindspore.md 9, 10)."""

from stepscope.export.mindspore.files import OUTPUTS, database_names

__all__ = ["OUTPUTS", "database_names"]
