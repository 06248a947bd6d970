# SPDX-License-Identifier: Apache-2.0
"""Databases of Ascend profilers: their schema, and reading them into tables (docs/formats/outputs.md 12)."""
