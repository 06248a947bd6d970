# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a capture, what it costs and what to do: one list of findings for page, report, commands and scripts."""

from stepscope.verdict.finding import Finding, Silent, Verdict
from stepscope.verdict.rules import RULES, verdict
from stepscope.verdict.summary import summary

__all__ = ["RULES", "Finding", "Silent", "Verdict", "summary", "verdict"]
