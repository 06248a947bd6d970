# SPDX-License-Identifier: Apache-2.0
"""What the job hears of the analysis that it waits for."""

from __future__ import annotations

from stepscope.collect import analysis_process
from stepscope.collect.analysis_process import Outcome, analyse_capture


def test_how_long_the_job_waited_and_which_steps_were_asked_for_in_vain(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("RANK", raising=False)
    asked = []
    monkeypatch.setattr(analysis_process, "AnalysisProcess", lambda wanted: asked.append(wanted["steps"]))
    unmet = "steps [99] were not recorded"
    monkeypatch.setattr(analysis_process, "wait_with_progress", lambda process: Outcome(True, None, 1.13, (), unmet))
    analyse_capture(tmp_path, background=False, extra={"steps": [99]})
    assert asked == [[99]]
    begins, problem, ends = capsys.readouterr().err.splitlines()
    assert "sync mode, for which the job waits (async_mode=True does not wait)" in begins
    assert "[ERROR]" in problem
    assert f"{unmet}: {tmp_path}" in problem
    assert ends.endswith(f"parsed in a total time of 1.1 s; the job waited for it; next: stepscope top {tmp_path}")
