# SPDX-License-Identifier: Apache-2.0
"""Marks the stages of a training loop: `dataloader`, `forward`, `step n` and `save_checkpoint`. Import it after torch.

They are recorded while a profiler with mstx on runs; without one nothing is patched and nothing costs. `remove()` ends it.
"""

from stepscope.collect.marks.plugin import apply, remove

__all__ = ["remove"]

apply()
