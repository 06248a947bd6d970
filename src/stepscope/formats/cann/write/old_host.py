# SPDX-License-Identifier: Apache-2.0
"""Host records of 2021 and 2022 from plain columns: calls, tasks, operators, steps (docs/formats/cann.md 6.11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.cann import layouts
from stepscope.formats.cann.layouts import Layout
from stepscope.formats.cann.write.folder import ProfWriter, rows

_TAGS = {
    layouts.OLD_TASK_DESC: 20, layouts.OLD_TENSOR_DATA: 24, layouts.OLD_STEP_INFO: 25, layouts.OLD_ID_MAP: 26,
    layouts.OLD_RUNTIME_API: 40, layouts.OLD_TASK_TRACK: 41,
}  # fmt: skip
_TEXT = 1  # kind of a name that stands in the record itself


class OldHostWriter:
    """The host's part of a folder as it was written for one device."""

    def __init__(self, writer: ProfWriter, device: int) -> None:
        self._writer, self.device = writer, device
        self._clock = writer.clock()

    def operators(
        self, *, name: Any, op_type: Any, core: Any, stream: Any, task: Any, at_ns: Any, blocks: Any = 0, batch: Any = 0,
        model: Any = 0xFFFF_FFFF, index: Any = 0, tid: Any = 0,
    ) -> None:  # fmt: skip
        """What tasks are; texts become names in the records, numbers their hashes."""
        described = rows(
            layouts.OLD_TASK_DESC, core=core, index=index, stamp=self._stamps(at_ns), block_num=blocks, model=model, stream=stream,
            task=task, batch=batch, tid=tid,
        )  # fmt: skip
        for values, kind, text, number in (
            (name, "name_kind", "name", "name_hash"),
            (op_type, "type_kind", "op_type", "type_hash"),
        ):
            given = np.asarray(values)
            is_text = given.dtype.kind in "US"
            described[kind] = _TEXT if is_text else 0
            described[text if is_text else number] = np.char.encode(given, "utf-8") if given.dtype.kind == "U" else given
        self._append(layouts.OLD_TASK_DESC, described)

    def tensors(self, *, stream: Any, task: Any, tensors: Any, at_ns: Any, count: Any, batch: Any = 0, model: Any = 0) -> None:
        """Up to five tensors of a task, as in the newer records."""
        self._append(
            layouts.OLD_TENSOR_DATA,
            rows(layouts.OLD_TENSOR_DATA, stamp=self._stamps(at_ns), stream=stream, task=task, batch=batch, model=model,
                 count=count, tensors=tensors),
        )  # fmt: skip

    def tasks(self, *, task_type: Any, stream: Any, task: Any, at_ns: Any, batch: Any = 0, tid: Any = 0) -> None:
        """Queued tasks with their type in words."""
        words = np.char.encode(np.asarray(task_type, str), "utf-8")
        self._append(
            layouts.OLD_TASK_TRACK,
            rows(
                layouts.OLD_TASK_TRACK, stamp=self._stamps(at_ns), task_type=words, stream=stream, task=task, batch=batch, tid=tid
            ),
        )

    def calls(self, *, name: Any, start_ns: Any, end_ns: Any, tid: Any, acl: str = "") -> None:
        """Calls of the runtime, or of a part of ACL such as `acl_model`."""
        layout = layouts.OLD_ACL_API if acl else layouts.OLD_RUNTIME_API
        words = np.char.encode(np.asarray(name, str), "utf-8")
        found = rows(layout, begin=self._stamps(start_ns), end=self._stamps(end_ns), name=words, tid=tid)
        self._append(layout, found, file=f"AclModule.{acl}" if acl else layout.file)

    def steps(
        self, *, index: Any, tag: Any, at_ns: Any, model: Any = 0, stream: Any = 0, task: Any = 0, batch: Any = 0, tid: Any = 0
    ) -> None:
        """Begin (tag 0) and end (tag 1) of the steps of a model."""
        self._append(
            layouts.OLD_STEP_INFO,
            rows(layouts.OLD_STEP_INFO, stamp=self._stamps(at_ns), index=index, step_tag=tag, model=model, stream=stream, task=task,
                 batch=batch, tid=tid),
        )  # fmt: skip

    def graphs(self, *, graph: Any, model: Any, at_ns: Any, session: Any = 0, mode: Any = 0) -> None:
        """Which graph a model was built from."""
        found = rows(layouts.OLD_ID_MAP, stamp=self._stamps(at_ns), graph=graph, model=model, session=session, mode=mode)
        self._append(layouts.OLD_ID_MAP, found)

    def hashes(self, texts: Mapping[int, str]) -> None:
        lines = "".join(f"{number}:{text}\n" for number, text in texts.items())
        self._writer.append_text(f"Framework.hash_dic.{self.device}", lines)

    def _stamps(self, at_ns: Any) -> npt.NDArray[np.uint64]:
        return np.atleast_1d(self._clock.ticks(np.asarray(at_ns)))

    def _append(self, layout: Layout, records: npt.NDArray[Any], file: str = "") -> None:
        records["tag"] = _TAGS.get(layout, 0)
        self._writer.append(layout, records, name=f"{file or layout.file}.{self.device}")
