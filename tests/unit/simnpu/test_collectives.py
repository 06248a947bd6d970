"""Collectives between two processes with a simulated NPU each: results, order, records, training, a peer that dies."""

from __future__ import annotations

import functools
import itertools
import warnings
from datetime import timedelta

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist  # noqa: E402
from npu_process import reason_without_device  # noqa: E402
from npu_ranks import SIZE, run_ranks  # noqa: E402
from torch import nn  # noqa: E402

from stepscope.simnpu import device  # noqa: E402

TIMEOUT = timedelta(seconds=60)
STEPS = 4


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What the two processes told; one pair does everything, as starting them takes longest."""
    reason = reason_without_device()
    if reason:
        pytest.skip(f"no simulated NPU: {reason}")
    return run_ranks(tmp_path_factory.mktemp("ranks"), __file__, "both")


def both(rank, store, tell):
    warnings.simplefilter("ignore")  # torch renames its collectives
    tell("mixed", in_mixed_group(dist.PrefixStore("mixed", store)))
    dist.init_process_group("hccl", store=dist.PrefixStore("main", store), rank=rank, world_size=SIZE, timeout=TIMEOUT)
    for work in (reductions, movements, messages, groups):
        for name, value in work(rank).items():
            tell(name, value)
    tell("ahead", host_is_ahead(rank, store))
    tell("records", recorded(rank, store))
    tell("ddp", data_parallel(rank))
    tell("fsdp", sharded(rank))
    dist.barrier()
    if rank == 1:
        device._EXIT_SECONDS = 0.1
        dist.irecv(npu(0.0), 0)  # will never come: the process ends nevertheless
        return
    tell("peer died", after_peer_died())


def npu(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype, device="npu")


def in_mixed_group(store):
    dist.init_process_group("cpu:gloo,npu:hccl", store=store, rank=torch.npu.current_device(), world_size=SIZE, timeout=TIMEOUT)
    on_host, on_device = torch.ones(1), npu(2.0)
    dist.all_reduce(on_host)
    dist.all_reduce(on_device)
    dist.destroy_process_group()
    return [on_host.item(), on_device.item()]


def reductions(rank):
    told = {}
    for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"):
        x = npu(1.0 + rank, 4.0)
        dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
        told[op] = x.tolist()
    for dtype in (torch.bfloat16, torch.float16, torch.int64, torch.bool):
        x = npu(rank, 1, dtype=dtype)
        dist.all_reduce(x, async_op=True).wait()
        told[str(dtype)] = x.tolist()
    x = npu(1.0 + rank)
    dist.reduce(x, 1)
    told["reduce"] = x.tolist()
    x = torch.empty(2, device="npu")
    dist.reduce_scatter_tensor(x, torch.arange(4.0, device="npu"))
    told["reduce_scatter_tensor"] = x.tolist()
    dist.reduce_scatter(x, [npu(1.0, 2.0), npu(3.0, 4.0 + rank)])
    told["reduce_scatter"] = x.tolist()
    return told


def movements(rank):
    told = {}
    parts = [torch.empty(2, device="npu") for _ in range(SIZE)]
    dist.all_gather(parts, npu(rank, 5.0))
    told["all_gather"] = [part.tolist() for part in parts]
    x = torch.empty(SIZE, device="npu", dtype=torch.int16)
    dist.all_gather_into_tensor(x, npu(rank + 7, dtype=torch.int16))
    told["all_gather_into_tensor"] = x.tolist()
    with dist._coalescing_manager(async_ops=True) as coalesced:
        a, b = torch.empty(2, device="npu"), torch.empty(4, device="npu")
        dist.all_gather_into_tensor(a, npu(rank))
        dist.all_gather_into_tensor(b, npu(rank, 9.0))
    coalesced.wait()
    told["coalesced"] = [a.tolist(), b.tolist()]
    x = npu(rank, 2.0)
    dist.broadcast(x, 1)
    told["broadcast"] = x.tolist()
    x = torch.empty(4, device="npu")
    dist.all_to_all_single(x, torch.arange(4.0, device="npu") + 10 * rank)
    told["all_to_all_single"] = x.tolist()
    x = torch.empty(3 - 2 * rank, 2, device="npu")
    rows = torch.arange(4.0, device="npu").view(2, 2) + 10 * rank
    dist.all_to_all_single(x, rows, [1, 2] if rank == 0 else [1, 0], [1, 1] if rank == 0 else [2, 0])
    told["all_to_all with splits"] = x.tolist()
    outs = [torch.empty(1 + 2 * rank, device="npu"), torch.empty(2 + 2 * rank, device="npu")]
    ins = [torch.full((1 + rank,), float(rank), device="npu"), torch.full((3 + rank,), 10.0 + rank, device="npu")]
    dist.all_to_all(outs, ins)
    told["all_to_all"] = [out.tolist() for out in outs]
    dist.gather(npu(rank), parts := [torch.empty(1, device="npu") for _ in range(SIZE)] if rank == 0 else None, 0)
    told["gather"] = [part.item() for part in parts or []]
    x = torch.empty(1, device="npu")
    dist.scatter(x, [npu(7.0), npu(8.0)] if rank == 1 else None, 1)
    told["scatter"] = x.tolist()
    return told


def messages(rank):
    peer = 1 - rank
    big = torch.full((200_000,), float(rank), device="npu")  # more than a socket takes: both must receive while they send
    got = [torch.empty_like(big) for _ in range(2)]
    for work in [dist.isend(big, peer), dist.irecv(got[0], peer)]:
        work.wait()
    both_ways = [dist.P2POp(dist.isend, big, peer), dist.P2POp(dist.irecv, got[1], peer)]
    for work in dist.batch_isend_irecv(both_ways):
        work.wait()
    told = {"isend": got[0].unique().tolist(), "batch": got[1].unique().tolist()}
    x = npu(1.0)
    if rank == 0:
        dist.send(npu(42.0), 1)
        dist.send(npu(43.0), 1, tag=5)
    else:
        told["from anyone"] = [dist.recv(x), x.item()]
        dist.recv(x, 0, tag=5)
        told["recv"] = x.item()
    objects = [{"rank": rank}]
    dist.broadcast_object_list(objects, 1)
    told["objects"] = objects
    return told


def groups(rank):
    alone, together = dist.new_group([1]), dist.new_group([1, 0], timeout=TIMEOUT)
    x = npu(1.0)
    if rank == 1:
        dist.all_reduce(x, group=alone)
        x *= 10
    dist.all_reduce(x, group=together)
    dist.destroy_process_group(together)
    return {"groups": x.item()}


def host_is_ahead(rank, store):
    """Rank 1 takes part only when rank 0's host has waited for the result already, and queued work on it."""
    x = npu(1.0 + rank)
    x * 2  # learned: the host does not wait for it below
    if rank == 1:
        store.wait(["rank 0 went on"])
    work = dist.all_reduce(x, async_op=True)
    waited_later = [work.is_completed()]
    work.wait()
    y = x * 2
    waited_later.append(torch.npu.current_stream().query())
    store.set("rank 0 went on", "")
    return [waited_later if rank == 0 else [], y.item(), work.is_completed()]


