# SPDX-License-Identifier: Apache-2.0
"""The chips whose raw folders are known: how each records its tasks, and how sure the reader of each is.

A chip is a row of data; readers, exports, `info` and the generated page docs/formats/chips.md follow it
(docs/formats/cann.md 1.5, 6, 8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from stepscope.formats.cann.folder import Prof, is_raw, open_prof

# Kinds of records, and the files in which a chip may have them.
RECORD_FILES = {
    "task times": ("stars_soc.data", "hwts.data", "hwts.aiv_data", "hwts.log.data"),
    "task states": ("ts_track.data", "ts_track.aiv_data"),
    "hardware counters": ("ffts_profile.data", "aicore.data", "aiVectorCore.data"),
    "blocks": ("stars_block.data",),
    "step trace": ("training_trace",),
    "AI CPU text": ("DATA_PREPROCESS.dev.AICPU",),
}
SAMPLED = "sampled data"  # every other file of a device

# What the scheduler was asked to run. Numbers from 9 on differ between the generations.
_QUEUED = {
    0: "AI_CORE", 1: "AI_CPU", 2: "AIV_SQE", 3: "PLACE_HOLDER_SQE", 4: "EVENT_RECORD_SQE", 5: "EVENT_WAIT_SQE",
    6: "NOTIFY_RECORD_SQE", 7: "NOTIFY_WAIT_SQE", 8: "WRITE_VALUE_SQE",
}  # fmt: skip
HWTS_TYPES = {**_QUEUED, 9: "SDMA_SQE", 10: "MAX_SQE"}
STARS_TYPES = {
    **_QUEUED, 9: "VQ6_SQE", 10: "TOF_SQE", 11: "SDMA_SQE", 12: "VPC_SQE", 13: "JPEGE_SQE", 14: "JPEGD_SQE", 15: "DSA_SQE",
    16: "ROCCE_SQE", 17: "PCIE_DMA_SQE", 18: "HOST_CPU_SQE", 19: "CDQM_SQE", 20: "C_CORE_SQE",
}  # fmt: skip
NEXT_STARS_TYPES = {
    0: "AI_CORE", 1: "AIV_SQE", 2: "FUSION", 3: "PLACE_HOLDER_SQE", 4: "AICPU_H", 5: "AICPU_D", 6: "NOTIFY_RECORD_SQE",
    7: "NOTIFY_WAIT_SQE", 8: "WRITE_VALUE_SQE", 9: "UBDMA", 10: "ASYNCDMA", 11: "SDMA_SQE", 12: "VPC_SQE", 13: "JPEGE_SQE",
    14: "JPEGD_SQE", 15: "CMO_SQE", 16: "CCU_SQE", 20: "CONDITION_SQE", 21: "END_SQE",
}  # fmt: skip
# Task types of `ts_track` whose times stand nowhere else, by the state that begins and the state that ends them.
_AI_CPU_STATES = {1: ("AI_CPU", 1, 2)}
_HOST_STATES = {
    12: ("MODEL_MAINTAINCE", 0, 2), 13: ("MODEL_EXECUTE", 0, 2), 72: ("HOSTFUNC_CALLBACK", 0, 2), 101: ("MODEL_TASK_UPDATE", 0, 2),
    116: ("TASK_UPDATE", 0, 2),
}  # fmt: skip


@dataclass(frozen=True)
class Chip:
    """What differs between chips."""

    name: str
    writer: str  # what the collector calls it
    scheduler: str
    counter_mhz: float | None = None  # the collector's defaults; those of a capture go before them
    core_mhz: int | None = None
    tasks: str = ""  # which reader finds task times (`device.side`); empty: none does
    counters: str = ""  # which reader finds hardware counters (`device.side`)
    parts: str = ""  # which reader finds parts of tasks (`device.side`); empty: the chip reports none by themselves
    formulas: str = ""  # what the counters mean (`device.pmu_metrics`)
    types: Mapping[int, str] = field(default_factory=dict)  # sqe types; empty: records do not say
    states: Mapping[int, tuple[str, int, int]] = field(default_factory=dict)  # task type -> name, first state, last state
    has_batches: bool = True  # flips of task numbers are recorded
    has_contexts: bool = False  # tasks may have parts (FFTS+)
    unique_ids: bool = False  # task numbers are unique on the device, and device records name no stream
    one_core: bool = False  # one kind of core: columns of counters have no prefix
    shows_device_core: bool = False  # the timeline says on which core a vector operator ran, not which one the host wished for
    python_text: bool = (
        False  # the vendor's files come from the older half of its tool: shortest numbers (docs/formats/cann.md 6.10)
    )
    sure: Mapping[str, str] = field(default_factory=dict)  # kind of record -> key of `tables.facts.EVIDENCE`

    @property
    def readable(self) -> bool:
        return bool(self.tasks)


_UNCHECKED = {"task times": "source", "task states": "source", "hardware counters": "source", SAMPLED: "source"}
_REFERENCE = {**_UNCHECKED, "task times": "reference", "task states": "reference", "hardware counters": "reference"}
_REAL = {"task times": "bytes", "task states": "bytes", "hardware counters": "bytes"}
_UNREAD = Chip("vehicle chip", "", "unknown")
_HWTS = Chip(
    "", "", "HWTS", tasks="hwts", counters="aicore", parts="hwts", formulas="vector_hwts", types=HWTS_TYPES, one_core=True,
    python_text=True, sure=_UNCHECKED,
)  # fmt: skip
_310B = Chip(
    "Ascend310B", "", "STARS, 64 bytes", 48.0, 1250, tasks="stars", counters="ffts", formulas="310b", types=STARS_TYPES,
    has_contexts=True, one_core=True, shows_device_core=True, sure=_UNCHECKED,
)  # fmt: skip
_OF_BLOCKS = {"blocks": "source"}
_950 = Chip(
    "Ascend950", "", "STARS, 32 bytes", 1000.0, tasks="stars_32", counters="ffts_128", parts="stars_32", formulas="next",
    types=NEXT_STARS_TYPES, has_batches=False, unique_ids=True, python_text=True, sure={**_UNCHECKED, **_OF_BLOCKS},
)  # fmt: skip

# `platform_version` of info.json -> chip.
CHIPS: Mapping[int, Chip] = {
    0: Chip(
        "Ascend310", "MINI", "TS firmware", 19.2, 680, tasks="timeline", counters="event_counter", formulas="310", one_core=True,
        has_batches=False, python_text=True, sure=_REFERENCE,
    ),
    1: replace(
        _HWTS, name="Ascend910A", writer="CLOUD", counter_mhz=100.0, core_mhz=800, formulas="hwts", types={}, states=_AI_CPU_STATES,
        sure={
            "task times": "bytes", "task states": "reference", "hardware counters": "output", "step trace": "bytes",
            "AI CPU text": "bytes", SAMPLED: "source",
        },
    ),
    2: replace(_HWTS, name="Ascend610", writer="MDC", counter_mhz=38.4, core_mhz=960, has_batches=False),
    3: replace(_HWTS, name="Ascend LHISI", writer="LHISI"),
    4: replace(
        _HWTS, name="Ascend310P", writer="DC", counter_mhz=38.4, core_mhz=1150, states=_HOST_STATES,
        sure={**_REFERENCE, "task states": "source"},
    ),
    5: Chip(
        "Ascend910B", "CLOUD_V2", "STARS, 64 bytes", 50.0, 800, tasks="stars", counters="ffts", formulas="two_cores",
        types=STARS_TYPES, has_contexts=True, sure={**_REAL, SAMPLED: "reference"},
    ),
    7: replace(_310B, writer="MINI_V3", sure={**_REAL, SAMPLED: "source"}),
    8: replace(_310B, writer="TINY_V1"),
    9: Chip("Ascend nano", "NANO_V1", "STARS, own file"),
    11: replace(_310B, writer="MDC_MINI_V3", has_batches=False),
    12: replace(_UNREAD, writer="MDC_LITE", counter_mhz=38.4),
    15: replace(
        _950, writer="CLOUD_V3", core_mhz=800, sure={**_REFERENCE, **_OF_BLOCKS, "task states": "source"}
    ),
    16: replace(_950, writer="CLOUD_V4", core_mhz=1650),
    17: replace(_UNREAD, writer="MDC_V2", counter_mhz=38.4),
    18: replace(_UNREAD, writer="MDC_LITE_V2", counter_mhz=38.4),
    21: replace(_UNREAD, writer="5162A", counter_mhz=20.0),
}  # fmt: skip
# A folder that does not say its chip is read as the most common one.
UNSAID = CHIPS[5]


def chip_of(number: int | None) -> Chip | None:
    """The row of a chip; None for a number that nobody knows."""
    return UNSAID if number is None else CHIPS.get(number)


def obstacle(prof: Path) -> str:
    """Why the device records of a folder cannot be joined with the host's; empty when they can."""
    return obstacle_of(open_prof(prof)) if is_raw(prof) else "no raw records are there"


