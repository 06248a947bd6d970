"""Host and device tasks of a raw folder, joined by hand-made keys."""

from __future__ import annotations

from types import SimpleNamespace

import polars as pl
import pytest

from stepscope.formats.cann.communication import communication
from stepscope.formats.cann.device.ts_track import BLOCK_ROWS
from stepscope.formats.cann.tasks import JoinedTasks, join, kernels

TEXTS = ("op_name", "op_type", "core", "op_state", "hf32", "attrs")
LISTS = tuple(f"{side}_{what}" for side in ("input", "output") for what in ("shapes", "dtypes", "formats"))


def queued(task_id, *, stamp=1, host_type="KERNEL_AIVEC", description=None, context_id=None, connection_id=None, device=0) -> dict:
    return {
        "device": device, "stream": 7, "task_id": task_id, "batch_id": 0, "context_id": context_id, "stamp_ns": stamp,
        "host_type": host_type, "kernel_name": None, "model_id": None, "connection_id": connection_id, "description": description,
        "bytes": None, "copy_direction": None, "grid": None, "block": None, "block_num": None, "mix_block_num": None,
    }  # fmt: skip


def ran(task_id, start, end, *, context_id=None, device_type="AI_CORE") -> dict:
    return {
        "stream": 7, "task_id": task_id, "batch_id": 0, "context_id": context_id, "start_ns": start, "end_ns": end,
        "duration_ns": float(end - start), "device_type": device_type, "pmu": None,
    }  # fmt: skip


def host(tasks: list[dict], *op_names: str, core: str | None = None) -> SimpleNamespace:
    texts = dict.fromkeys((*TEXTS, *LISTS, "host_type", "kernel_name", "copy_direction", "grid", "block"), pl.String)
    descriptions = [
        dict.fromkeys((*TEXTS, *LISTS, "block_num", "mix_block_num")) | {"op_name": name, "core": core} for name in op_names
    ]
    numbers = {"device": pl.Int32, **dict.fromkeys(("stream", "task_id", "batch_id", "context_id", "stamp_ns"), pl.Int64)}
    numbers |= dict.fromkeys(("model_id", "connection_id", "description", "bytes", "block_num", "mix_block_num"), pl.Int64)
    schema = numbers | {name: texts[name] for name in ("host_type", "kernel_name", "copy_direction", "grid", "block")}
    described = dict.fromkeys((*TEXTS, *LISTS), pl.String) | dict.fromkeys(("block_num", "mix_block_num"), pl.Int64)
    return SimpleNamespace(tasks=pl.DataFrame(tasks, schema=schema), descriptions=pl.DataFrame(descriptions, schema=described))


def device(*runs: dict, number: int = 0, in_order: bool = False, sizes: list[tuple] = ()) -> SimpleNamespace:
    """`sizes` are those that the device chose: (stream, task, batch, blocks, blocks of the other core)."""
    schema = {
        **dict.fromkeys(("stream", "task_id", "batch_id", "context_id", "start_ns", "end_ns"), pl.Int64),
        "duration_ns": pl.Float64, "device_type": pl.Categorical(), "pmu": pl.Int64,
    }  # fmt: skip
    track = SimpleNamespace(blocks=pl.DataFrame(sizes, schema=BLOCK_ROWS, orient="row"))
    return SimpleNamespace(device=number, tasks=pl.DataFrame(runs, schema=schema), in_order=in_order, track=track)


def issues(joined: JoinedTasks) -> dict[str, int]:
    return {row["issue"][0]: row["count"][0] for row in joined.quality}


@pytest.mark.parametrize(
    ("host_tasks", "runs", "rows", "lost"),
    [
        pytest.param([queued(1)], [ran(1, 10, 20)], [0], {}, id="one-to-one"),
        pytest.param([queued(1)], [ran(1, 10, 20), ran(1, 30, 40)], [0, 0], {}, id="a-graph-runs-again"),
        pytest.param([queued(1), queued(1, stamp=2)], [ran(1, 10, 20)], [0], {}, id="queued-twice-ran-once"),
        pytest.param(
            [queued(1), queued(1, stamp=2)],
            [ran(1, 10, 20), ran(1, 30, 40)],
            [None, None],
            {"operator-unknown": 2},
            id="several-with-several-is-refused",
        ),
        pytest.param([], [ran(1, 10, 20)], [None], {"operator-unknown": 1}, id="not-queued"),
        pytest.param([queued(1, context_id=0), queued(1)], [ran(1, 5, 9), ran(1, 6, 8, context_id=0)], [1, 0], {}, id="contexts"),
        pytest.param([queued(1, device=1)], [ran(1, 5, 9)], [None], {"operator-unknown": 1}, id="other-device"),
    ],
)
def test_join(host_tasks, runs, rows, lost):
    joined = join(host(host_tasks), [device(*runs)])
    assert joined.rows["host"].to_list() == rows
    assert issues(joined) == lost