def recorded(rank, store):
    from stepscope.simnpu.records import COLLECTIVE, EVENT_WAIT, Records

    x = torch.ones(1000, device="npu")
    group = dist.new_group([0, 1], timeout=TIMEOUT)  # one in which no message was taken out of order
    records = Records()
    records.start()
    if rank == 1:
        store.wait(["rank 0 waits"])
    work = dist.all_reduce(x, group=group, async_op=True)
    store.set("rank 0 waits", "")
    work.wait()
    if rank == 0:
        dist.send(x, 1, group=group)
    else:
        dist.recv(x, 0, group=group)
    torch.npu.synchronize()
    records.stop()
    assert records.lost() == 0
    tasks, transfers = records.tasks(), records.transfers()
    collectives = tasks[tasks["kind"] == COLLECTIVE]
    collectives = collectives[np.argsort(collectives["event"])]
    before = []
    for task in collectives:
        lane = tasks[(tasks["stream"] == task["stream"]) & (tasks["task"] < task["task"])]
        before.append(int(lane[-1]["kind"]) == EVENT_WAIT)
    backend = group._get_backend(torch.device("npu"))
    return {
        "named": [backend.get_hccl_comm_name(rank), backend._get_stream_id(False), backend._get_stream_id(True)],
        "tasks": [{name: int(task[name]) for name in tasks.dtype.names} for task in collectives],
        "descriptions": [records.description(int(number)) for number in collectives["description"]],
        "waits before": before,
        "transfers": [{name: int(task[name]) for name in transfers.dtype.names} for task in transfers],
    }


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


