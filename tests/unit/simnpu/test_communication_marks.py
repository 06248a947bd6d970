"""Marks of the simulated device's communication operators: what the message says, and its two parts."""

from __future__ import annotations

import os

import numpy as np

from stepscope.simnpu.communication_marks import CommunicationMarks
from stepscope.simnpu.records import COLLECTIVE, KERNEL, TASK, TRANSFER

SAID = {
    1: {"type": "hcom_allReduce_", "group_name": "g", "data_type": "BFP16", "count": 6},
    2: {"type": "hcom_receive_", "group_name": "g", "data_type": "FP32", "count": 4},
}


class NotingWriter:
    def __init__(self):
        self.written = []

    def steps(self, **columns):
        width = len(columns["at_ns"])
        names = ("index", "stream", "task", "tag", "at_ns")
        self.written += zip(*(np.broadcast_to(columns[name], width).tolist() for name in names), strict=True)


def task(kind, description, device, start, end, *, connection, enqueued=0):
    row = np.zeros(1, TASK)
    row["kind"], row["description"], row["device"], row["start"], row["end"] = kind, description, device, start, end
    row["connection"], row["stream"], row["task"], row["host_thread"] = connection, 33, 7, 99
    row["enqueue_start"], row["enqueue_end"] = enqueued, enqueued and enqueued + 5
    row["launch_start"], row["launch_end"] = 50, 60
    return row


def test_operators_are_marked_on_host_and_device():
    writers = {0: NotingWriter(), 1: NotingWriter()}
    marks = CommunicationMarks(SAID.__getitem__, offset_ns=1000)
    transfers = np.zeros(3, TRANSFER)
    transfers["connection"], transfers["dst_rank"] = (4, 4, 5), (1, -1, 0)
    tasks = [
        task(COLLECTIVE, 1, 0, 100, 140, connection=3, enqueued=20),
        task(KERNEL, 9, 0, 120, 130, connection=8),
        task(COLLECTIVE, 2, 1, 110, 150, connection=4),
        task(COLLECTIVE, 1, 0, 130, 135, connection=6, enqueued=30),  # ends inside of the first, on another stream
    ]
    marks.take(np.concatenate(tasks), transfers, writers.__getitem__)
    marks.take(tasks[1], transfers[:0], writers.__getitem__)
    rows = [(row["start"], row["end"], row["mark_id"] - 200_000_000, row["message"]) for row in marks.rows]
    reduced = '{"streamId": "33","count": "6","dataType": "bfp16","groupName": "g","opName": "HcclAllreduce"}'
    received = '{"streamId": "33","count": "4","dataType": "fp32","srcRank": "1","groupName": "g","opName": "HcclRecv"}'
    assert rows == [(20, 25, 0, reduced), (50, 60, 1, received), (30, 35, 2, reduced)]
    assert {(row["pid"], row["tid"], row["domain"]) for row in marks.rows} == {(os.getpid(), 99, "communication")}
    first = 200_000_000
    assert writers[0].written == [
        (first, 33, 7, 12, 1100), (first + 2, 33, 7, 12, 1130), (first + 2, 33, 7, 12, 1135), (first, 33, 7, 12, 1140),
    ]  # fmt: skip
    assert writers[1].written == [(first + 1, 33, 7, 12, 1110), (first + 1, 33, 7, 12, 1150)]
