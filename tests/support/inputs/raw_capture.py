"""A raw capture of the worked examples of the framework format."""

from __future__ import annotations

import json
from pathlib import Path

from framework_examples import BASE, vector

from stepscope.formats.framework.records import write

INFO = {
    "config": {
        "common_config": {
            "activities": ["ProfilerActivity.CPU"],
            "with_stack": True,
            "profile_memory": True,
            "record_shapes": True,
        },
        "experimental_config": {"_profiler_level": "Level0", "_export_type": ["text"]},
    },
    "start_info": {"syscnt_enable": False},
    "end_info": {"collectionTimeEnd": 1_700_000_000_005_000_000, "MonotonicTimeEnd": BASE + 5_000_000},
    "rank_id": 0,
}


def capture(parent: Path, name: str = "node_1_20260101000000000_ascend_pt", **experimental: object) -> Path:
    folder = parent / name
    (folder / "FRAMEWORK").mkdir(parents=True)
    write(folder / "FRAMEWORK", vector())
    info = json.loads(json.dumps(INFO))
    info["config"]["experimental_config"].update(experimental)
    (folder / "profiler_info_0.json").write_text(json.dumps(info))
    return folder
