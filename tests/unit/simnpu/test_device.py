"""The simulated NPU as scripts use it: values, devices, random numbers, files, memory, faults."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from npu_process import on_npu, reason_without_device  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

# Twice each: the first call is learned while the host waits, the second is queued.
EXPRESSIONS = {
    "reduction": lambda t: t.sum(0) + t.std() + t.max(1)[0].sum(),
    "sort": lambda t: t.gather(1, t.argsort()) + t.topk(2)[0].sum(),
    "joined": lambda t: torch.cat([torch.stack([t, t])[0], t.repeat(2, 1)]),
    "where": lambda t: torch.where(t > 0, t, 0.0).clamp(0, 1).masked_fill(t > 0.5, 7),
    "matrix": lambda t: torch.einsum("ij,kj->ik", t, t) @ torch.bmm(t[None], t.t()[None])[0],
    "picture": lambda t: functional.pad(functional.interpolate(t[None, None], scale_factor=2, mode="bilinear"), (1, 1)),
    "dtypes": lambda t: t.half().float() + t.double().float() + t.view(torch.int32).float(),
    "loss": lambda t: functional.cross_entropy(t, t.argmax(1)),
    "indexed": lambda t: t[torch.tensor([0, 2])] + t[[1, 3]] + t[t.argmax(0)][:2],
    "masked": lambda t: t[t > 0],
    "out": lambda t: torch.add(t, t, out=torch.empty(0, device=t.device)),
    "nonzero": lambda t: torch.nonzero(t > 0).float() + t.unique().numel(),
    "strided": lambda t: t.t().contiguous().unfold(1, 2, 1).flip(0),
    "made": lambda t: torch.linspace(0, 1, 5, device=t.device) + torch.arange(5, device=t.device) + t.new_full((5,), 2.0),
    "complex": lambda t: torch.fft.fft(torch.complex(t, t)).conj().abs(),
    "linear algebra": lambda t: torch.linalg.svdvals(t),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
@on_npu
def test_values_are_those_of_the_cpu(name):
    torch.manual_seed(0)
    host = torch.randn(4, 5)
    device = host.to("npu")
    for _ in range(2):
        ours, theirs = EXPRESSIONS[name](device), EXPRESSIONS[name](host)
        assert ours.device.type == "npu"
        assert ours.stride() == theirs.stride()
        assert torch.equal(ours.cpu(), theirs)


@on_npu
def test_numbers_that_change_every_step_do_not_wait_again():
    from stepscope.simnpu.records import AWAITED, Records

    x = torch.ones(3, device="npu")
    x * 1.5
    records = Records()
    records.start()
    for factor in (2.5, 3.5):
        x * factor
    torch.npu.synchronize()
    records.stop()
    assert [task["flags"] & AWAITED for task in records.tasks()] == [0, 0]


@on_npu
def test_two_devices():
    assert torch.npu.device_count() == 2
    there = torch.arange(4.0, device="npu:1")
    here = there.to("npu:0") * 2
    assert here.device == torch.device("npu:0")
    assert here.to("npu:1").tolist() == [0.0, 2.0, 4.0, 6.0]
    with torch.npu.device(1):
        assert torch.npu.current_device() == 1
        assert torch.ones(1, device="npu").device.index == 1
    assert torch.npu.current_device() == 0
    with pytest.raises(RuntimeError, match="npu:0 and npu:1"):
        here + there
    with pytest.raises(RuntimeError, match="npu:0 and cpu"):
        here + torch.ones(4)
    with pytest.raises(RuntimeError, match="there is no npu:7"):
        torch.npu.set_device(7)


@on_npu
def test_random_numbers_follow_their_seed():
    torch.manual_seed(5)
    device, state = torch.randn(3, device="npu"), torch.npu.get_rng_state()
    torch.manual_seed(5)
    assert torch.equal(device.cpu(), torch.randn(3))
    torch.npu.set_rng_state(state)
    first = torch.rand(4, device="npu")
    torch.npu.set_rng_state(state)
    with torch.random.fork_rng(devices=[0], device_type="npu"):
        assert torch.equal(torch.rand(4, device="npu"), first)
    assert torch.equal(torch.rand(4, device="npu"), first)
    assert not torch.equal(torch.rand(4, device="npu"), first)
    own = torch.Generator(device="npu").manual_seed(3)
    drawn = torch.rand(3, device="npu", generator=own)
    assert torch.equal(drawn, torch.rand(3, device="npu", generator=own.manual_seed(3)))
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, device="npu", generator=torch.Generator())
    torch.npu.manual_seed_all(9)
    assert torch.npu.initial_seed() == 9


@pytest.mark.parametrize(
    ("location", "device"), [(None, "npu:0"), ("cpu", "cpu"), ("npu:1", "npu:1"), ({"npu:0": "npu:1"}, "npu:1")]
)
@on_npu
def test_saved_tensors_come_back_where_asked(location, device):
    model = nn.Linear(3, 3).npu()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    weight = torch.load(file, map_location=location)["weight"]
    assert weight.device == torch.device(device)
    assert torch.equal(weight.cpu(), model.weight.detach().cpu())


@on_npu
def test_autocast_and_scaler_train():
    with torch.autocast("npu", dtype=torch.bfloat16):
        z = torch.randn(4, 4, device="npu")
        assert [(z @ z).dtype, z.softmax(0).dtype] == [torch.bfloat16, torch.float32]
    losses = {}
    for kind in ("cpu", "npu"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(10, 8), nn.LayerNorm(8), nn.Linear(8, 3)).to(kind)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
        scaler = torch.amp.GradScaler(kind, init_scale=1024.0)
        losses[kind] = []
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast(kind, dtype=torch.float16):
                loss = model(torch.arange(6, device=kind)).float().square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses[kind].append(loss.item())
        assert scaler.get_scale() == 1024.0
    assert losses["npu"] == pytest.approx(losses["cpu"], rel=1e-3)
    assert losses["npu"][3] < losses["npu"][0]


@on_npu
def test_memory_is_counted_and_used_again():
    torch.npu.empty_cache()
    before = torch.npu.memory_allocated()
    torch.npu.reset_peak_memory_stats()
    x = torch.empty(1000, device="npu")  # 4000 bytes are 8 pieces of 512
    assert torch.npu.memory_allocated() - before == 4096
    assert torch.npu.memory_reserved() >= 2 << 20
    address = x.data_ptr()
    del x
    assert torch.npu.memory_allocated() == before
    assert torch.npu.max_memory_allocated() - before == 4096
    assert torch.empty(900, device="npu").data_ptr() == address
    free, total = torch.npu.mem_get_info()
    assert total - free == torch.npu.memory_reserved()
    assert torch.npu.memory_stats()["num_device_alloc"] > 0
    with pytest.raises(torch.OutOfMemoryError, match="NPU out of memory"):
        torch.empty(10**12, device="npu")


@on_npu
def test_memory_records_carry_the_totals():
    from stepscope.simnpu.records import Records

    torch.npu.synchronize()
    records = Records()
    records.start()
    x = torch.empty(3 << 20, dtype=torch.uint8, device="npu")
    y = torch.empty(100, device="npu")
    del x, y
    records.stop()
    rows = records.memory()
    assert rows["kind"].tolist() == [0, 0, 1, 2, 1, 2]
    assert rows["size"].tolist() == [3 << 20, 512, -(3 << 20), -(3 << 20), -512, -512]
    for earlier, later in itertools.pairwise(rows):
        moved = later["size"] if later["kind"] != 2 else 0
        assert later["allocated"] - earlier["allocated"] == moved
    assert rows["active"][-1] == rows["allocated"][-1]
    assert len(set(rows["stream"])) == 1


@on_npu
def test_a_fault_on_the_device_surfaces_at_the_next_wait_with_the_operators_name():
    weight = torch.randn(10, 4, device="npu")
    functional.embedding(torch.tensor([1, 2], device="npu"), weight)
    functional.embedding(torch.tensor([1, 99], device="npu"), weight)  # returns: nobody has looked yet
    with pytest.raises(RuntimeError, match=r"aten::embedding failed on npu:0, stream 0: index out of range"):
        torch.npu.synchronize()
    torch.npu.synchronize()  # told once
    with pytest.raises(IndexError, match="index out of range"):
        functional.embedding(torch.tensor([1, 2, 99], device="npu"), weight)  # a new signature: the host waits for it
    assert (weight - weight).sum().item() == 0.0


NAMED = {
    "matmul": (lambda x: torch.addmm(x[0], x, x), "aclnnAddmm_MatMulCommon_MatMulV2", "AI_CORE"),
    "number": (lambda x: x * 2, "aclnnMuls_MulAiCore_Mul", "AI_VECTOR_CORE"),
    "in-place": (lambda x: x.mul_(x), "aclnnInplaceMul_MulAiCore_Mul", "AI_VECTOR_CORE"),
    "reduction": (lambda x: x.sum(), "aclnnReduceSum_ReduceSumOpAiCore_ReduceSum", "MIX_AIV"),
    "cast": (lambda x: x.to(torch.float16), "aclnnCast_CastAiCore_Cast", "AI_VECTOR_CORE"),
    "clone": (lambda x: x.clone(), "aclnnInplaceCopy_TensorMoveAiCore_TensorMove", "AI_VECTOR_CORE"),
    "data-dependent": (lambda x: x.nonzero(), "aclnnNonzero_NonzeroAiCpu_Nonzero", "AI_CPU"),
    "foreach": (
        lambda x: torch._foreach_add_([x, x], 1.0),
        "aclnnForeachAddScalarV2_ForeachAddScalarV2_ForeachAddScalar",
        "AI_VECTOR_CORE",
    ),
    "attention": (
        lambda x: functional.scaled_dot_product_attention(*[x.view(1, 1, 8, 8)] * 3),
        "aclnnFlashAttentionScore_FlashAttentionScore_FlashAttentionScore",
        "MIX_AIC",
    ),
    "convolution": (lambda x: functional.conv2d(x[None, None], x[None, None, :3, :3]), "aclnnConvolution_Conv2D_Conv2D", "AI_CORE"),
    "unknown": (lambda x: x.erfinv(), "aclnnErfinv_ErfinvAiCore_Erfinv", "AI_VECTOR_CORE"),
    "gradient": (lambda x: torch.ops.aten.tanh_backward(x, x), "aclnnTanhBackward_TanhGradAiCore_TanhGrad", "AI_VECTOR_CORE"),
}


@pytest.mark.parametrize("name", NAMED)
@on_npu
def test_kernels_are_named_as_on_hardware(name):
    from stepscope.simnpu.records import KERNEL, Records

    work, kernel, core = NAMED[name]
    x = torch.ones(8, 8, device="npu")
    for _ in range(2):  # learned, then queued: the same description
        records = Records()
        records.start()
        work(x)
        torch.npu.synchronize()
        records.stop()
        described = [records.description(task["description"]) for task in records.tasks() if task["kind"] == KERNEL]
        assert [(one["name"], one["core"]) for one in described] == [(kernel, core)]
        assert described[0]["outputs"]
        assert described[0]["blocks"] >= 1


@on_npu
def test_a_kernel_is_described_by_its_tensors():
    from stepscope.simnpu.records import Records

    records = Records()
    records.start()
    torch.ones(2, 3, device="npu", dtype=torch.bfloat16) @ torch.ones(3, 4, device="npu", dtype=torch.bfloat16)
    torch.npu.synchronize()
    records.stop()
    (described,) = [one for one in map(records.description, records.tasks()["description"]) if one["type"] == "MatMulV2"]
    assert described["operator"] == "aten::mm"
    assert described["api"] == "aclnnMm"
    tensor = {"dtype": "DT_BF16", "format": "ND"}
    assert described["inputs"] == [{"shape": [2, 3], **tensor}, {"shape": [3, 4], **tensor}]
    assert described["outputs"] == [{"shape": [2, 4], **tensor}]
    assert described["flops"] == 2 * 2 * 3 * 4
    assert described["bytes"] == 2 * (6 + 12 + 8)


def test_without_a_compiler_the_reason_and_the_way_out_are_told(monkeypatch, tmp_path):
    from stepscope import simnpu
    from stepscope.errors import CaptureError

    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(CaptureError) as told:
        simnpu.load()
    assert "no C++ compiler" in str(told.value)
    assert "run on the CPU" in str(told.value)
    assert not simnpu.loaded()


def ran(script, **environment):
    reason = reason_without_device()
    if reason:
        pytest.skip(f"no simulated NPU: {reason}")
    done = subprocess.run(
        [sys.executable, "-c", "import torch\nfrom stepscope import simnpu\nsimnpu.load()\n" + script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


FORKS = """
import os, sys

