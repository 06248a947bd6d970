"""Faults of simulated devices: what a text means, and that every process takes its own."""

from __future__ import annotations

import gc
import re
import time

import pytest

from stepscope.cli import main
from stepscope.simnpu import faults
from stepscope.simnpu.pretended import CHIP, pretended_chip


def test_a_fault_from_its_text():
    fault = faults.parse("rank=3, kind=frequency, factor=0.8")
    assert (fault.rank, fault.kind, fault.factor) == (3, "frequency", 0.8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind=frequency", "needs rank="),
        ("rank=1", "needs kind="),
        ("rank=1,kind=fire", "kind=frequency|kernel|link|dispatch|allocation|data_loading|gc"),
        ("rank=1,kind=link", "needs the rank at its other end"),
        ("rank=1,kind=link,peer=1", "needs the rank at its other end"),
        ("rank=1,kind=kernel,op=a b", "'op=a b'"),
        ("rank=one,kind=gc", "'one' is not a number"),
        ("rank=1,kind=frequency,factor=1.5", "up to 1"),
        ("rank=1,kind=gc,colour=3", "'colour=3'"),
    ],
)
def test_what_is_no_fault(text, said, capsys):
    with pytest.raises(ValueError, match=re.escape(said)):
        faults.parse(text)
    with pytest.raises(SystemExit) as ended:
        main(["run", "--nproc", "2", "--sim-fault", text, "train.py"])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_rank_that_is_not_started():
    with pytest.raises(SystemExit, match="no rank 2"):
        main(["run", "--nproc", "2", "--sim-fault", "rank=2,kind=gc", "train.py"])


def test_a_link_to_a_rank_that_is_not_started():
    with pytest.raises(SystemExit, match="no rank 3"):
        main(["run", "--nproc", "2", "--sim-fault", "rank=0,kind=link,peer=3", "train.py"])


def test_what_the_device_makes_longer():
    """A link is slow for all ranks, since a group is as slow as its slowest link; the rest only on its rank."""
    job: dict[str, str] = {}
    texts = ("rank=1,kind=kernel,op=mm,factor=0.4", "rank=1,kind=dispatch,us=50", "rank=0,kind=link,peer=2,factor=0.25")
    faults.for_children(texts, job)
    for rank, slow in {"0": "link=0-2:4", "1": "link=0-2:4 kernel=mm:2.5 launch_us=50", "2": "link=0-2:4"}.items():
        child = {**job, "RANK": rank}
        faults.apply(child)
        assert child["STEPSCOPE_SIM_SLOW"] == slow


@pytest.mark.parametrize(("before", "healthy"), [("", "200"), ("400", "400"), ("0", "200")])
def test_only_its_own_rank_is_slow(before, healthy):
    job = {"STEPSCOPE_SIM_KERNEL_TIME": before}
    faults.for_children(("rank=1,kind=frequency,factor=0.8",), job)
    assert job["STEPSCOPE_SIM_KERNEL_TIME"] == healthy
    for rank in ("0", "1", None):
        # torchrun, which has no rank, also imports torch; its processes inherit what it has.
        child = {**job, **({"RANK": rank} if rank else {})}
        for _ in range(2):
            faults.apply(child)
        slow = rank == "1"
        assert child["STEPSCOPE_SIM_KERNEL_TIME"] == (f"{float(healthy) / 0.8:g}" if slow else healthy)
        assert child.get("STEPSCOPE_SIM_LINK_TIME") == (healthy if slow else None)
        assert faults.clock_share(child) == (0.8 if slow else 1.0)


def test_the_lower_clock_is_recorded(monkeypatch):
    monkeypatch.setenv("STEPSCOPE_SIM_FAULT", "rank=2,kind=frequency,factor=0.5")
    monkeypatch.setenv("RANK", "2")
    assert pretended_chip().core_mhz == CHIP.core_mhz // 2
    monkeypatch.setenv("RANK", "1")
    assert pretended_chip() == CHIP


@pytest.fixture
def callbacks():
    before = list(gc.callbacks)
    yield
    gc.callbacks[:] = before


@pytest.mark.usefixtures("callbacks")
def test_loading_data_and_collecting_garbage_take_longer(monkeypatch):
    torch = pytest.importorskip("torch")
    from torch.optim import optimizer
    from torch.utils.data import DataLoader, dataloader

    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for one in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter):
        monkeypatch.setattr(one, "_next_data", one._next_data)
    monkeypatch.setattr(optimizer, "_global_optimizer_post_hooks", type(optimizer._global_optimizer_post_hooks)())
    faults.apply({"STEPSCOPE_SIM_FAULT": "rank=0,kind=data_loading,ms=20,every=2;rank=0,kind=gc,ms=30;rank=1,kind=gc,ms=40"})
    assert len(list(DataLoader(torch.zeros(4, 2)))) == 4
    assert slept == [0.02, 0.02]
    slept.clear()
    weight = torch.zeros(2, requires_grad=True)
    sgd = torch.optim.SGD([weight], 0.1)
    weight.sum().backward()
    for _ in range(2):
        sgd.step()
    assert slept == [0.03, 0.03]