@pytest.mark.parametrize(
    ("host_tasks", "runs", "rows"),
    [
        pytest.param([queued(1), queued(1, stamp=2)], [ran(1, 10, 20), ran(1, 30, 40)], [0, 1], id="as-many-runs-as-tasks"),
        pytest.param(
            [queued(1), queued(1, stamp=2)], [ran(1, 10, 20), ran(1, 30, 40), ran(1, 50, 60)], [0, 1, None], id="a-task-is-missing"
        ),
        pytest.param(
            [queued(1), queued(1, stamp=2, description=0)], [ran(1, 10, 20), ran(1, 30, 40)], [0, 1], id="operators-keep-their-turn"
        ),
        pytest.param([queued(1), queued(2), queued(2, stamp=2)], [ran(1, 1, 2), ran(1, 3, 4)], [0, 0], id="a-graph-runs-again"),
    ],
)  # fmt: skip
def test_join_in_order_where_rounds_of_numbers_are_not_told_apart(host_tasks, runs, rows):
    joined = join(host(host_tasks, "Add"), [device(*runs, in_order=True)])
    assert joined.rows["host"].to_list() == rows


@pytest.mark.parametrize("stream", [7, None], ids=["by-stream", "unique-numbers"])
def test_sizes_that_the_device_chose_go_before_those_of_the_host(stream):
    side = host([queued(0, description=0), queued(1, description=0), queued(2)], "Add")
    runs = [ran(number, 10 * number, 10 * number + 5) for number in range(3)]
    chosen = device(*runs, sizes=[(stream, 0, 0, 8, 16), (stream, 2, 0, 4, 0)])
    table = kernels(join(side, [chosen]), side, 42)
    assert table.select("block_num", "mix_block_num").rows() == [(8, 16), (None, None), (None, None)]


def test_devices_follow_one_another():
    joined = join(host([queued(1), queued(1, device=1)]), [device(ran(1, 50, 60)), device(ran(1, 10, 20), number=1)])
    assert joined.rows.select("device", "start_ns", "host").rows() == [(0, 50, 0), (1, 10, 1)]


def test_names_kinds_and_types():
    side = host(
        [
            queued(0, description=0),
            queued(1, host_type="MEMCPY_ASYNC"),
            queued(2, host_type="FFTS_PLUS"),
            queued(3, host_type="EVENT_WAIT"),
            queued(4, description=1),
        ],
        "Add",
        "hcom_allReduce_AicpuKernel",
        core="COMMUNICATION",
    )
    runs = [ran(number, 10 * number, 10 * number + 5) for number in range(5)]
    table = kernels(join(side, [device(*runs, ran(9, 90, 95, device_type="PLACE_HOLDER_SQE"))]), side, 42)
    assert table.select("name", "kind", "task_type", "host_task_type").rows() == [
        ("Add", "communication", "COMMUNICATION", "KERNEL_AIVEC"),
        ("MEMCPY_ASYNC", "memcpy", "MEMCPY_ASYNC", "MEMCPY_ASYNC"),
        ("AI_CORE", "other", "AI_CORE", "FFTS_PLUS"),
        ("EVENT_WAIT", "event", "EVENT_WAIT", "EVENT_WAIT"),
        ("hcom_allReduce_AicpuKernel", "communication", "COMMUNICATION", "KERNEL_AIVEC"),
        ("PLACE_HOLDER_SQE", "other", "PLACE_HOLDER_SQE", "PLACE_HOLDER_SQE"),
    ]
    assert table["pid"].unique().to_list() == [42]


