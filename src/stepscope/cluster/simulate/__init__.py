# SPDX-License-Identifier: Apache-2.0
"""A simulated cluster: programs of ranks, one fault, clocks that disagree; the truth about all of it is known."""

from stepscope.cluster.simulate.programs import FAULTS, WORKLOADS, Fault, Plan
from stepscope.cluster.simulate.recording import Recording, digests_of, record

__all__ = ["FAULTS", "WORKLOADS", "Fault", "Plan", "Recording", "digests_of", "record"]
