"""Bad requests and attacks on the viewer: each gets its error, none takes another route down (docs/reference/viewer.md 9, 10)."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading

import pytest
from thorough import some
from werkzeug.test import Client, EnvironBuilder

from stepscope.query.engine import Engine, Limits
from stepscope.web import routes
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue
from stepscope.web.guard import cookie_name, inside
from stepscope.web.problems import Problem
from stepscope.web.request import Settings

HTML = "<img src=x onerror=alert(1)>"


def trace(*events) -> bytes:
    return json.dumps({"traceEvents": list(events)}).encode()


def event(name, start, length, cat="cpu_op", tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": length, "args": args}


@pytest.fixture
def samples(tmp_path):
    root = tmp_path / "samples"
    (root / "run1").mkdir(parents=True)
    whole = trace(
        event("aten::add", 10, 20),
        event(HTML, 12, 5),
        event("=cmd|calc", 40, 2),
        event("-1+1", 50, 2),
        event("void kernel<float, 4>(int*)", 60, 5, "kernel", 7, device=0, stream=7, correlation=3),
    )
    (root / "run1" / "w0.pt.trace.json").write_bytes(whole)
    (tmp_path / "secret.txt").write_text("secret")
    return root


@pytest.fixture
def catalogue(samples):
    catalogue = Catalogue([samples])
    yield catalogue
    catalogue.close()


@pytest.fixture
def client(catalogue):
    return Client(App(catalogue))


def code(answer) -> tuple[int, str]:
    return answer.status_code, answer.json["error"]["code"]


PLACES = [
    "../secret.txt",
    "..%2fsecret.txt",
    "%2e%2e/secret.txt",
    "/etc/passwd",
    "..\\secret.txt",
    "a/../../secret.txt",
    "x\0y",
    "",
    ".",
    "~/x",
    "run1//x",
    "C:/x",
]


@pytest.mark.parametrize("path", PLACES)
def test_paths_never_lead_out(samples, path):
    with pytest.raises(Problem) as found:
        inside(samples, path)
    assert found.value.status == 403


def test_links_never_lead_out_unless_told(samples):
    (samples / "link").symlink_to(samples.parent / "secret.txt")
    (samples / "near").symlink_to(samples / "run1" / "w0.pt.trace.json")
    with pytest.raises(Problem):
        inside(samples, "link")
    assert inside(samples, "link", follow_links=True).name == "secret.txt"
    assert inside(samples, "near").name == "w0.pt.trace.json"


@pytest.mark.parametrize("path", PLACES)
def test_file_previews_stay_inside(client, path):
    answer = client.get("/api/v1/files/preview", query_string={"path": path, "wait": 30})
    assert answer.status_code in (403, 404)
    assert b"secret" not in answer.data


def test_only_files_of_the_capture_are_previewed(client, samples):
    (samples / "run1" / "notes.txt").write_text("secret")
    assert code(client.get("/api/v1/files/preview", query_string={"path": "run1/notes.txt", "wait": 30})) == (404, "not_found")
    good = client.get("/api/v1/files/preview", query_string={"path": "run1/w0.pt.trace.json", "wait": 30, "bytes": 10})
    assert (good.status_code, good.data, good.mimetype) == (200, b'{"traceEve', "text/plain")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/%00",
        "/static/x.py",
        "/static/..\\app.py",
    ],
)
def test_static_files_stay_inside(client, path):
    environ = EnvironBuilder(path=path).get_environ()
    environ["PATH_INFO"] = path.replace("%2e", ".").replace("%2f", "/").replace("%00", "\0")
    answer = client.open(environ)
    assert answer.status_code in (403, 404)
    assert b"SPDX" not in answer.data


@pytest.mark.parametrize("name", some(["../run1", "/etc", "run1/../run1", "..%2frun1", "\0"], 4))
@pytest.mark.parametrize("route", sorted(routes.GET))
def test_names_of_runs_are_no_paths(client, route, name):
    if route in ("runs", "diff", "source"):
        return
    assert code(client.get(f"/api/v1/{route}", query_string={"run": name})) == (404, "unknown_run")


def test_source_only_below_its_root(catalogue, tmp_path):
    root = tmp_path / "src"
    root.mkdir()
    (root / "train.py").write_text("a\nb\nc\n")
    (tmp_path / "other.py").write_text("secret")
    (root / "link.py").symlink_to(tmp_path / "other.py")
    shut, open_ = Client(App(catalogue)), Client(App(catalogue, Settings(source_root=root)))
    assert code(shut.get("/api/v1/source?file=train.py&line=2")) == (403, "outside")
    assert open_.get("/api/v1/source?file=train.py&line=2").json["lines"] == ["a", "b", "c"]
    assert open_.get("/api/v1/source", query_string={"file": str(root / "train.py"), "line": 1}).status_code == 200
    for file in ("../other.py", str(tmp_path / "other.py"), "link.py", "/etc/passwd", "train.txt"):
        assert code(open_.get("/api/v1/source", query_string={"file": file, "line": 1})) == (403, "outside")


def test_links_out_of_the_folder_are_no_runs(tmp_path, samples):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "w1.pt.trace.json").write_bytes(trace(event("a", 0, 1)))
    (samples / "run2").symlink_to(outside)
    shut, followed = Catalogue([samples]), Catalogue([samples], follow_links=True)
    assert [run["name"] for run in shut.listing()["runs"]] == ["run1"]
    assert [run["name"] for run in followed.listing()["runs"]] == ["run1", "run2"]
    shut.close()
    followed.close()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:6006", "127.0.0.1.evil.example", "", "localhost.evil:80"])
def test_foreign_host_names_are_refused(catalogue, host):
    client = Client(App(catalogue, Settings(hosts=frozenset(["localhost", "127.0.0.1", "::1"]))))
    assert code(client.get("/api/v1/runs", headers={"Host": host})) == (403, "foreign_host")
    for good in ("localhost", "localhost:8080", "127.0.0.1:1", "[::1]:80", "LOCALHOST:9"):
        assert client.get("/api/v1/runs", headers={"Host": good}).status_code == 200


def test_other_pages_cannot_post(catalogue):
    client = Client(App(catalogue, Settings(hosts=frozenset(["localhost"]))))
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "anything"},
        {"Origin": "http://localhost:1"},
    ):
        assert code(client.post("/api/v1/rescan", json={}, headers={"Host": "localhost:2", **headers})) == (403, "foreign_origin")
    for headers in ({"Origin": "http://localhost:2"}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {}):
        assert client.post("/api/v1/rescan", json={}, headers={"Host": "localhost:2", **headers}).status_code == 200


def test_a_token_guards_everything(catalogue):
    client = Client(App(catalogue, Settings(token="right")), use_cookies=False)
    for path in ("/", "/index.js", "/static/x.js", "/api/v1/runs"):
        assert code(client.get(path)) == (401, "token")
        assert code(client.get(path + "?token=wrong")) == (401, "token")
        assert code(client.get(path, headers={"Authorization": "Bearer wrong"})) == (401, "token")
    assert client.get("/api/v1/runs", headers={"Authorization": "Bearer right"}).status_code == 200
    first = client.get("/?token=right")
    assert first.status_code == 200
    cookie = first.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert client.get("/api/v1/runs", headers={"Cookie": cookie.split(";")[0]}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("wrong", some(["", "wrong", "righ", "rightx", "RIGHT", "r\xefght", "right, right"], 3))
def test_a_wrong_token_opens_no_route(catalogue, method, wrong):
    client = Client(App(catalogue, Settings(token="right")), use_cookies=False)
    cookie = f"{cookie_name('right')}={wrong}"
    for route in routes.GET if method == "GET" else routes.POST:
        for headers in ({"Authorization": f"Bearer {wrong}"}, {"Authorization": f"Basic {wrong}"}, {"Cookie": cookie}):
            answer = client.open(f"/api/v1/{route}", method=method, headers=headers, json={} if method == "POST" else None)
            assert code(answer) == (401, "token")
            assert "Set-Cookie" not in answer.headers
        assert code(client.open(f"/api/v1/{route}", method=method, query_string={"token": wrong})) == (401, "token")


def test_the_right_token_opens_by_each_way(catalogue):
    client = Client(App(catalogue, Settings(token="right")), use_cookies=False)
    ways = [{"headers": {"Authorization": "Bearer right"}}, {"headers": {"authorization": "bearer right"}}]
    ways += [{"headers": {"Cookie": f"{cookie_name('right')}=right"}}, {"query_string": {"token": "right"}}]
    for way in ways:
        assert client.get("/api/v1/runs", **way).status_code == 200
        assert client.post("/api/v1/rescan", json={}, **way).status_code == 200


def test_a_server_without_token_neither_asks_for_one_nor_keeps_one(catalogue):
    client = Client(App(catalogue, Settings()), use_cookies=False)
    answer = client.get("/?token=anything", headers={"Authorization": "Bearer anything"})
    assert (answer.status_code, "Set-Cookie" in answer.headers) == (200, False)


def test_two_servers_on_one_host_keep_their_tokens_apart(catalogue):
    """Browsers send the cookies of a host to all its ports."""
    one, other = (Client(App(catalogue, Settings(token=token)), use_cookies=False) for token in ("first", "second"))
    cookies = "; ".join(
        client.get(f"/?token={token}").headers["Set-Cookie"].split(";")[0] for client, token in ((one, "first"), (other, "second"))
    )
    assert [client.get("/api/v1/runs", headers={"Cookie": cookies}).status_code for client in (one, other)] == [200, 200]


@pytest.mark.parametrize("route", sorted(routes.POST))
def test_bodies_are_limited_and_checked(client, route):
    url = f"/api/v1/{route}?wait=30"
    assert code(client.post(url, data=b"[" * (1 << 20) + b"1", content_type="application/json")) == (413, "too_large")
    assert code(client.post(url, data=b"{}", content_type="text/plain")) == (415, "content_type")
    assert code(client.post(url, data=b"a=1", content_type="application/x-www-form-urlencoded")) == (415, "content_type")
    for body in (b"{", b"\xff", b"[" * 5000):
        assert code(client.post(url, data=body, content_type="application/json")) == (400, "bad_request")
    if route != "rescan":
        for body in ("null", '"x"', "5", "[[1,2]]", "[[true,0,0]]", '{"query": 5, "tracks": 5, "run": 5}', "[]", "[[0,0,1.5]]"):
            assert client.post(url, data=body, content_type="application/json").status_code == 422, body


def test_messages_say_what_is_wrong(client):
    def answer(response):
        return response.json["error"]

    broken = client.post("/api/v1/sql?wait=30", data=b"{", content_type="application/json")
    assert answer(broken)["title"] == "the request body is not valid JSON"
    assert (
        answer(client.post("/api/v1/trace/counters?wait=30", json=[[0, 0, 0]]))["detail"] == "track: track 0 is not a counter track"
    )
    assert answer(client.get('/api/v1/operators?wait=30&filter={"name":{"min":1}}'))["detail"] == (
        "filter: name is not a column of numbers"
    )
    assert answer(client.get("/api/v1/operators?wait=30&filter={"))["detail"].startswith("filter: not valid JSON (")


def test_a_body_of_unknown_length_is_limited_too(client):
    environ = EnvironBuilder(path="/api/v1/sql", method="POST", content_type="application/json").get_environ()
    environ["wsgi.input"] = io.BytesIO(b"[" * (3 << 20))
    environ["wsgi.input_terminated"] = True
    environ.pop("CONTENT_LENGTH", None)
    assert client.open(environ).status_code == 413


@pytest.mark.parametrize(
    ("route", "query"),
    [
        ("operators", "limit=99999999"),
        ("operators", "limit=-1"),
        ("operators", "offset=x"),
        ("operators", "sort=nothing"),
        ("operators", "sort=calls&sort=name&sort=calls"),
        ("operators", "group=other"),
        ("operators", "filter=[]"),
        ("operators", "filter={"),
        ("operators", 'filter={"calls":{"min":"x"}}'),
        ("operators", 'filter={"nothing":{"min":1}}'),
        ("operators", 'filter={"name":{"in":5}}'),
        ("operators", "q=/(/"),
        ("operators", "desc=2&sort=calls"),
        ("operators", "step=9"),
        ("operators", "format=xml"),
        ("kernels", "group=statistic"),
        ("trace/search", "q=("),
        ("trace/search", "q="),
        ("trace/search", "q=a&mode=other"),
        ("trace/search", "q=(&mode=regex"),
        ("trace/search", "q=a&limit=1e99"),
        ("trace/search", "q=a&tracks=99"),
        ("trace/search", "q=a&px=0"),
        ("trace/flows", "from=5&to=1"),
        ("trace/flows", "cats=nothing"),
        ("trace/flows", "limit=99999999"),
        ("trace/slice", ""),
        ("trace/slice", "id=-1"),
        ("trace/slice", "id=x"),
        ("trace/names", "from=99"),
        ("trace/export", "tracks=77"),
        ("diff", "a=run=run1"),
        ("runs", "limit=5&format=nothing"),
        ("overview", "wait=31"),
        ("overview", "wait=x"),
        ("flame", "weight=other"),
        ("trace/next", "id=0&dir=5"),
        ("trace/search", "q=" + "a" * 2000),
    ],
)
def test_bad_parameters_are_named(client, route, query):
    answer = client.get(f"/api/v1/{route}?{query}" + ("" if "wait" in query else "&wait=30"))
    if route == "runs" or query == "q=(":
        assert answer.status_code == 200  # a bracket is text to look for; runs takes no parameter
        return
    assert code(answer) == (422, "parameter")
    assert answer.json["error"]["detail"]


@pytest.mark.parametrize(
    ("run", "worker", "span", "expected"),
    [("x", None, None, "unknown_run"), ("run1", "x", None, "unknown_worker"), ("run1", "w0", "9", "unknown_span")],
)
def test_unknown_names(client, run, worker, span, expected):
    query = {key: value for key, value in (("run", run), ("worker", worker), ("span", span)) if value}
    assert code(client.get("/api/v1/overview", query_string=query)) == (404, expected)


def test_unknown_routes_and_methods(client):
    assert code(client.get("/api/v1/nothing")) == (404, "not_found")
    assert code(client.get("/nothing")) == (404, "not_found")
    assert code(client.post("/api/v1/runs", json={})) == (405, "method")
    assert code(client.get("/api/v1/sql")) == (405, "method")
    assert code(client.delete("/api/v1/runs")) == (405, "method")
    assert client.head("/api/v1/runs").data == b""


def test_names_with_html_are_text(client):
    answer = client.get("/api/v1/operators?wait=30")
    assert answer.mimetype == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert HTML in [row[0] for row in answer.json["rows"]]
    assert client.get("/api/v1/kernels?wait=30").json["rows"][0][0] == "void kernel<float, 4>(int*)"


def test_csv_marks_formulas_as_text_and_leaves_numbers(client):
    text = client.get("/api/v1/operators?wait=30&format=csv").text
    assert "\n'=cmd|calc," in text
    assert "\n'-1+1," in text


@pytest.mark.slow  # a process of its own answers
def test_csv_of_sql_marks_formulas_too(client):
    sql = {"query": "select '=1+1' as a, -5 as b, '-x' as c", "format": "csv"}
    assert client.post("/api/v1/sql?wait=30", json=sql).text == "a,b,c\n'=1+1,-5,'-x\n"


def test_pages_have_a_policy(client, tmp_path, catalogue):
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "index.html").write_text("<!doctype html>")
    (tmp_path / "static" / "index.js").write_text("export async function render() {}")
    for one in (client, Client(App(catalogue, static=tmp_path / "static"))):
        page = one.get("/")
        assert page.status_code == 200
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]
        assert page.headers["X-Content-Type-Options"] == "nosniff"
    entry = one.get("/data/plugin/stepscope/index.js")
    assert (entry.status_code, entry.mimetype) == (200, "text/javascript")
    assert one.get("/prefix/data/plugin/stepscope/api/v1/runs").status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        "attach database '/tmp/x.db' as x",
        "pragma database_list",
        "delete from ops",
        "drop table ops",
        "create table x (a)",
        "insert into about values ('x')",
        "select * from read_csv('/etc/passwd')",
        "vacuum into '/tmp/x.db'",
        "select 1; select 2",
        "nonsense",
        "update ops set name = 'x'",
        "select * from sqlite_master; drop table ops",
    ],
)
def test_sql_only_reads(client, query):
    answer = client.post("/api/v1/sql?wait=30", json={"query": query})
    assert code(answer) == (422, "parameter")
    assert answer.json["error"]["hint"]


@pytest.mark.slow  # a process of its own answers, and is ended
def test_sql_stops_in_time_and_goes_on(client, catalogue):
    catalogue.queries = Engine(Limits(seconds=0.5))
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select sum(i) from n"
    assert "longer than" in client.post("/api/v1/sql?wait=30", json={"query": endless}).json["error"]["title"]
    catalogue.queries = Engine()
    assert client.post("/api/v1/sql?wait=30", json={"query": "select count(*) as n from ops"}).json["rows"] == [[4]]


def test_sql_beyond_two_at_once_is_busy(client, catalogue, monkeypatch):
    catalogue.queries = Engine(Limits(at_once=2, seconds=0.01))
    monkeypatch.setattr(catalogue.queries, "_turns", threading.BoundedSemaphore(2))
    for _ in range(2):
        catalogue.queries._turns.acquire()
    assert code(client.post("/api/v1/sql?wait=30", json={"query": "select 1"})) == (503, "busy")


def test_sql_can_be_switched_off(catalogue):
    client = Client(App(catalogue, Settings(sql=False)))
    assert code(client.post("/api/v1/sql?wait=30", json={"query": "select 1"})) == (403, "sql_off")


def test_a_fault_of_ours_says_nothing_but_its_number(client, monkeypatch, caplog):
    def broken(asked):
        raise RuntimeError("/secret/place")

    monkeypatch.setitem(routes.GET, "findings", broken)
    answer = client.get("/api/v1/findings?wait=30")
    assert code(answer) == (500, "internal")
    assert "secret" not in answer.text
    assert answer.json["error"]["id"] in caplog.text
    assert client.get("/api/v1/overview?wait=30").status_code == 200


def test_versions_and_caching(client):
    version = client.get("/api/v1/runs").json["runs"][0]["workers"][0]["spans"][0]["version"]
    fresh = client.get(f"/api/v1/overview?wait=30&v={version}")
    assert "immutable" in fresh.headers["Cache-Control"]
    stale = client.get("/api/v1/overview?wait=30&v=other")
    assert code(stale) == (409, "changed")
    assert stale.json["error"]["version"] == version
    plain = client.get("/api/v1/overview?wait=30")
    assert plain.headers["Cache-Control"] == "no-cache"
    again = client.get("/api/v1/overview?wait=30", headers={"If-None-Match": plain.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")


def test_compression_only_when_asked(client):
    plain = client.get("/api/v1/trace/meta?wait=30")
    packed = client.get("/api/v1/trace/meta?wait=30", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers
    assert gzip.decompress(packed.data) == plain.data
    export = client.get("/api/v1/trace/export?wait=30", headers={"Accept-Encoding": "gzip"})
    assert len(json.loads(gzip.decompress(export.data))["traceEvents"]) > 4


def test_no_answer_tells_where_the_folder_is(client, samples):
    for route in ("runs", "files", "overview", "findings", "trace/meta"):
        assert str(samples.parent) not in client.get(f"/api/v1/{route}?wait=30").text
    assert os.sep + "tmp" not in client.get("/api/v1/runs").text
