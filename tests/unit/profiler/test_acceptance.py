"""Which test covers which line of docs/formats/profiler-api.md 24, 26, and the tests that stand nowhere else.

Tested elsewhere: the dynamic profiler and marks (26.7 to 26.9, marks of 26.10, R-10 to R-12, R-25, R-26). R-27 (a small
capture analysed inside the training process) is not followed: analysis is always another process.
"""

from __future__ import annotations

import ast
import multiprocessing
from pathlib import Path

import orjson
import pytest

import stepscope
from stepscope import analyser, profiler
from stepscope.collect.sources.param_tensors import write_param_tensors
from stepscope.collect.tiers.choice import TierReport
from stepscope.formats.discover import find
from stepscope.formats.framework import FrameworkClock, read
from stepscope.profiler import profile
from stepscope.simplify import simplify

TESTS = Path(__file__).resolve().parents[2]
STANDS_FOR = """
26.1 unit/profiler/test_schedule.py test_vectors
26.1 unit/profiler/test_schedule.py test_wrong_numbers_become_defaults
26.1 unit/profiler/test_schedule.py test_negative_step_raises
26.2 unit/profiler/test_states.py test_call_trace_of_nine_steps
26.3 unit/profiler/test_states.py test_transitions
26.3 unit/profiler/test_states.py test_stop
26.4 unit/profiler/test_places.py test_parent_folder
26.4 unit/profiler/test_places.py test_modes
26.4 unit/profiler/test_places.py test_name
26.5 unit/profiler/test_states.py test_never_started_does_nothing
26.5 unit/profiler/test_states.py test_start_twice_and_stop_twice_are_warnings
26.5 unit/profiler/test_states.py test_before_start_is_a_warning
26.5 unit/profiler/test_states.py test_start_again_makes_another_capture
26.5 unit/profiler/test_states.py test_start_again_with_an_exhausted_schedule_warns
26.5 unit/profiler/test_states.py test_the_second_of_two_profilers_has_no_effect
26.5 unit/profiler/test_states.py test_exception_of_the_body_comes_out_after_the_handler
26.5 unit/profiler/test_states.py test_exception_in_the_handler_is_shown_as_its_own_and_once_per_capture
26.5 unit/profiler/test_states.py test_keyboard_interrupt_passes_and_saves
26.5 unit/profiler/test_states.py test_destruction_stops
26.5 faults/job/test_profiler_faults.py test_fork_while_recording
26.5 faults/job/test_profiler_faults.py test_the_process_ends_inside_a_recording
26.5 faults/job/test_profiler_faults.py test_an_unwritable_folder
26.5 faults/job/test_profiler_faults.py test_exception_in_the_training_step
26.5 unit/profiler/test_places.py test_impossible_folders_record_nothing
26.6 unit/profiler/test_arguments.py test_wrong_or_contradictory_fields_warn_once
26.10 unit/profiler/test_torch.py test_batches_of_a_data_loader
26.11 unit/collect/test_recording.py test_metadata_limits
26.11 unit/collect/test_recording.py test_metadata_goes_into_every_capture
26.12 unit/collect/test_recording.py test_gc_threshold
26.12 unit/collect/test_recording.py test_a_collection_that_began_before_us_is_left_out
26.13 unit/profiler/test_torch.py test_child_threads
26.13 unit/collect/tiers/test_observer.py test_other_threads_record_when_asked
26.14 unit/profiler/test_torch.py test_exports
26.15 unit/profiler/test_torch.py test_offline_analysis
26.16 unit/profiler/test_acceptance.py test_26_16_exactly_these_paths_are_removed
26.17 unit/profiler/test_states.py test_warnings_are_silent_on_other_ranks
26.18 seeds/test_collection_samples.py test_profile_with_schedule_and_handler
26.18 seeds/test_collection_samples.py test_export_chrome_trace
26.18 seeds/test_collection_samples.py test_kineto_profile
26.18 seeds/test_collection_samples.py test_metadata
26.18 seeds/test_collection_samples.py test_memory_timeline
26.18 seeds/test_collection_samples.py test_child_threads
26.18 seeds/test_collection_samples.py test_offline_analysis
26.18 seeds/test_collection_samples.py test_handler_for_shared_storage
R-01 unit/profiler/test_arguments.py test_wrong_or_contradictory_fields_warn_once
R-02 unit/profiler/test_arguments.py test_wrong_or_contradictory_fields_warn_once
R-01 unit/profiler/test_arguments.py test_defaults_are_silent_and_in_the_documented_order
R-02 unit/profiler/test_arguments.py test_defaults_are_silent_and_in_the_documented_order
R-03 unit/profiler/test_states.py test_without_a_schedule_there_are_no_warnings_and_no_steps
R-04 unit/profiler/test_torch.py test_exports
R-05 unit/profiler/test_states.py test_exception_in_the_handler_is_shown_as_its_own_and_once_per_capture
R-06 unit/profiler/test_places.py test_two_handlers_made_before_use_do_not_mix
R-06 unit/profiler/test_places.py test_path_creator_serves_custom_handlers_only
R-07 unit/collect/test_recording.py test_metadata_goes_into_every_capture
R-08 unit/profiler/test_states.py test_never_started_does_nothing
R-09 unit/collect/test_recording.py test_info_is_read_back
R-13 unit/profiler/test_acceptance.py test_r13_dropped_records_are_counted_and_shown
R-14 unit/analysis/link/test_op_tree.py test_threads_have_their_own_trees
R-15 unit/profiler/test_acceptance.py test_r15_one_core_still_analyses
R-16 unit/profiler/test_acceptance.py test_r16_the_start_method_stays
R-17 unit/collect/test_recording.py test_metadata_limits
R-18 unit/profiler/test_places.py test_modes
R-19 unit/profiler/test_acceptance.py test_r19_parameters_of_every_optimizer
R-20 unit/collect/test_recording.py test_metadata_goes_into_every_capture
R-21 unit/profiler/test_places.py test_longest_worker_name_fits
R-22 unit/profiler/test_places.py test_path_rules
R-23 unit/collect/test_recording.py test_gc_pauses_are_shown_with_the_real_process
R-24 unit/profiler/test_torch.py test_level_none_writes_marks_and_operators_only_if_details_are_wanted
"""


