# SPDX-License-Identifier: Apache-2.0
"""Host records from plain columns: calls, operators, tasks, copies, communication, marks, memory (docs/formats/cann.md 3).

Times are nanoseconds since 1970, texts are texts. A parser joins the records only when (docs/formats/cann.md 8): what describes a
call is stamped after its begin and not after its end, in its thread; calls of a thread nest; a copy has its task's stamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats import NONE32
from stepscope.formats.cann import layouts
from stepscope.formats.cann.chips import chip_of
from stepscope.formats.cann.layouts import EVENT_END, HOST_MAGIC, Layout
from stepscope.formats.cann.write.folder import ProfWriter, Texts, reorder, rows
from stepscope.formats.cann.write.task_ids import TaskIds, TaskNumbers, UniqueIds
from stepscope.formats.cann.write.type_names import COMMUNICATION, FLIP_TASK, MODEL, MSPROFTX, NODE, RUNTIME

# Level and type in the head of each kind.
_HEADS: dict[str, tuple[int, int]] = {
    layouts.NODE_BASIC_INFO.file: (NODE, 0),
    layouts.TENSOR_INFO.file: (NODE, 1),
    layouts.FUSION_OP_INFO.file: (NODE, 2),
    layouts.CONTEXT_ID_INFO.file: (NODE, 4),
    layouts.TASK_MEMORY_INFO.file: (NODE, 6),
    layouts.NODE_ATTR_INFO.file: (NODE, 9),
    layouts.HCCL_OP_INFO.file: (NODE, 10),
    layouts.STATIC_OP_MEM.file: (NODE, 11),
    layouts.MC2_COMM_INFO.file: (NODE, 12),
    layouts.HCCL_INFO.file: (COMMUNICATION, 0),
    layouts.MEMCPY_INFO.file: (RUNTIME, 801),
    layouts.TASK_TRACK.file: (RUNTIME, 802),
    layouts.CAPTURE_STREAM_INFO.file: (RUNTIME, 803),
    layouts.EXPAND_STREAM_SPEC.file: (RUNTIME, 804),
    layouts.GRAPH_ID_MAP.file: (MODEL, 0),
    layouts.LOGIC_STREAM_INFO.file: (MODEL, 7),
    layouts.MSPROFTX.file: (MSPROFTX, 0),
}
# The floor: what is written at level 0 too (docs/formats/cann.md 8).
_LEVEL_0 = (layouts.TASK_TRACK, layouts.EXPAND_STREAM_SPEC, layouts.MSPROFTX, layouts.CONTEXT_ID_INFO, layouts.HCCL_OP_INFO)
_MESSAGE_BYTES = 155  # of one msproftx record, which ends with a zero


class HostWriter:
    """The host's part of a folder. It assigns task numbers, so all tasks of a session must go through one writer."""

    def __init__(self, writer: ProfWriter) -> None:
        self._writer = writer
        self._clock = writer.clock()
        self._numbers: dict[int, TaskIds | UniqueIds] = {}

    def ticks(self, ns: Any) -> npt.NDArray[np.uint64]:
        return self._clock.ticks(np.asarray(ns))

    def info(self, layout: Layout, *, tid: Any, at_ns: Any, aging: bool | None = None, **fields: Any) -> None:
        """Records of any kind with the common head; kinds above the session's level are left out."""
        if self._writer.session.level or layout in _LEVEL_0:
            level, kind = _HEADS[layout.file]
            head: dict[str, Any] = {"level": level, "type": kind, "length": layout.size - 24}
            records = rows(layout, **{**head, **fields}, tid=tid, stamp=self.ticks(at_ns))
            self._writer.append(layout, records, aging=aging)

    def calls(
        self, *, level: Any, type: Any, tid: Any, start_ns: Any, end_ns: Any, item: Any = 0, request: Any = 0, aging: bool = True
    ) -> None:
        """API calls; `item` is the name of what is called (node, communication) or the model's number (model)."""
        spans = {"begin": self.ticks(start_ns), "end": self.ticks(end_ns)}
        self._calls(level=level, type=type, tid=tid, item=item, request=request, aging=aging, **spans)

    def events(self, *, level: Any, type: Any, tid: Any, at_ns: Any, item: Any = 0, request: Any = 0, aging: bool = True) -> None:
        """Single moments; two of the same kind, thread, request and item make a call."""
        stamps = {"begin": self.ticks(at_ns), "end": np.uint64(EVENT_END)}
        self._calls(level=level, type=type, tid=tid, item=item, request=request, aging=aging, **stamps)

    def _calls(self, *, item: Any, aging: bool, **fields: Any) -> None:
        self._writer.append(layouts.API_EVENT, rows(layouts.API_EVENT, item=self._item(item), **fields), aging=aging)

    def _item(self, item: Any) -> Any:
        return item if isinstance(item, int) else self._writer.ids(item)

    def operators(
        self, *, tid: Any, at_ns: Any, name: Texts, op_type: Texts, task_type: Any, blocks: Any = 0, mix_ratio: Any = 0,
        hf32: Any = 0, static: bool = False,
    ) -> None:  # fmt: skip
        """node_basic_info; `task_type` by number (docs/formats/cann.md 3.3), `mix_ratio` blocks of the other core per block."""
        self.info(
            layouts.NODE_BASIC_INFO, tid=tid, at_ns=at_ns, aging=not static, op_name=self._writer.ids(name),
            op_type=self._writer.ids(op_type), task_type=task_type, block_num=np.asarray(blocks) | np.asarray(mix_ratio) << 16,
            flag=hf32,
        )  # fmt: skip

    def attributes(self, *, tid: Any, at_ns: Any, name: Texts, attributes: Texts) -> None:
        ids = self._writer.ids
        self.info(layouts.NODE_ATTR_INFO, tid=tid, at_ns=at_ns, op_name=ids(name), attr=ids(attributes))

    def tensors(
        self, *, tid: Any, at_ns: Any, name: Texts, op: npt.NDArray[Any], kind: Any, format: Any, dtype: Any, shape: Any,
        static: bool = False,
    ) -> None:  # fmt: skip
        """tensor_info: `tid`, `at_ns` and `name` per operator; the other columns per tensor, with the number of its operator.

        Tensors of an operator stand together, in order. `shape` has eight places; 0 ends a shape, and what follows is left
        out, since parsers do not agree about it.
        """
        shape = np.asarray(shape)
        shape = np.where(np.logical_and.accumulate(shape != 0, axis=-1), shape, 0)
        op = np.asarray(op)
        count = np.bincount(op) if len(op) else np.zeros(0, np.int64)
        place = np.arange(len(op)) - (np.cumsum(count) - count)[op]  # within the operator
        records = -(-count // 5)
        first = np.cumsum(records) - records
        tensors = np.zeros((int(records.sum()), 5), layouts.TENSOR)
        at = (first[op] + place // 5, place % 5)
        for field, value in (("kind", kind), ("format", format), ("dtype", dtype), ("shape", shape)):
            tensors[field][at] = value
        of = np.repeat(np.arange(len(count)), records)  # operator of each record
        filled = np.bincount(at[0], minlength=len(tensors)) if len(tensors) else np.zeros(0, np.int64)
        self.info(
            layouts.TENSOR_INFO, tid=_pick(tid, of), at_ns=_pick(at_ns, of), op_name=_pick(self._writer.ids(name), of),
            count=filled, tensors=tensors, aging=not static,
        )  # fmt: skip

    def contexts(self, *, tid: Any, at_ns: Any, name: Texts, ids: Any = 0, count: Any = 1, communication: bool = False) -> None:
        """context_id_info: the FFTS+ contexts of an operator; of a communication task the first and the last."""
        places = np.zeros((len(np.atleast_1d(at_ns)), 55), np.uint32)
        values = np.atleast_2d(np.asarray(ids))
        places[:, : values.shape[1]] = values
        self.info(
            layouts.CONTEXT_ID_INFO, tid=tid, at_ns=np.atleast_1d(at_ns), op_name=self._writer.ids(name), count=count,
            ids=places, level=COMMUNICATION if communication else NODE,
        )  # fmt: skip

    def tasks(self, *, device: int, stream: Any, tid: Any, at_ns: Any, task_type: Any, kernel: Texts = "") -> TaskNumbers:
        """Tasks queued on one device, in order of time; their numbers are assigned here, with a flip when they restart."""
        stream, stamp = np.atleast_1d(np.asarray(stream)), np.atleast_1d(self.ticks(at_ns))
        stream, stamp = np.broadcast_arrays(stream, stamp)
        layout = layouts.TASK_TRACK_UNIQUE if self._unique_ids else layouts.TASK_TRACK
        numbers = self._numbers.setdefault(device, UniqueIds() if self._unique_ids else TaskIds()).assign(stream, stamp)
        level, kind = _HEADS[layouts.TASK_TRACK.file]
        head = {"level": level, "type": kind, "length": 24, "device": device}
        records = rows(
            layout, **head, stamp=stamp, tid=tid, stream=stream, task=numbers.task, task_type=task_type,
            kernel=self._writer.ids(kernel),
        )  # fmt: skip
        flips = numbers.flips
        if len(flips):
            first_tid = np.atleast_1d(np.asarray(tid))[0]
            flip_records = rows(
                layouts.TASK_TRACK, **head, stamp=flips.stamp, tid=first_tid, stream=flips.stream, flip=flips.number,
                task_type=FLIP_TASK,
            )  # fmt: skip
            records = np.concatenate([records.view(np.uint8), flip_records.view(np.uint8)]).view(records.dtype)
            records = reorder(records, np.argsort(records["stamp"], kind="stable"))
        self._writer.append(layout, records)
        return numbers

    @property
    def _unique_ids(self) -> bool:
        chip = chip_of(self._writer.session.chip.platform)
        return chip is not None and chip.unique_ids

    def copies(self, *, tid: Any, at_ns: Any, bytes: Any, direction: Any, maximum: int = 1 << 30) -> None:
        """memcpy_info, with the stamp of its task; direction 1 is to the device, 2 from it, 3 within.

        The vendor's parser splits a copy above `maximum` over several tasks, so a copy that is one task is not above it.
        """
        self.info(
            layouts.MEMCPY_INFO, tid=tid, at_ns=at_ns, bytes=bytes, maximum=np.maximum(bytes, maximum), direction=direction
        )  # fmt: skip

    def collectives(
        self, *, tid: Any, at_ns: Any, data_type: Any, algorithm: Texts, count: Any, group: Texts, relay: Any = 0, retry: Any = 0
    ) -> None:
        """hccl_op_info of whole collectives."""
        flags = np.asarray(relay, np.uint8) | np.asarray(retry, np.uint8) << 1
        ids = self._writer.ids
        self.info(
            layouts.HCCL_OP_INFO, tid=tid, at_ns=at_ns, flags=flags, data_type=data_type, algorithm=ids(algorithm), count=count,
            group=ids(group),
        )  # fmt: skip

    def transfers(self, *, tid: Any, at_ns: Any, name: Texts, group: Texts, tag: Texts = "", **fields: Any) -> None:
        """hccl_info of the tasks of a collective; fields that are left out are "not valid"."""
        ids = self._writer.ids
        unset: dict[str, Any] = dict.fromkeys(
            ("local_rank", "remote_rank", "context", "stage", "role", "reduce_op", "data_type", "link", "transport", "rdma"), NONE32
        )
        texts = {"task_name": ids(name), "group": ids(group), "tag": ids(tag)}
        self.info(layouts.HCCL_INFO, tid=tid, at_ns=at_ns, **{**unset, **texts, **fields})

    def marks(
        self, *, pid: int, tid: int, start_ns: int, end_ns: int, mark: int, message: str, domain: str = "default", event: int = 2,
        extended: bool = True,
    ) -> None:  # fmt: skip
        """One msproftx mark or range; a long message takes several records."""
        text = message.encode("utf-8", "replace").replace(b"\0", b" ")
        parts = list(_messages(text))
        begin, end = self.ticks([start_ns, end_ns])
        self.info(
            layouts.MSPROFTX, tid=tid, at_ns=np.full(len(parts), start_ns), source=int(extended), segment=np.arange(len(parts)),
            inner_magic=HOST_MAGIC, tag=120, pid=pid, mark_tid=tid, event=event, begin=begin, end=end, mark=mark,
            domain=self._writer.ids(domain), message=np.array(parts, "S156"),
        )  # fmt: skip

    def memory(
        self, *, tid: Any, at_ns: Any, address: Any, bytes: Any, name: Texts, allocated: Any, reserved: Any, device: int,
        device_type: int = 0,
    ) -> None:  # fmt: skip
        """task_memory_info: allocations (bytes above 0) and frees (below) of operators."""
        self.info(
            layouts.TASK_MEMORY_INFO, tid=tid, at_ns=at_ns, address=address, bytes=bytes, op_name=self._writer.ids(name),
            allocated=allocated, reserved=reserved, device=device, device_type=device_type,
        )  # fmt: skip

    def wide_streams(self, *, tid: int, at_ns: int) -> None:
        """expand_stream_spec: the devices code 15-bit stream numbers."""
        self.info(layouts.EXPAND_STREAM_SPEC, tid=tid, at_ns=at_ns, wide=1)


def _messages(text: bytes) -> Iterator[bytes]:
    """A text in pieces that fit into a record; each is text of its own, since parsers decode them one by one."""
    while len(text) > _MESSAGE_BYTES:
        end = _MESSAGE_BYTES
        while text[end] & 0xC0 == 0x80:  # inside a character
            end -= 1
        yield text[:end]
        text = text[end:]
    yield text


def _pick(column: Any, of: npt.NDArray[Any]) -> Any:
    values = np.asarray(column)
    return values[of] if values.ndim else np.full(len(of), values)
