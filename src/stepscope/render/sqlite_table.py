# SPDX-License-Identifier: Apache-2.0
"""How a table of a SQLite database is declared."""

from __future__ import annotations

from dataclasses import dataclass

_SQL = {"I": "INTEGER", "S": "INTEGER", "N": "NUMERIC", "K": "NUMERIC", "Z": "NUMERIC", "T": "TEXT", "R": "REAL"}

_KEYWORDS = ("index",)  # names of columns that SQL reserves


@dataclass(frozen=True)
class DbColumn:
    """Kind: I integer, S id of a string, K whole number declared NUMERIC, Z string id declared NUMERIC,
    N number, R real, T text."""

    name: str
    kind: str
    key: bool = False

    @property
    def sql(self) -> str:
        name = f'"{self.name}"' if self.name in _KEYWORDS else self.name
        return f"{name} {_SQL[self.kind]}{' PRIMARY KEY' if self.key else ''}"

    @property
    def is_string_id(self) -> bool:
        return self.kind in "SZ"


@dataclass(frozen=True)
class DbTable:
    name: str
    columns: tuple[DbColumn, ...]
    index: str = ""  # statement that indexes the table once it is full

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def ddl(self) -> str:
        return f"CREATE TABLE {self.name} ({', '.join(column.sql for column in self.columns)})"
