# SPDX-License-Identifier: Apache-2.0
"""`stepscope verdict` and `stepscope whatif` on a small trace: twenty kernels, and a wait of the host behind each."""

from __future__ import annotations

import json

import pytest
from kineto_events import event, kernel, written

from stepscope.cli import main


@pytest.fixture
def trace(tmp_path):
    """Every 300 us an operator launches a kernel of 100 us and waits for it."""
    events = []
    for number in range(20):
        at = 1000 + 300 * number
        events += [
            event("cpu_op", "aten::item", at, 250, args={"External id": number + 1}),
            event("cuda_runtime", "cudaLaunchKernel", at + 100, 5, args={"correlation": number + 1, "External id": number + 1}),
            event("cuda_runtime", "cudaStreamSynchronize", at + 106, 110, args={}),
            kernel("gemm", at + 110, 100, number + 1, number + 1),
        ]
    events.append(event("user_annotation", "ProfilerStep#7", 1000, 6000))
    return written(tmp_path, events)


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_text_fits_eighty_columns_and_answers_first(trace, capsys):
    code, out, _ = run(capsys, "verdict", trace, "--lang", "en")
    assert code == 0
    assert out.startswith("Step ")
    assert "launches" in out  # one wait behind each
    assert max(map(len, out.splitlines())) <= 80


def test_chinese(trace, capsys):
    _, out, _ = run(capsys, "verdict", trace, "--lang", "zh")
    assert out.startswith("单步 ")


def test_json_is_one_document(trace, capsys):
    code, out, _ = run(capsys, "verdict", trace, "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert found["schema"] == "stepscope.verdict/1"
    assert found["ranks"][0]["partition"]["total"] > 0
    assert {finding["rule"] for finding in found["findings"]} & {"launch-blocking", "sync-stall"}


@pytest.mark.parametrize("form", ["md", "html"])
def test_other_forms_go_to_a_file(trace, capsys, tmp_path, form):
    target = tmp_path / f"answer.{form}"
    code, out, err = run(capsys, "verdict", trace, "--format", form, "--out", target, "--lang", "en")
    assert (code, out, err) == (0, "", f"wrote {target}\n")
    assert "Step " in target.read_text()
    assert "<script" not in target.read_text()


def test_a_gate(trace, capsys):
    assert run(capsys, "verdict", trace, "--fail-on", "low")[0] == 1
    assert run(capsys, "verdict", trace, "--fail-on", "high", "--rules", "memory-leak")[0] == 0


def test_unknown_rules_are_refused(trace, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["verdict", str(trace), "--rules", "no-such"])
    assert stop.value.code == 2
    assert "no-such is not one of" in capsys.readouterr().err


def test_whatif(trace, capsys):
    code, out, _ = run(capsys, "whatif", trace, "--scale", "kernel~gemm=0", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["then_ms"] < found["now_ms"]
    code, _, err = run(capsys, "whatif", trace, "--without", "sync", "--ranks", "7")
    assert (code, "no capture of rank 7" in err) == (3, True)
    assert run(capsys, "whatif", trace, "--without", "sync", "--ranks", "all")[0] == 0
    code, _, err = run(capsys, "whatif", trace, "--scale", "gemm")
    assert code == 3
    assert "is not a change" in err