def child(work):
    sys.stdout.flush()
    number = os.fork()
    if number == 0:
        work()
        sys.exit(0)  # runs what was registered for the exit
    assert os.waitpid(number, 0)[1] == 0

def use():
    print(torch.ones(2, device="npu").sum().item())

def fail_to_use():
    for attempt in (use, lambda: torch.npu.synchronize(), lambda: x + 1, lambda: x.cpu()):
        try:
            attempt()
        except RuntimeError as fault:
            print("spawn" in str(fault))
    print((torch.ones(2) + 1).sum().item())
    torch.manual_seed(1)

child(use)
x = torch.ones(2, device="npu")
child(fail_to_use)
print(x.sum().item())
"""


@pytest.mark.slow  # starts processes with torch
def test_a_forked_child_is_told_instead_of_hanging():
    assert ran(FORKS) == ["2.0", "True", "True", "True", "True", "4.0", "2.0"]


SETTINGS = """
import threading
from stepscope.simnpu.records import Records

assert torch.npu.device_count() == 3
assert torch.npu.mem_get_info()[1] == 1 << 30

library = torch.library.Library("simnpu_test", "FRAGMENT")
library.define("gate(Tensor x) -> Tensor")
full = threading.Event()
seen = []
library.impl("gate", lambda x: (full.wait(0.2), seen.append(len(queued)), x + 1)[2], "CPU")
x = torch.zeros(2, device="npu")
queued = []
torch.ops.simnpu_test.gate(x)
torch.npu.synchronize()
x + 1
records = Records()
records.start()
y = torch.ops.simnpu_test.gate(x)
for number in range(50):
    x + 1
    queued.append(number)
