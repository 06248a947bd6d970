# SPDX-License-Identifier: Apache-2.0
"""The schema of everything: one table model for NPU, GPU and CPU captures."""

from stepscope.tables.facts import Facts, device_word
from stepscope.tables.schema import TEXT, Column, SchemaError, Table, in_order
from stepscope.tables.tableset import ALL_TABLES, Tables, lost

__all__ = ["ALL_TABLES", "TEXT", "Column", "Facts", "SchemaError", "Table", "Tables", "device_word", "in_order", "lost"]
