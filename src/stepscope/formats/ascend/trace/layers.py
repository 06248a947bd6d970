# SPDX-License-Identifier: Apache-2.0
"""The layers of a timeline: names, order and numbers of the processes and threads of events (docs/formats/outputs.md 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.formats.ascend.memory import NPU_MEM

# Number of a process: os_pid << 10 | sort << 5 | device, cut to 32 bits.
DEVICES = 1 << 5
SORTS = 1 << 5
OS_PIDS = 1 << 22
HOST_DEVICE = 31  # stands for the host


@dataclass(frozen=True)
class Layer:
    """A process of the timeline.

    Attributes:
        name: as it is shown.
        sort: place among the layers.
        on_device: one for each device; else one of the host.
        framework: its metadata events have the key order of the framework part.
        older: name in timelines of the first generation, where that was another.
    """

    name: str
    sort: int
    on_device: bool = True
    framework: bool = False
    older: str = ""


PYTHON = Layer("Python", 0, on_device=False, framework=True)
PYTHON_GC = Layer("Python GC", 1, on_device=False, framework=True)
MARKS = Layer("mstx", 6, on_device=False)
CANN = Layer("CANN", 7, on_device=False)
HARDWARE = Layer("Ascend Hardware", 14)
COMMUNICATION = Layer("Communication", 16, older="HCCL")
OVERLAP = Layer("Overlap Analysis", 31)
BLOCKS = Layer("Block Detail", 34)
FUSION = Layer("Fusion Task", 35)

COUNTERS = {
    layer.name: layer
    for layer in (
        Layer("CPU Usage", 9, on_device=False),
        Layer("Memory Usage", 10, on_device=False),
        Layer("Network Usage", 11, on_device=False),
        Layer("Disk Usage", 12, on_device=False),
        Layer("AI Core Freq", 15),
        Layer(NPU_MEM, 17),
        Layer("DDR", 18),
        Layer("Acc PMU", 19),
        Layer("HCCS", 20),
        Layer("NIC", 21),
        Layer("RoCE", 22),
        Layer("PCIe", 23),
        Layer("HBM", 24),
        Layer("Stars Soc Info", 25),
        Layer("Stars Chip Trans", 26),
        Layer("LLC", 27),
        Layer("SIO", 28),
        Layer("QoS", 29),
        Layer("Biu Perf", 32),
        Layer("UB", 33),
    )
}
UNKNOWN_SORT = 36

# Names of threads in the layer of communication: what stands before and after a group, and before the number of a plane.
GROUP = ("Group ", " Communication")
PLANE = "Plane "


@dataclass(frozen=True)
class MindSporeLayer:
    """A process of MindSpore's own part, which has a number of its own (docs/formats/mindspore.md 10)."""

    name: str
    pid: int
    sort: int
    label: str = ""


MINDSPORE = MindSporeLayer("MindSpore", 1, 1, "CPU")
CPU_KERNELS = MindSporeLayer("CPU OP", 2, 2, "CPU")
SCOPES = MindSporeLayer("Scope Layer", 3, 12)
MINDSPORE_LAYERS = (MINDSPORE, CPU_KERNELS, SCOPES)

# Prefix of the name of a runtime call by its level, and what the first generation wrote (docs/formats/enums.md 4).
API_PREFIX = {"acl": "AscendCL", "model": "Model", "node": "Node", "communication": "Communication", "runtime": "Runtime"}
OLD_API_PREFIX = {"communication": "Hccl"}

# Categories of events of the framework, and of arrows.
OPERATOR, PYTHON_CALL, GC = "cpu_op", "python_function", "GC"
LAUNCH, MARK = "HostToDevice", "MsTx"
MINDSPORE_FLOW = ("async_mindspore", "mindspore_to_self")  # category, and the kind it has as a row of `flows`