def obstacle_of(prof: Prof) -> str:
    chip = chip_of(prof.chip)
    if chip is None or not chip.readable:
        return f"not yet readable: chip {chip_name(prof.chip)}"
    from stepscope.formats.cann.layouts import API_EVENT, TASK_TRACK, TASK_TRACK_V2

    files = TASK_FILES[chip.tasks]
    if not any(part.slices(file) for part in prof.devices for file in files):
        return f"no device task records ({files[0].removesuffix('.data')}) are there"
    groups = prof.host.groups if prof.host else {}
    newer = any(layout.file in groups for layout in (API_EVENT, TASK_TRACK, TASK_TRACK_V2))
    if not newer and not any(kind.startswith(_OLD_HOST_FILES) for kind in groups):
        return "no host records (api_event, task_track) are there"
    return ""


_OLD_HOST_FILES = ("Framework.task_desc_info", "Framework.single_op_task_info", "Runtime.task_track")
# In which files each reader finds task times.
TASK_FILES = {
    "stars": ("stars_soc.data",),
    "stars_32": ("stars_soc.data",),
    "hwts": ("hwts.data", "hwts.aiv_data"),
    "timeline": ("ts_track.data",),
}


# Which files the readers of counters take, and those that every chip may have beside them.
COUNTER_FILES = {
    "ffts": ("ffts_profile.data",),
    "ffts_128": ("ffts_profile.data", "aicore.data"),
    "aicore": ("aicore.data", "aiVectorCore.data"),
    "event_counter": ("aicore.data",),
}
PART_FILES = {"stars_32": ("stars_block.data",)}
_COMMON_FILES = ("ts_track.data", "lpmInfoConv.data", "lpmFreqConv.data")