@pytest.mark.parametrize("line", STANDS_FOR.split("\n")[1:-1])
def test_every_line_has_its_tests(line):
    _, file, wanted = line.split()
    assert wanted in {node.name for node in ast.walk(ast.parse((TESTS / file).read_text())) if isinstance(node, ast.FunctionDef)}


def test_no_line_is_forgotten():
    elsewhere = {"26.7", "26.8", "26.9", "R-10", "R-11", "R-12", "R-25", "R-26", "R-27"}
    lines = {f"26.{number}" for number in range(1, 19)} | {f"R-{number:02}" for number in range(1, 28)}
    assert {line.split()[0] for line in STANDS_FOR.split("\n")[1:-1]} == lines - elsewhere


@pytest.mark.parametrize("asked", [True, False, None])
def test_26_16_exactly_these_paths_are_removed(asked, tmp_path):
    capture = tmp_path / "node_1_20260101000000000_ascend_pt"
    always = ["device_0/sqlite", "host/sqlite"]
    if_on = ["device_0/summary", "device_0/timeline", "host/summary", "host/timeline", "mindstudio_profiler_log"]
    kept = ["device_0/data", "host/data"]
    for prof in ("PROF_000001_20260101000000000_A", "PROF_000002_20260101000000000_B"):
        for name in (*always, *if_on, *kept):
            (capture / prof / name).mkdir(parents=True)
            (capture / prof / name / "file").write_text("x")
        (capture / prof / "msprof_analysis_123.log").write_text("x")
    (capture / "FRAMEWORK").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (capture / "PROF_000001_20260101000000000_A" / "device_1").symlink_to(tmp_path / "elsewhere")
    (files,) = find(capture)
    removed = {str(path.relative_to(capture)) for path in simplify(files, everything=bool(asked), from_raw=False)}
    names = [*always, *([*if_on, "msprof_analysis_123.log"] if asked else [])]
    assert removed == {f"{prof.name}/{name}" for prof in files.profs for name in names}
    assert all((prof / name / "file").exists() for prof in files.profs for name in kept)
    assert (tmp_path / "elsewhere").is_dir()


def test_r13_dropped_records_are_counted_and_shown(noting_tier, tmp_path, monkeypatch):
    reports = TierReport(dropped={"records": 12}, limit="max_bytes=1 reached")
    monkeypatch.setattr("profiler_doubles.NotingTier.stop", lambda tier: reports)
    with profile(on_trace_ready=lambda prof: None) as prof:
        pass
    info = orjson.loads((Path(prof.prof_if.prof_path) / "profiler_info.json").read_bytes())
    assert info["dropped"] == {"records": 12}
    quality = stepscope.open(prof.prof_if.prof_path).quality
    said = {str(row["issue"]): row["count"] for row in quality.to_dicts()}
    assert said["dropped-while-recording"] == 12
    assert said["recording-ended-early"] == 1


@pytest.mark.parametrize("cores", [1, None])
def test_r15_one_core_still_analyses(cores, noting_tier, monkeypatch):
    monkeypatch.setattr(analyser.os, "cpu_count", lambda: cores)
    with profile(on_trace_ready=lambda prof: None) as prof:
        pass
    (result,) = profiler.analyse(prof.prof_if.prof_path)
    assert result.ok


@pytest.mark.slow  # half a second and more
def test_r16_the_start_method_stays(noting_tier):
    before = multiprocessing.get_start_method(allow_none=True)
    with profile(on_trace_ready=profiler.tensorboard_trace_handler("r")):
        pass
    assert multiprocessing.get_start_method(allow_none=True) == before


@pytest.mark.slow  # half a second and more
def test_r19_parameters_of_every_optimizer(tmp_path):
    torch = pytest.importorskip("torch", reason="optimizers are torch's")
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizers = [torch.optim.SGD([weight], momentum=0.9) for weight in weights]
    write_param_tensors(tmp_path / "torch.param_tensor_info", [(number, True, one) for number, one in enumerate(optimizers)])
    assert read(tmp_path, FrameworkClock()).param_tensors["key"].to_list() == [0, 1]
