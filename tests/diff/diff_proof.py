# SPDX-License-Identifier: Apache-2.0
"""How often a diff names an injected change first, and how often it sees a change where there is none.

python tests/diff/diff_proof.py [PAIRS [FIRST]]

Pairs from another FIRST on (0) have other noise, which no limit was set by.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

from diff_cases import Pair, equal_pairs, injected  # noqa: E402

from stepscope.diff import Diff  # noqa: E402
from stepscope.diff.engine import diff  # noqa: E402


@dataclass(frozen=True)
class Outcome:
    pair: Pair
    found: Diff

    @property
    def alarm(self) -> bool:
        return self.found.status == "changed" or any(row.real for row in self.found.rows)

    @property
    def named_first(self) -> bool:
        return self.pair.named_by(self.found.rows[0])


def outcome(pair: Pair) -> Outcome:
    found = diff([pair.base.run().tables()], [pair.new.run().tables()])
    assert sum(row.delta_ns for row in found.rows) == found.delta_ns
    return Outcome(pair, found)


def main() -> int:
    count, first = (int(sys.argv[place]) if len(sys.argv) > place else default for place, default in ((1, 100), (2, 0)))
    equal = [outcome(pair) for pair in equal_pairs(count, first)]
    alarms = [one for one in equal if one.alarm]
    print(f"equal pairs: {len(alarms)} of {len(equal)} with a change: {[one.pair.name for one in alarms]}")
    changed = [outcome(pair) for pair in injected(count, first)]
    missed = [one for one in changed if not one.named_first]
    beyond = sum(one.found.rows[0].real for one in changed)
    print(f"injected: {len(changed) - len(missed)} of {len(changed)} named first, {beyond} beyond noise and 1 % of a step")
    for one in missed:
        top = one.found.rows[0]
        print(f"  {one.pair.name}: {top.key} {float(top.delta_ns) / 1e6:+.4f} of {float(one.found.delta_ns) / 1e6:+.4f} ms")
    return 1 if alarms or len(missed) > 0.05 * len(changed) else 0


if __name__ == "__main__":
    sys.exit(main())