full.set()
torch.npu.synchronize()
records.stop()
tasks = records.tasks()
adds = tasks[1:]
print(7 <= seen[-1] <= 17)
# Never shorter than modelled, and exactly as long unless the machine was too busy to be in time.
over = adds["end"] - adds["start"] - adds["modelled_ns"]
print(len(adds), over.min() == 0, adds["modelled_ns"][0] > 100_000)
print(tasks["end"][0] - tasks["start"][0] > 100_000_000)  # took longer than modelled
print(set(tasks["dequeue_start"].tolist()), set(tasks["host_thread"]) == set(tasks["launch_thread"]))
"""


@pytest.mark.slow  # starts processes with torch
@pytest.mark.parametrize(("queue", "stamped"), [("0", False), ("1", True)])
def test_settings(queue, stamped):
    """The host blocks at a full queue; the model sets how long kernels take; the task queue can be off."""
    lines = ran(
        SETTINGS,
        TASK_QUEUE_ENABLE=queue,
        STEPSCOPE_SIM_DEVICES="3",
        STEPSCOPE_SIM_MEMORY_GB="1",
        STEPSCOPE_SIM_QUEUE_DEPTH="8",
        STEPSCOPE_SIM_KERNEL_TIME="100",
    )
    assert lines[:3] == ["True", "50 True True", "True"]
    assert (lines[3] == "{0} True") is not stamped


@pytest.mark.slow  # starts processes with torch
@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({}, 2),
        ({"LOCAL_WORLD_SIZE": "5"}, 5),
        ({"LOCAL_WORLD_SIZE": "1"}, 2),
        ({"LOCAL_WORLD_SIZE": "5", "STEPSCOPE_SIM_DEVICES": "3"}, 3),
    ],
)
def test_there_are_as_many_devices_as_torchrun_starts_processes(variables, count):
    assert ran("print(torch.npu.device_count())", **variables) == [str(count)]


SLOW = """
import time
from stepscope.simnpu.records import Records

a = torch.ones(64, 64, device="npu")
torch.mm(a, a), a + a
torch.npu.synchronize()
records = Records()
records.start()
torch.mm(a, a), a + a
torch.npu.synchronize()
records.stop()
tasks = records.tasks()
print(*tasks["modelled_ns"].tolist())
print((tasks["enqueue_end"] - tasks["enqueue_start"]).min())
torch.npu.empty_cache()
began = time.perf_counter_ns()
torch.empty(4, device="npu")
print(time.perf_counter_ns() - began)
"""


@pytest.mark.slow  # starts processes with torch
def test_what_a_fault_makes_longer():
    """Kernels of one operator, every launch, and memory from the device once it was given back."""
    mm, add = (int(word) for word in ran(SLOW, STEPSCOPE_SIM_KERNEL_TIME="100")[0].split())
    kernels, launch, memory = ran(
        SLOW, STEPSCOPE_SIM_KERNEL_TIME="100", STEPSCOPE_SIM_SLOW="kernel=mm:3 launch_us=2000 malloc_ms=30 link=0-1:4"
    )
    assert [int(word) for word in kernels.split()] == [3 * mm, add]
    assert int(launch) >= 2_000_000
    assert int(memory) >= 30_000_000
