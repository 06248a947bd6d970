"""Recording steps of a job that runs: the file, the state machine, the watching; no clock of this machine, no thread."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import psutil
import pytest

from stepscope.control import board
from stepscope.control.agreement import agreed_start
from stepscope.control.config import KEYS, TEMPLATE, CaptureRequest, parse, template, to_json
from stepscope.dynamic_profile import capture as captures
from stepscope.dynamic_profile.journal import LARGEST, Journal
from stepscope.dynamic_profile.monitor import Monitor
from stepscope.dynamic_profile.optimizer_steps import PATIENCE, Iterations
from stepscope.dynamic_profile.session import Session, _common_step, _process_start_ns, make_template
from stepscope.dynamic_profile.worker import Worker
from stepscope.errors import CaptureError


class FakeCapture:
    """In the place of a capture: notes its steps."""

    limit = None

    def __init__(self, request, first_step, *, running=True, last_warning=None):
        self.request, self.first_step, self.running, self.last_warning = request, first_step, running, last_warning
        self.steps_done, self.path, self.ended = 0, f"/captures/{first_step}", None

    def step(self):
        self.steps_done += 1
        self.running = self.running and self.steps_done < self.request.steps
        return self.steps_done >= self.request.steps

    def end(self):
        self.ended = "stop"

    def end_with_process(self):
        self.ended = "exit"


class Job:
    """A worker whose captures are noted."""

    def __init__(self, rank=0, world_size=1, **capture):
        self.captures, self.log = [], []
        self._capture = capture
        self.worker = Worker(self._record, lambda level, text: self.log.append(f"{level} {text}"), lambda: rank, lambda: world_size)

    def _record(self, request, step):
        self.captures.append(FakeCapture(request, step, **self._capture))
        return self.captures[-1]

    def run(self, steps, **asked):
        """Steps of training; `asked` is the request that comes before the step of that number: at_3={...}."""
        for _ in range(steps):
            wanted = asked.get(f"at_{self.worker.cur_step + 1}")
            if wanted is not None:
                self.worker.deliver(parse(json.dumps(wanted).encode()))
            self.worker.step()
        return self

    @property
    def state(self):
        return self.worker.progress.state, self.worker.progress.text


def spans(job):
    """First step and number of steps of each capture."""
    return [(capture.first_step, capture.steps_done) for capture in job.captures]


class TestFile:
    def test_template_has_every_documented_key_in_order(self):
        given = json.loads(template())
        assert list(given) == [
            "activities", "prof_dir", "analyse", "async_mode", "record_shapes", "profile_memory", "with_stack", "with_flops",
            "with_modules", "active", "warmup", "start_step", "is_rank", "rank_list", "experimental_config",
        ]  # fmt: skip
        assert list(given["experimental_config"]) == [
            "profiler_level", "aic_metrics", "l2_cache", "op_attr", "gc_detect_threshold", "data_simplification", "record_op_args",
            "export_type", "msprof_tx", "mstx", "host_sys", "mstx_domain_include", "mstx_domain_exclude", "sys_io",
            "sys_interconnection",
        ]  # fmt: skip
        assert template().startswith(b'{\n    "activities"')
        asked = parse(template())
        assert (asked.start_step, asked.active, asked.warmup, asked.activities, asked.ranks, asked.notes) == (
            0,
            1,
            0,
            None,
            None,
            (),
        )

    @pytest.mark.parametrize(
        ("given", "name", "value", "note"),
        [
            pytest.param({"active": 0}, "active", 1, "active=0 is not a whole number from 1; using 1", id="active"),
            pytest.param({"active": True}, "active", 1, "active=True is not a whole number", id="bool-is-no-number"),
            pytest.param({"warmup": -1}, "warmup", 0, "warmup=-1 is not a whole number from 0; using 0", id="warmup"),
            pytest.param({"start_step": -2}, "start_step", 0, "start_step=-2 is not a whole number from -1; using 0", id="start"),
            pytest.param({"is_rank": 1}, "ranks", None, "is_rank=1 is not true or false; using false", id="is_rank"),
            pytest.param({"is_rank": True}, "ranks", (), None, id="an-empty-list-is-nobody"),
            pytest.param({"is_rank": True, "rank_list": [1, -3, 1]}, "ranks", (1,), "others are ignored", id="rank_list"),
            pytest.param({"activities": ["cpu"]}, "activities", ("CPU",), None, id="any-case"),
            pytest.param({"activities": ["TPU"]}, "activities", None, "TPU is not one of CPU, NPU, CUDA", id="activities"),
            pytest.param({"analyse": "yes"}, "analyse", False, "analyse='yes' is not true or false", id="analyse"),
            pytest.param(
                {"is_rank": True, "analyse": True}, "analyse", False, "no effect with is_rank", id="ranks-without-analysis"
            ),
            pytest.param({"is_rank": True, "analyse": True, "async_mode": True}, "analyse", True, None, id="unless-asynchronous"),
            pytest.param({"prof_dir": 3}, "prof_dir", "./", "prof_dir=3 is not a non-empty string", id="prof_dir"),
            pytest.param({"start_stepp": 3}, "start_step", 0, "did you mean start_step?", id="unknown-key"),
            pytest.param({"metadata": {"a": {"tp": 2}}}, "metadata", {"a": {"tp": 2}}, None, id="metadata"),
        ],
    )
    def test_a_wrong_value_is_noted_and_replaced(self, given, name, value, note):
        asked = parse(json.dumps(given).encode())
        assert getattr(asked, name) == value
        assert (note in " ".join(asked.notes)) if note else not asked.notes

    @pytest.mark.parametrize("content", [b"", b"  \n", b'{"active": 1', b"[]", b"\xff\xfe", b"[" * 100_000, b" " * 2**20 + b"{}"])
    def test_what_is_no_object_is_an_error_with_a_reason(self, content):
        with pytest.raises(CaptureError, match=r"profiler_config\.json"):
            parse(content)

    def test_the_template_replaces_nothing(self, tmp_path):
        assert make_template(tmp_path)
        assert (tmp_path / "profiler_config.json").stat().st_mode & 0o777 == 0o640
        (tmp_path / "profiler_config.json").write_text("mine")
        assert not make_template(tmp_path)
        assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


class TestSteps:
    @pytest.mark.parametrize(
        ("asked", "steps", "expected"),
        [
            pytest.param({"at_3": {"start_step": -1, "active": 2}}, 6, [(3, 2)], id="the-next-step"),
            pytest.param({"at_1": {"start_step": 4, "active": 2, "warmup": 1}}, 9, [(4, 3)], id="a-step-to-come"),
            pytest.param({"at_3": {"start_step": 3}}, 5, [(3, 1)], id="this-step"),
            pytest.param({"at_3": {"start_step": 2}}, 5, [], id="a-step-that-has-passed"),
            pytest.param({"at_3": {"active": 2}}, 5, [], id="never"),
            pytest.param({"at_1": {"start_step": 3}, "at_2": {"start_step": 4}}, 6, [(4, 1)], id="the-later-request-counts"),
            pytest.param({"at_1": {"start_step": 3}, "at_2": {}}, 6, [], id="taken-back"),
            pytest.param(
                {"at_1": {"start_step": -1, "active": 3}, "at_2": {"start_step": -1}, "at_3": {"start_step": -1, "active": 2}},
                8,
                [(1, 3), (4, 2)],
                id="the-last-edit-during-a-capture-runs-after-it",
            ),
            pytest.param(
                {"at_1": {"start_step": -1, "active": 3}, "at_2": {"start_step": 3}}, 8, [(1, 3)], id="passed-during-a-capture"
            ),
            pytest.param(
                {"at_1": {"start_step": -1, "active": 3}, "at_2": {"start_step": 4}}, 8, [(1, 3), (4, 1)], id="back-to-back"
            ),
            pytest.param({"at_1": {"start_step": -1, "is_rank": True, "rank_list": [1]}}, 3, [], id="another-rank"),
            pytest.param({"at_1": {"start_step": -1, "is_rank": True, "rank_list": [0]}}, 3, [(1, 1)], id="this-rank"),
        ],
    )
    def test_which_steps_are_recorded(self, asked, steps, expected):
        assert spans(Job().run(steps, **asked)) == expected

    def test_each_state_says_what_it_is(self):
        job = Job().run(1, at_1={"start_step": 3, "active": 2, "request_id": "a"})
        assert job.state == ("waiting", "for step 3")
        assert job.run(2).state == ("collecting", "step 1 of 2")
        job.run(1, at_4={"start_step": 9, "request_id": "b"})
        assert (job.state, job.worker.progress.queued_id) == (("collecting", "step 2 of 2"), "b")
        assert (job.worker.progress.capture, job.worker.progress.busy_until) == ("/captures/3", 5)
        assert job.run(1).state == ("waiting", "for step 9")
        assert job.run(5).worker.progress == replace(job.worker.progress, state="done", request_id="b", capture="/captures/9")
        late = job.run(1, at_11={"start_step": 4}).worker.progress
        assert (late.state, late.text, late.late) == ("refused", "start_step 4 has passed: this is step 11", True)
        assert Job(rank=2).run(1, at_1={"start_step": 1, "is_rank": True, "rank_list": [0]}).state[0] == "left out"

    def test_stop_ends_what_runs_and_what_waits(self):
        job = Job().run(3, at_1={"start_step": -1, "active": 9}, at_2={"start_step": 5}, at_3={"stop": True})
        assert job.captures[0].ended == "stop"
        assert job.state == ("done", "stopped after 1 of 9 steps")
        assert spans(job.run(9)) == [(1, 1)]

    def test_what_cannot_start_is_refused_with_the_profilers_reason(self):
        job = Job(running=False, last_warning="too little disk space left for a capture").run(2, at_1={"start_step": -1})
        assert job.state == ("refused", "too little disk space left for a capture")
        assert "WARNING refused: too little disk space left for a capture" in job.log
        assert spans(job.run(1, at_3={"start_step": -1})) == [(1, 0), (3, 0)]  # and it listens on

    def test_what_fails_on_the_way_is_refused_with_its_step(self):
        job = Job().run(2, at_1={"start_step": -1, "active": 5})
        job.captures[0].running, job.captures[0].last_warning = False, "disk full"
        assert job.run(1).state == ("refused", "failed at step 2 of 5: disk full")

    def test_a_fault_of_ours_is_one_warning_and_training_goes_on(self, capsys):
        job = Job()
        job.worker._record = lambda request, step: 1 / 0
        assert job.run(3, at_1={"start_step": -1}).state[0] == "refused"
        assert capsys.readouterr().err.count("ZeroDivisionError") == 1

    @pytest.mark.parametrize(("rank", "captures"), [(0, []), (1, [(0, 1)]), (-1, [])])
    def test_start_obeys_the_ranks_of_a_request(self, rank, captures):
        job = Job(rank=rank, world_size=2)
        job.worker.start(parse(b'{"start_step": 7, "is_rank": true, "rank_list": [1], "analyse": true}'))
        assert spans(job.run(2)) == captures

    @pytest.mark.parametrize(
        ("job", "listed", "said"),
        [
            pytest.param(Job(rank=-1), [0], "rank_list is [0], but this process has no rank (RANK is not set", id="no-rank"),
            pytest.param(Job(rank=0, world_size=4), [4, 9], "rank_list is [4, 9], but the job has ranks 0 to 3", id="no-such-rank"),
            pytest.param(Job(rank=0, world_size=4), [], "rank_list is [], but an empty list names no rank", id="empty"),
            pytest.param(Job(rank=0, world_size=4), [3], None, id="another-rank"),
        ],
    )
    def test_ranks_that_do_not_exist_are_said_on_the_terminal(self, job, listed, said, capsys):
        job.run(1, at_1={"start_step": -1, "is_rank": True, "rank_list": listed})
        shown = capsys.readouterr().err
        assert (said in shown and "set is_rank to false" in shown) if said else shown == ""

    def test_requests_that_give_no_capture_are_said_on_the_terminal(self, capsys):
        job = Job().run(3, at_1={"start_step": 5}, at_2={"start_step": 6, "acitve": 2})
        shown = capsys.readouterr().err
        assert "acitve is not a key of profiler_config.json; did you mean active?" in shown
        assert "the request for step 5 was replaced by a newer one before it began" in shown
        job.worker.finish()
        assert "requested for step 6, but the job ended after step 3: it was not recorded" in capsys.readouterr().err
        job.run(1, at_4={"start_step": 2})
        assert "start_step 2 has passed: this is step 4; set -1 for the next step" in capsys.readouterr().err
        job.worker.deliver(parse(b'{"start_step": -1}'))
        job.worker.finish()
        assert "requested for the next step, but the job ended after step 4" in capsys.readouterr().err

    def test_a_request_that_was_taken_back_is_not_missed(self, capsys):
        job = Job().run(2, at_1={"start_step": 5}, at_2={"stop": True})
        job.worker.finish()
        assert capsys.readouterr().err == ""

    def test_start_ignores_the_step_and_yields_to_a_capture(self, capsys):
        job = Job().run(2)
        job.worker.start(CaptureRequest(start_step=70, active=2))
        job.worker.start(CaptureRequest(active=2))
        assert "dp.start has no effect: a capture is running, step 1 of 2" in capsys.readouterr().err
        # An edit while it runs is taken up afterwards.
        assert spans(job.run(6, at_3={"start_step": -1, "active": 2})) == [(2, 2), (4, 2)]

    def test_the_end_of_the_job_keeps_what_was_recorded(self):
        job = Job().run(2, at_1={"start_step": -1, "active": 5})
        job.worker.finish()
        assert job.captures[0].ended == "exit"
        assert job.state == ("done", "the job ended after 1 of 5 steps of the capture")

    def test_iterations_of_several_optimizers_count_once(self):
        counted = []
        iterations = Iterations(lambda: counted.append(1))
        first, second, third = (type("Optimizer", (), {})() for _ in range(3))
        for optimizer in [first, second] * 3:
            iterations.after_step(optimizer)
        assert len(counted) == 3
        del first, optimizer  # gone: the next one leads
        for _ in range(4):
            iterations.after_step(second)
        assert len(counted) == 7
        for _ in range(PATIENCE + 3):  # a phase of training without the one that led
            iterations.after_step(third)
        assert len(counted) == 7 + 3


class Folder:
    """A watched folder with a clock that the test turns."""

    def __init__(self, path, **monitor):
        self.path, self.file, self.now, self.job = path, path / "profiler_config.json", 100.0, Job()
        self.journal = Journal(path, 0)
        who = replace(board.of_this_process(0, 2), **monitor.pop("who", {}))
        since = monitor.pop("since_ns", 0)
        self.monitor = Monitor(path, self.job.worker, self.journal, lambda: who, since_ns=since, clock=lambda: self.now, **monitor)

    def ask(self, text, *, mtime_ns=None):
        self.file.write_text(text if isinstance(text, str) else json.dumps(text))
        if mtime_ns is not None:
            os.utime(self.file, ns=(mtime_ns, mtime_ns))

    def turn(self, steps=1, seconds=1.0):
        self.monitor.poll()
        self.job.run(steps)
        self.now += seconds
        return self

    def answer(self):
        self.monitor.poll()
        (seen,) = board.read(self.path)
        return seen.answer

    def log(self, begin):
        return "".join(path.read_text() for path in sorted((self.path / "log").glob(f"{begin}*")))


@pytest.fixture
def watched():
    made = []

    def watch(path, **monitor):
        made.append(Folder(path, **monitor))
        return made[-1]

    yield watch
    for folder in made:
        folder.journal.close()


class TestTrust:
    """Whoever may write to the folder decides where the job writes: only its user and root may."""

    def test_a_folder_that_everyone_may_write_to(self, watched, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        control = tmp_path / "control"
        control.mkdir()
        control.chmod(0o777)
        folder = watched(control)
        folder.ask({"start_step": -1})
        assert spans(folder.turn().job) == []
        answer = folder.answer()
        assert answer.state == board.REFUSED
        assert answer.text == f"requests are not followed: {control} is writable by everyone; run chmod o-w {control}"
        assert answer.problem in folder.log("monitor_dp")
        control.chmod(0o750)
        assert spans(folder.turn(steps=2).job) == []  # what somebody wrote meanwhile is not followed later
        folder.ask({"start_step": -1}, mtime_ns=time.time_ns() + 10**9)
        assert len(spans(folder.turn(steps=2).job)) == 1

    @pytest.mark.parametrize("outside", ["../../etc/x", "/etc/x", "link/x"])
    def test_captures_outside_the_allowed_folders(self, watched, tmp_path, monkeypatch, outside):
        (tmp_path / "job").mkdir()
        monkeypatch.chdir(tmp_path / "job")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        (tmp_path / "job" / "link").symlink_to("/etc")
        folder = watched(tmp_path)
        folder.ask({"start_step": -1, "prof_dir": outside, "request_id": "r1"})
        assert spans(folder.turn().job) == []
        answer = folder.answer()
        assert (answer.state, answer.request_id) == (board.REFUSED, "r1")
        assert "STEPSCOPE_PROF_ROOTS" in answer.text
        assert folder.job.log == [f"WARNING refused: {answer.text}"]

    def test_a_link_in_place_of_the_file(self, watched, tmp_path):
        folder = watched(tmp_path)
        (tmp_path / "elsewhere").write_text('{"start_step": -1}')
        folder.file.symlink_to(tmp_path / "elsewhere")
        assert spans(folder.turn().job) == []
        assert "is a symbolic link" in folder.answer().text

    def test_a_file_that_everyone_may_write(self, watched, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        folder = watched(tmp_path)
        folder.ask({"start_step": -1})
        folder.file.chmod(0o666)
        assert spans(folder.turn().job) == []
        assert "is writable by everyone" in folder.answer().text
        folder.file.chmod(0o640)
        assert len(spans(folder.turn().job)) == 1

    def test_answers_do_not_go_through_a_link(self, watched, tmp_path):
        (tmp_path / "control").mkdir()
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "control" / "status").symlink_to(tmp_path / "elsewhere")
        folder = watched(tmp_path / "control")
        folder.monitor.poll()
        assert list((tmp_path / "elsewhere").iterdir()) == []


class TestWatching:
    def test_two_edits_within_one_second_and_of_one_size_are_two(self, watched, tmp_path):
        folder = watched(tmp_path)
        for number in (3, 4, 5):
            folder.ask({"start_step": number}, mtime_ns=10**18 + number)
            folder.turn(steps=0)
        assert folder.log("monitor_dp").count("load json success") == 3
        assert spans(folder.job.run(9)) == [(5, 1)]

    def test_a_file_from_before_the_job_asks_for_nothing_until_it_is_touched(self, watched, tmp_path):
        folder = watched(tmp_path, since_ns=2000)
        folder.ask({"start_step": -1}, mtime_ns=1000)
        assert spans(folder.turn().job) == []
        folder.ask({"start_step": -1}, mtime_ns=1001)
        assert spans(folder.turn().job) == [(2, 0)]

    def test_a_file_written_for_the_job_counts_at_once(self, watched, tmp_path):
        folder = watched(tmp_path, since_ns=2000)
        folder.ask({"start_step": -1}, mtime_ns=3000)
        assert spans(folder.turn().job) == [(1, 0)]

    def test_ranks_agree_on_the_next_step(self, watched, tmp_path):
        def agree(key, request):
            return agreed_start(tmp_path, key, "", request.ranks)

        first, second, third = (
            watched(tmp_path, agree=agree, who={"rank": rank, "host": f"node{rank}", "job": ""}) for rank in (0, 1, 2)
        )
        first.ask({})
        for folder, steps in ((first, 40), (second, 45), (third, 30)):
            folder.turn(steps=0)
            folder.turn(steps=steps, seconds=0.1 * steps)
            folder.turn(steps=0)
        first.ask({"start_step": -1, "active": 2})
        for folder in (second, first):  # whoever sees it first chooses for all
            folder.turn(steps=200)
        assert spans(first.job) == spans(second.job)
        ((begin, taken),) = spans(first.job)
        assert taken == 2
        assert begin >= 45 + 25 + 2  # of the fastest: 45 steps in 5.5 s, and as fast through two looks of 1 s and one more
        third.job.run(300)
        third.turn(steps=4)
        assert spans(third.job) == [(331, 2)]
        assert f"WARNING begins at step 331, the other ranks at {begin}: this rank read the file too late" in third.job.log
        first.ask({"start_step": -1, "active": 3})
        first.turn()
        assert len(list((tmp_path / "status").glob("agreed_*"))) == 1

    @pytest.mark.parametrize(
        ("size", "asked"),
        [pytest.param("1", {}, id="one-process"), pytest.param("8", {"is_rank": True, "rank_list": [0]}, id="one-rank-of-many")],
    )
    def test_one_rank_begins_at_the_step_after_the_look(self, size, asked, watched, tmp_path, monkeypatch):
        """However fast steps are: no other rank has to be waited for."""
        monkeypatch.setenv("WORLD_SIZE", size)
        folder = watched(tmp_path, agree=lambda key, request: _common_step(tmp_path, key, "", request), who={"job": ""})
        folder.ask({})
        folder.turn(steps=400).turn(steps=400).turn(steps=0)
        folder.ask({"start_step": -1, **asked})
        folder.turn(steps=2)
        assert spans(folder.job) == [(801, 1)]

    def test_a_file_in_two_halves(self, watched, tmp_path):
        folder = watched(tmp_path)
        whole = to_json({**TEMPLATE, "start_step": -1}).decode()
        folder.ask(whole[:100])
        assert spans(folder.turn().job) == []
        answer = folder.answer()
        assert answer.state == "refused"
        assert answer.problem.startswith("profiler_config.json is not valid JSON: ")
        folder.ask(whole)
        assert spans(folder.turn().job) == [(2, 0)]
        assert folder.answer().problem is None
        assert folder.log("monitor_dp").count("is not valid JSON") == 1

    def test_a_deleted_file_is_said_once(self, watched, tmp_path):
        folder = watched(tmp_path)
        folder.ask({"start_step": -1})
        folder.turn()
        folder.file.unlink()
        folder.turn().turn().turn()
        assert folder.answer().problem == "profiler_config.json is missing; write it again to request a capture"
        assert folder.log("monitor_dp").count("is missing") == 1
        folder.ask({"start_step": -1})
        assert len(folder.turn().job.captures) == 2

    def test_a_full_folder_is_said_once_and_the_job_listens_on(self, watched, tmp_path, monkeypatch, capsys):
        folder = watched(tmp_path)
        folder.ask({"start_step": -1})

        def full(*_):
            raise OSError(28, "No space left on device")

        folder.turn(steps=0)
        monkeypatch.setattr("os.replace", full)
        monkeypatch.setattr("stepscope.collect.messages._printed", set())
        folder.turn(seconds=60).turn(seconds=60).turn()
        assert spans(folder.job) == [(1, 1)]
        assert capsys.readouterr().err.count("No space left on device") == 1
        (seen,) = board.read(tmp_path)
        assert (seen.answer.state, seen.answer.step) == ("done", 2)
        assert seen.answer.problem.endswith("No space left on device")
        assert [path.name for path in (tmp_path / "status").iterdir()] == [seen.answer.file_name()]  # and nothing half-written

    def test_a_watching_thread_that_fails_says_so_and_training_goes_on(self, watched, tmp_path, capsys):
        folder = watched(tmp_path)
        folder.monitor.read_config = lambda: 1 / 0
        folder.monitor._run()
        (seen,) = board.read(tmp_path)
        assert seen.answer.problem == "the watching thread failed; see the output of the job for the reason"
        assert capsys.readouterr().err.count("ZeroDivisionError") == 1
        assert folder.job.run(3).worker.cur_step == 3

    @pytest.mark.parametrize(("seconds", "expected"), [(0.02, 1), (1.9, 1), (7.9, 7), (1000, 50)])
    def test_the_time_between_two_looks_follows_the_steps(self, watched, tmp_path, seconds, expected):
        folder = watched(tmp_path)
        assert folder.monitor.poll_seconds == 1
        for _ in range(3):
            folder.turn(steps=1, seconds=seconds)
        assert folder.monitor.poll_seconds == expected

    def test_one_slow_step_does_not_make_later_captures_late(self, watched, tmp_path):
        folder = watched(tmp_path)
        folder.turn(steps=1, seconds=9).turn(steps=1, seconds=9).turn(steps=1, seconds=9)  # compiling, or waiting for an analysis
        assert folder.monitor.poll_seconds == 9
        folder.turn(steps=400, seconds=9).turn(steps=0)
        assert folder.monitor.poll_seconds == 1

    def test_a_changed_file_that_is_switched_off_is_said_on_the_terminal(self, watched, tmp_path, capsys):
        folder = watched(tmp_path)
        folder.file.write_bytes(template())
        folder.turn(steps=6)
        assert capsys.readouterr().err == ""
        folder.ask({**TEMPLATE, "active": 3})
        folder.turn()
        shown = capsys.readouterr().err
        assert "profiler_config.json was changed, but its start_step is 0, which means off: nothing is recorded" in shown
        assert "set -1 for the next step, or a number above 6" in shown
        folder.ask({"stop": True})
        folder.turn()
        assert capsys.readouterr().err == ""

    def test_answers_are_written_when_they_change_and_as_a_heartbeat(self, watched, tmp_path):
        folder = watched(tmp_path)
        folder.ask({})
        folder.turn(steps=10, seconds=1).turn(steps=10, seconds=1).turn(steps=10, seconds=1)
        assert folder.answer().step_seconds == pytest.approx(0.1)
        (path,) = (tmp_path / "status").glob("*.json")
        wrote = []
        for _ in range(30):
            before = path.stat().st_ino
            folder.turn(steps=10, seconds=1)
            wrote.append(path.stat().st_ino != before)
        assert 2 <= sum(wrote) <= 4

    def test_logs_keep_to_their_size_and_mode(self, tmp_path):
        journal = Journal(tmp_path, 3)
        for number in range(900):
            journal.action("INFO", f"line {number} " + "x" * 400)
            journal.flush()
        journal.close()
        plain, backup = sorted((tmp_path / "log").iterdir(), key=lambda path: len(path.name))
        assert plain.name.endswith("_rank_3.log")
        assert backup.name == f"{plain.name}.1"
        assert max(plain.stat().st_size, backup.stat().st_size) <= LARGEST
        assert plain.read_text().endswith("x\n")
        assert "[INFO]" in plain.read_text().splitlines()[-1]
        assert plain.stat().st_mode & 0o777 == 0o640


class TestSettings:
    def test_every_key_reaches_the_profiler(self, noting_tier, tmp_path):
        asked = {
            **TEMPLATE, "start_step": -1, "active": 2, "warmup": 1, "activities": ["cpu"], "prof_dir": str(tmp_path / "out"),
            "record_shapes": True, "profile_memory": True, "with_stack": True, "with_flops": True, "with_modules": True,
            "metadata": {"distributed_args": {"tp": 2}},
            "experimental_config": {
                "profiler_level": "Level1", "l2_cache": True, "op_attr": True, "gc_detect_threshold": 2, "mstx": True,
                "data_simplification": False, "record_op_args": True, "export_type": ["db"], "host_sys": ["cpu"],
                "mstx_domain_include": ["a"], "sys_io": True, "sys_interconnection": True,
            },
        }  # fmt: skip
        said = []
        capture = captures.Capture(parse(json.dumps(asked).encode()), 17, lambda level, text: said.append(text))
        settings = capture._profiler.prof_if.settings
        assert settings.activities == ("CPU",)
        assert all(vars(settings.switches).values())
        names = (
            "_profiler_level", "_aic_metrics", "_l2_cache", "_op_attr", "_gc_detect_threshold", "_mstx", "_data_simplification",
            "record_op_args", "_export_type", "_host_sys", "_mstx_domain_include", "_sys_io", "_sys_interconnection",
        )  # fmt: skip
        expected = ["Level1", "ACL_AICORE_PIPE_UTILIZATION", True, True, 2, True, False, True, ["db"], ["cpu"], ["a"], True, True]
        assert [settings.experimental[name] for name in names] == expected
        assert [capture.step() for _ in range(3)] == [False, False, True]
        assert not capture.running
        assert [call for call in noting_tier if call.startswith("push")] == ["push ProfilerStep#18", "push ProfilerStep#19"]
        assert capture.path.startswith(str(tmp_path / "out"))
        assert json.loads((tmp_path / "out" / capture.path / "profiler_metadata.json").read_text())["distributed_args"] == {"tp": 2}

    @pytest.mark.parametrize("own", [True, False], ids=["its-own-file", "the-file-of-init"])
    def test_start_obeys_the_file_of_init_as_a_whole(self, own, noting_tier, tmp_path, capsys):
        folder = tmp_path / "ctl"
        folder.mkdir(mode=0o750)
        file = folder / ("own.json" if own else "profiler_config.json")
        file.write_text(json.dumps({"is_rank": True, "rank_list": [3], "analyse": True}))
        session = Session(folder)
        try:
            session.start(str(folder / "own.json"))
        finally:
            session.end()
        shown = capsys.readouterr().err
        assert ("start" in noting_tier) == own
        assert (f"is_rank and rank_list of {file} have no effect: every rank that calls dp.start records" in shown) == own
        assert ("analyse has no effect with is_rank" in shown) == (not own)
        assert ("nothing is recorded: rank_list is [3]" in shown) == (not own)

    def test_start_names_the_file_that_is_broken_and_the_one_used_instead(self, noting_tier, tmp_path, capsys):
        (tmp_path / "broken.json").write_text("{oops")
        session = Session(tmp_path / "ctl")
        try:
            session.start(str(tmp_path / "broken.json"))
        finally:
            session.end()
        shown = capsys.readouterr().err
        assert f"dp.start: {tmp_path / 'broken.json'} is not valid JSON" in shown
        assert f"dp.start uses the file of dp.init instead: {tmp_path / 'ctl' / 'profiler_config.json'}" in shown
        assert noting_tier[:2] == ["prepare", "start"]

    def test_the_template_warns_of_nothing(self, noting_tier):
        said = []
        captures.Capture(parse(template()), 1, lambda level, text: said.append((level, text))).step()
        ((level, text),) = said
        assert (level, text.split(";")[1][:25]) == ("INFO", " next: stepscope verdict ")

    def test_a_full_disk_is_the_reason(self, noting_tier, monkeypatch):
        monkeypatch.setenv("STEPSCOPE_MIN_FREE_BYTES", str(1 << 60))
        capture = captures.Capture(CaptureRequest(), 1, lambda level, text: None)
        assert not capture.running
        assert "too little disk space left for a capture" in capture.last_warning


def test_the_start_of_this_process_is_known():
    assert abs(_process_start_ns() / 1e9 - psutil.Process().create_time()) < 2


def test_keys_of_ours_are_told_apart():
    assert set(KEYS) - set(TEMPLATE) == {"metadata", "request_id", "stop"}
