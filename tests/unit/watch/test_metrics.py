"""Metrics of rings: accepted by the parsers of Prometheus, by the schema of OpenTelemetry, and served to whom they may be."""

from __future__ import annotations

import json
import os
import threading
import urllib.error
import urllib.request

import pytest

from stepscope.errors import CaptureError
from stepscope.watch import identity, otlp, ring, rings, server, text
from stepscope.watch.metrics import families
from stepscope.watch.settings import Settings

MS = 1_000_000
JOB = 'a "job"\\with\nall'


@pytest.fixture
def folder(tmp_path):
    """Rings of two ranks of this process, and one of a process that has ended."""
    for rank in (0, 1):
        me = {**identity.of_this_process(Settings(job=JOB)), "rank": rank}
        kept = ring.Ring(tmp_path, me)
        with kept.totals():
            for step in range(41):
                ms = 1000 if step == 40 else 10 + rank
                kept.add(step, step * 20 * MS, (step * 20 + ms) * MS, (0 if step == 40 else MS, 0, 0, 0), 0)
            kept.add_to_totals(list(kept.rows(0, 41)))
            kept.put("device_bytes", 4096)
            kept.count("total_captures_step")
            kept.count("total_outliers")
    ring.Ring(tmp_path, {**me, "born": -1})
    return tmp_path


def test_only_running_processes_are_shown(folder):
    assert [(state.identity["rank"], state.last["step"]) for state in rings.live_states(folder)] == [(0, 40), (1, 40)]


def samples(parsed):
    return {
        (sample.name, sample.labels.get("rank"), *_more(sample.labels)): sample.value for each in parsed for sample in each.samples
    }


def _more(labels):
    return [value for name, value in labels.items() if name not in ("job", "rank", "host", "role")]


@pytest.mark.parametrize("newer", [False, True])
def test_the_parsers_of_prometheus_accept_the_text(folder, newer):
    plain = pytest.importorskip("prometheus_client.parser")
    open_metrics = pytest.importorskip("prometheus_client.openmetrics.parser")
    parse = (open_metrics if newer else plain).text_string_to_metric_families
    parsed = list(parse(text.render(families(rings.live_states(folder)), openmetrics=newer).decode()))
    kinds = {each.name: each.type for each in parsed}
    assert kinds == {
        "stepscope_step_duration_seconds": "histogram", "stepscope_step_phase_seconds": "counter",
        "stepscope_step_last": "gauge", "stepscope_step_last_timestamp_seconds": "gauge", "stepscope_step_outliers": "counter",
        "cpython_gc_collections": "counter", "stepscope_captures": "counter", "hw_gpu_memory_usage_bytes": "gauge",
        "process_memory_usage_bytes": "gauge",
    }  # fmt: skip
    found = samples(parsed)
    assert found["stepscope_step_duration_seconds_count", "1"] == 41
    assert found["stepscope_step_duration_seconds_sum", "1"] == pytest.approx(40 * 0.011 + 1)
    assert found["stepscope_step_duration_seconds_bucket", "0", "0.01"] == 40
    assert found["stepscope_step_duration_seconds_bucket", "1", "0.01"] == 0
    assert found["stepscope_step_duration_seconds_bucket", "1", "+Inf"] == 41
    assert found["stepscope_step_phase_seconds_total", "0", "data_wait"] == pytest.approx(0.04)
    assert found["stepscope_step_outliers_total", "0"] == 1
    assert found["stepscope_captures_total", "1", "step"] == 1
    assert found["stepscope_step_last", "0"] == 40
    assert found["process_memory_usage_bytes", "0"] > 1 << 20
    assert {sample.labels["job"] for each in parsed for sample in each.samples} == {JOB}


