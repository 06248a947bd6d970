"""Captures that are empty, broken, not analysed, or change while they are open (docs/reference/viewer.md 2, 9)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading

import pytest
from werkzeug.test import Client

from stepscope.errors import CaptureError
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue
from stepscope.web.loaded import load_capture

OUTPUT = "ASCEND_PROFILER_OUTPUT"


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def viewer(tmp_path, clock):
    (tmp_path / "samples").mkdir()
    catalogue = Catalogue([tmp_path / "samples"], clock=clock)
    client = Client(App(catalogue))
    client.root = tmp_path / "samples"
    yield client
    catalogue.close()


def write(root, path, data):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    return file


def trace(*names):
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 10 * place, "dur": 5, "args": {}}
        for place, name in enumerate(names)
    ]
    return json.dumps({"traceEvents": events})


def get(client, route, **query):
    return client.get(f"/api/v1/{route}", query_string={"wait": 30, **query})


def test_an_empty_folder_says_what_was_searched(viewer):
    answer = get(viewer, "runs").json
    assert answer["runs"] == []
    assert str(viewer.root) in answer["empty"]["title"]
    assert answer["empty"]["detail"] == "samples is empty"
    assert any(OUTPUT in layout for layout in answer["empty"]["layouts"])
    write(viewer.root, "holiday.jpg", "x")
    assert "holiday.jpg" in viewer.post("/api/v1/rescan", json={}).json["empty"]["detail"]
    assert get(viewer, "overview").status_code == 404


def test_a_folder_that_is_not_there(tmp_path):
    catalogue = Catalogue([tmp_path / "nothing"])
    assert catalogue.listing()["empty"]["title"] == "no such folder"
    catalogue.close()


def test_a_file_that_is_not_a_capture(tmp_path):
    write(tmp_path, "holiday.jpg", "x")
    catalogue = Catalogue([tmp_path / "holiday.jpg"])
    assert catalogue.listing()["empty"]["detail"] == "holiday.jpg is neither a trace nor a database"
    catalogue.close()


@pytest.mark.parametrize(
    "data",
    ["", "{", "[", "null", '{"traceEvents": 5}', b"\x00\xff" * 100, '{"traceEvents": []}', "[1, 2"],
    ids=lambda data: repr(data)[:12],
)
def test_a_broken_trace_fails_alone(viewer, data):
    write(viewer.root, "run/bad.pt.trace.json", data)
    write(viewer.root, "run/good.pt.trace.json", trace("a"))
    bad = get(viewer, "overview", worker="bad")
    assert bad.status_code == 415
    error = bad.json["error"]
    assert (error["code"], error["file"]) == ("unreadable", "run/bad.pt.trace.json")
    assert error["title"]
    assert str(viewer.root) not in bad.text
    assert get(viewer, "overview", worker="good").status_code == 200
    states = {worker["name"]: worker["spans"][0]["state"] for worker in get(viewer, "runs").json["runs"][0]["workers"]}
    assert states == {"bad": "failed", "good": "ready"}


def test_a_broken_database_fails_alone(viewer):
    write(viewer.root, "run/ascend_pytorch_profiler_3.db", b"SQLite format 3\0" + b"\xff" * 5000)
    answer = get(viewer, "overview", worker="3")
    assert answer.json["error"]["code"] == "unreadable"
    assert get(viewer, "runs").status_code == 200


def test_broken_files_of_a_folder_leave_the_good_ones(viewer):
    base = f"run/w_1/{OUTPUT}"
    write(viewer.root, f"{base}/trace_view.json", "[{")
    write(viewer.root, f"{base}/communication_matrix.json", "{")
    write(viewer.root, f"{base}/step_trace_time.csv", "Step,Computing\n\xff\x00,x\n")
    write(
        viewer.root, f"{base}/kernel_details.csv",
        "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim\n"
        "1,MatMul,MatMul,AI_CORE,1736412474730135.222\t,55.161,0,32\n",
    )  # fmt: skip
    page = get(viewer, "kernels").json
    assert page["rows"][0][:3] == ["MatMul", 1, 55.161]
    assert get(viewer, "overview").status_code == 200
    problem = get(viewer, "comm/matrix")
    assert problem.status_code == 415
    assert (problem.json["error"]["code"], problem.json["error"]["file"]) == ("unreadable", "communication_matrix.json")
    assert "Communication" in get(viewer, "runs").json["runs"][0]["workers"][0]["spans"][0]["views"], "unreadable, not uncollected"
    assert get(viewer, "files").json["quality"]["issues"]


def test_damaged_blocks_beside_a_good_curve_are_not_uncollected_blocks(viewer):
    base = f"run/w_1/{OUTPUT}"
    curve = (
        "Component,Timestamp(us),Total Allocated(KB),Total Reserved(KB),Device Type\nPTA,10.0\t,1,2,NPU:0\nPTA,20.0\t,3,4,NPU:0\n"
    )
    write(viewer.root, f"{base}/memory_record.csv", curve)
    answer = get(viewer, "memory/events")
    assert (answer.status_code, answer.json["total"]) == (200, 0), "not collected"
    write(viewer.root, f"{base}/operator_memory.csv", b"\x89PNG\r\n\x1a\n\x00\x00" * 50)
    viewer.post("/api/v1/rescan", json={})
    answer = get(viewer, "memory/events")
    assert (answer.status_code, answer.json["error"]["file"]) == (415, "operator_memory.csv")


def test_only_operator_details(viewer):
    """Any subset of files is fine; totals say that nested calls count."""
    times = [
        f"{side} {part} Duration{core}(us)"
        for side, core in (("Host", ""), ("Device", ""), ("Device", " With AICore"))
        for part in ("Self", "Total")
    ]
    rows = 'aten::mm,"2,3;\n3,4","a.py(1): f;\nb.py(2): g",1.5,2.5,10,20,5,20\naten::mm,,,1,1,0,0,0,0\n'
    head = ",".join(["Name", "Input Shapes", "Call Stack", *times]) + "\n"
    write(viewer.root, f"run/w_1/{OUTPUT}/operator_details.csv", head + rows)
    page = get(viewer, "operators").json
    row = dict(zip([column["key"] for column in page["columns"]], page["rows"][0], strict=True))
    assert (row["calls"], row["device_self"], row["device_total"], row["core_self"], row["eligible"]) == (
        2,
        10.0,
        20.0,
        50.0,
        "Yes",
    )
    assert any("nested calls counted" in note for note in page["notes"])
    shapes = get(viewer, "operators", group="op_shape").json
    assert sorted(row[1] for row in shapes["rows"]) == ["", "[[2,3],[3,4]]"]
    stacks = get(viewer, "operators/stacks", name="aten::mm").json
    assert [frame["text"] for frame in stacks["rows"][0]["frames"]] == ["a.py(1): f", "b.py(2): g"]
    views = get(viewer, "runs").json["runs"][0]["views"]
    assert "Operator" in views
    assert "Trace" not in views


def test_raw_folders_are_offered_for_analysis(viewer):
    (viewer.root / "run" / "host_1_20250101000000000_ascend_pt" / "FRAMEWORK").mkdir(parents=True)
    (span,) = get(viewer, "runs").json["runs"][0]["workers"][0]["spans"]
    assert span["state"] == "not_analysed"
    assert span["command"] == "stepscope analyse run/host_1_20250101000000000_ascend_pt"
    answer = get(viewer, "overview")
    assert (answer.status_code, answer.json["error"]["code"]) == (409, "not_analysed")
    started = viewer.post("/api/v1/load", json={"run": "run"}).json
    assert started["state"] in ("loading", "failed", "ready")


def test_loading_is_told_with_a_number(tmp_path):
    write(tmp_path, "run/w.pt.trace.json", trace("a"))
    go = threading.Event()

    def slow(files, root, version, progress):
        progress("reading w.pt.trace.json", 0.43)
        assert go.wait(30)
        raise CaptureError("nothing in it", where=str(files.root), cause="a test", fix="another file")

    catalogue = Catalogue([tmp_path], loader=slow)
    client = Client(App(catalogue))
    try:
        first = client.get("/api/v1/overview")
        assert (first.status_code, first.json["error"]["code"]) == (409, "loading")
        assert 0 <= first.json["error"]["progress"] < 1
        assert client.get("/api/v1/runs").status_code == 200
    finally:
        go.set()
    done = client.get("/api/v1/overview?wait=30")
    assert (done.status_code, done.json["error"]["title"]) == (415, "nothing in it")
    catalogue.close()


def test_reading_can_be_cancelled_and_begun_again(tmp_path):
    write(tmp_path, "run/w.pt.trace.json", trace("a"))
    begun, go = threading.Event(), threading.Event()

    def slow(files, root, version, progress):
        progress("reading w.pt.trace.json", 0.4)
        begun.set()
        assert go.wait(30)
        progress("linking", 0.5)
        return load_capture(files, root, version, progress)

    catalogue = Catalogue([tmp_path], loader=slow)
    client = Client(App(catalogue))
    name = {"run": "run", "worker": "w", "span": "1"}
    client.post("/api/v1/load", json=name)
    assert begun.wait(30)
    assert client.post("/api/v1/cancel", json=name).json["state"] == "loading"
    go.set()
    given_up = get(client, "overview")
    assert (given_up.status_code, given_up.json["error"]["title"]) == (415, "reading was cancelled")
    assert str(tmp_path) not in given_up.text
    client.post("/api/v1/load", json=name)
    assert get(client, "overview").status_code == 200
    assert client.post("/api/v1/cancel", json=name).json["state"] == "ready"
    catalogue.close()


def test_a_fault_while_loading_is_ours(tmp_path, caplog):
    write(tmp_path, "run/w.pt.trace.json", trace("a"))

    def broken(files, root, version, progress):
        raise ZeroDivisionError("secret")

    catalogue = Catalogue([tmp_path], loader=broken)
    answer = Client(App(catalogue)).get("/api/v1/overview?wait=30")
    assert (answer.status_code, answer.json["error"]["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert "ZeroDivisionError" in caplog.text
    catalogue.close()


def test_a_capture_that_changes_gets_a_new_version(viewer, clock):
    write(viewer.root, "run/w.pt.trace.json", trace("a"))
    before = get(viewer, "runs").json["runs"][0]["workers"][0]["spans"][0]["version"]
    assert get(viewer, "trace/meta").json["slices"] == 1
    write(viewer.root, "run/w.pt.trace.json", trace("a", "b", "c"))
    assert get(viewer, "trace/meta").json["slices"] == 1  # not looked at again yet
    clock.now += 11
    assert get(viewer, "trace/meta").json["slices"] == 3
    after = get(viewer, "runs").json["runs"][0]["workers"][0]["spans"][0]["version"]
    assert after != before
    assert get(viewer, "trace/meta", v=before).json["error"]["version"] == after


def test_a_capture_that_disappears(viewer, clock):
    write(viewer.root, "run/w.pt.trace.json", trace("a"))
    write(viewer.root, "run/x.pt.trace.json", trace("a"))
    assert get(viewer, "overview", worker="w").status_code == 200
    shutil.rmtree(viewer.root / "run")
    assert get(viewer, "trace/meta", worker="w").status_code == 200  # what was read is still there
    lost = get(viewer, "overview", worker="x")
    assert (lost.status_code, lost.json["error"]["code"]) == (415, "unreadable")
    assert get(viewer, "files", worker="w").status_code == 200
    clock.now += 11
    assert get(viewer, "runs").json["runs"] == []
    for query in ({"worker": "w"}, {"run": "run"}, {"run": "run", "worker": "x", "span": "1"}):
        answer = get(viewer, "overview", **query)
        assert (answer.status_code, answer.json["error"]["code"]) == (410, "gone")
        assert answer.json["error"]["detail"].startswith("run/")
    assert get(viewer, "overview", run="never").json["error"]["code"] == "unknown_run"


def test_a_capture_that_comes_back(viewer, clock):
    file = write(viewer.root, "run/w.pt.trace.json", trace("a"))
    write(viewer.root, "run/x.pt.trace.json", trace("a"))
    assert get(viewer, "overview", worker="w").status_code == 200
    file.unlink()
    clock.now += 11
    assert get(viewer, "overview", worker="w").status_code == 410
    assert get(viewer, "overview").status_code == 200  # no name: the first that is there
    write(viewer.root, "run/w.pt.trace.json", trace("a", "b"))
    clock.now += 11
    assert get(viewer, "trace/meta", worker="w").json["slices"] == 2


def test_a_capture_that_changes_while_it_is_read_has_no_version(tmp_path):
    """What was read belongs to neither version, so no browser may keep it as one of them."""
    file = write(tmp_path, "run/w.pt.trace.json", trace("a"))

    def changing(files, root, version, progress):
        capture = load_capture(files, root, version, progress)
        if b'"b"' not in file.read_bytes():
            file.write_text(trace("a", "b"))
        return capture

    catalogue = Catalogue([tmp_path], loader=changing, clock=lambda: 0.0)
    client = Client(App(catalogue))
    version = client.get("/api/v1/runs").json["runs"][0]["workers"][0]["spans"][0]["version"]
    first = get(client, "trace/meta", v=version)
    assert "immutable" not in first.headers["Cache-Control"]
    second = get(client, "trace/meta", v=version)
    assert (second.status_code, second.json["error"]["code"]) == (409, "changed")
    assert get(client, "trace/meta").json["slices"] == 2
    catalogue.close()


@pytest.mark.slow  # a process of its own answers the SQL
def test_the_store_of_an_open_capture_is_rebuilt(viewer, clock):
    write(viewer.root, "run/w.pt.trace.json", trace("a", "b"))
    before = get(viewer, "operators").json["rows"]
    for store in (viewer.root / "run").glob(".stepscope*"):
        shutil.rmtree(store)
    clock.now += 11
    assert get(viewer, "operators").json["rows"] == before
    assert viewer.post("/api/v1/sql?wait=30", json={"query": "select count(*) as n from ops"}).json["rows"] == [[2]]


SERVE_ONCE = """
import sys
from pathlib import Path
from werkzeug.test import Client
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue
catalogue = Catalogue([Path(sys.argv[1])])
client = Client(App(catalogue))
print("ready", flush=True)
sys.stdin.readline()
print(client.get("/api/v1/trace/meta?wait=30").json["slices"])
catalogue.close()
"""


@pytest.mark.slow  # two interpreters
def test_two_servers_open_one_capture_at_once(tmp_path):
    """Both build the store; each shows the whole capture, and one whole store is left."""
    write(tmp_path, "run/w.pt.trace.json", trace(*"abcdefgh"))
    command = [sys.executable, "-c", SERVE_ONCE, str(tmp_path)]
    servers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [server.stdout.readline() for server in servers] == ["ready\n"] * 2
    for server in servers:
        server.stdin.write("go\n")
        server.stdin.flush()
    assert [server.communicate(timeout=60)[0] for server in servers] == ["8\n"] * 2
    left = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert left == [".stepscope.w.pt.trace.json.store", ".stepscope.w.pt.trace.json.store.trace", "w.pt.trace.json"]
    again = Catalogue([tmp_path])
    assert get(Client(App(again)), "trace/meta").json["slices"] == 8
    again.close()


MISSING = [
    ("memory/curve", "profile_memory=True"), ("memory/events", "profile_memory=True"), ("modules", "with_modules=True"),
    ("kernels", "activities"), ("kernels/pies", "activities"), ("comm/matrix", "Level1"), ("comm/bandwidth", "Level1"),
    ("comm/strip", "Level1"), ("distributed/ops", "Level1"), ("flame?source=stack", "with_stack=True"),
]  # fmt: skip


@pytest.mark.parametrize(("route", "switch"), MISSING)
def test_what_is_missing_names_its_switch(viewer, route, switch):
    write(viewer.root, "run/w.pt.trace.json", trace("a"))
    answer = viewer.get(f"/api/v1/{route}{'&' if '?' in route else '?'}wait=30")
    assert (answer.status_code, answer.json["error"]["code"]) == (404, "missing_data")
    assert switch in answer.json["error"]["hint"]


def test_notes_name_the_switch_of_missing_columns(viewer):
    write(viewer.root, "run/w.pt.trace.json", trace("a"))
    notes = " ".join(get(viewer, "operators", group="op_shape").json["notes"])
    assert all(switch in notes for switch in ("record_shapes=True", "with_stack=True", "activities"))
    assert "prof.step()" in " ".join(get(viewer, "overview").json["notes"])


def test_a_read_only_folder_uses_the_cache(viewer, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(viewer.root, "run/w.pt.trace.json", trace("a"))
    (viewer.root / "run").chmod(0o555)
    assert get(viewer, "trace/meta").status_code == 200
    assert [entry.name for entry in (viewer.root / "run").iterdir()] == ["w.pt.trace.json"]
    assert len(list((tmp_path / "cache" / "stepscope").iterdir())) == 2
    (viewer.root / "run").chmod(0o755)


def test_a_damaged_timeline_index_is_made_again(viewer, clock):
    write(viewer.root, "run/w.pt.trace.json", trace("a", "b"))
    assert get(viewer, "trace/meta").json["slices"] == 2
    (index,) = (viewer.root / "run").glob(".stepscope*.trace")
    (index / "start.npy").write_bytes(b"\x93NUMPY broken")
    catalogue = Catalogue([viewer.root])
    assert Client(App(catalogue)).get("/api/v1/trace/meta?wait=30").json["slices"] == 2
    catalogue.close()


def test_a_damaged_timeline_is_not_an_empty_one(viewer):
    base = f"run/w_1/{OUTPUT}"
    write(viewer.root, f"{base}/step_trace_time.csv", "Step,Computing,Free\n13,8,3\n")
    assert get(viewer, "trace/meta").json["slices"] == 0, "nothing was collected: an answer"
    write(viewer.root, f"{base}/trace_view.json", "no trace at all")
    viewer.post("/api/v1/rescan", json={})
    answer = get(viewer, "trace/meta")
    assert (answer.status_code, answer.json["error"]["title"]) == (415, "unreadable: trace_view.json")


def test_traces_with_python_calls_have_stacks(viewer):
    """Newer traces write the calls as slices and no stack on the operators; operators and flames have stacks all the same."""
    spans = [
        ("python_function", "train.py(3): main", 0, 90),
        ("python_function", "net.py(7): forward", 10, 50),
        ("cpu_op", "mm", 20, 5),
        ("cpu_op", "add", 70, 5),
    ]
    events = [
        {
            "ph": "X",
            "cat": cat,
            "name": name,
            "pid": 1,
            "tid": 1,
            "ts": at,
            "dur": length,
            "args": {"Python id": place} if "(" in name else {},
        }
        for place, (cat, name, at, length) in enumerate(spans)
    ]
    write(viewer.root, "r/w.pt.trace.json", json.dumps({"schemaVersion": 1, "traceEvents": events}))
    assert get(viewer, "operators").json["notes"] == ["no device times in this capture: collect with activities NPU or CUDA"]
    (row,) = get(viewer, "operators/stacks", name="mm").json["rows"]
    assert [frame["text"] for frame in row["frames"]] == ["net.py(7): forward", "train.py(3): main"]
    flame = get(viewer, "flame").json
    assert [flame["names"][name] for name in flame["nodes"]["name"]] == ["all", "train.py(3): main", "net.py(7): forward"]
    assert flame["nodes"]["weight"] == [10.0, 10.0, 5.0]


def test_what_the_client_has_already_still_names_its_type(viewer):
    write(viewer.root, "run/w.pt.trace.json", trace("a"))
    first = get(viewer, "files")
    again = viewer.get("/api/v1/files", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.headers["Content-Type"]) == (304, first.headers["Content-Type"])


def test_steps_of_a_file_alone_are_steps(viewer):
    base = f"run/w_1/{OUTPUT}"
    title = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    title += "Communication(Not Overlapped and Exclude Receive),Preparing"
    write(viewer.root, f"{base}/step_trace_time.csv", f"{title}\n13,8,4,1,5,3,15,0,4,6\n")
    answer = get(viewer, "overview").json
    assert [row["step"] for row in answer["steps"]["rows"]] == [13]
    assert not [note for note in answer["notes"] if note.startswith("no steps")]