@functools.cache
def batches():
    torch.manual_seed(1)
    return [(torch.randn(16, 8), torch.randn(16, 4)) for _ in range(STEPS)]


def trained(net, part, where):
    """Losses of a few steps on a part of each batch."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for x, y in batches():
        optimizer.zero_grad()
        loss = (net(x[part].to(where)) - y[part].to(where)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def data_parallel(rank):
    net = nn.parallel.DistributedDataParallel(model().npu(), device_ids=[rank], bucket_cap_mb=0.005)
    trained(net, slice(8 * rank, 8 * rank + 8), "npu")
    return [parameter.tolist() for parameter in net.module.parameters()]


def sharded(rank):
    from torch.distributed.fsdp import fully_shard

    net = model().npu()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    losses = torch.stack(trained(fully_shard(net), slice(8 * rank, 8 * rank + 8), "npu"))
    dist.all_reduce(losses, op=dist.ReduceOp.AVG)
    return losses.tolist()


def after_peer_died():
    try:
        dist.all_reduce(npu(1.0))
        torch.npu.synchronize()
    except RuntimeError as fault:
        return str(fault)
    return ""


@pytest.mark.slow  # starts two processes with torch
@pytest.mark.parametrize(
    ("name", "of_rank"),
    [
        ("mixed", [[2.0, 4.0]] * 2),
        ("SUM", [[3.0, 8.0]] * 2),
        ("AVG", [[1.5, 4.0]] * 2),
        ("PRODUCT", [[2.0, 16.0]] * 2),
        ("MIN", [[1.0, 4.0]] * 2),
        ("MAX", [[2.0, 4.0]] * 2),
        ("torch.bfloat16", [[1.0, 2.0]] * 2),
        ("torch.float16", [[1.0, 2.0]] * 2),
        ("torch.int64", [[1, 2]] * 2),
        ("torch.bool", [[True, True]] * 2),
        ("reduce", [[1.0], [3.0]]),
        ("reduce_scatter_tensor", [[0.0, 2.0], [4.0, 6.0]]),
        ("reduce_scatter", [[2.0, 4.0], [6.0, 9.0]]),
        ("all_gather", [[[0.0, 5.0], [1.0, 5.0]]] * 2),
        ("all_gather_into_tensor", [[7, 8]] * 2),
        ("coalesced", [[[0.0, 1.0], [0.0, 9.0, 1.0, 9.0]]] * 2),
        ("broadcast", [[1.0, 2.0]] * 2),
        ("all_to_all_single", [[0.0, 1.0, 10.0, 11.0], [2.0, 3.0, 12.0, 13.0]]),
        ("all_to_all with splits", [[[0.0, 1.0], [10.0, 11.0], [12.0, 13.0]], [[2.0, 3.0]]]),
        ("all_to_all", [[[0.0], [1.0, 1.0]], [[10.0] * 3, [11.0] * 4]]),
        ("gather", [[0.0, 1.0], []]),
        ("scatter", [[7.0], [8.0]]),
        ("isend", [[1.0], [0.0]]),
        ("batch", [[1.0], [0.0]]),
        ("from anyone", [None, [0, 42.0]]),
        ("recv", [None, 43.0]),
        ("objects", [[{"rank": 1}]] * 2),
        ("groups", [11.0, 11.0]),
        ("ahead", [[[False, False], 6.0, True], [[], 6.0, True]]),
    ],
)
def test_result(ranks, name, of_rank):
    assert [told.get(name) for told in ranks] == of_rank


def test_collectives_are_described(ranks):
    for rank, told in enumerate(ranks):
        (reduce, message), recorded = told["records"]["descriptions"], told["records"]["tasks"]
        assert told["records"]["waits before"] == [True, True]
        assert (reduce["name"], reduce["core"], reduce["algorithm"]) == ("hcom_allReduce_", "COMMUNICATION", "MESH")
        assert (reduce["count"], reduce["bytes"], reduce["data_type"], reduce["reduce"]) == (1000, 4000, "FP32", "SUM")
        assert (reduce["rank"], reduce["ranks"], reduce["rank_size"]) == (rank, [0, 1], 2)
        assert message["name"] == ("hcom_send_", "hcom_receive_")[rank]
        assert [task["event"] for task in recorded] == [0, 1]
        assert all(0 < task["launch_start"] < task["launch_end"] <= task["start"] < task["end"] for task in recorded)
        assert told["records"]["named"] == [reduce["group_name"], *(task["stream"] for task in recorded)]
    assert ranks[0]["records"]["descriptions"][0]["group_name"] == ranks[1]["records"]["descriptions"][0]["group_name"]


def test_transfers_fill_the_span_of_their_collective(ranks):
    from stepscope.simnpu.records import MODELLED, TRANSFER_NAMES

    reduced = ["Notify_Record", "Notify_Wait", "Reduce_Inline", "Notify_Record", "Notify_Wait", "Memcpy"]
    for rank, told in enumerate(ranks):
        reduce, message = told["records"]["tasks"]
        for task in (reduce, message):
            parts = [part for part in told["records"]["transfers"] if part["connection"] == task["connection"]]
            assert parts[0]["start"] == task["start"]
            assert parts[-1]["end"] == task["end"]
            assert all(a["end"] == b["start"] for a, b in itertools.pairwise(parts))
            assert [part["task"] for part in parts] == list(range(task["task"] + 1, task["task"] + 1 + len(parts)))
            assert {part["stream"] for part in parts} == {task["stream"]}
            assert task["calls"] == len(parts)
            assert task["launch_end"] - task["launch_start"] >= 100 * len(parts)  # room for a runtime call each
            assert [bool(part["flags"] & MODELLED) for part in parts] == [i != 1 for i in range(len(parts))]
        parts = [part for part in told["records"]["transfers"] if part["connection"] == reduce["connection"]]
        assert [TRANSFER_NAMES[part["kind"]] for part in parts] == [*reduced, "Notify_Record", "Notify_Wait", "Memcpy"]
        assert [part["bytes"] for part in parts if part["bytes"]] == [2000, 2000, 4000]
        assert {(part["src_rank"], part["dst_rank"]) for part in parts[:-1]} == {(rank, 1 - rank)}
        assert (parts[-1]["dst_rank"], parts[-1]["link"]) == (-1, 0)


def test_a_rank_waits_until_the_other_one_enters(ranks):
    for mine, other in itertools.permutations(told["records"] for told in ranks):
        wait, entered = mine["transfers"][1], other["tasks"][0]
        assert entered["start"] <= wait["end"] <= entered["end"]
        assert wait["notify"] == other["transfers"][0]["notify"] != mine["transfers"][0]["notify"]


def test_ddp_learns_what_one_process_learns_from_the_doubled_batch(ranks):
    net = model()
    trained(net, slice(None), "cpu")
    for told in ranks:
        for ours, expected in zip(told["ddp"], net.parameters(), strict=True):
            torch.testing.assert_close(torch.tensor(ours), expected.detach(), rtol=1e-5, atol=1e-6)


def test_fsdp_has_the_losses_of_one_process(ranks):
    expected = torch.stack(trained(model(), slice(None), "cpu"))
    for told in ranks:
        torch.testing.assert_close(torch.tensor(told["fsdp"]), expected, rtol=1e-5, atol=1e-6)


def test_a_peer_that_died_is_told_at_the_next_synchronisation(ranks):
    assert ranks[0]["peer died"].startswith("hcom_allReduce_ (c10d::allreduce_, rank 0 of 2 in group ")
