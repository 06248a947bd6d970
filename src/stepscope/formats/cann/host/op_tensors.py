# SPDX-License-Identifier: Apache-2.0
"""Texts of operators' tensors: shapes, element types and formats of inputs and outputs (docs/formats/cann.md 3.3).

Operators repeat, so tensors and lists of tensors are made distinct first and only distinct ones become text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.host.api_events import Ints
from stepscope.formats.cann.host.codes import data_type_text, format_text
from stepscope.formats.cann.layouts import TENSOR, TENSOR_INFO

TENSOR_COLUMNS = ("input_shapes", "input_dtypes", "input_formats", "output_shapes", "output_dtypes", "output_formats")
_SLOTS = 5
_FIRST = 9  # 32-bit number of a record with which its tensors begin
_NUMBERS = TENSOR.itemsize // 4  # kind, format, type, eight dimensions
_FACTORS = np.random.default_rng(44).integers(1, 1 << 63, 16, np.uint64) | np.uint64(1)


def tensor_texts(records: npt.NDArray[Any], owner: Ints, owners: int) -> pl.DataFrame:
    """Texts of each owner's tensors, its records joined in their order; null without inputs or outputs."""
    of_owner = owner
    if len(owner) > 1 and (owner[1:] < owner[:-1]).any():
        order = np.argsort(owner, kind="stable")
        records, of_owner = records[order], owner[order]
    lists, texts = _lists(records)
    chosen = np.full(owners, -1, np.int64)
    chosen[of_owner] = lists
    repeated = np.flatnonzero(np.append(of_owner[1:] == of_owner[:-1], False)) if len(of_owner) else np.empty(0, np.int64)
    if len(repeated):
        _join_repeated(of_owner, lists, texts, chosen, np.unique(of_owner[repeated]))
    rows = [_texts(codes) for codes in texts]
    columns = list(zip(*rows, strict=True)) or [()] * len(TENSOR_COLUMNS)
    frame = pl.DataFrame({name: pl.Series(column, dtype=pl.String) for name, column in zip(TENSOR_COLUMNS, columns, strict=True)})
    return frame.select(pl.all().gather(pl.Series(chosen).set(pl.Series(chosen < 0), None)))


_Text = tuple[int, str, str, str]  # kind, shape, type, format


def _lists(records: npt.NDArray[Any]) -> tuple[Ints, list[list[_Text]]]:
    """For each record the number of its list of tensors, and the lists."""
    count = np.minimum(records["count"], _SLOTS)
    slots = int(count.max(initial=1))  # most records fill fewer than there are
    numbers = np.ascontiguousarray(records).view("<u4").reshape(len(records), TENSOR_INFO.size // 4)
    used = np.arange(slots) < count[:, None]
    tensors = numbers[:, _FIRST : _FIRST + slots * _NUMBERS].reshape(len(records), slots, _NUMBERS)[used]
    tensors[:, 3:] *= np.logical_and.accumulate(tensors[:, 3:] != 0, axis=1)  # a zero ends the shape
    first, code = _distinct(tensors)
    words = [_words(tensor) for tensor in tensors[first].tolist()]
    codes = np.full((len(records), slots), -1, np.int64)
    codes[used] = code
    firsts, lists = _distinct(codes)
    return lists, [[words[one] for one in row if one >= 0] for row in codes[firsts].tolist()]


def _words(tensor: list[int]) -> _Text:
    kind, form, dtype, *shape = tensor
    return kind, ",".join(str(size) for size in shape if size), data_type_text(dtype), format_text(form)


def _join_repeated(of_owner: Ints, lists: Ints, texts: list[list[_Text]], chosen: Ints, owners: Ints) -> None:
    """More than five tensors lie in several records."""
    list_numbers: dict[tuple[int, ...], int] = {}
    begins, ends = np.searchsorted(of_owner, owners).tolist(), np.searchsorted(of_owner, owners, "right").tolist()
    for owner, begin, end in zip(owners.tolist(), begins, ends, strict=True):
        parts = tuple(lists[begin:end].tolist())
        if parts not in list_numbers:
            list_numbers[parts] = len(texts)
            texts.append([text for part in parts for text in texts[part]])
        chosen[owner] = list_numbers[parts]


def _texts(tensors: list[_Text]) -> tuple[str | None, ...]:
    found: list[str | None] = []
    for kind in (0, 1):
        some = [tensor for tensor in tensors if tensor[0] == kind]
        found += [";".join(tensor[1:][place] for tensor in some) if some else None for place in range(3)]
    return tuple(found)


def _distinct(rows: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """First place of each distinct row, and which one each row is."""
    hashes = rows.astype(np.uint64) @ _FACTORS[: rows.shape[1]]
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    if not np.array_equal(rows[first][which], rows):  # two rows with the same hash: sort the rows themselves
        _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first), np.asarray(which).reshape(-1)
