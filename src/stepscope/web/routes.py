# SPDX-License-Identifier: Apache-2.0
"""Every route under api/v1: three lines each, from the request to the pure function that answers it (docs/http_api.md)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from stepscope import __version__
from stepscope.web.catalogue import REFRESH_S, Entry
from stepscope.web.html_report.page import html, of_entries
from stepscope.web.paging import Listing, csv_text, page
from stepscope.web.problems import Problem, bad_parameter
from stepscope.web.request import ViewRequest
from stepscope.web.sql import Database, sql
from stepscope.web.timeline import binary_columns
from stepscope.web.views import arrows as arrow_view
from stepscope.web.views import communication as communication_view
from stepscope.web.views import diff as diff_view
from stepscope.web.views import distributed as distributed_view
from stepscope.web.views import files as file_view
from stepscope.web.views import findings as finding_view
from stepscope.web.views import flame as flame_view
from stepscope.web.views import kernels as kernel_view
from stepscope.web.views import memory as memory_view
from stepscope.web.views import modules as module_view
from stepscope.web.views import operators as operator_view
from stepscope.web.views import overview as overview_view
from stepscope.web.views import slices as slice_view
from stepscope.web.views import trace as trace_view
from stepscope.web.views import trace_export


@dataclass(frozen=True)
class Download:
    """An answer that is no JSON."""

    data: bytes | Iterator[bytes]
    media: str
    name: str | None = None


Answer = dict[str, Any] | Download
Route = Callable[[ViewRequest], Answer]
GET: dict[str, Route] = {}
POST: dict[str, Route] = {}


def _get(path: str) -> Callable[[Route], Route]:
    def add(route: Route) -> Route:
        GET[path] = route
        return route

    return add


def _post(path: str) -> Callable[[Route], Route]:
    def add(route: Route) -> Route:
        POST[path] = route
        return route

    return add


def listed(asked: ViewRequest, listing: Listing, name: str) -> Answer:
    """A page of a table, or all of it as csv."""
    if asked.query.choice("format", ("json", "csv")) == "csv":
        return Download(csv_text(listing, asked.query).encode(), "text/csv; charset=utf-8", f"{name}.csv")
    return page(listing, asked.query)


@_get("runs")
def runs(asked: ViewRequest) -> Answer:
    settings = asked.settings
    about = {"app": "stepscope", "version": __version__, "sql": settings.sql, "source_preview": settings.source_root is not None}
    return {**about, **asked.catalogue.listing(), "refresh_s": REFRESH_S}


@_post("rescan")
def rescan(asked: ViewRequest) -> Answer:
    asked.catalogue.scan(force=True)
    return runs(asked)


def _named(asked: ViewRequest) -> Entry:
    """The capture that a body names."""
    if not isinstance(asked.body, dict) or not all(isinstance(value, str) for value in asked.body.values()):
        raise bad_parameter("body", "an object with run, worker and span")
    return asked.catalogue.entry(*(asked.body.get(name) for name in ("run", "worker", "span")))


@_post("load")
def load(asked: ViewRequest) -> Answer:
    entry = _named(asked)
    asked.catalogue.load(entry)
    return asked.catalogue.described(entry)


@_post("cancel")
def cancel(asked: ViewRequest) -> Answer:
    entry = _named(asked)
    asked.catalogue.cancel(entry)
    return asked.catalogue.described(entry)


@_get("report")
def report(asked: ViewRequest) -> Answer:
    text = html([of_entries(asked.catalogue, asked.entry().found.run)])
    return Download(text.encode("utf-8", "replace"), "text/html; charset=utf-8", "report.html")


@_get("overview")
def overview(asked: ViewRequest) -> Answer:
    return overview_view.overview(asked.opened(), asked.worker_count())


@_get("operators")
def operators(asked: ViewRequest) -> Answer:
    return listed(asked, operator_view.operators(asked.opened(), asked.query), "operators")


@_get("operators/pies")
def operator_pies(asked: ViewRequest) -> Answer:
    return operator_view.pies(asked.opened(), asked.query)


@_get("operators/stacks")
def operator_stacks(asked: ViewRequest) -> Answer:
    return operator_view.stacks(asked.opened(), asked.query)


@_get("kernels")
def kernels(asked: ViewRequest) -> Answer:
    return listed(asked, kernel_view.kernels(asked.opened(), asked.query), "kernels")


@_get("kernels/pies")
def kernel_pies(asked: ViewRequest) -> Answer:
    return kernel_view.pies(asked.opened(), asked.query)


@_get("kernels/calls")
def kernel_calls(asked: ViewRequest) -> Answer:
    return kernel_view.calls(asked.opened(), asked.query)


@_get("memory/curve")
def memory_curve(asked: ViewRequest) -> Answer:
    return memory_view.curve(asked.opened(), asked.query)


@_get("memory/events")
def memory_events(asked: ViewRequest) -> Answer:
    return listed(asked, memory_view.events(asked.opened(), asked.query), "memory_events")


@_get("memory/components")
def memory_components(asked: ViewRequest) -> Answer:
    return listed(asked, memory_view.components(asked.opened(), asked.query), "memory_components")


@_get("memory/statistics")
def memory_statistics(asked: ViewRequest) -> Answer:
    return listed(asked, memory_view.statistics(asked.opened(), asked.query), "memory_statistics")


@_get("memory/alive")
def memory_alive(asked: ViewRequest) -> Answer:
    return memory_view.alive(asked.opened(), asked.query)


@_get("distributed/overview")
def distributed_overview(asked: ViewRequest) -> Answer:
    return distributed_view.overview(*asked.workers(), asked.query)


@_get("distributed/ops")
def distributed_ops(asked: ViewRequest) -> Answer:
    return listed(asked, distributed_view.operations(asked.opened(), asked.query), "communication_operations")


@_get("distributed/slow")
def distributed_slow(asked: ViewRequest) -> Answer:
    return distributed_view.slow(asked.workers()[0])


@_get("comm/matrix")
def comm_matrix(asked: ViewRequest) -> Answer:
    ready, missing = asked.workers()
    return {**communication_view.matrix(ready, asked.query), "missing": missing}


@_get("comm/bandwidth")
def comm_bandwidth(asked: ViewRequest) -> Answer:
    return communication_view.bandwidth(asked.opened(), asked.query)


@_get("comm/strip")
def comm_strip(asked: ViewRequest) -> Answer:
    return communication_view.strip(asked.workers()[0], asked.query)


@_get("modules")
def modules(asked: ViewRequest) -> Answer:
    return module_view.modules(asked.opened(), asked.query)


@_get("flame")
def flame(asked: ViewRequest) -> Answer:
    form = asked.query.choice("format", ("json", "collapsed", "speedscope"))
    opened = asked.opened()
    if form == "collapsed":
        return Download(flame_view.collapsed(opened, asked.query).encode(), "text/plain; charset=utf-8", "stacks.txt")
    if form == "speedscope":
        return Download(flame_view.speedscope(opened, asked.query), "application/json", "stacks.speedscope.json")
    return flame_view.flame(opened, asked.query)


@_get("diff")
def diff(asked: ViewRequest) -> Answer:
    return diff_view.diff(asked.side("a"), asked.side("b"), asked.query)


@_get("findings")
def findings(asked: ViewRequest) -> Answer:
    return finding_view.findings(asked.opened())


@_get("files")
def files(asked: ViewRequest) -> Answer:
    return file_view.files(asked.opened())


@_get("files/preview")
def files_preview(asked: ViewRequest) -> Answer:
    data = file_view.preview(asked.opened(), asked.query, follow_links=asked.settings.follow_links)
    return Download(data, "text/plain; charset=utf-8")


@_get("source")
def source(asked: ViewRequest) -> Answer:
    return file_view.source(asked.settings.source_root, asked.query)


@_post("sql")
def run_sql(asked: ViewRequest) -> Answer:
    if not asked.settings.sql:
        raise Problem(403, "sql_off", "SQL is switched off", hint="start without --no-sql")
    opened = asked.opened()
    asked.immutable = False
    answer = sql(opened.once("database", lambda: Database(opened.tables)), asked.body)
    if isinstance(asked.body, dict) and asked.body.get("format") == "csv":
        return Download(rows_as_csv(answer["columns"], answer["rows"]).encode(), "text/csv; charset=utf-8", "query.csv")
    return answer


def rows_as_csv(columns: list[str], rows: list[list[Any]]) -> str:
    """Rows of mixed values; text that a spreadsheet would take for a formula is marked as text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(
        ["'" + cell if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell for cell in row] for row in rows
    )
    return out.getvalue()


