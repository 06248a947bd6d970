"""Arrows of the timeline."""

from __future__ import annotations

from capture_rows import MAIN, WORKER, op, ops, queue, queued

from stepscope.analysis.flows import (
    enqueue_to_dequeue,
    forward_backward,
    forward_backward_flows,
    forward_backward_links,
)

PASSES = ops(
    op("fwd early", 0, 1, seq=5),
    op("fwd", 10, 20, seq=5),
    op("bwd early", 50, 51, WORKER, seq=5, fwd_thread=1),
    op("bwd", 60, 70, WORKER, seq=5, fwd_thread=1),
    op("same thread fwd", 30, 31, seq=6),
    op("same thread bwd", 80, 81, seq=6, fwd_thread=1),
    op("outer fwd", 22, 29, seq=9),
    op("inner fwd", 23, 28, seq=9),
    op("other bwd", 92, 93, WORKER, seq=9, fwd_thread=1),
    op("no backward", 32, 33, seq=7),
    op("no forward", 90, 91, WORKER, seq=8, fwd_thread=1),
    op("no number", 34, 35, seq=-1),
)


def names(pairs):
    return [(number, PASSES["name"][a], PASSES["name"][b]) for number, a, b in pairs.rows()]


def test_last_of_each_side_on_different_threads():
    assert names(forward_backward(PASSES)) == [(5, "fwd", "bwd"), (9, "inner fwd", "other bwd")]


def test_database_takes_the_last_to_end_and_keeps_pairs_on_one_thread():
    assert names(forward_backward_links(PASSES)) == [
        (5, "fwd", "bwd"),
        (6, "same thread fwd", "same thread bwd"),
        (9, "outer fwd", "other bwd"),
    ]


def test_flow_goes_from_start_to_start():
    assert forward_backward_flows(PASSES).rows()[0] == ("fwdbwd", 5, 7, MAIN, 10, 7, WORKER, 60)


def test_queue_pairs_need_both_sides():
    frame = queue(queued(1, (0, 1), (2, 3)), queued(2, (4, 5), (6, 7))[:1], queued(3, (8, 9), (10, 11))[1:])
    assert enqueue_to_dequeue(frame).rows() == [(1, 0, 1)]


def test_nothing_to_connect():
    assert forward_backward_flows(ops()).height == 0
    assert enqueue_to_dequeue(queue()).height == 0
