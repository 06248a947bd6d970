"""The dashboard, the alerts and the scrape configuration of docs/watch, tried against a real Prometheus on loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from stepscope.watch import identity, ring, server
from stepscope.watch.settings import Settings

DOCS = Path(__file__).resolve().parents[3] / "docs" / "watch"
MS = 1_000_000

pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")) and "CI" not in os.environ,
    reason="prometheus is not installed (Debian: apt-get install prometheus)",
)

ALERTS = """
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'stepscope_step_last_timestamp_seconds{job="a",rank="0",host="h"}'
        values: '0 60 120 120x20'
      - series: 'stepscope_step_duration_seconds_sum{job="a",rank="0",host="h"}'
        values: '0+60x30'
      - series: 'stepscope_step_duration_seconds_count{job="a",rank="0",host="h"}'
        values: '0+60x30'
      - series: 'stepscope_step_phase_seconds_total{job="a",rank="0",host="h",phase="data_wait"}'
        values: '0+18x30'
      - series: 'stepscope_step_phase_seconds_total{job="a",rank="0",host="h",phase="gc"}'
        values: '0+40x30'
    alert_rule_test:
      - {eval_time: 3m, alertname: StepscopeNoProgress, exp_alerts: []}
      - eval_time: 8m
        alertname: StepscopeNoProgress
        exp_alerts:
          - exp_labels: {severity: critical, job: a, rank: "0", host: h}
            exp_annotations: {summary: "a: rank 0 on h has ended no step for 6m 0s"}
      - eval_time: 25m
        alertname: StepscopeDataWait
        exp_alerts:
          - exp_labels: {severity: warning, job: a, rank: "0", host: h}
            exp_annotations: {summary: "a: rank 0 waits for its data loader in more than 20 % of the time"}
      - {eval_time: 25m, alertname: StepscopeStepsSlower, exp_alerts: []}
  - interval: 1m
    input_series:
      - series: 'stepscope_step_duration_seconds_sum{job="a",rank="0"}'
        values: '0+60x180 10860+90x60'
      - series: 'stepscope_step_duration_seconds_count{job="a",rank="0"}'
        values: '0+60x240'
      - series: 'stepscope_captures_total{job="a",rank="0",reason="gc"}'
        values: '0x180 1x60'
    alert_rule_test:
      - {eval_time: 170m, alertname: StepscopeStepsSlower, exp_alerts: []}
      - eval_time: 205m
        alertname: StepscopeStepsSlower
        exp_alerts:
          - exp_labels: {severity: warning, job: a, rank: "0"}
            exp_annotations: {summary: "a: steps of rank 0 take 1.5s on average, over 20 % more than before"}
      - {eval_time: 170m, alertname: StepscopeCapture, exp_alerts: []}
      - eval_time: 182m
        alertname: StepscopeCapture
        exp_alerts:
          - exp_labels: {severity: info, job: a, rank: "0", reason: gc}
            exp_annotations: {summary: "a: a slow step was recorded (gc); see the folder captures of the watch"}
"""


def test_the_alerts_fire_when_they_should(tmp_path):
    (tmp_path / "alerts.yml").write_text((DOCS / "alerts.yml").read_text())
    (tmp_path / "tests.yml").write_text(ALERTS)
    found = subprocess.run(["promtool", "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
def prometheus(tmp_path):
    """A Prometheus that scrapes an exporter with two ranks, configured as docs/watch/prometheus.yml says."""
    kept = [ring.Ring(tmp_path / "rings", {**identity.of_this_process(Settings(job="demo")), "rank": rank}) for rank in (0, 1)]
    exporter = server.Server(tmp_path / "rings", server.Place())
    threading.Thread(target=exporter.run, daemon=True).start()
    configured = (DOCS / "prometheus.yml").read_text().replace("127.0.0.1:9464", f"127.0.0.1:{exporter.port}")
    (tmp_path / "prometheus.yml").write_text(configured.replace("15s", "1s"))
    (tmp_path / "alerts.yml").write_text((DOCS / "alerts.yml").read_text())
    port = free_port()
    words = [
        "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(words, cwd=tmp_path, stdout=log, stderr=log) as process:
        try:
            yield f"http://127.0.0.1:{port}", kept
        finally:
            process.terminate()
            exporter.close()


def ask(address, expression):
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=10) as answer:
            return json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as problem:
        raise AssertionError(f"{expression}: {problem.read().decode()}") from None
    except OSError:  # it starts
        return []


def expressions():
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5s").replace("$job", "demo").replace("$rank", ".*")


@pytest.mark.slow(reason="a real Prometheus scrapes a few times")
def test_every_panel_of_the_dashboard_shows_something(prometheus):
    address, kept = prometheus
    asked, step, missing = list(expressions()), 0, []
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for rank, each in enumerate(kept):
            with each.totals():
                each.add(step, step * 100 * MS, step * 100 * MS + (90 + rank) * MS, (9 * MS, 0, MS, 0), 0)
                each.add_to_totals(list(each.rows(step, step + 1)))
                each.put("device_bytes", 1 << 30)
        step += 1
        time.sleep(0.2)
        if step % 10 == 0:
            missing = [expression for expression in asked if not ask(address, expression)]
            if not missing:
                break
    assert missing == []
    (shown,) = ask(address, 'stepscope_step_last{rank="1"}')
    assert {name: shown["metric"][name] for name in ("job", "rank", "role")} == {"job": "demo", "rank": "1", "role": "train"}
    assert "exported_job" not in shown["metric"]
    share = ask(address, next(each for each in asked if re.search("by .job, phase.", each)))
    assert {each["metric"]["phase"]: round(float(each["value"][1]), 1) for each in share}["data_wait"] == 0.1