def test_the_official_schema_accepts_the_otlp_document(folder):
    service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    body = json.dumps(otlp.document(rings.live_states(folder), 10**18))
    request = json_format.Parse(body, service.ExportMetricsServiceRequest())
    assert len(request.resource_metrics) == 2
    about = {each.key: each.value for each in request.resource_metrics[1].resource.attributes}
    assert (about["service.name"].string_value, about["process.pid"].int_value) == (JOB, os.getpid())
    metrics = {each.name: each for each in request.resource_metrics[1].scope_metrics[0].metrics}
    (point,) = metrics["stepscope.step.duration"].histogram.data_points
    assert (point.count, sum(point.bucket_counts), len(point.bucket_counts)) == (41, 41, len(point.explicit_bounds) + 1)
    assert metrics["stepscope.step.duration"].histogram.aggregation_temporality == 2
    assert metrics["stepscope.step.outliers"].sum.data_points[0].as_int == 1
    assert metrics["stepscope.step.outliers"].sum.is_monotonic
    assert metrics["stepscope.step.last"].gauge.data_points[0].as_int == 40


def test_few_series_without_the_histogram(folder):
    count = {
        histogram: text.render(families(rings.live_states(folder)[:1], histogram=histogram), openmetrics=False).decode().count("} ")
        for histogram in (True, False)
    }
    assert count == {True: 31, False: 13}


@pytest.mark.parametrize(
    ("accept", "newer"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;q=0.5", True),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.5", False),
        ("application/openmetrics-text;q=x,text/plain", False),
    ],
)
def test_the_newer_format_only_where_it_is_preferred(accept, newer):
    assert text.wants_openmetrics(accept) is newer


@pytest.fixture
def address(folder):
    made = server.Server(folder, server.Place(token="t" * 20))
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    yield made.url.removesuffix("/metrics")
    made.close()
    thread.join(5)


def ask(url, *, token=None, method="GET", accept="*/*"):
    headers = {"Accept": accept, **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.headers["Content-Type"], problem.read()


def test_the_server(address):
    good = "t" * 20
    assert ask(f"{address}/metrics")[0] == ask(f"{address}/metrics", token="t" * 19)[0] == ask(f"{address}/healthz")[0] == 401
    status, kind, body = ask(f"{address}/metrics", token=good)
    assert (status, kind) == (200, text.PLAIN)
    assert b"stepscope_step_outliers_total" in body
    status, kind, body = ask(f"{address}/metrics", token=good, accept="application/openmetrics-text")
    assert (status, kind, body[-6:]) == (200, text.OPEN, b"# EOF\n")
    assert ask(f"{address}/healthz", token=good)[::2] == (200, b"ok\n")
    assert ask(f"{address}/../etc/passwd", token=good)[0] == 404
    assert ask(f"{address}/metrics", token=good, method="DELETE")[0] == 405


def test_beyond_this_machine_a_token_is_needed(tmp_path):
    with pytest.raises(CaptureError, match="with a token only"):
        server.Server(tmp_path, server.Place("0.0.0.0"))
    (tmp_path / "short").write_text("abc\n")
    with pytest.raises(CaptureError, match="cannot be used"):
        server.read_token(tmp_path / "short")
    (tmp_path / "long").write_text("0123456789abcdef\n")
    assert server.read_token(tmp_path / "long") == "0123456789abcdef"


def test_metrics_are_sent(folder):
    from http.server import BaseHTTPRequestHandler, HTTPServer

    got = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.path, self.headers["Content-Type"], json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.handle_request)
        thread.start()
        assert otlp.push(folder, otlp.endpoint(f"http://127.0.0.1:{collector.server_port}")) == 2
        thread.join(10)
    assert [(path, kind, len(body["resourceMetrics"])) for path, kind, body in got] == [("/v1/metrics", "application/json", 2)]


def test_a_collector_that_is_not_there_is_reported_once(folder):
    rounds, said = iter([True, True, True, False]), []
    with pytest.raises(CaptureError, match="could not be sent"):
        otlp.push(folder, "http://127.0.0.1:9/v1/metrics")
    otlp.push_for_ever(folder, "http://127.0.0.1:9/v1/metrics", histogram=True, going=lambda _: next(rounds), report=said.append)
    assert len(said) == 1


def test_addresses_of_opentelemetry(monkeypatch):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", raising=False)
    assert otlp.endpoint() == ""
    assert otlp.endpoint("http://a:4318/") == "http://a:4318/v1/metrics"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:4318")
    assert otlp.endpoint() == "http://b:4318/v1/metrics"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c/own/path")
    assert otlp.endpoint() == "http://c/own/path"
