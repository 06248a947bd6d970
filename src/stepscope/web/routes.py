# SPDX-License-Identifier: Apache-2.0
"""Every route under api/v1: three lines each, from the request to the pure function that answers it (docs/http_api.md)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from stepscope import __version__
from stepscope.render.formulas import FORMULA, MARK
from stepscope.web.catalogue import REFRESH_S, Entry
from stepscope.web.critical_lane import path_lane
from stepscope.web.gap_cause import cause_of, origin_of
from stepscope.web.html_report.page import html, of_entries
from stepscope.web.paging import Listing, csv_text, page
from stepscope.web.problems import Problem, bad_parameter, missing
from stepscope.web.request import ViewRequest
from stepscope.web.sql import schema, sql
from stepscope.web.timeline import binary_columns
from stepscope.web.timeline.busy import busy_shares
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
from stepscope.web.views import verdict as verdict_view
from stepscope.web.views.cluster import links as cluster_links
from stepscope.web.views.cluster import model as cluster_model
from stepscope.web.views.cluster import overview as cluster_view
from stepscope.web.views.cluster import ranks as cluster_ranks
from stepscope.web.views.program import lines as source_view
from stepscope.web.views.program import roofline as roofline_view


@dataclass(frozen=True)
class Download:
    """An answer that is not JSON."""

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


def listing_page(request: ViewRequest, listing: Listing, name: str) -> Answer:
    """A page of a table, or all of it as csv."""
    if request.query.choice("format", ("json", "csv")) == "csv":
        return Download(csv_text(listing, request.query).encode(), "text/csv; charset=utf-8", f"{name}.csv")
    return page(listing, request.query)


@_get("runs")
def runs(request: ViewRequest) -> Answer:
    settings = request.settings
    about = {"app": "stepscope", "version": __version__, "sql": settings.sql, "source_preview": settings.source_root is not None}
    return {**about, **request.catalogue.listing(), "refresh_s": REFRESH_S}


@_post("rescan")
def rescan(request: ViewRequest) -> Answer:
    request.catalogue.scan(force=True)
    return runs(request)


def _named(request: ViewRequest) -> Entry:
    """The capture that a body names."""
    if not isinstance(request.body, dict) or not all(isinstance(value, str) for value in request.body.values()):
        raise bad_parameter("body", "an object with run, worker and span")
    return request.catalogue.entry(*(request.body.get(name) for name in ("run", "worker", "span")))


@_post("load")
def load(request: ViewRequest) -> Answer:
    entry = _named(request)
    request.catalogue.load(entry)
    return request.catalogue.describe(entry)


@_post("cancel")
def cancel(request: ViewRequest) -> Answer:
    entry = _named(request)
    request.catalogue.cancel(entry)
    return request.catalogue.describe(entry)


@_get("report")
def report(request: ViewRequest) -> Answer:
    text = html([of_entries(request.catalogue, request.entry().location.run)])
    return Download(text.encode("utf-8", "replace"), "text/html; charset=utf-8", "report.html")


@_get("verdict")
def verdict(request: ViewRequest) -> Answer:
    if request.worker_count() > verdict_view.MOST_RANKS:
        return verdict_view.verdict_page({request.entry().location.worker: request.capture()}, [])
    return verdict_view.verdict_page(*request.workers())


@_get("verdict/whatif")
def what_if(request: ViewRequest) -> Answer:
    return verdict_view.what_if_page(request.capture(), request.query)


@_get("overview")
def overview(request: ViewRequest) -> Answer:
    return overview_view.overview(request.capture(), request.worker_count())


@_get("operators")
def operators(request: ViewRequest) -> Answer:
    return listing_page(request, operator_view.operators(request.capture(), request.query), "operators")


@_get("operators/pies")
def operator_pies(request: ViewRequest) -> Answer:
    return operator_view.pies(request.capture(), request.query)


@_get("operators/stacks")
def operator_stacks(request: ViewRequest) -> Answer:
    return operator_view.stacks(request.capture(), request.query)


@_get("kernels")
def kernels(request: ViewRequest) -> Answer:
    return listing_page(request, kernel_view.kernels(request.capture(), request.query), "kernels")


@_get("kernels/pies")
def kernel_pies(request: ViewRequest) -> Answer:
    return kernel_view.pies(request.capture(), request.query)


@_get("kernels/calls")
def kernel_calls(request: ViewRequest) -> Answer:
    return kernel_view.calls(request.capture(), request.query)


@_get("memory/curve")
def memory_curve(request: ViewRequest) -> Answer:
    return memory_view.curve(request.capture(), request.query)


@_get("memory/events")
def memory_events(request: ViewRequest) -> Answer:
    capture = request.capture()
    if not memory_view.blocks(capture).height:
        # As with the timeline below: no blocks are an answer, blocks that cannot be read are not.
        problem = request.explain(
            Problem(404, "missing_data", "no memory events of operators in this capture", file="operator_memory.csv")
        )
        if problem.code == "unreadable":
            raise problem
    return listing_page(request, memory_view.events(capture, request.query), "memory_events")


@_get("memory/components")
def memory_components(request: ViewRequest) -> Answer:
    return listing_page(request, memory_view.components(request.capture(), request.query), "memory_components")


@_get("memory/statistics")
def memory_statistics(request: ViewRequest) -> Answer:
    return listing_page(request, memory_view.statistics(request.capture(), request.query), "memory_statistics")


@_get("memory/alive")
def memory_alive(request: ViewRequest) -> Answer:
    return memory_view.alive(request.capture(), request.query)


@_get("memory/peak")
def memory_peak(request: ViewRequest) -> Answer:
    return memory_view.peak(request.capture(), request.query)


@_get("memory/kept")
def memory_kept(request: ViewRequest) -> Answer:
    return memory_view.kept(request.capture(), request.query)


@_get("distributed/overview")
def distributed_overview(request: ViewRequest) -> Answer:
    return distributed_view.overview(*request.workers(), request.query)


@_get("distributed/ops")
def distributed_ops(request: ViewRequest) -> Answer:
    return listing_page(request, distributed_view.operations(request.capture(), request.query), "communication_operations")


@_get("distributed/slow")
def distributed_slow(request: ViewRequest) -> Answer:
    return distributed_view.slow(request.workers()[0])


@_get("comm/matrix")
def comm_matrix(request: ViewRequest) -> Answer:
    ready, missing = request.workers()
    return {**communication_view.matrix(ready, request.query), "missing": missing}


@_get("comm/bandwidth")
def comm_bandwidth(request: ViewRequest) -> Answer:
    return communication_view.bandwidth(request.capture(), request.query)


@_get("comm/strip")
def comm_strip(request: ViewRequest) -> Answer:
    return communication_view.strip(request.workers()[0], request.query)


@_get("cluster")
def cluster(request: ViewRequest) -> Answer:
    return cluster_view.overview(request.run_analysis())


@_get("cluster/heat")
def cluster_heat(request: ViewRequest) -> Answer:
    return cluster_view.heat(request.run_analysis(), request.query)


@_get("cluster/timeline")
def cluster_timeline(request: ViewRequest) -> Answer:
    return cluster_ranks.timeline(request.run_analysis(), request.query)


@_get("cluster/call")
def cluster_call(request: ViewRequest) -> Answer:
    return cluster_ranks.call(request.run_analysis(), request.query)


@_get("cluster/matrix")
def cluster_matrix(request: ViewRequest) -> Answer:
    return cluster_links.matrix(request.run_analysis(), request.query)


@_get("cluster/pipeline")
def cluster_pipeline(request: ViewRequest) -> Answer:
    return cluster_model.pipeline(request.run_analysis(), request.query)


@_get("cluster/whatif")
def cluster_what_if(request: ViewRequest) -> Answer:
    return cluster_model.what_if(request.run_analysis(), request.query)


@_get("modules")
def modules(request: ViewRequest) -> Answer:
    return module_view.modules(request.capture(), request.query)


@_get("flame")
def flame(request: ViewRequest) -> Answer:
    form = request.query.choice("format", ("json", "collapsed", "speedscope"))
    capture = request.capture()
    if form == "collapsed":
        return Download(flame_view.collapsed(capture, request.query).encode(), "text/plain; charset=utf-8", "stacks.txt")
    if form == "speedscope":
        return Download(flame_view.speedscope(capture, request.query), "application/json", "stacks.speedscope.json")
    return flame_view.flame(capture, request.query)


@_get("diff")
def diff(request: ViewRequest) -> Answer:
    sides = request.side("a"), request.side("b")
    if request.query.choice("format", ("json", "md")) == "md":
        text = diff_view.as_markdown(*sides, request.query, request.settings.budget)
        return Download(text.encode(), "text/markdown; charset=utf-8", "diff.md")
    return diff_view.diff(*sides, request.query, request.settings.budget)


@_get("findings")
def findings(request: ViewRequest) -> Answer:
    return finding_view.findings(request.capture())


@_get("files")
def files(request: ViewRequest) -> Answer:
    return file_view.files(request.capture())


@_get("files/preview")
def files_preview(request: ViewRequest) -> Answer:
    data = file_view.preview(request.capture(), request.query, follow_links=request.settings.follow_links)
    return Download(data, "text/plain; charset=utf-8")


@_get("source")
def source(request: ViewRequest) -> Answer:
    return file_view.source(request.settings.source_root, request.query)


@_get("source/files")
def source_files(request: ViewRequest) -> Answer:
    return source_view.files(request.capture(), request.settings.source_root)


@_get("source/lines")
def source_lines(request: ViewRequest) -> Answer:
    return source_view.lines(request.capture(), request.settings.source_root, request.query)


@_get("roofline")
def roofline(request: ViewRequest) -> Answer:
    return roofline_view.roofline(request.capture())


@_get("sql/schema")
def sql_schema(request: ViewRequest) -> Answer:
    return schema(request.capture())


@_post("sql")
def run_sql(request: ViewRequest) -> Answer:
    if not request.settings.sql:
        raise Problem(403, "sql_off", "SQL is switched off", hint="start without --no-sql")
    capture = request.capture()
    request.immutable = False
    answer = sql(request.catalogue.queries, capture, request.body)
    if isinstance(request.body, dict) and request.body.get("format") == "csv":
        return Download(rows_as_csv(answer["columns"], answer["rows"]).encode(), "text/csv; charset=utf-8", "query.csv")
    return answer


def rows_as_csv(columns: list[str], rows: list[list[Any]]) -> str:
    """Rows of mixed values; text that a spreadsheet would take for a formula is marked as text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([MARK + cell if isinstance(cell, str) and re.match(FORMULA, cell) else cell for cell in row] for row in rows)
    return out.getvalue()


