# SPDX-License-Identifier: Apache-2.0
"""Which chip the simulated NPU pretends to be: `STEPSCOPE_SIM_CHIP` chooses the layout of the records that it leaves.

What runs is the same; only what is written differs, so that readers of every layout can be tested and shown
(docs/formats/cann.md 6.7 to 6.10).
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.cann.chips import chip_of
from stepscope.formats.cann.write.settings import Chip
from stepscope.simnpu.descriptions import AI_CORE, AI_VECTOR_CORE, MIX_AIC, MIX_AIV
from stepscope.simnpu.faults import clock_share

VARIABLE = "STEPSCOPE_SIM_CHIP"
# A counter of nanoseconds, so that measured times are kept exactly.
CHIP = Chip(counter_mhz=1000.0, name="Simulated NPU")
# Counters as on the hardware: times are kept to 10 ns on a 910A, to 26 ns on a 310P.
CHIPS = {
    "": CHIP,
    "910B": CHIP,
    "910A": replace(CHIP, platform=1, counter_mhz=100.0, core_mhz=1000, ai_cores=32, vector_cores=0),
    "310P": replace(CHIP, platform=4, counter_mhz=38.4, core_mhz=1150, ai_cores=8, vector_cores=0),
    "950": replace(CHIP, platform=15),
}


def pretended_chip() -> Chip:
    """The chip that the environment names; an unknown name is reported, and the default chip is taken."""
    name = os.environ.get(VARIABLE, "").strip().upper().removeprefix("ASCEND")
    if name not in CHIPS:
        known = ", ".join(filter(None, CHIPS))
        logging.getLogger("stepscope").warning("%s=%s is not known (known: %s): writing records of a 910B", VARIABLE, name, known)
    chip = CHIPS.get(name, CHIP)
    share = clock_share()
    return chip if share == 1 else replace(chip, core_mhz=round(chip.core_mhz * share))


def on_chip(kernels: npt.NDArray[Any], chip: Chip) -> npt.NDArray[Any]:
    """Kernels as the chip would run them: on its kind of cores, in as many blocks as it has cores."""
    known = chip_of(chip.platform)
    if known is None or not known.one_core:
        return kernels
    moved: npt.NDArray[Any] = kernels.copy()
    moved["core"] = np.where(np.isin(kernels["core"], (AI_VECTOR_CORE, MIX_AIC, MIX_AIV)), AI_CORE, kernels["core"])
    moved["blocks"] = np.minimum(kernels["blocks"], chip.ai_cores)
    moved["mix_ratio"] = 0
    return moved
