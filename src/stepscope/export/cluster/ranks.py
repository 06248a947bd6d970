# SPDX-License-Identifier: Apache-2.0
"""What the files of one rank say, the same whether they are text or databases.

Text alone needs no columnar engine: a process that joins the text files of many ranks does not load it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

TEXT, DB = "text", "db"

Document = dict[str, Any]


@dataclass
class RankFiles:
    """The small files of one rank.

    Attributes:
        path: folder of the capture.
        form: which of the two forms below the capture itself has.
        headers: columns of the times of steps.
        steps: number of a step as the file has it, and its times in microseconds.
        communication: communication.json; empty in a database.
        matrix: communication_matrix.json; empty in a database.
        rows: tables of analysis.db by name; empty in text.
        metadata: profiler_metadata.json.
        groups: `parallel_group_info`: by full name of a group its members and what the program calls it.
        host: number and name.
        devices: rank and device.
    """

    rank: int
    path: str
    form: str
    headers: tuple[str, ...] = ()
    steps: list[tuple[str, list[float]]] = field(default_factory=list)
    communication: Document = field(default_factory=dict)
    matrix: Document = field(default_factory=dict)
    rows: dict[str, pl.DataFrame] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    host: tuple[str, str] | None = None
    devices: list[tuple[int, int]] = field(default_factory=list)

    def communication_document(self) -> Document:
        if self.form == TEXT:
            return self.communication
        from stepscope.export.cluster.rank_tables import communication_of

        return communication_of(self.rows)

    def matrix_document(self) -> Document:
        if self.form == TEXT:
            return self.matrix
        from stepscope.export.cluster.rank_tables import matrix_of

        return matrix_of(self.rows)

    def table(self, name: str) -> pl.DataFrame:
        """A table of analysis.db, whichever form the capture has."""
        from stepscope.export.cluster.rank_tables import table_of

        return table_of(self, name)
