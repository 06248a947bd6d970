# SPDX-License-Identifier: Apache-2.0
"""The four text files: times of steps, communication and its matrix as JSON, and the groups."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from stepscope.export.cluster.layout import parallel_indices, stage_groups
from stepscope.export.cluster.ranks import Document, RankFiles
from stepscope.formats.ascend.communication import keys
from stepscope.formats.cann.write.hash import text_hash
from stepscope.render.atomic import replace_together

STEPS, COMMUNICATION = "cluster_step_trace_time.csv", "cluster_communication.json"
MATRIX, GROUPS = "cluster_communication_matrix.json", "communication_group.json"
INDICES = ("DP Index", "PP Index", "TP Index")
COLLECTIVE, P2P = "collective", "p2p"
_SIZE, _TIME = keys.LINK["transit_mb"], keys.LINK["transit_ms"]
_BANDWIDTH = keys.LINK["bandwidth"]
_TRANSPORT, _OP_NAME = keys.TRANSPORT, keys.OP_NAME
_NO_SUM = (*keys.RATIOS.values(), *keys.START.values())

Row = list[Any]


def write_text(ranks: Sequence[RankFiles], folder: Path) -> list[Path]:
    """Write the files that have content, all of them or none; the folder exists."""
    return write_contents(text_contents(ranks), folder)


def text_contents(ranks: Sequence[RankFiles]) -> dict[str, bytes]:
    """What `write_text` writes, by name."""
    read = [(files, files.communication_document(), files.matrix_document()) for files in ranks]
    groups = Groups(read)
    contents = {
        GROUPS: orjson.dumps(groups.as_document()),
        COMMUNICATION: _json(_communication(read, groups)),
        MATRIX: _json(_matrix(read, groups)),
        STEPS: _csv(*step_rows(ranks, groups.stages())),
    }
    return {name: content for name, content in contents.items() if content}


def write_contents(contents: Mapping[str, bytes], folder: Path) -> list[Path]:
    return replace_together((folder / name, content) for name, content in contents.items())


def _json(document: Document) -> bytes:
    return orjson.dumps(document) if document else b""


class Groups:
    """Which ranks have operators of which group, by kind; sets, because their order is the order in the files."""

    def __init__(self, read: Sequence[tuple[RankFiles, Document, Document]]):
        self.members: dict[str, dict[str, set[int]]] = {COLLECTIVE: {}, P2P: {}}
        self.described: dict[str, Any] = {}
        for files, communication, matrix in read:
            for document in (communication, matrix):
                for kinds in document.values():
                    for kind, members in self.members.items():
                        for name in kinds.get(kind, ()) if isinstance(kinds, dict) else ():
                            if not name.startswith("Total"):
                                members.setdefault(name.rpartition("@")[2], set()).add(files.rank)
            for full_name, entry in files.groups.items():
                self.described.setdefault(full_name, entry)
        self._tuples: dict[tuple[bool, str], str] = {}

    def key(self, kind: str, group: str) -> str:
        """The ranks of a group as they stand in the files, such as (0, 2)."""
        place = (kind == P2P, group)
        if place not in self._tuples:
            self._tuples[place] = str(tuple(self.members[P2P if kind == P2P else COLLECTIVE].get(group, ())))
        return self._tuples[place]

    def rows(self) -> list[dict[str, Any]]:
        """One row per kind and group; members as the metadata has them, else the ranks that were seen."""
        by_hash: dict[str, list[tuple[str, str, list[int]]]] = {}
        for full_name, entry in self.described.items():
            about = entry if isinstance(entry, dict) else {}
            known = (full_name, about.get("group_name", ""), sorted(about.get("global_ranks") or []))
            by_hash.setdefault(str(text_hash(full_name)), []).append(known)
        return [
            {"type": kind, "rank_set": listed or sorted(ranks), "group_name": group, "group_id": full_name, "pg_name": called}
            for kind, members in self.members.items()
            for group, ranks in members.items()
            for full_name, called, listed in by_hash.get(group, [("", "", [])])
        ]

    def as_document(self) -> Document:
        lists = {kind: [list(ranks) for ranks in members.values()] for kind, members in self.members.items()}
        return {**lists, "comm_group_parallel_info": self.rows()}

    def stages(self) -> list[list[int]]:
        return stages_of(self.rows())


def stages_of(rows: Sequence[dict[str, Any]]) -> list[list[int]]:
    """The stages, from groups with their kind, members and name."""
    collective = {row["group_name"]: set(row["rank_set"]) for row in rows if row["type"] == COLLECTIVE}
    pipeline = [set(row["rank_set"]) for row in rows if row["type"] == P2P and str(row["pg_name"]).lower().startswith("pp")]
    return stage_groups(collective, pipeline)


def step_rows(ranks: Sequence[RankFiles], stages: list[list[int]]) -> tuple[tuple[str, ...], list[Row]]:
    """Rows of ranks, then of stages (the largest figure of their ranks); with distributed arguments also their indices."""
    rows: list[Row] = [[step, "rank", files.rank, *figures] for files in ranks for step, figures in files.steps]
    if stages and rows:
        stage_of: dict[int, tuple[int, ...]] = {}
        for stage in reversed(stages):
            stage_of.update(dict.fromkeys(stage, tuple(stage)))
        grouped: dict[tuple[str, tuple[int, ...]], list[Row]] = {}
        for row in rows:
            grouped.setdefault((row[0], stage_of.get(row[2], ())), []).append(row[3:])
        rows += [[step, "stage", stage, *map(max, zip(*several, strict=False))] for (step, stage), several in grouped.items()]
    headers = next((files.headers for files in ranks if files.steps), ())
    indices = _indices(ranks)
    if indices is not None:
        for row in rows:
            place = indices[row[2]] if isinstance(row[2], int) else None
            row.extend(place or ("NA",) * 3)
        headers = (*headers, *INDICES)
    return headers, rows


def _indices(ranks: Sequence[RankFiles]) -> list[tuple[int, int, int] | None] | None:
    arguments = next((files.metadata["distributed_args"] for files in ranks if files.metadata.get("distributed_args")), None)
    indices = parallel_indices(arguments) if isinstance(arguments, dict) else None
    if indices is None or len(indices) <= max((files.rank for files in ranks), default=0):
        return None
    return indices


def _csv(headers: tuple[str, ...], rows: list[Row]) -> bytes:
    if not rows:
        return b""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("Step", "Type", "Index", *headers))
    writer.writerows(rows)
    return text.getvalue().encode()


def _by_group(documents: Iterable[tuple[int, Document]], groups: Groups, known: Callable[[str], bool]) -> Document:
    """Entries of all ranks by ranks of the group, step, operator and rank."""
    found: Document = {}
    for number, document in documents:
        rank = str(number)
        for step, kinds in document.items():
            for kind, operators in kinds.items() if isinstance(kinds, dict) else ():
                if not known(kind) or not isinstance(operators, dict):
                    continue
                for name, entry in operators.items():
                    if not name.startswith("Total"):
                        steps = found.setdefault(groups.key(kind, name.rpartition("@")[2]), {})
                        steps.setdefault(step, {}).setdefault(name, {}).setdefault(rank, entry)
    return found


def _communication(read: Sequence[tuple[RankFiles, Document, Document]], groups: Groups) -> Document:
    found = _by_group(((files.rank, document) for files, document, _ in read), groups, lambda kind: True)
    for steps in found.values():
        for operators in steps.values():
            operators.update(_totals(operators))
    return found


def _totals(operators: Document) -> Document:
    """Sums over the operators of a group, by rank."""
    totals: dict[str, dict[str, Document]] = {}
    for name, by_rank in operators.items():
        total = totals.setdefault(f"{keys.TOTAL}@{name.rpartition('@')[2]}", {})
        for rank, entry in by_rank.items():
            whole = total.get(rank)
            if whole is None:
                whole = total[rank] = {keys.TIME_INFO: {}, keys.BANDWIDTH_INFO: {}}
            times = whole[keys.TIME_INFO]
            for key, value in entry.get(keys.TIME_INFO, {}).items():
                if key not in _NO_SUM:
                    times[key] = times.get(key, 0.0) + value
            for transport, figures in entry.get(keys.BANDWIDTH_INFO, {}).items():
                _add_transport(whole[keys.BANDWIDTH_INFO], transport, figures)
    for total in totals.values():
        for whole in total.values():
            times = whole[keys.TIME_INFO]
            moved = times.get(keys.TIMES["transit_ms"], 0)
            for column, key in keys.RATIOS.items():
                part = times.get(keys.TIMES[column], 0)
                times[key] = ratio(part, part + moved)
            for figures in whole[keys.BANDWIDTH_INFO].values():
                figures[_BANDWIDTH] = ratio(figures[_SIZE], figures[_TIME])
    return totals


def _add_transport(bands: Document, transport: str, figures: Document) -> None:
    band = bands.get(transport)
    if band is None:
        band = bands[transport] = {_TIME: 0, _SIZE: 0, keys.SIZES: {}}
    band[_TIME] += figures.get(_TIME, 0)
    band[_SIZE] += figures.get(_SIZE, 0)
    sizes = band[keys.SIZES]
    for size, (count, lasted) in figures.get(keys.SIZES, {}).items():
        known = sizes.get(size)
        sizes[size] = [known[0] + count, known[1] + lasted] if known else [count, lasted]


def ratio(part: float, whole: float) -> float:
    return round(part / whole, 4) if abs(whole) >= 1e-15 else 0


def _matrix(read: Sequence[tuple[RankFiles, Document, Document]], groups: Groups) -> Document:
    found = _by_group(((files.rank, document) for files, _, document in read), groups, lambda kind: kind in (COLLECTIVE, P2P))
    for steps in found.values():
        for operators in steps.values():
            places = _world_ranks(operators)
            for name, by_rank in operators.items():
                operators[name] = _links(by_rank, places.get(name.rpartition("@")[2], {}))
            operators.update(_link_totals(operators))
    return found


def _world_ranks(operators: Document) -> dict[str, dict[str, str]]:
    """By group: rank of the run by rank in the group. A link of a rank with itself tells which is which."""
    found: dict[str, dict[str, str]] = {}
    for name, by_rank in operators.items():
        places = found.setdefault(name.rpartition("@")[2], {})
        for rank, links in by_rank.items():
            for pair in links:
                source, dash, target = pair.partition("-")
                if dash and source == target:
                    places.setdefault(source, rank)
    return found


def _links(by_rank: Document, places: dict[str, str]) -> Document:
    sums: dict[str, Document] = {}
    for links in by_rank.values():
        for pair, figures in links.items():
            _add_link(sums, pair, figures)
    found = {}
    for pair, figures in sums.items():
        source, dash, target = pair.partition("-")
        if dash and "-" in target:
            target = target[: target.index("-")]
        if dash and source in places and target in places:
            figures[_BANDWIDTH] = ratio(figures[_SIZE], figures[_TIME])
            found[f"{places[source]}-{places[target]}"] = figures
    return found


def _link_totals(operators: Document) -> Document:
    totals: dict[str, dict[str, Document]] = {}
    for name, links in operators.items():
        if any(word in name for word in ("middle", "top", "bottom")):
            continue
        if not links:
            continue
        total = totals.setdefault(f"{keys.TOTAL}@{name.rpartition('@')[2]}", {})
        for pair, figures in links.items():
            _add_link(total, pair, figures)
    for total in totals.values():
        for figures in total.values():
            figures[_BANDWIDTH] = ratio(figures[_SIZE], figures[_TIME])
    return totals


def _add_link(sums: dict[str, Document], pair: str, figures: Document) -> None:
    link, get = sums.get(pair), figures.get
    if link is None:
        sums[pair] = {
            _TRANSPORT: get(_TRANSPORT), _TIME: get(_TIME, 0), _SIZE: get(_SIZE, 0), _OP_NAME: get(_OP_NAME, ""),
        }  # fmt: skip
        return
    link[_TRANSPORT] = get(_TRANSPORT)
    link[_OP_NAME] = get(_OP_NAME, "")
    link[_TIME] += get(_TIME, 0)
    link[_SIZE] += get(_SIZE, 0)
