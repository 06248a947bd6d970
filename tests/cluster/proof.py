"""How well injected faults are found: `make cluster-proof`, or a part of it as a test.

Cases are drawn from six workloads, twelve faults, clocks that are off, jitter, heavy tails and missing ranks. What a fault really
costs is the difference to the same run without it; cases below 2 % of the step are not counted.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stepscope.cluster.analyse import Analysis, analyse
from stepscope.cluster.pipeline import UNEVEN
from stepscope.cluster.read.engine import read_local
from stepscope.cluster.read.reading import Options
from stepscope.cluster.run import analyse_run, load
from stepscope.cluster.simulate import FAULTS, Fault, Plan, Recording, digests_of, record
from stepscope.cluster.simulate.captures import write_captures
from stepscope.cluster.simulate.programs import calls_of

LEAST_SHARE = 0.02
LAYOUTS = {
    "ddp": [{"dp": 8}, {"dp": 16}, {"dp": 32}, {"dp": 64}],
    "fsdp": [{"dp": 8}, {"dp": 16}, {"dp": 32}],
    "hsdp": [{"dp": 16}, {"dp": 32}, {"dp": 64}],
    "megatron": [
        {"tp": tp, "pp": pp, "dp": dp}
        for tp, pp, dp in ((2, 2, 2), (4, 2, 2), (2, 2, 4), (1, 2, 8), (4, 4, 2), (8, 1, 4), (2, 4, 4), (4, 2, 8))
    ],
    "interleaved": [{"tp": 1, "pp": 4, "dp": 4}, {"tp": 2, "pp": 4, "dp": 2}, {"tp": 2, "pp": 4, "dp": 4}],
    "moe": [{"dp": 16}, {"dp": 32}, {"dp": 64}],
}
CAUSE = {
    "frequency": ("frequency",),
    "host": ("frequency",),
    "stage": ("pipeline_imbalance",),
    "link": ("link",),
    "group": ("link",),
}


def _causes(kind: str, form: str) -> tuple[str, ...]:
    """Causes that count as right: without its evidence in the capture a cause cannot be told from unexplained time."""
    right = CAUSE.get(kind, (kind,))
    if form == "kineto" and kind in ("frequency", "host"):
        return (*right, "compute_all_kernels")
    if form != "digests" and kind == "gc":
        return (*right, "dispatch", "other", "dispatch+other", "other+dispatch", "unexplained")
    return right


@dataclass(frozen=True)
class Case:
    plan: Plan
    fault: Fault
    steps: int
    seed: int
    offset_ms: float
    missing: tuple[int, ...] = ()


@dataclass
class Score:
    kind: str
    counted: bool
    first: bool = False
    others: bool = False
    cause: bool = False
    error: float = float("nan")
    text: str = ""
    named: list[str] = field(default_factory=list)


def case_of(seed: int, *, clean: bool = False, most_ranks: int | None = None) -> Case:
    """A case by its number, of all sizes or only of runs with few ranks."""
    rng = np.random.default_rng([99, seed])
    workload = list(LAYOUTS)[int(rng.integers(len(LAYOUTS)))]
    layouts = [sizes for sizes in LAYOUTS[workload] if most_ranks is None or math.prod(sizes.values()) <= most_ranks]
    sizes = layouts[int(rng.integers(len(layouts)))]
    pp = sizes.get("pp", 1)
    base = float(rng.uniform(0.4e6, 3e6))
    layers, micro = int(rng.integers(1, 4)), int(rng.integers(2, 7))
    if workload == "interleaved":
        micro = 4 * int(rng.integers(1, 3))
    weights = tuple(1 + 0.3 * rng.random(pp)) if pp > 1 and rng.random() < 0.3 else ()
    plan = Plan(
        workload, **sizes, micro=micro, layers=layers, base_ns=base, jitter=float(rng.uniform(0.003, 0.03)),
        heavy=0.02 if rng.random() < 0.3 else 0.0, stage_weight=weights,
    )  # fmt: skip
    steps = int(rng.integers(3, 9))
    missing: tuple[int, ...] = ()
    fault = Fault() if clean else _fault(plan, rng)
    if rng.random() < 0.15 and plan.world >= 16:
        absent = rng.choice(plan.world, size=max(1, plan.world // 20), replace=False)
        missing = tuple(int(rank) for rank in absent if rank not in _guilty(plan, fault))
    return Case(plan, fault, steps, seed, float(rng.uniform(0, 50)), missing)


def _fault(plan: Plan, rng: np.random.Generator) -> Fault:
    rank = int(rng.integers(plan.world))
    share = float(rng.uniform(0.05, 0.5))
    work = plan.base_ns * plan.layers * plan.micro * 3
    possible = [
        kind
        for kind in FAULTS
        if not (kind == "host" and plan.world <= plan.per_host)
        and not (kind in ("stage", "link") and plan.pp < 2)
        and not (kind == "group" and plan.tp < 4 and plan.workload not in ("hsdp", "moe"))
        and not (kind == "stage" and plan.stage_weight)
    ]
    kind = possible[int(rng.integers(len(possible)))]
    if kind in ("link", "group"):
        link = calls_of(plan, kind, rank)
        assert link is not None
        slower = float(rng.uniform(3, 12) if kind == "link" else rng.uniform(2, 8))
        return Fault(kind, link[1][0] if kind == "link" else rank, slower, link=link)
    every = int(rng.integers(1, 3)) if kind == "gc" else 1
    ns = share * (plan.base_ns if kind == "dispatch" else work)
    return Fault(kind, rank, 1 + share, ns, every)


def _guilty(plan: Plan, fault: Fault) -> set[int]:
    if fault.kind == "none":
        return set()
    if fault.kind in ("link", "group"):
        return set(fault.link[1])
    if fault.kind == "host":
        return {rank for rank in range(plan.world) if plan.host(rank) == plan.host(fault.rank)}
    if fault.kind == "stage":
        return {rank for rank in range(plan.world) if plan.place(rank)[0] == plan.place(fault.rank)[0]}
    return {fault.rank}


def _stages_differ(healthy: Recording) -> bool:
    """Whether a stage has more to do without any fault: its layers are heavier, or it is the one that loads the data."""
    plan = healthy.plan
    spent = np.array([sum(end - start for _, start, end in healthy.ranks[rank].work) for rank in range(plan.world)])
    stage = np.array([plan.place(rank)[0] for rank in range(plan.world)])
    work = np.array([np.median(spent[stage == one]) for one in range(plan.pp)])
    return plan.pp > 1 and bool(work.max() > (1 + UNEVEN) * np.median(np.delete(work, work.argmax())))


def _without_evidence(plan: Plan, fault: Fault, form: str) -> bool:
    """A host that is all of some stages with shapes of their own: without a frequency nothing tells it from more work there."""
    guilty = _guilty(plan, fault)
    stages = {plan.place(rank)[0] for rank in guilty}
    whole = len(guilty) == len(stages) * (plan.world // plan.pp)
    return form == "kineto" and bool(plan.stage_weight) and fault.kind == "host" and whole


def analysed(recording: Recording, missing: tuple[int, ...], form: str, ahead: bool = False) -> Analysis:
    if form == "digests":
        return analyse(digests_of(recording, missing))
    with tempfile.TemporaryDirectory() as folder:
        write_captures(Path(folder), recording, form, missing, ahead=ahead)
        return analyse_run(
            load([Path(folder)], options=Options(cache=False), engine=lambda paths, options: read_local(paths, options, 1))
        )


def judge(case: Case, form: str = "digests") -> Score:
    """Analyse one case and compare with the truth; `form` says whether through digests or through captures on disk."""
    plan, fault = case.plan, case.fault
    recording = record(plan, case.steps, case.seed, fault, offset_ms=case.offset_ms)
    healthy = record(plan, case.steps, case.seed, offset_ms=case.offset_ms) if fault.kind != "none" else recording
    true_ns = float((recording.step_ns - healthy.step_ns).mean())
    share = true_ns / float(healthy.step_ns.mean())
    if fault.kind != "none" and share < LEAST_SHARE:
        return Score(fault.kind, counted=False)
    analysis = analysed(recording, case.missing, form, ahead=bool(case.seed % 2))
    findings = [one for one in analysis.findings if one.kind != "imbalance"]
    unknown = _without_evidence(plan, fault, form)
    if fault.kind != "stage" and not unknown and _stages_differ(healthy):
        findings = [one for one in findings if one.kind != "pipeline_imbalance"]  # that the stages are uneven is true as well
    named = [
        f"{one.kind} {one.ranks[:4]} {one.cost_ns / 1e6:.2f} ms {one.cause} {one.explained:.2f} {one.pattern}" for one in findings
    ]
    text = f"seed {case.seed} {plan.workload} {plan.tp}x{plan.pp}x{plan.dp} {fault.kind} {fault.rank} {fault.link}"
    text += f" true {true_ns / 1e6:.2f} ms"
    text += f" ({share:.1%}) steps {case.steps} missing {case.missing} replay {analysis.replay_error} -> {named[:3]}"
    if fault.kind == "none":
        return Score("clean", counted=True, first=not findings, text=text, named=named)
    guilty = _guilty(plan, fault)
    top = findings[0] if findings else None
    right = top is not None and bool(top.ranks) and set(top.ranks) <= guilty
    if right and top is not None:
        wanted = {"link": ("slow_link",), "group": ("slow_group",), "stage": ("pipeline_imbalance",)}.get(
            fault.kind, ("slow_rank", "slow_host", *["pipeline_imbalance"] * unknown)
        )
        right = top.kind in wanted
    others = any(one.pattern == "persistent" and one.ranks and not set(one.ranks) <= guilty for one in findings)
    cause = right and top is not None and top.cause in (*_causes(fault.kind, form), *["pipeline_imbalance"] * unknown)
    error = top.cost_ns / true_ns - 1 if right and top is not None else float("nan")
    return Score(fault.kind, True, right, others, cause, error, text, named)


def _judge(task: tuple[int, bool, str, int | None]) -> Score:
    seed, clean, form, most_ranks = task
    return judge(case_of(seed, clean=clean, most_ranks=most_ranks), form)


@dataclass
class Result:
    """Rates over all counted cases."""

    counted: int
    first: float
    nobody_else: float
    cause: float
    cost: float
    alarms: int
    clean: int
    lines: list[str]


def _progress(scores: list[Score], last: Score) -> str:
    """Counts so far, which are worth something too when a long proof is ended early; a miss is told at once."""
    counted = [score for score in scores if score.counted]
    close = sum(abs(score.error) <= 0.25 for score in counted)
    line = (
        f"{len(counted)} faults: first {sum(score.first for score in counted)}, others {sum(score.others for score in counted)}, "
    )
    line += f"cause {sum(score.cause for score in counted)}, cost {close}"
    good = last.first and last.cause and not last.others and abs(last.error) <= 0.25
    return line if good else f"{line}; {last.error:+.0%} {last.text}"


def prove(
    faults: int, clean: int, first: int = 0, processes: int = 1, form: str = "digests", most_ranks: int | None = None,
    progress: bool = False,
) -> Result:  # fmt: skip
    """Draw cases until `faults` of them count."""
    scores: list[Score] = []
    seed = 1000 + first
    quiet: list[Score] = []
    with ProcessPoolExecutor(processes) as pool:
        run = pool.map if processes > 1 else map
        while sum(score.counted for score in scores) < faults:
            need = faults - sum(score.counted for score in scores)
            for score in run(_judge, [(one, False, form, most_ranks) for one in range(seed, seed + need)]):
                scores.append(score)
                if progress and score.counted:
                    print(_progress(scores, score), flush=True)
            seed += need
        for score in run(_judge, [(one, True, form, most_ranks) for one in range(50_000 + first, 50_000 + first + clean)]):
            quiet.append(score)
            if progress:
                print(f"clean {len(quiet)}: {sum(not one.first for one in quiet)} alarms", flush=True)
    counted = [score for score in scores if score.counted]
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for score in counted:
        by_kind[score.kind].update(n=1, first=score.first, others=score.others, cause=score.cause)
    errors = np.array([score.error for score in counted if score.first])
    alarms = [score for score in quiet if not score.first]
    lines = [f"{kind:14} {dict(count)}" for kind, count in sorted(by_kind.items())]
    lines += [f"  miss: {score.text}" for score in counted if not (score.first and score.cause) or score.others]
    lines += [f"  cost: {score.error:+.0%} {score.text}" for score in counted if score.first and abs(score.error) > 0.25]
    lines += [f"  alarm: {score.text}" for score in alarms]
    n = max(len(counted), 1)
    return Result(
        len(counted), sum(score.first for score in counted) / n, 1 - sum(score.others for score in counted) / n,
        sum(score.cause for score in counted) / n, float((np.abs(errors) <= 0.25).sum()) / n, len(alarms), len(quiet), lines,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--clean", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="begin with another case: fresh seeds")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--form", choices=("digests", "kineto", "db"), default="digests", help="through which files")
    parser.add_argument("--most-ranks", type=int, help="runs of at most so many ranks (16 or more); reading captures takes long")
    args = parser.parse_args()
    began = time.perf_counter()
    result = prove(args.faults, args.clean, args.first, args.processes, args.form, args.most_ranks, progress=True)
    print(*result.lines, sep="\n")
    print(
        f"{result.counted} faults: right one first {result.first:.1%}, nobody else named {result.nobody_else:.1%}, "
        f"cause right {result.cause:.1%}, cost within 25 % {result.cost:.1%}; {result.alarms} alarms in {result.clean} clean runs; "
        f"{time.perf_counter() - began:.0f} s"
    )
    good = result.first >= 0.99 and result.nobody_else >= 0.99 and result.cause >= 0.95 and result.cost >= 0.9 and not result.alarms
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
