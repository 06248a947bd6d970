# SPDX-License-Identifier: Apache-2.0
"""The viewer's answers about the real captures, and the files themselves in plain Python (docs/reference/viewer.md 11)."""

from __future__ import annotations

import csv
import gzip
import json
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue

LEVELS = ("level0", "level2")
CAPTURES = [(level, rank) for level in LEVELS for rank in (0, 1)]
GPU = "gpu_train_control.pt.trace.json.gz"
NCCL = "gpu_nccl.pt.trace.json.gz"


class Viewer:
    def __init__(self, *roots: Path):
        self.catalogue = Catalogue(roots)
        self.client = Client(App(self.catalogue))

    def get(self, path: str, **query: Any) -> Any:
        answer = self.client.get(f"/api/v1/{path}", query_string={"wait": 30, **query})
        assert answer.status_code == 200, answer.text
        return answer.json

    def rows(self, path: str, **query: Any) -> list[dict[str, Any]]:
        page = self.get(path, limit=20000, **query)
        assert page["filtered"] == len(page["rows"])
        keys = [column["name"] for column in page["columns"]]
        return [dict(zip(keys, row, strict=True)) for row in page["rows"]]

    def post(self, path: str, body: object, **query: Any) -> TestResponse:
        return self.client.post(f"/api/v1/{path}", json=body, query_string={"wait": 30, **query})


def folder(golden: Path, level: str, rank: int) -> Path:
    return golden / "ascend_pt" / "text" / level / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"


@cache
def table(path: Path) -> tuple[dict[str, str], ...]:
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


@cache
def timeline(path: Path) -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(path.read_bytes()))


@cache
def kineto(path: Path) -> tuple[dict[str, Any], ...]:
    with gzip.open(path) as file:
        return tuple(json.load(file)["traceEvents"])


def ns(text: str | float) -> int:
    return int(Decimal(str(text).strip()) * 1000)


def step_time(row: dict[str, str], title: str) -> Any:
    """A value of step_trace_time.csv, as near as the file itself is to the events.

    It is made of floats: moments since 1970 are off by up to a quarter of a microsecond, and sums of a few hundred spans by
    the parts of a nanosecond that each has.
    """
    return pytest.approx(float(row[title]), abs=0.5 if title in ("Stage", "Preparing") else 0.03)


def where(level: str, rank: int) -> dict[str, str]:
    return {"run": level, "worker": f"worker{rank}", "span": "1"}


each_capture = pytest.mark.parametrize(("level", "rank"), CAPTURES)


def first_event(golden: Path, level: str, rank: int) -> int:
    out = folder(golden, level, rank)
    times = [ns(event["ts"]) for event in timeline(out / "trace_view.json") if event["ph"] in ("X", "C")]
    return min([*times, *(ns(row["Timestamp(us)"]) for row in table(out / "memory_record.csv") if row["Component"] != "APP")])
