# SPDX-License-Identifier: Apache-2.0
"""Writes raw PROF_* folders: what the simulated NPU leaves."""
