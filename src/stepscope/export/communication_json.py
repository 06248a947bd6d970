# SPDX-License-Identifier: Apache-2.0
"""What communication.json and communication_matrix.json hold (docs/formats/outputs.md 9)."""

from __future__ import annotations

from pathlib import Path

from stepscope.analysis.communication.collectives import TRANSPORTS, matrix_tags, stepped, stepped_tables
from stepscope.formats.ascend.communication import keys
from stepscope.formats.ascend.communication.write import Document, matrix_document, operators_document
from stepscope.formats.ascend.communication.write import write as write_document
from stepscope.tables import Tables


def write(tables: Tables, folder: Path) -> list[Path]:
    """Write the two files; a file without content is not created."""
    times, packets, links = stepped_tables(tables, "collective_times", "collective_packets", "collective_links")
    return [
        *write_document(operators_document(times, packets, TRANSPORTS), folder / keys.FILE),
        *write_document(matrix_document(matrix_tags(links)), folder / keys.MATRIX_FILE),
    ]


def communication_json(tables: Tables) -> Document:
    """Times and packets of every communication operator, by step and kind, with a total for each kind."""
    times, packets = stepped_tables(tables, "collective_times", "collective_packets")
    return operators_document(times, packets, TRANSPORTS)


def communication_matrix_json(tables: Tables) -> Document:
    """Fastest, middle and slowest operators and sums for every pair of ranks, by step and kind."""
    return matrix_document(matrix_tags(stepped(tables, "collective_links")))