@_get("trace/meta")
def trace_meta(request: ViewRequest) -> Answer:
    capture = request.capture()
    answer = capture.once("trace meta", lambda: trace_view.meta(capture.trace, capture.tables))
    if not answer["slices"] and not answer["counters"]:
        # An empty timeline is an answer, unless its file is damaged: that is not "not collected".
        problem = request.explain(missing("timeline", "This capture has no timeline"))
        if problem.code == "unreadable":
            raise problem
    return answer


@_get("trace/names")
def trace_names(request: ViewRequest) -> Answer:
    return trace_view.names(request.capture().trace, request.query)


@_post("trace/tiles")
def trace_tiles(request: ViewRequest) -> Answer:
    return Download(trace_view.tiles(request.capture().trace, request.body), binary_columns.MEDIA_TYPE)


@_post("trace/counters")
def trace_counters(request: ViewRequest) -> Answer:
    return Download(trace_view.counters(request.capture().trace, request.body), binary_columns.MEDIA_TYPE)


@_get("trace/slice")
def trace_slice(request: ViewRequest) -> Answer:
    capture = request.capture()
    detail = slice_view.slice_detail(capture.trace, capture.tables, request.query)
    return {**detail, "cause": cause_of(capture, detail["id"]), "origin": origin_of(capture, detail["id"])}


@_get("trace/next")
def trace_next(request: ViewRequest) -> Answer:
    find = slice_view.next_gap if request.query.flag("gap") else slice_view.next_slice
    return find(request.capture().trace, request.query)


@_post("trace/range")
def trace_range(request: ViewRequest) -> Answer:
    return slice_view.range_statistics(request.capture().trace, request.body)


@_post("trace/range/slices")
def trace_range_slices(request: ViewRequest) -> Answer:
    return slice_view.range_slices(request.capture().trace, request.body)


@_get("trace/search")
def trace_search(request: ViewRequest) -> Answer:
    return slice_view.search(request.capture().trace, request.query)


@_get("trace/busy")
def trace_busy(request: ViewRequest) -> Answer:
    index = request.capture().trace
    return busy_shares(index, *request.query.window(index.length_ns))


@_get("trace/path")
def trace_path(request: ViewRequest) -> Answer:
    return path_lane(request.capture(), request.query)


@_get("trace/flows")
def trace_flows(request: ViewRequest) -> Answer:
    return arrow_view.flows(request.capture().trace, request.query)


@_get("trace/export")
def trace_download(request: ViewRequest) -> Answer:
    return Download(trace_export.export(request.capture().trace, request.query), "application/json", "trace.json")
