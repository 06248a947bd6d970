# SPDX-License-Identifier: Apache-2.0
"""The Roofline view: counted operators against what the chip can do at best."""

from __future__ import annotations

from typing import Any

from stepscope.analysis.roofline import roofline as points
from stepscope.verdict.settings import Chip, chip_of
from stepscope.web.loaded import LoadedCapture
from stepscope.web.problems import missing

MOST_POINTS = 500


def roofline(capture: LoadedCapture) -> dict[str, Any]:
    """Operators with their operations per byte and per second, and the roofs that are known."""
    rows = capture.once("roofline", lambda: points(capture.tables))
    if not rows.height:
        raise missing("flops", "no operator of this capture counted its floating-point operations")
    chip = None if capture.simulated else _chip(capture)
    return {
        "on_device": capture.tables.kernels.height > 0,
        "simulated": capture.simulated,
        "chip": None
        if chip is None
        else {"name": chip.name, "bandwidth_gb_s": chip.bandwidth, "peak_tflops": dict(chip.peak), "source": dict(chip.source)},
        "count": rows.height,
        "rows": [
            {
                "name": row["name"], "dtype": row["dtype"] or "", "calls": row["calls"], "flops": row["flops"],
                "bytes": row["bytes"],
                "inputs_only": row["inputs_only"], "time_us": row["time_ns"] / 1000, "gflops": row["flops"] / row["time_ns"],
                "intensity": row["flops"] / row["bytes"] if row["bytes"] else None,
            }
            for row in rows.head(MOST_POINTS).to_dicts()
        ],
    }  # fmt: skip


def _chip(capture: LoadedCapture) -> Chip | None:
    facts = capture.tables.facts
    number = next(iter(facts.device_names), "")
    return chip_of(facts.device_names.get(number, ""), facts.device_properties.get(number))