@_get("trace/meta")
def trace_meta(asked: ViewRequest) -> Answer:
    opened = asked.opened()
    return opened.once("trace meta", lambda: trace_view.meta(opened.trace, opened.tables))


@_get("trace/names")
def trace_names(asked: ViewRequest) -> Answer:
    return trace_view.names(asked.opened().trace, asked.query)


@_post("trace/tiles")
def trace_tiles(asked: ViewRequest) -> Answer:
    return Download(trace_view.tiles(asked.opened().trace, asked.body), binary_columns.MEDIA_TYPE)


@_post("trace/counters")
def trace_counters(asked: ViewRequest) -> Answer:
    return Download(trace_view.counters(asked.opened().trace, asked.body), binary_columns.MEDIA_TYPE)


@_get("trace/slice")
def trace_slice(asked: ViewRequest) -> Answer:
    opened = asked.opened()
    return slice_view.slice_detail(opened.trace, opened.tables, asked.query)


@_get("trace/next")
def trace_next(asked: ViewRequest) -> Answer:
    return slice_view.next_slice(asked.opened().trace, asked.query)


@_post("trace/range")
def trace_range(asked: ViewRequest) -> Answer:
    return slice_view.range_statistics(asked.opened().trace, asked.body)


@_post("trace/range/slices")
def trace_range_slices(asked: ViewRequest) -> Answer:
    return slice_view.range_slices(asked.opened().trace, asked.body)


@_get("trace/search")
def trace_search(asked: ViewRequest) -> Answer:
    return slice_view.search(asked.opened().trace, asked.query)


@_get("trace/flows")
def trace_flows(asked: ViewRequest) -> Answer:
    return arrow_view.flows(asked.opened().trace, asked.query)


@_get("trace/export")
def trace_download(asked: ViewRequest) -> Answer:
    return Download(trace_export.export(asked.opened().trace, asked.query), "application/json", "trace.json")
