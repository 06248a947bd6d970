# SPDX-License-Identifier: Apache-2.0
"""The figures of one capture as the page, the commands and the report give them."""

from __future__ import annotations

import contextlib
import html
import io
import json
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any

from werkzeug.test import Client

from stepscope.cli import main
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue, Entry
from stepscope.web.html_report.markup import number, time_text
from stepscope.web.views.verdict import verdict_page


def printed(*arguments: object) -> list[dict[str, Any]]:
    """The lines of JSON that a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert main([*map(str, arguments), "--json"]) == 0
    return [json.loads(line) for line in out.getvalue().splitlines()]


class Compared:
    """One capture, asked in every way."""

    def __init__(self, catalogue: Catalogue, entry: Entry):
        self._client = Client(App(catalogue))
        location = entry.location
        self._name = {"run": location.run, "worker": location.worker, "span": location.span, "wait": "30"}
        self.path: Path = location.files.file or location.files.root
        self.capture = catalogue.load(entry).result()  # reads what was never analysed, too
        (self.info,) = printed("info", self.path)

    def page(self, route: str, **query: object) -> dict[str, Any]:
        answer: Any = self._client.get(f"/api/v1/{route}", query_string={**self._name, **query}).json
        assert isinstance(answer, dict)
        return answer

    def top(self, by: str) -> list[dict[str, Any]]:
        return printed("top", self.path, "--by", by, "--limit", 0)

    @cached_property
    def report(self) -> str:
        return html.unescape(self._client.get("/api/v1/report", query_string=self._name).get_data(as_text=True))


def check_all(one: Compared) -> None:
    check_exposed_communication(one)
    check_steps(one)
    check_kernels(one)
    check_quality(one)


def check_exposed_communication(one: Compared) -> float:
    """Exposed communication in ms, the same everywhere."""
    exposed_ms: float = one.info["device_time"]["exposed_ms"]
    rows = one.info["device_time"]["rows"]
    workers = one.page("distributed/overview")
    mean = workers["computation"]["rows"][workers["workers"].index(one._name["worker"])]
    place = workers["computation"]["series"].index("Communication")
    assert _same(mean[place] * max(1, len(one.page("overview")["steps"]["rows"])) if mean and rows else 0.0, exposed_ms * 1000)
    overview = one.page("overview")
    title = "Communication(Not Overlapped)"
    if title in overview["steps"]["categories"]:
        place = overview["steps"]["categories"].index(title)
        assert _same(sum(row["values"][place] for row in overview["steps"]["rows"]), exposed_ms * 1000)
    steps = [row for row in one.top("step") if row.get("exposed_ms") is not None]
    if steps and one.capture.tables.steps["device_start_ns"].count():
        assert _same(sum(row["exposed_ms"] for row in steps), exposed_ms)
    findings = one.page("findings")["findings"]
    assert [(hit["rule"], hit["title"], hit["saved_ms"]) for hit in findings] == [
        (hit["rule"], hit["title"]["en"], hit["saved_ms"]) for hit in one.info["verdict"]["findings"]
    ]
    assert one.page("findings")["answer"] == one.info["verdict"]["answer"]
    text = one.report
    assert all(hit["title"] in text for hit in findings)
    return exposed_ms


def check_steps(one: Compared) -> list[tuple[int | None, float]]:
    """Number and length in us of each step, the same everywhere."""
    overview = one.page("overview")
    shown = [(row["step"], row["total"]) for row in overview["steps"]["rows"]]
    listed = {row["step"]: row for row in one.top("step")}
    parts = [part not in ("Preparing", "Other") for part in overview["steps"]["categories"]]
    npu = "Preparing" in overview["steps"]["categories"]
    on_device = {row["step"]: sum(compress(row["values"], parts)) if npu else 0.0 for row in overview["steps"]["rows"]}
    for step, total in shown:
        if step is not None:
            row = listed[step]
            # A host that runs ahead is through with a step before the device.
            assert _same(total, max(1000 * row["host_ms"], on_device[step]))
    for row in overview["steps"]["rows"]:
        assert _same(sum(row["values"]), row["total"]), "the parts of a bar are the step"
    spans = [(row["step"], row["start_ns"], row["end_ns"]) for row in one.info["steps"]]
    base = one.capture.base_ns
    timeline = one.page("trace/meta")["steps"]
    assert [(row["step"], row["start_ns"] + base, row["end_ns"] + base) for row in timeline] == spans
    lengths = {row["step"]: (row["end_ns"] - row["start_ns"]) / 1000 for row in timeline}
    agree = (_same(total, max(lengths[step], on_device[step])) for step, total in shown if step in lengths)
    assert all(agree), "Overview and Trace agree"
    check_mean_step(one)
    return shown


def check_mean_step(one: Compared) -> float:
    """The length of a step in us that a reader meets first: the same in Overview, Verdict, report and on the command line."""
    step = one.page("overview")["step"]
    length: float = step["us"]
    page = verdict_page({one._name["worker"]: one.capture}, [])
    assert _same(length, 1000 * page["step_ms"])
    assert (step["marked"], step["count"]) == (page["has_steps"], len(page["ranks"][0]["steps"]) + page["ranks"][0]["left_out"])
    (rank,) = one.info["verdict"]["ranks"]
    assert abs(1000 * rank["partition"].get("total", 0.0) - length) < 0.001, "rounded to ns"
    if length:
        assert f"{length / 1000:.1f} ms" in one.info["verdict"]["answer"]["en"]
        assert time_text(length) in one.report
    return length


def check_kernels(one: Compared) -> tuple[int, float]:
    """Count of the kernels that compute, and their time in us, the same everywhere."""
    answer = one.page("kernels", comm=0)
    count, total = (answer["totals"]["calls"], answer["totals"]["total"]) if "totals" in answer else (0, 0.0)
    listed = [row for row in one.top("kernel") if row["kind"] == "compute"]
    assert sum(row["calls"] for row in listed) == count
    # The page shows durations in whole nanoseconds, as the vendor's file does; some sources have parts of one.
    assert abs(1000 * sum(row["total_ms"] for row in listed) - total) <= 0.0005 * count + 1e-6
    if count:
        whole = one.page("kernels")["totals"]
        assert f"Total Duration (us) {number(whole['total'])}" in one.report
    return count, total


def check_quality(one: Compared) -> dict[str, Any]:
    """What was lost or unusual, in the same words and counts everywhere."""
    said: dict[str, Any] = one.info["quality"]
    shown = one.page("files")["quality"]
    assert [(issue["issue"], issue["severity"], issue["count"], issue["sentence"]) for issue in shown["issues"]] == [
        (issue["issue"], issue["severity"], issue["count"], issue["sentence"]) for issue in said["issues"]
    ]
    assert (shown["summary"], shown["headline"]) == (said["summary"], said["headline"])
    runs = one.page("runs")["runs"]
    spans = [
        span
        for run in runs if run["name"] == one._name["run"]
        for worker in run["workers"] if worker["name"] == one._name["worker"]
        for span in worker["spans"] if span["name"] == one._name["span"]
    ]  # fmt: skip
    assert [span["quality"]["summary"] for span in spans] == [said["summary"]]
    assert one.page("overview")["headline"] == said["headline"]
    text = one.report
    assert all(words in text for words in (said["summary"]["en"], *(issue["sentence"]["en"] for issue in said["issues"])))
    return said


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * max(1.0, abs(one), abs(other))
