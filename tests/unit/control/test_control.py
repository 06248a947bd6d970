"""`stepscope ctl`: what it asks for, and what it makes of the ranks' answers."""

from __future__ import annotations

import json
import os
import time
from functools import partial

import pytest

from stepscope.cli import main
from stepscope.control import board, plan
from stepscope.control.board import AgedAnswer, Answer
from stepscope.control.config import TEMPLATE, parse
from stepscope.control.requests import Patience


def answer(rank=0, **others):
    own = board.of_this_process(rank, 2)
    return Answer(**{**vars(own), "host": f"node{rank}", "poll_seconds": 0.1, **others})


class TestPlan:
    @pytest.mark.parametrize(
        ("ranks", "lead", "expected"),
        [
            pytest.param([(100, 0.1, 0), (98, 0.1, 0)], 3.0, 132, id="the-fastest-rank-decides"),
            pytest.param([(100, 0.1, 2.0), (118, 0.1, 0)], 3.0, 152, id="an-old-answer-is-carried-on"),
            pytest.param([(100, 60.0, 0)], 3.0, 103, id="long-steps"),
            pytest.param([(0, None, 5.0)], 3.0, 12, id="no-speed-known"),
            pytest.param([(0, None, 5.0), (40, 0.1, 0)], 1.0, 52, id="one-speed-known"),
        ],
    )
    def test_common_start(self, ranks, lead, expected):
        seen = [AgedAnswer(answer(number, step=step, step_seconds=pace), age) for number, (step, pace, age) in enumerate(ranks)]
        assert plan.common_start(seen, lead) == expected

    def test_who_knows_the_step_of_this_moment_is_believed(self):
        """At the beginning of a job answers are ten seconds old, and its first step took seconds."""
        seen = [AgedAnswer(answer(number, step=1, step_seconds=pace), 9.0) for number, pace in enumerate((2.0, 0.002))]
        assert plan.common_start(seen, 3.0, (120, 0.010)) == 422
        assert plan.common_start(seen, 3.0, (120, 0.0)) == 6003  # its speed is not known yet
        running = [AgedAnswer(answer(0, step=100, step_seconds=0.1, busy_until=600), 0)]
        assert plan.common_start([*seen, *running], 3.0, (120, 0.010)) == 602

    def test_nothing_begins_before_the_end_of_the_capture_that_runs(self):
        seen = [
            AgedAnswer(answer(0, step=100, step_seconds=0.1, busy_until=600), 0),
            AgedAnswer(answer(1, step=100, step_seconds=0.1), 0),
        ]
        assert plan.common_start(seen, 3.0) == 602

    def test_lead_is_two_looks_of_the_slowest_rank(self):
        assert plan.lead_seconds([AgedAnswer(answer(poll_seconds=1), 0), AgedAnswer(answer(poll_seconds=7), 0)]) == 15


