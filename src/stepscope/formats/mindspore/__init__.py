# SPDX-License-Identifier: Apache-2.0
"""What MindSpore leaves in the FRAMEWORK folder of a capture."""

from stepscope.formats.mindspore.read import is_mindspore, read

__all__ = ["is_mindspore", "read"]
