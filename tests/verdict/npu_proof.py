# SPDX-License-Identifier: Apache-2.0
"""How well the rules find problems of real training scripts on the simulated NPU: part of `make verdict-proof`.

    python tests/verdict/npu_proof.py [--attempts 3] [--only data,item] [--keep DIR]

The truth is measured: the step of a run with the problem less that of the same training without it. A run during which the
machine was busy (more than a fifth of the step the device idled with work issued) is thrown away and run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

# Run as a script too, without pytest's search path.
sys.path[:0] = [str(Path(__file__).parent)]

from npu_cases import NpuCase, clean, injected  # noqa: E402

from stepscope.capture import open_capture  # noqa: E402
from stepscope.verdict import Verdict, verdict  # noqa: E402

BUSY = 0.2  # share of idle.queued above which a run is thrown away
COUNTS = 0.03  # a cost below this share of the step may go unnamed
LOUD = ("high", "medium")
TOGETHER = 20  # cases of one process: a failure costs no more
KERNEL_TIME = "200"


@dataclass
class NpuProof:
    named: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)  # problems without a cost
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    quiet: int = 0  # clean runs without a loud finding
    loud: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)  # never run on a quiet machine
    thrown_away: int = 0

    @property
    def recall(self) -> float:
        return len(self.named) / max(len(self.named) + len(self.missed), 1)

    @property
    def precision(self) -> float:
        return self.right / max(self.right + len(self.wrong), 1)


def queued_share(answered: Verdict) -> float:
    parts = answered.ranks[0].partition
    return parts.get("idle.queued", 0.0) / max(parts["total"], 1.0)


def step_ns(answered: Verdict) -> float:
    """The mean step without the load of the machine."""
    parts = answered.ranks[0].partition
    return parts["total"] - parts.get("idle.queued", 0.0)


def answers(cases: Iterable[NpuCase], folder: Path, attempts: int, proof: NpuProof) -> dict[str, Verdict]:
    """The verdict on each case; cases that were busy in every attempt are missing and counted."""
    waiting = list(cases)
    found: dict[str, Verdict] = {}
    for attempt in range(attempts):
        again = []
        for case, answered in _runs(waiting, folder / str(attempt)):
            if answered is None or queued_share(answered) > BUSY:
                proof.thrown_away += 1
                again.append(case)
            else:
                found[case.name] = answered
        waiting = again
    proof.busy += [case.name for case in waiting]
    return found


def _runs(cases: list[NpuCase], folder: Path) -> Iterator[tuple[NpuCase, Verdict | None]]:
    for first in range(0, len(cases), TOGETHER):
        some = cases[first : first + TOGETHER]
        out = folder / str(first)
        out.mkdir(parents=True)
        listed = out / "cases.json"
        # The first run of a process warms up the libraries.
        listed.write_text(json.dumps([{"name": "first"}, *(case.as_json() for case in some)]), encoding="utf-8")
        script = Path(__file__).with_name("npu_training.py")
        environment = {**os.environ, "STEPSCOPE_SIM_KERNEL_TIME": KERNEL_TIME}
        done = subprocess.run([sys.executable, script, out, listed], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"the training ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        for case in some:
            captures = sorted((out / case.name).glob("*_ascend_pt")) if (out / case.name).is_dir() else []
            yield case, verdict(open_capture(captures[0]).tables) if captures else None
        shutil.rmtree(out, ignore_errors=True)


def prove(folder: Path, *, attempts: int = 3, only: Iterable[str] = ()) -> NpuProof:
    proof = NpuProof()
    chosen = set(only)
    problems = [case for case in injected() if not chosen or case.problem["kind"] in chosen]
    calm = [case for case in clean() if not chosen or "clean" in chosen or any(case.train == one.train for one in problems)]
    answered = answers([*problems, *calm], folder, attempts, proof)
    usual: dict[str, list[float]] = defaultdict(list)
    for case in calm:
        if case.name in answered:
            usual[json.dumps(case.train)].append(step_ns(answered[case.name]))
            _count_clean(proof, case, answered[case.name])
    for case in problems:
        if case.name in answered:
            _count(proof, case, answered[case.name], usual[json.dumps(case.train)])
    return proof


def _count_clean(proof: NpuProof, case: NpuCase, answered: Verdict) -> None:
    loud = [f"{one.rule} {one.share:.0%}" for one in answered.findings if one.severity in LOUD]
    if loud:
        proof.loud.append(f"{case.name}: {', '.join(loud)}")
    else:
        proof.quiet += 1


def _count(proof: NpuProof, case: NpuCase, answered: Verdict, usual: list[float]) -> None:
    if case.timed and not usual:
        proof.busy.append(case.name)  # nothing to compare with
        return
    now = step_ns(answered)
    cost = now - median(usual) if usual else 0.0
    own = [one for one in answered.findings if one.rule in case.rules]
    if case.timed and cost < COUNTS * now:
        proof.hidden.append(case.name)
    elif own:
        proof.named.append(case.name)
        if case.timed:
            proof.ratios.append(max(one.saved_ns for one in own) / cost)
    else:
        proof.missed.append(f"{case.name} ({cost / now:.0%}): {', '.join(one.rule for one in answered.findings)}")
    for one in answered.findings:
        if one.severity in LOUD:
            if one.rule in case.rules:
                proof.right += 1
            elif one.rule not in case.also:
                proof.wrong.append(f"{case.name}: {one.rule} {one.share:.0%}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=3, help="how often a busy run is run again (3)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="kinds of problems, or clean")
    parser.add_argument("--keep", type=Path, help="folder to work in; a temporary one by default")
    args = parser.parse_args()
    try:
        import torch  # noqa: F401
    except ImportError:
        print("torch is not installed: nothing is run on the simulated NPU")
        return 0
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        proof = prove(args.keep or Path(folder), attempts=args.attempts, only=args.only)
    counted = len(proof.named) + len(proof.missed) + len(proof.hidden)
    print(f"simulated NPU, load of this machine {os.getloadavg()[0]:.1f}, {time.time() - began:.0f} s")
    print(f"injected {counted}: named {len(proof.named)}, missed {len(proof.missed)}, without a cost {len(proof.hidden)}")
    print(f"recall {proof.recall:.2f}, precision of loud findings {proof.precision:.2f}")
    if proof.ratios:
        inside = sum(0.67 < ratio < 1.5 for ratio in proof.ratios) / len(proof.ratios)
        print(f"predicted / true saving: median {median(proof.ratios):.2f}, within 0.67 to 1.5: {inside:.0%}")
    print(f"clean {proof.quiet + len(proof.loud)}: loud {len(proof.loud)}")
    print(f"runs thrown away because the machine was busy: {proof.thrown_away}; never quiet: {len(proof.busy)}")
    for line in (*proof.missed, *proof.wrong, *proof.loud):
        print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
