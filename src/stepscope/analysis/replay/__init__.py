# SPDX-License-Identifier: Apache-2.0
"""The schedule of a capture computed again with changed weights: what a step would take without a cause."""

from stepscope.analysis.replay.build import build_schedule
from stepscope.analysis.replay.critical_path import critical_path
from stepscope.analysis.replay.joined import Change, Joined, join_ranks
from stepscope.analysis.replay.schedule import Schedule
from stepscope.analysis.replay.slack import slack

__all__ = ["Change", "Joined", "Schedule", "build_schedule", "critical_path", "join_ranks", "slack"]
