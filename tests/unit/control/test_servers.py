"""`stepscope ctl http://…`: all nodes at once, and those that began are stopped whatever happens."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stepscope.cli import main
from stepscope.control import servers
from stepscope.errors import CaptureError


class Node(ThreadingHTTPServer):
    """An inference server: `together` is passed only when all nodes are asked at once."""

    def __init__(self, status=200, together=None):
        self.got = []
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                node.got.append((self.path, body, self.headers.get("Authorization")))
                if together is not None:
                    together.wait(20)
                self._answer()

            def do_GET(self):
                node.got.append((self.path, b"", None))
                self._answer()

            def _answer(self):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b"fine\n")

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def node():
    made = []

    def make(**options):
        made.append(Node(**options))
        return made[-1]

    yield make
    for each in made:
        each.shutdown()
        each.server_close()


def run(capsys, *words):
    code = main(["ctl", *words, "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_all_nodes_start_and_stop_together(node, capsys):
    together = threading.Barrier(2)
    one, two = node(together=together), node(together=together)
    code, rows = run(capsys, f"{one.address},{two.address}/", "start", "--seconds", "0.01")
    assert code == 0
    assert [(row["server"], row["request"], row["status"]) for row in rows] == [
        (each.address, request, 200) for request in ("start_profile", "stop_profile") for each in (one, two)
    ]
    assert one.got == two.got == [("/start_profile", b"", None), ("/stop_profile", b"", None)]


def test_a_node_that_fails_is_named_and_the_others_are_stopped(node, capsys):
    good, bad = node(), node(status=404)
    code, rows = run(capsys, f"{good.address},{bad.address},http://127.0.0.1:9", "start", "--seconds", "0.01")
    assert code == 1
    assert [(row["request"], row["status"]) for row in rows] == [
        ("start_profile", 200), ("start_profile", 404), ("start_profile", None), ("stop_profile", 200),
    ]  # fmt: skip
    assert "profiler on" in rows[1]["answer"]
    assert "no answer" in rows[2]["answer"]
    assert [path for path, *_ in bad.got] == ["/start_profile"]


def test_an_interrupt_stops_what_runs(node):
    one = node()

    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        servers.record([one.address], 5, sleep=interrupted)
    assert [path for path, *_ in one.got] == ["/start_profile", "/stop_profile"]


def test_keys_and_token_of_a_request(node, capsys, monkeypatch):
    one = node()
    monkeypatch.setenv("STEPSCOPE_SERVER_TOKEN", "secret")
    assert run(capsys, one.address, "start", "--set", "num_steps=5")[0] == 0
    assert run(capsys, one.address, "stop")[0] == 0
    assert run(capsys, one.address, "status")[0] == 0
    assert one.got == [
        ("/start_profile", b'{"num_steps": 5}', "Bearer secret"), ("/stop_profile", b"", "Bearer secret"), ("/health", b"", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config", None),
        ("/shared/prof,x", None),
        ("http://a:8000", ("http://a:8000",)),
        ("http://a:8000/, https://b ,http://a:8000", ("http://a:8000", "https://b")),
    ],
)
def test_addresses(text, expected):
    assert servers.addresses(text) == expected


@pytest.mark.parametrize("text", ["http://a:8000,config", "http://a:8000,http://", "http://a:8000,http://b:x"])
def test_wrong_addresses(text):
    with pytest.raises(CaptureError, match="not the address"):
        servers.addresses(text)


def test_seconds_are_for_servers(tmp_path, capsys):
    assert main(["ctl", str(tmp_path), "start", "--seconds", "2"]) == 3
    assert "--steps N" in capsys.readouterr().err
