# SPDX-License-Identifier: Apache-2.0
"""What the vendor's files of a chip have otherwise than those of an A2, by the table of chips (docs/formats/cann.md 6.10)."""

from __future__ import annotations

from stepscope.formats.ascend.kernel_details import A2_FILE, ChipFile
from stepscope.formats.cann.chips import CHIPS, UNSAID
from stepscope.tables import Facts


def chip_file(facts: Facts) -> ChipFile:
    """The differences; none where the capture does not say its chip."""
    chip = CHIPS.get(facts.platform) if facts.platform is not None else None
    if chip is None or not chip.readable:
        return A2_FILE
    # Only the STARS schedulers run kernels on two kinds of cores, and tasks in parts.
    absent = () if chip.tasks.startswith("stars") else ("mix_block_num", "context_id")
    return ChipFile(without=absent, own_counters=chip.formulas != UNSAID.formulas, shortest=chip.python_text)
