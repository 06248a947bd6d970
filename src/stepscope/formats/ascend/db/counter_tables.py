# SPDX-License-Identifier: Apache-2.0
"""How sampled series of the databases are called in table `counters`: the names of the timeline (docs/formats/enums.md 6).

Names and series are templates over columns of the database; the writer inverts them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from stepscope.formats.ascend.db.schema import PCIE_COUNTERS, PROFILER_DB
from stepscope.formats.ascend.memory import MODULE_MEM, MODULE_SERIES, NPU_MEM

MB = 1024.0**2  # docs/formats/outputs.md 13: MB/s samples are stored as byte/s
KB = 1024.0
US = 1000.0  # nanoseconds
# Names of PCIe counters in the timeline, by what follows the way (rx, tx) in the column.
PCIE_NAMES = {"Post": "PCIe_post", "Nonpost": "PCIe_nonpost", "Cpl": "PCIe_cpl", "NonpostLatency": "PCIe_nonpost_latency"}


@dataclass(frozen=True)
class Series:
    """One value column of a database table; `name` and `series` may hold {column} of the same row."""

    name: str
    series: str
    column: str
    scale: float = 1.0  # value in the database = value in `counters` * scale
    where: Mapping[str, str | None] = field(default_factory=dict)  # text (or null) other columns must have

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that the templates name."""
        return tuple(dict.fromkeys(re.findall(r"{(\w+)}", self.name + self.series)))


@dataclass(frozen=True)
class CounterTable:
    """A database table of samples: one row per time and key."""

    table: str
    source: str
    series: tuple[Series, ...]
    instance: str | None = None  # column that becomes `instance`
    has_device: bool = True


def _read_write(source: str, name: str, column: str, word: str, scale: float = MB) -> tuple[Series, ...]:
    return tuple(Series(f"{name}/{mode}", f"{mode}(MB/s)", column, scale, {word: mode.lower()}) for mode in ("Read", "Write"))


def _llc() -> tuple[Series, ...]:
    return tuple(
        series
        for mode in ("Read", "Write")
        for series in (
            Series(f"LLC {{llcId}} {mode}/Throughput", "Throughput(MB/s)", "throughput", MB, {"mode": mode.lower()}),
            # docs/formats/outputs.md 13: the timeline shows a fraction under this label, the database holds percent.
            Series(f"LLC {{llcId}} {mode}/Hit Rate", "Hit Rate(%)", "hitRate", 100.0, {"mode": mode.lower()}),
        )
    )


def _memory() -> tuple[Series, ...]:
    return tuple(
        Series(f"{word}/{kind}", "KB", kind.lower(), KB, {"type": word.lower()})
        for word in ("APP", "Device")
        for kind in ("DDR", "HBM")
    )


def pcie_scale(counter: str) -> float:
    """Value of a PCIe counter in the database by its value in the timeline."""
    return US if counter.endswith("Latency") else MB


def _pcie() -> tuple[Series, ...]:
    # The timeline shows MB/s and microseconds, the database holds bytes a second and nanoseconds.
    return tuple(
        Series(PCIE_NAMES[counter[2:]], f"{counter[:2].capitalize()}{suffix}", f"{counter}{part}", pcie_scale(counter))
        for counter in PCIE_COUNTERS
        for part, suffix in (("Avg", ""), ("Min", " Min"), ("Max", " Max"))
    )


def _sio() -> tuple[Series, ...]:
    return tuple(
        Series(f"{part.lower()}_{way}", "{name}", f"{way}{part}", MB)
        for way in ("rx", "tx")
        for part in ("Req", "Rsp", "Snp", "Dat")
    )


COUNTER_TABLES = (
    CounterTable(
        "AICORE_FREQ",
        "AI Core Freq",
        (
            Series("AI Core Freq", "MHz", "freq", where={"dieId": None}),
            Series("AI Core Freq Die {dieId}", "MHz", "freq"),
        ),
    ),
    CounterTable("NPU_MEM", NPU_MEM, _memory()),
    CounterTable("NPU_MODULE_MEM", MODULE_MEM, (Series("{moduleId}", MODULE_SERIES, "totalReserved", KB),)),
    CounterTable("HBM", "HBM", _read_write("HBM", "HBM {hbmId}", "bandwidth", "type")),
    CounterTable("DDR", "DDR", (Series("DDR/Read", "Read(MB/s)", "read", MB), Series("DDR/Write", "Write(MB/s)", "write", MB))),
    CounterTable("LLC", "LLC", _llc()),
    CounterTable(
        "QOS",
        "QoS",
        (
            Series("QoS {eventName}", "value", "bandwidth", MB, {"dieId": None}),
            Series("QoS {eventName}", "die {dieId}", "bandwidth", MB),
        ),
    ),
    CounterTable(
        "ACC_PMU",
        "Acc PMU",
        (
            Series("read_bandwidth", "value", "readBwLevel"),
            Series("write_bandwidth", "value", "writeBwLevel"),
            Series("read_ost", "value", "readOstLevel"),
            Series("write_ost", "value", "writeOstLevel"),
        ),
        instance="accId",
    ),
    CounterTable(
        "SOC_BANDWIDTH_LEVEL",
        "Stars Soc Info",
        (
            Series("L2 Buffer Bw Level", "L2 Buffer Bw Level", "l2BufferBwLevel"),
            Series("Mata Bw Level", "Mata Bw Level", "mataBwLevel"),
        ),
    ),
    CounterTable("PCIE", "PCIe", _pcie()),
    CounterTable("HCCS", "HCCS", (Series("Tx", "Tx(MB/s)", "txThroughput", MB), Series("Rx", "Rx(MB/s)", "rxThroughput", MB))),
    CounterTable("SIO", "SIO", _sio()),
    CounterTable(
        "UB",
        "UB",
        (
            Series("UB Port{portId}", "bandwidth_rx(MB/s)", "rxUdmaBind", MB),
            Series("UB Port{portId}", "bandwidth_tx(MB/s)", "txUdmaBind", MB),
        ),
    ),
    CounterTable(
        "NETDEV_STATS",
        "Net Device",
        tuple(Series("Net Device", column, column) for column in PROFILER_DB["NETDEV_STATS"].names[2:]),
    ),
    CounterTable("CPU_USAGE", "CPU Usage", (Series("CPU {cpuId}", "Usage(%)", "usage"),), has_device=False),
    CounterTable("HOST_MEM_USAGE", "Memory Usage", (Series("Memory Usage", "Usage(%)", "usage"),), has_device=False),
    CounterTable(
        "HOST_DISK_USAGE",
        "Disk Usage",
        (
            Series("Disk Usage", "Usage(%)", "usage"),
            Series("Disk Usage", "Read(KB/s)", "readRate", KB),
            Series("Disk Usage", "Write(KB/s)", "writeRate", KB),
        ),
        has_device=False,
    ),
    CounterTable(
        "HOST_NETWORK_USAGE",
        "Network Usage",
        (Series("Network Usage", "Usage(%)", "usage"), Series("Network Usage", "Speed(KB/s)", "speed", KB)),
        has_device=False,
    ),
)

# NIC and ROCE hold raw counts; the timeline shows rates made of them (docs/formats/outputs.md 10).
PORT_TABLES = {"NIC": "NIC", "ROCE": "RoCE"}
