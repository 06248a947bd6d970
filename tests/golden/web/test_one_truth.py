# SPDX-License-Identifier: Apache-2.0
"""Page, `top`, `info`, JSON and report give the same figures on every real capture, and those of the vendor's own files."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from viewer.figures import Compared, check_all, check_exposed_communication, check_kernels, check_steps
from viewer.numbers import step_time

from stepscope.web.catalogue import Catalogue

TEXT = [f"ascend_pt/text/level{level}/rank{rank}_ascend_pt" for level in (0, 2) for rank in (0, 1)]
CAPTURES = [
    *TEXT,
    *(f"ascend_pt/db/level{level}/rank{rank}_ascend_pt" for level in (0, 2) for rank in (0, 1)),
    *(f"kineto/{name}" for name in (
        "gpu_nccl.pt.trace.json.gz", "gpu_train_control.pt.trace.json.gz", "mi250_minitoy_train_ROCm6_2_kineto.json.gz",
        "rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", "rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
        "h100_bert_small.json.gz", "mi300_resnet_act_checkpoint.json.gz", "sglang_decode_graph.json.gz",
        "gpu_alexnet_sync_events.json.gz", "gpu_cupti_ranges.json.gz", "gpu_two_ranks", "h100_qwen_0.5b.json.gz",
        "mi300_bert_small.json.gz", "mi300_qwen_0.5b.json.gz", "mtia_inference_rank_0.json.gz",
    )),
    *(f"mindspore/{name}" for name in (
        "ascend-2023-mindinsight", "cpu-official-graph", "cpu-official-pynative", "oprange-graph", "oprange-pynative",
        "oprange-stack", "runtime-profiler-graph", "runtime-profiler-pynative",
    )),
    "nsys/h100_2gpu_1s.sqlite",
    "rocprof/908_results.json.gz",
    *(f"prof_raw/{name}" for name in ("a2_elementwise_1task", "a2_pypto_mix_aicpu_event", "a2_torch_add_2100tasks",
                                      "a310b_addcmul_1task")),
    "prof_older/910a_2020_raw",
    *(f"prof_older/converted/{name}" for name in (
        "2100_tasks_p1", "2100_tasks_p15", "one_task_p0", "one_task_p1", "one_task_p15", "one_task_p15mem", "one_task_p1cpu",
        "one_task_p1mem", "one_task_p4",
    )),
]  # fmt: skip


def copied(golden: Path, name: str, folder: Path) -> Path:
    source, target = golden / name, folder / "run" / Path(name).name
    target.parent.mkdir()
    if source.is_file():
        shutil.copy(source, target)
        return target
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


@pytest.fixture
def compared(golden, tmp_path, request):
    """All captures of a folder, or the one of a file."""
    catalogue = Catalogue([copied(golden, request.param, tmp_path)])
    catalogue.scan()
    yield [Compared(catalogue, entry) for entry in catalogue.entries()]
    catalogue.close()


@pytest.mark.slow  # reads a capture and asks for all of it in four ways
@pytest.mark.parametrize("compared", CAPTURES, indirect=True)
def test_all_ways_to_a_figure_agree(compared):
    assert compared
    for one in compared:
        check_all(one)


@pytest.mark.slow  # as above
@pytest.mark.parametrize(("compared", "name"), [(name, name) for name in TEXT], indirect=["compared"])
def test_figures_are_those_of_the_vendors_files(compared, name, golden):
    (one,) = compared
    output = golden / name / "ASCEND_PROFILER_OUTPUT"
    with (output / "kernel_details.csv").open() as file:
        own = [row for row in csv.DictReader(file) if row["Accelerator Core"] not in ("HCCL", "COMMUNICATION")]
    count, total = check_kernels(one)
    assert (count, round(total, 3)) == (len(own), round(sum(float(row["Duration(us)"]) for row in own), 3))
    with (output / "step_trace_time.csv").open() as file:
        steps = list(csv.DictReader(file))
    title = "Communication(Not Overlapped)"
    (row,) = steps
    assert 1000 * check_exposed_communication(one) == step_time(row, title)
    length = sum(float(row[part]) for part in ("Computing", title, "Free"))
    check_steps(one)
    bars = one.page("overview")["steps"]
    places = [bars["categories"].index(part) for part in ("Computing", title, "Free")]
    assert [sum(bar["values"][place] for place in places) for bar in bars["rows"]] == [pytest.approx(length, abs=0.1)]