def device_files(chip: Chip) -> tuple[str, ...]:
    """Files of a device folder that are read for its tasks, counters and frequency."""
    second_scheduler = ("ts_track.aiv_data",) if chip.tasks == "hwts" else ()
    of_tasks = (*TASK_FILES.get(chip.tasks, ()), *COUNTER_FILES.get(chip.counters, ()), *PART_FILES.get(chip.parts, ()))
    return (*of_tasks, *_COMMON_FILES, *second_scheduler)


def chip_name(number: int | None) -> str:
    known = CHIPS.get(number) if number is not None else None
    return f"{known.name} (platform_version {number})" if known else f"of platform_version {number}"


def evidence_of(number: int | None, files: Iterable[str]) -> dict[str, str]:
    """How sure the reader is of each kind of record that a device folder has; keys of `tables.facts.EVIDENCE` by kind."""
    chip = chip_of(number)
    if chip is None or not chip.readable:
        return {}
    there = set(files)
    held = {kind: there.intersection(names) for kind, names in RECORD_FILES.items()}
    kinds = [kind for kind, names in held.items() if names]
    if chip.tasks == "timeline" and "task states" in kinds:
        kinds = ["task times", *kinds]
    if there.difference(*held.values()):
        kinds.append(SAMPLED)
    return {kind: chip.sure[kind] for kind in kinds if kind in chip.sure}
