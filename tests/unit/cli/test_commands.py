"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import re

import pytest
from kineto_events import event, kernel, written

from raw_capture import capture
from stepscope.cli import main
from stepscope.verdict.finding import tidy


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def ranks(tmp_path):
    """Two ranks of three steps; a step of seven parts divides into no short fractions."""
    for rank in (0, 1):
        events = []
        for step in range(3):
            at, number = 1000 + 700 * step, 10 * rank + step + 1
            events += [
                event("user_annotation", f"ProfilerStep#{step}", at, 690),
                event("cpu_op", "aten::mm", at + 10, 50, args={"External id": number}),
                event("cuda_runtime", "cudaLaunchKernel", at + 20, 5, args={"correlation": number, "External id": number}),
                kernel("gemm", at + 40, 300 + 7 * step, number, number),
                kernel("gelu", at + 400, 100 + 11 * step, number, number),
            ]
        written(tmp_path, events, f"rank{rank}.pt.trace.json", distributedInfo={"rank": rank, "world_size": 2})
    return tmp_path


def test_analyse_names_the_folder_and_the_next_command(tmp_path, capsys):
    folder = capture(tmp_path)
    code, out, err = run(capsys, "analyse", folder, "--export", "text,perfetto,parquet")
    assert code == 0, err
    assert out.startswith(f"{folder}/ASCEND_PROFILER_OUTPUT: ")
    assert err.strip() == f"next: stepscope top {folder}"
    assert (folder / "ASCEND_PROFILER_OUTPUT" / "perfetto_trace.json.gz").exists()
    assert (folder / "ASCEND_PROFILER_OUTPUT" / "parquet" / "ops.parquet").exists()


