# SPDX-License-Identifier: Apache-2.0
"""Marks and ranges of the user, and those set without touching the user's code."""
