"""Both doors: the server of its own, and the plugin of TensorBoard."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from werkzeug.test import Client

from stepscope.cli import main
from stepscope.errors import CaptureError
from stepscope.web import routes
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue
from stepscope.web.request import Settings
from stepscope.web.server import Address, Server, names_of

EVENT = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {}}


@pytest.fixture
def samples(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "w.pt.trace.json").write_text(json.dumps({"traceEvents": [EVENT]}))
    return tmp_path


@contextmanager
def running(samples, address):
    server = Server([samples], address, Settings())
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(10)


def fetch(url, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as problem:
        with problem:
            return problem.code, problem.read(), dict(problem.headers)


def test_loopback_needs_no_token(samples):
    with running(samples, Address()) as server:
        assert server.url == f"http://127.0.0.1:{server.port}/"
        status, body, headers = fetch(f"{server.url}api/v1/runs")
        assert (status, json.loads(body)["runs"][0]["name"]) == (200, "run")
        assert "Server" not in headers
        assert fetch(f"{server.url}api/v1/runs", Host="evil.example")[0] == 403
        assert json.loads(fetch(f"{server.url}api/v1/trace/meta?wait=30")[1])["slices"] == 1


def test_a_wide_binding_needs_its_token(samples):
    with running(samples, Address("0.0.0.0")) as server:
        plain, _, token = server.url.partition("?")
        assert len(token.partition("=")[2]) >= 32
        assert fetch(f"{plain}api/v1/runs")[0] == 401
        assert fetch(f"{plain}api/v1/runs?{token}")[0] == 200
        assert fetch(f"{plain}api/v1/runs?{token}x")[0] == 401


def test_the_token_can_be_refused(samples):
    with running(samples, Address("0.0.0.0", with_token=False)) as server:
        assert fetch(f"{server.url}api/v1/runs")[0] == 200


HALF = {
    "nothing sent": b"",
    "half a head": b"GET /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    "half a body": b"POST /api/v1/sql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{",
}


@pytest.mark.parametrize("sent", HALF.values(), ids=HALF)
def test_half_sent_requests_do_not_block_others(samples, sent):
    with running(samples, Address()) as server, ExitStack() as stack:
        for _ in range(150):
            held = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            held.sendall(sent)
        for _ in range(5):
            assert fetch(f"{server.url}api/v1/runs")[0] == 200


def test_who_closes_the_server_hears_nothing_of_requests_in_flight(samples, monkeypatch, caplog):
    """The page asks for news all the time, so one is often in flight when the user presses Ctrl-C."""
    begun, go_on, answered = threading.Event(), threading.Event(), App.__call__

    def slow(self, *request):
        begun.set()
        go_on.wait(30)
        return answered(self, *request)

    monkeypatch.setattr(App, "__call__", slow)
    before = set(threading.enumerate())
    with running(samples, Address()) as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"GET /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert begun.wait(10)
        serving = [one for one in threading.enumerate() if one not in before]
        server.close()
        go_on.set()
        for thread in serving:
            thread.join(10)
    assert [record.getMessage() for record in caplog.records] == []


def test_requests_that_come_byte_by_byte_do_not_block_others_and_are_answered(samples):
    request = b"GET /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    with running(samples, Address()) as server, ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30)) for _ in range(50)]
        for each in slow:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, byte in enumerate(request):
            for each in slow:
                each.sendall(bytes([byte]))
            if number % 15 == 0:
                assert fetch(f"{server.url}api/v1/runs")[0] == 200
        for each in slow:
            with each.makefile("rb") as answer:
                assert answer.readline() == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.slow  # processes for queries are started
def test_runaway_queries_leave_the_other_routes_alone(samples):
    """Sixteen queries that never end on a server of eight threads: each is ended or refused, and the page goes on."""
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select sum(i) as s from n"
    body = json.dumps({"query": endless}).encode()

    def ask(url):
        request = urllib.request.Request(f"{url}api/v1/sql", data=body, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status
        except urllib.error.HTTPError as problem:
            with problem:
                return problem.code

    with running(samples, Address()) as server, ThreadPoolExecutor(16) as pool:
        server.catalogue.queries.limits = replace(server.catalogue.queries.limits, seconds=3.0)
        assert fetch(f"{server.url}api/v1/overview?wait=30")[0] == 200  # it is loaded
        asked = [pool.submit(ask, server.url) for _ in range(16)]
        answered = 0
        while not all(one.done() for one in asked):
            assert fetch(f"{server.url}api/v1/runs")[0] == 200
            answered += 1
        found = [one.result() for one in asked]
        assert set(found) <= {422, 503}
        assert found.count(422) >= 2
        assert answered > 0
        assert ask_once(server.url, "select count(*) as n from ops") == [[1]]


def ask_once(url, query):
    data = json.dumps({"query": query}).encode()
    request = urllib.request.Request(f"{url}api/v1/sql", data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())["rows"]


def test_a_port_that_is_taken(samples):
    with running(samples, Address()) as server, pytest.raises(CaptureError, match="cannot be used"):
        Server([samples], Address(port=server.port), Settings())


@pytest.mark.parametrize(
    ("host", "name", "known"),
    [
        ("127.0.0.1", "localhost", True),
        ("localhost", "::1", True),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "localhost", False),
    ],
)
def test_names_that_are_ours(host, name, known):
    ours = names_of(host)
    assert ours is not None
    assert (name in ours) == known


def test_every_address_has_too_many_names():
    assert names_of("0.0.0.0") is None


@pytest.mark.parametrize("port", ["x", "70000", "-1"])
def test_bad_ports_are_refused(port, capsys):
    with pytest.raises(SystemExit):
        main(["view", ".", "--port", port])
    assert "65535" in capsys.readouterr().err


def test_every_route_is_documented():
    from pathlib import Path

    text = (Path(__file__).resolve().parents[3] / "docs" / "http_api.md").read_text()
    for method, listed in (("GET", routes.GET), ("POST", routes.POST)):
        missing = [route for route in listed if f"`{method} {route}`" not in text and f"`{method} {route}?" not in text]
        assert not missing, f"{method} {missing} stand in no heading of docs/http_api.md"


def test_tensorboard_shows_the_tab(samples):
    pytest.importorskip("tensorboard")
    from types import SimpleNamespace

    from stepscope.web.tensorboard_plugin import StepscopePlugin

    plugin = StepscopePlugin(SimpleNamespace(logdir=str(samples)))
    try:
        plugin._scanning.join(30)
        assert plugin.is_active()
        apps = plugin.get_plugin_apps()
        assert all(path.startswith("/") for path in apps)
        client = Client(apps["/api/*"])
        assert client.get("/data/plugin/stepscope/api/v1/runs").json["runs"][0]["name"] == "run"
        assert client.get("/prefix/data/plugin/stepscope/api/v1/trace/meta?wait=30").json["slices"] == 1
        metadata = plugin.frontend_metadata()
        assert (metadata.es_module_path, metadata.disable_reload) == ("/index.js", True)
    finally:
        plugin.catalogue.close()


def test_the_schema_of_queries_names_tables_views_and_examples(samples):
    with running(samples, Address()) as server:
        schema = json.loads(fetch(f"{server.url}api/v1/sql/schema?wait=30")[1])
    relations = {one["name"]: one for one in schema["relations"]}
    assert relations["ops"]["columns"][:2] == ["id", "rank"]
    assert "kernels" not in relations  # no rows
    assert {one["name"] for one in schema["examples"]} == {name for name, one in relations.items() if one["kind"] == "view"}


def test_data_on_their_way_are_no_error_for_those_who_say_so(samples):
    """A page that asks again would fill the browser's log; others get the conflict. Both hear how many bytes are read."""
    go_on = threading.Event()

    def slow(files, root, version, progress):
        progress("reading w.pt.trace.json", 0.2, 40, 100)
        go_on.wait(10)
        raise CaptureError("enough")

    catalogue = Catalogue([samples], loader=slow)
    client = Client(App(catalogue, Settings()))
    try:
        for headers, status in (({}, 409), ({"Prefer": "respond-async"}, 202)):
            answer = client.get("/api/v1/operators", headers=headers)
            told = answer.json["error"]
            assert (answer.status_code, told["code"]) == (status, "loading")
        assert (told["stage"], told["read_bytes"], told["total_bytes"]) == ("reading w.pt.trace.json", 40, 100)
        entry = client.get("/api/v1/runs").json["runs"][0]["workers"][0]["spans"][0]
        assert (entry["read_bytes"], entry["total_bytes"]) == (40, 100)
    finally:
        go_on.set()
        catalogue.close()
