# SPDX-License-Identifier: Apache-2.0
"""Link-level tasks of collectives, each with the call that queued it: the launch of the collective is divided among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.simnpu.launches import Launches
from stepscope.simnpu.records import TRANSFER, TRANSFER_NAMES


@dataclass(frozen=True)
class Transfers:
    """Transfers in queue order."""

    rows: npt.NDArray[Any]  # of `records.TRANSFER`
    of: npt.NDArray[np.int64]  # row of the collective's launch
    begin: npt.NDArray[np.int64]  # of the call, nanoseconds since 1970
    stamp: npt.NDArray[np.int64]  # its end, and the moment of the task

    @property
    def names(self) -> list[str]:
        return [TRANSFER_NAMES[kind] for kind in self.rows["kind"].tolist()]


def with_calls(rows: npt.NDArray[Any], launches: Launches) -> Transfers:
    """Transfers of these collectives; each gets an equal part of the launch: calls must not overlap (docs/formats/cann.md 8)."""
    by_connection = np.argsort(launches.tasks["connection"], kind="stable")
    known = launches.tasks["connection"][by_connection]
    place = np.minimum(np.searchsorted(known, rows["connection"]), max(len(known) - 1, 0))
    mine = (known[place] == rows["connection"]) if len(known) else np.zeros(len(rows), bool)
    rows, of = rows[mine], by_connection[place[mine]] if len(known) else place[mine]
    order = np.lexsort((rows["start"], of))
    rows, of = rows[order], of[order]
    count = np.bincount(of, minlength=len(launches))
    number = np.arange(len(rows)) - (np.cumsum(count) - count)[of]
    first = launches.described + 1  # after the description, up to the end of the node's call
    width = np.maximum((launches.stamp - first)[of] // np.maximum(count[of], 1), 2)
    begin = first[of] + number * width
    return Transfers(rows, of, begin, begin + width - 1)


NO_TRANSFERS: npt.NDArray[Any] = np.empty(0, TRANSFER)
