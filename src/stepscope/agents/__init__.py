# SPDX-License-Identifier: Apache-2.0
"""Doors for agents: the same answers as the commands give, read-only, short, and with text of captures made harmless."""