def test_the_operator_stands_for_its_launch():
    side = host(
        [queued(1, connection_id=5), queued(1, context_id=0, connection_id=5, description=0), queued(2), queued(3)], "Attention"
    )
    runs = [ran(1, 5, 9), ran(1, 6, 8, context_id=0), ran(2, 10, 11), ran(3, 12, 13)]
    assert kernels(join(side, [device(*runs)]), side, None)["extra"].to_list() == [True, False, False, False]


def hccl(tasks: list[dict], *names: str) -> SimpleNamespace:
    schema = {
        **dict.fromkeys(("task", "big_op", "model_id", "plane", "local_rank", "remote_rank", "rank_size", "bytes"), pl.Int64),
        "is_master": pl.Boolean, "estimated_us": pl.Float64,
        **dict.fromkeys(("name", "task_type", "group", "group_name", "notify_id", "data_type"), pl.String),
        **dict.fromkeys(("link", "transport", "rdma_type"), pl.String),
    }  # fmt: skip
    operators = [
        {"device": 0, "tid": 1, "start_ns": 0, "end_ns": 1, "name": name, "op_type": name, "connection_id": 9, "model_id": None,
         "group": "4711999", "group_name": "world", "data_type": "FP16", "alg_type": "RING", "count": 8, "relay": False,
         "retry": False}
        for name in names
    ]  # fmt: skip
    return SimpleNamespace(hccl_tasks=pl.DataFrame(tasks, schema=schema), big_ops=pl.DataFrame(operators))


def link_task(number: int, big_op: int, **further) -> dict:
    return {"task": number, "big_op": big_op, "name": "Memcpy", "plane": 0, "is_master": True, "bytes": 100, **further}


def joined_runs(*spans: tuple[int, int]) -> JoinedTasks:
    runs = [ran(number, start, end) | {"device": 0, "host": number} for number, (start, end) in enumerate(spans)]
    schema = {"device": pl.Int32, **dict.fromkeys(("stream", "task_id", "batch_id", "context_id", "start_ns", "end_ns"), pl.Int64)}
    return JoinedTasks(pl.DataFrame(runs, schema=schema | {"duration_ns": pl.Float64, "host": pl.Int64}), ())


def test_the_span_of_a_collective_is_that_of_its_master_tasks():
    side = hccl([link_task(0, 0), link_task(1, 0, is_master=False), link_task(2, 1)], "hcom_allReduce_", "hcom_allGather_")
    collectives, transfers, quality = communication(joined_runs((100, 150), (90, 190), (200, 220)), side, None)
    assert collectives.select("name", "start_ns", "end_ns", "group_index").rows() == [
        ("hcom_allReduce__999_0_1", 100, 150, 0),
        ("hcom_allGather__999_1_1", 200, 220, 0),
    ]
    assert transfers.select("start_ns", "collective", "bandwidth").rows() == [(90, 0, 1.0), (100, 0, 2.0), (200, 1, 5.0)]
    assert sum(row.height for row in quality) == 0


def test_payloads_are_counted_until_their_arrival_is_known():
    kinds = ["RDMA_SEND_PAYLOAD", "RDMA_SEND_PAYLOAD", "RDMA_SEND_NOTIFY", None, "RDMA_SEND_NOTIFY", None]
    tasks = [link_task(number, 0, rdma_type=kind, bytes=100 if number < 2 else 0) for number, kind in enumerate(kinds)]
    spans = [(100 * number, 100 * number + 50) for number in range(len(kinds))]
    _, transfers, _ = communication(joined_runs(*spans), hccl(tasks, "hcom_allReduce_"), None)
    # 200 bytes from the start of the first payload (0) to the end of the task four after the last one (550).
    assert transfers["bandwidth"].to_list() == pytest.approx([200 / 550, 200 / 550, 0, 0, 0, 0])


def test_operators_and_tasks_without_each_other_are_counted():
    side = hccl([link_task(0, 0) | {"big_op": None}], "hcom_allReduce_")
    _, transfers, quality = communication(joined_runs((0, 10)), side, None)
    assert transfers["collective"].to_list() == [None]
    assert [(row["issue"][0], row["count"][0]) for row in quality if row.height] == [
        ("unmatched-communication", 1),
        ("unmatched-communication", 1),
    ]
