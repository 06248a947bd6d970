# SPDX-License-Identifier: Apache-2.0
"""How well the rules find injected problems and predict what they cost: `make verdict-proof` prints it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

# Run as a script too, without pytest's search path.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

from cases import clean, injected  # noqa: E402
from verdict_simulator import step_ns  # noqa: E402

from stepscope.verdict import verdict  # noqa: E402

LOUD = ("high", "medium")
COUNTS = 0.03  # a cost below this share of the step may go unnamed


@dataclass
class Proof:
    """Counts over the whole suite."""

    named: int = 0
    missed: list[str] = field(default_factory=list)
    hidden: int = 0  # problems without a cost
    right: int = 0  # loud findings that name the problem
    wrong: list[str] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    loud: list[str] = field(default_factory=list)  # clean loops with a loud finding
    clean: int = 0

    @property
    def recall(self) -> float:
        return self.named / max(self.named + len(self.missed), 1)

    @property
    def precision(self) -> float:
        return self.right / max(self.right + len(self.wrong), 1)

    @property
    def calibrated(self) -> float:
        """Share of predictions within two thirds and one and a half of the truth."""
        ratios = np.array(self.ratios)
        return float(np.mean((ratios > 0.67) & (ratios < 1.5)))


def prove() -> Proof:
    proof = Proof()
    for case in injected():
        bad, good = case.bad.run(), case.good.run()
        before, after = step_ns(bad, case.bad.steps), step_ns(good, case.good.steps)
        found = verdict(bad.tables()).findings
        own = [one for one in found if one.rule in case.rules]
        costs = (before - after) / before
        if case.timed and costs < COUNTS:
            proof.hidden += 1
        elif own:
            proof.named += 1
            if case.timed:
                proof.ratios.append(max(one.saved_ns for one in own) / (before - after))
        else:
            proof.missed.append(f"{case.name} ({costs:.1%})")
        for one in found:
            if one.severity in LOUD:
                if one.rule in case.rules:
                    proof.right += 1
                else:
                    proof.wrong.append(f"{case.name}: {one.rule} {one.share:.1%}")
    for loop in clean():
        proof.clean += 1
        loud = [one.rule for one in verdict(loop.run().tables()).findings if one.severity in LOUD]
        if loud:
            proof.loud.append(f"seed {loop.seed}: {', '.join(loud)}")
    return proof


def main() -> int:
    proof = prove()
    ratios = np.array(proof.ratios)
    print(f"load of this machine {os.getloadavg()[0]:.1f}; the simulator's times do not depend on it")
    print(f"injected {proof.named + len(proof.missed) + proof.hidden}: named {proof.named}, missed {len(proof.missed)}, ", end="")
    print(f"without a cost of {COUNTS:.0%} {proof.hidden}")
    print(f"recall {proof.recall:.2f}, precision of loud findings {proof.precision:.2f}")
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    print(f"predicted / true saving: median {middle:.2f}, 10 to 90 % {low:.2f} to {high:.2f}, ", end="")
    print(f"within 0.67 to 1.5: {proof.calibrated:.0%}")
    print(f"clean {proof.clean}: loud {len(proof.loud)}")
    for line in (*proof.missed, *proof.wrong, *proof.loud):
        print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
