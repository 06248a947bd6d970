"""Arrows of the timeline."""

from __future__ import annotations

from capture_rows import DEQUEUE, MAIN, WORKER, collective, collectives, kernels, op, ops, queue, queued, tables, task

from stepscope.analysis.flows import (
    enqueue_to_dequeue,
    forward_backward,
    forward_backward_flows,
    forward_backward_links,
    operator_to_device,
)
from stepscope.analysis.link.capture import link

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


def test_operator_to_device_in_order_of_operators_then_of_launches():
    linked = link(
        tables(
            ops=ops(op("a", 0, 10), op("b", 20, 30)),
            queue=queue(queued(1, (22, 23), (100, 110)), queued(2, (25, 26), (120, 130)), queued(3, (5, 6), (140, 150))),
            kernels=kernels(
                task(300, 310, launch_ns=125, launch_tid=DEQUEUE),
                task(320, 330, launch_ns=145, launch_tid=DEQUEUE),
                task(340, 350, launch_ns=145, launch_tid=DEQUEUE, extra=True),
                task(360, 370),
            ),
            collectives=collectives(collective(400, 500, launch_ns=105, launch_tid=DEQUEUE)),
        )
    )
    assert operator_to_device(linked).select("op", "op_start_ns", "table", "row", "start_ns").rows() == [
        (0, 0, "kernels", 1, 320),
        (1, 20, "collectives", 0, 400),
        (1, 20, "kernels", 0, 300),
    ]


def test_queue_pairs_need_both_sides():
    frame = queue(queued(1, (0, 1), (2, 3)), queued(2, (4, 5), (6, 7))[:1], queued(3, (8, 9), (10, 11))[1:])
    assert enqueue_to_dequeue(frame).rows() == [(1, 0, 1)]


def test_nothing_to_connect():
    assert forward_backward_flows(ops()).height == 0
    assert operator_to_device(link(tables())).height == 0
    assert enqueue_to_dequeue(queue()).height == 0