def test_a_bad_capture_gives_four_lines_and_code_3(tmp_path, capsys):
    code, out, err = run(capsys, "analyse", tmp_path / "nowhere")
    assert (code, out) == (3, "")
    assert err.splitlines() == [
        "error: no such file or folder",
        f"  where: {tmp_path}/nowhere",
        "  do this: check the path; a capture folder ends in _ascend_pt or _ascend_ms",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyse"],
        ["analyse", "x", "--export", "pdf"],
        ["analyse", "x", "--jobs", "0"],
        ["analyse", "x", "--max-memory", "lots"],
        ["--fly"],
    ],
)
def test_wrong_usage_gives_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: stepscope" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        (["top", "x", "--bye", "step"], "stepscope top: error: unrecognized arguments: --bye step; did you mean --by?"),
        (["top", "x", "--formt=json"], "stepscope top: error: unrecognized arguments: --formt=json"),
        (["record", "--profle", "steps=1", "--", "true"], "--profle; did you mean --profile?"),
    ],
)
def test_an_unknown_option_is_said_by_its_command_with_the_nearest_one(arguments, last, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    shown = capsys.readouterr().err.splitlines()
    assert shown[0].startswith(f"usage: stepscope {arguments[0]}")
    assert shown[-1].endswith(last)


@pytest.mark.parametrize(("word", "near"), [("tpo", "; did you mean top?"), ("fly", "")])
def test_an_unknown_command_is_two_lines(word, near, capsys):
    code, out, err = run(capsys, word, "x")
    assert (code, out) == (2, "")
    assert err == f"error: there is no command {word}{near}\n  do this: stepscope -h lists all commands\n"


def test_no_command_shows_the_help(capsys):
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert "what costs time, and what to do" in err


def test_info_as_json(tmp_path, capsys):
    code, out, _ = run(capsys, "info", capture(tmp_path), "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["rank"], facts["rows"]["ops"], facts["rows"]["queue"]) == (0, 1, 2)
    assert "record_shapes" in facts["switches"]


def test_info_and_analyse_show_what_was_lost(tmp_path, capsys):
    folder = capture(tmp_path)
    torn = folder / "FRAMEWORK" / "torch.op_range"
    torn.write_bytes(torn.read_bytes() + b"\1\0\xff\0\0\0rest")
    _, out, _ = run(capsys, "info", folder)
    assert "  quality    1 record lost\n    loss     1 record was cut off [torch.op_range: at byte 258: 10 bytes lost]\n" in out
    _, out, _ = run(capsys, "info", folder, "--lang", "zh")
    assert "丢失 1 条记录\n    丢失       1 条记录被截断" in out
    _, out, _ = run(capsys, "info", folder, "--json")
    said = json.loads(out)["quality"]
    assert said["lost"] == {"records": 1}
    assert [(one["issue"], one["count"]) for one in said["issues"]] == [("truncated-record", 1)]
    code, _, err = run(capsys, "analyse", folder)
    assert code == 0
    assert "  loss: 1 record was cut off [torch.op_range: at byte 258: 10 bytes lost]\n" in err


def test_a_recording_that_did_not_end_is_said_in_the_first_line(tmp_path, capsys):
    folder = capture(tmp_path)
    (info,) = folder.glob("profiler_info*.json")
    info.write_text(json.dumps({**json.loads(info.read_text()), "collector": {"complete": False}}))
    _, out, _ = run(capsys, "info", folder)
    assert out.splitlines()[0] == f"{folder}: the recording did not end: the process was killed, or is still recording"
    _, out, _ = run(capsys, "info", folder, "--json")
    assert json.loads(out)["quality"]["headline"]["zh"] == "采集没有正常结束：进程被终止，或仍在采集"


def test_info_warns_of_a_rank_that_occurs_twice(tmp_path, capsys):
    for letter in "ab":
        capture(tmp_path, f"{letter}_1_20260101000000000_ascend_pt")
    code, _, err = run(capsys, "info", tmp_path)
    assert code == 0
    assert "rank 0 occurs 2 times" in err


@pytest.mark.parametrize(("by", "name"), [("op", "aten::mm"), ("module", "Linear_0")])
def test_top_lists(tmp_path, capsys, by, name):
    code, out, _ = run(capsys, "top", capture(tmp_path), "--by", by)
    assert code == 0
    assert name in out


@pytest.mark.parametrize("by", ["kernel", "step"])
def test_top_of_nothing_says_so(tmp_path, capsys, by):
    code, _, err = run(capsys, "top", capture(tmp_path), "--by", by)
    assert code == 0
    assert "nothing to show" in err


def test_waits_are_among_kernels_only_if_asked_for(tmp_path, capsys):
    wait = event("cuda_sync", "Stream Sync", 30, 900, pid=0, tid=7, args={"device": 0, "stream": 7})
    path = written(tmp_path, [event("cpu_op", "aten::mm", 1, 5), kernel("gemm", 20, 3, 1, 1), wait])
    code, out, err = run(capsys, "top", path, "--by", "kernel")
    assert (code, "gemm" in out, "Stream Sync" in out) == (0, True, False)
    assert "1 waits and tasks inside communication operators are left out: --all-tasks" in err
    _, out, _ = run(capsys, "top", path, "--by", "kernel", "--all-tasks", "--json")
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["Stream Sync", "gemm"]


def test_top_as_json_lines(tmp_path, capsys):
    _, out, _ = run(capsys, "top", capture(tmp_path), "--json")
    assert [json.loads(line)["calls"] for line in out.splitlines()] == [1]


@pytest.mark.parametrize("command", [("info", "--json"), ("verdict", "--json"), ("top", "--by", "kernel", "--json")])
def test_figures_have_no_more_digits_than_they_mean(command, ranks, capsys):
    """A third is 0.333333, not 0.3333333333333333; columns are called the same everywhere."""
    code, out, _ = run(capsys, *command, ranks)
    assert code == 0
    assert re.findall(r"\d\.\d{7,}", out) == []
    assert re.findall(r'"[^"]*%"\s*:', out) == []


@pytest.mark.parametrize(("value", "shown"), [(1 / 3, 0.333333), (2e-7 / 3, 6.667e-08), (12, 12), ("1/3", "1/3"), (None, None)])
def test_parameters_of_findings_have_no_more_digits_than_they_mean(value, shown):
    assert tidy(value) == shown


def test_one_rank_can_be_asked_about(ranks, capsys):
    _, out, _ = run(capsys, "info", ranks, "--rank", "1", "--json")
    assert [json.loads(line)["rank"] for line in out.splitlines()] == [1]
    code, _, err = run(capsys, "info", ranks, "--rank", "7")
    assert code == 3
    assert "ranks here: 0, 1" in err


@pytest.mark.parametrize("command", [("top", "--json"), ("info",), ("info", "--json")])
def test_out_takes_what_would_be_printed(command, tmp_path, capsys):
    folder = capture(tmp_path)
    name, *options = command
    _, printed, _ = run(capsys, name, folder, *options)
    code, out, err = run(capsys, name, folder, *options, "--out", tmp_path / "result")
    assert (code, out) == (0, "")
    assert f"wrote {tmp_path / 'result'}" in err
    assert (tmp_path / "result").read_text() == printed != ""


def test_an_out_that_cannot_be_written_is_an_error_in_words(tmp_path, capsys):
    code, out, err = run(capsys, "top", capture(tmp_path), "--out", tmp_path / "nowhere" / "result")
    assert (code, out) == (2, "")
    assert str(tmp_path / "nowhere" / "result") in err
    assert "Traceback" not in err