class TestBoard:
    def test_a_killed_process_is_told_from_a_live_one(self, tmp_path):
        here = board.of_this_process(0, 1)
        board.write(
            tmp_path, Answer(**{**vars(here), "rank": 1, "born": here.born + 1, "state": "collecting", "text": "step 2 of 5"})
        )
        (seen,) = board.read(tmp_path)
        assert (seen.answer.state, seen.live) == ("killed", False)
        assert seen.answer.text == "the process was killed; before that: collecting, step 2 of 5"
        board.write(tmp_path, here)
        assert [seen.live for seen in board.read(tmp_path)] == [True]  # the file is named by the process, so it took it over
        # In another container the number is somebody else's.
        board.write(tmp_path, Answer(**{**vars(here), "namespace": "pid:[1]", "born": 1}))
        assert [seen.answer.state for seen in board.read(tmp_path)] == ["idle"]

    def test_containers_of_one_name_and_pid_keep_their_own_answers(self, tmp_path, monkeypatch):
        """Both are PID 1 of a host `trainer`, and their folder is shared."""
        for rank in (0, 1):
            monkeypatch.setattr(board, "_tokens", {})  # as in another process
            board.write(tmp_path, board.of_this_process(rank, 2))
        assert [aged.answer.rank for aged in board.read(tmp_path)] == [0, 1]

    def test_silence_and_an_end(self, tmp_path):
        board.write(tmp_path, answer(0))
        board.write(tmp_path, answer(1, state="ended"))
        old = time.time() - 100
        os.utime(tmp_path / "status" / answer(0).file_name(), (old, old))
        assert [(seen.answer.state, seen.live) for seen in board.read(tmp_path)] == [("silent", False), ("ended", False)]

    def test_leftovers_of_this_machine_go_with_the_next_job(self, tmp_path):
        here = board.of_this_process(0, 1)
        board.write(tmp_path, Answer(**{**vars(here), "pid": 2**22 + 1}))
        board.write(tmp_path, here)
        board.write(tmp_path, answer(1, state="ended"))
        (tmp_path / "status" / "notes.json").write_text("[1")
        board.clear_leftovers(tmp_path)
        assert {seen.answer.host for seen in board.read(tmp_path)} == {here.host, "node1"}


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Two ranks that answer each request when somebody waits for it; `late` of them had passed the step."""

    class Job:
        late = 0
        refusing: str | None = None
        steps = 100

        def __init__(self):
            self.asked = []

        def say(self, request=None):
            for rank in (0, 1):
                told = {"step": self.steps, "step_seconds": 0.01}
                if request is not None:
                    told |= self.reply(rank, request)
                board.write(tmp_path, answer(rank, **told))

        def reply(self, rank, request):
            if not request.wants(rank):
                return {}
            if rank == 1 and len(self.asked) <= self.late:
                return {"state": "refused", "late": True, "request_id": request.request_id}
            if rank == 1 and self.refusing:
                return {"state": "refused", "text": self.refusing, "request_id": request.request_id}
            done = "idle" if request.stop else "done"
            return {"state": done, "request_id": request.request_id, "capture": f"/captures/{rank}"}

        def look(self, seconds):
            given = json.loads((tmp_path / "profiler_config.json").read_text())
            self.asked.append(given)
            self.say(parse(json.dumps(given).encode()))

    made = Job()
    made.say()
    monkeypatch.setattr("stepscope.control.requests.Patience", partial(Patience, sleep=made.look))
    return made


def ctl(capsys, tmp_path, *arguments):
    code = main(["ctl", str(tmp_path), *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


class TestCommand:
    def test_start_asks_all_ranks_for_one_step_ahead_of_them(self, job, tmp_path, capsys):
        options = ["--steps", "3", "--level", "1", "--memory", "--stack", "--export", "db", "--out", "here"]
        code, out, err = ctl(
            capsys, tmp_path, "start", *options, "--set", "experimental_config.op_attr=true", "--set", "metadata.lr=0.1"
        )
        assert code == 0, err
        (asked,) = job.asked
        first = asked["start_step"]
        assert 100 + 120 < first < 100 + 500  # 1.2 s ahead at 10 ms a step, and what this test took
        assert err.strip() == f"2 ranks, steps {first} to {first + 2}; next: stepscope ctl {tmp_path} status"
        assert out.splitlines()[1].startswith("0\tdone\t")
        differs = {key: value for key, value in asked.items() if value != TEMPLATE.get(key) and key != "request_id"}
        inner = differs.pop("experimental_config")
        assert differs == {
            "start_step": first, "active": 3, "profile_memory": True, "with_stack": True, "metadata": {"lr": 0.1},
            "prof_dir": os.path.abspath("here"),
        }  # fmt: skip
        assert {key: value for key, value in inner.items() if value != TEMPLATE["experimental_config"][key]} == {
            "profiler_level": "Level1", "aic_metrics": None, "op_attr": True, "export_type": ["db"],
        }  # fmt: skip

    def test_chosen_ranks(self, job, tmp_path, capsys):
        code, out, _ = ctl(capsys, tmp_path, "start", "--ranks", "1", "--start-step", "5000", "--analyse", "--json")
        assert code == 0
        assert [json.loads(line)["capture"] for line in out.splitlines()] == ["/captures/1"]
        (asked,) = job.asked
        assert (asked["is_rank"], asked["rank_list"], asked["start_step"], asked["async_mode"]) == (True, [1], 5000, True)

    def test_one_rank_alone_begins_at_once(self, job, tmp_path, capsys):
        code, _, err = ctl(capsys, tmp_path, "start", "--ranks", "1", "--steps", "2")
        assert code == 0
        assert [asked["start_step"] for asked in job.asked] == [-1]
        assert err.strip() == f"1 rank, the next 2 steps; next: stepscope ctl {tmp_path} status"

    def test_a_rank_that_had_passed_the_step_makes_it_choose_a_later_one(self, job, tmp_path, capsys):
        job.late = 1
        code, _, err = ctl(capsys, tmp_path, "start")
        assert code == 0, err
        first, second = (asked["start_step"] for asked in job.asked)
        assert second > first + 100

    def test_a_rank_that_refuses_is_named_with_its_reason(self, job, tmp_path, capsys):
        job.refusing = "too little disk space left for a capture"
        code, out, err = ctl(capsys, tmp_path, "start")
        assert code == 1
        assert "1\trefused\ttoo little disk space left for a capture" in out
        assert "not every rank records" in err

    def test_a_rank_that_does_not_answer(self, job, tmp_path, capsys):
        job.reply = lambda rank, request: {} if rank else {"state": "waiting", "request_id": request.request_id}
        code, _, err = ctl(capsys, tmp_path, "start", "--timeout", "0")
        assert code == 1
        assert "no answer yet from rank" in err

    def test_stop_and_status(self, job, tmp_path, capsys):
        assert ctl(capsys, tmp_path, "stop")[0] == 0
        assert job.asked[0]["stop"] is True
        code, out, _ = ctl(capsys, tmp_path, "status", "--json")
        assert code == 0
        assert [(line["rank"], line["state"], line["step"]) for line in map(json.loads, out.splitlines())] == [
            (0, "idle", 100),
            (1, "idle", 100),
        ]

    @pytest.mark.parametrize(
        ("arguments", "what", "cause"),
        [
            (["start", "--start-step", "7"], "step 7 has passed", "the job is at step"),
            (["start", "--ranks", "0,5"], "no answer from rank 5", "ranks that answer: 0, 1"),
            (["start", "--set", "startstep=3"], "startstep is not a key of profiler_config.json", "use one of"),
        ],
    )
    def test_what_cannot_be_asked_says_why(self, job, tmp_path, capsys, arguments, what, cause):
        code, _, err = ctl(capsys, tmp_path, *arguments)
        assert code == 3
        assert err.startswith(f"error: {what}")
        assert cause in err

    def test_a_folder_that_nobody_watches(self, tmp_path, capsys):
        for arguments, what in ((["start"], "no running job watches this folder"), (["status"], "no job has used this folder")):
            code, _, err = ctl(capsys, tmp_path, *arguments)
            assert (code, err.splitlines()[0]) == (3, f"error: {what}")
        assert ctl(capsys, tmp_path / "nowhere", "status")[0] == 3

    def test_a_folder_that_is_full_keeps_the_old_request(self, job, tmp_path, capsys, monkeypatch):
        (tmp_path / "profiler_config.json").write_text("old")

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("stepscope.collect.paths.write_file", full)
        code, _, err = ctl(capsys, tmp_path, "start")
        assert code == 3
        assert "No space left on device; the previous file is unchanged" in err
        assert (tmp_path / "profiler_config.json").read_text() == "old"

    @pytest.mark.parametrize(
        "arguments", [["start", "--steps", "0"], ["start", "--level", "3"], ["start", "--export", "pdf"], ["fly"]]
    )
    def test_wrong_usage(self, tmp_path, capsys, arguments):
        with pytest.raises(SystemExit) as ended:
            main(["ctl", str(tmp_path), *arguments])
        assert ended.value.code == 2
