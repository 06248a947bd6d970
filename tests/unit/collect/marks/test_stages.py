"""Stages of a training loop, marked without its help: one test per fault of the earlier plugin (docs/formats/mstx-plugin.md 3)."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import subprocess
import sys
import threading

import pytest

from stepscope import mstx
from stepscope.collect.marks import stages
from stepscope.collect.marks.api import Marks
from stepscope.collect.settings import Settings
from stepscope.formats.collector import mark_lines

torch = pytest.importorskip("torch", reason="stages are those of torch")
pytestmark = pytest.mark.slow  # torch is loaded, and compiles

HOOKS = torch.nn.modules.module._global_forward_pre_hooks


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Records what a function does, with the plugin's stages; the messages in the order in which they began."""
    monkeypatch.setattr(stages, "_optional", [])
    before = torch.nn.Module.__call__, torch.save, torch.compile
    stages.enable_forward_and_steps()
    mstx.mark("nobody records this")

    def run(work):
        (tmp_path / mark_lines.FILE).unlink(missing_ok=True)
        recording = Marks(tmp_path, Settings(experimental={"_mstx": True}))
        recording.start()
        try:
            work()
        finally:
            recording.stop()
            assert (torch.nn.Module.__call__, torch.save) == before[:2]
            assert not HOOKS
        rows = mark_lines.read_raw(tmp_path).sort("start", "mark_id")
        assert (rows["end"] >= rows["start"]).all()
        return rows["message"].to_list()

    yield run
    stages.disable_forward_and_steps()
    assert (torch.nn.Module.__call__, torch.save, torch.compile) == before


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x, fault=None):
        if fault is not None:
            raise fault
        return self.second(torch.relu(self.first(x)))


INPUT = torch.rand(2, 4)


def test_a_loop(record):
    net, loss = Net(), torch.nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(4, 4)), batch_size=2)

    def epochs():
        for _ in range(2):
            for (batch,) in loader:
                loss(net(batch), batch).backward()
                optimizer.step()
                optimizer.zero_grad()

    epochs()  # four steps that nobody records
    marked = record(epochs)
    assert marked == [
        "step 4", "dataloader", "forward", "step 5", "dataloader", "forward", "step 6", "dataloader", "forward", "step 7",
        "dataloader", "forward", "step 8",
    ]  # fmt: skip
    assert record(lambda: optimizer.step()) == ["step 8", "step 9"]


@pytest.mark.parametrize("fault", [ValueError("x"), KeyboardInterrupt()], ids=["exception", "interrupt"])
def test_a_fault_in_forward_ends_no_later_marks(record, fault):
    net, another = Net(), Net()

    def work():
        with pytest.raises(type(fault)):
            net(INPUT, fault)
        mstx.mark("between")
        another(INPUT)
        net(INPUT)

    assert record(work) == ["forward", "between", "forward", "forward"]


def test_parts_called_alone_losses_and_recomputation(record):
    net = Net()

    def work():
        net.first(INPUT)
        torch.nn.MSELoss()(INPUT, INPUT)
        with torch.no_grad():
            net(INPUT)
        mstx.mark("checkpoint")
        for reentrant in (False, True):
            x = INPUT.clone().requires_grad_()
            torch.utils.checkpoint.checkpoint(net, x, use_reentrant=reentrant).sum().backward()

    assert record(work) == ["forward", "forward", "checkpoint", "forward", "forward"]


def test_modules_are_left_as_they_were(record):
    net = Net()
    before = {name: dict(vars(module)) for name, module in net.named_modules()}
    seen = []
    net.second.register_forward_hook(lambda *_: seen.append(dict(vars(net))))
    record(lambda: net(INPUT))
    assert [held.keys() for held in seen] == [before[""].keys()]  # nor while they run
    assert not net._forward_hooks
    assert {name: vars(module).keys() for name, module in net.named_modules()} == {
        name: held.keys() for name, held in before.items()
    }
    net.second._forward_hooks.clear()
    pickle.dumps(net)
    copy.deepcopy(net)


def test_threads_that_call_models(record):
    net = Net()
    meeting = threading.Barrier(2)

    def work():
        net(INPUT)
        first = threading.Thread(target=lambda: net(INPUT))
        first.start()
        first.join()

        def together():
            meeting.wait()
            for _ in range(20):
                net(INPUT)

        threads = [threading.Thread(target=together) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert record(work) == ["forward"] * 42


def test_steps_of_several_optimizers(record):
    class Twice(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    generator, critic = (torch.optim.SGD([weight], lr=0.1) for _ in range(2))
    nested = Twice([weight], lr=0.1)
    searching = torch.optim.LBFGS([weight], max_iter=3)

    def gan():
        for _ in range(3):
            for _ in range(2):
                pass  # accumulation: no step
            generator.step()
            critic.step()

    assert record(gan) == ["step 1", "step 2", "step 3"]
    stages.disable_forward_and_steps()
    stages.enable_forward_and_steps()
    assert record(lambda: [nested.step() for _ in range(3)]) == ["step 1", "step 2", "step 3"]

    def fails():
        raise ValueError

    def work():
        with pytest.raises(ValueError):  # noqa: PT011 - ours
            nested.step(fails)
        nested.step()
        searching.step(lambda: (weight**2).sum())

    assert record(work) == ["step 3", "step 4"]


def test_checkpoints_by_either_name_once(record):
    class Unsaved:
        def __reduce__(self):
            raise RuntimeError("not this one")

    def work():
        torch.save({"a": 1}, io.BytesIO())
        torch.serialization.save({"a": 1}, io.BytesIO())
        with pytest.raises(RuntimeError, match="not this one"):
            torch.save(Unsaved(), io.BytesIO())
        mstx.mark("end")

    assert record(work) == ["save_checkpoint"] * 3 + ["end"]


BOUND_SAVE = torch.save  # as `from torch import save` binds it, before any capture
TENSORS = {f"w{number}": torch.ones(2) for number in range(10)}


@pytest.fixture
def distributed():
    """The package for sharded checkpoints, and a function of it that was bound before any capture."""
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    return checkpoint, checkpoint.save


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "save",
    [
        pytest.param(lambda dcp, bound, folder: dcp.save(TENSORS, checkpoint_id=folder), id="save"),
        pytest.param(lambda dcp, bound, folder: bound(TENSORS, checkpoint_id=folder), id="bound-before"),
        pytest.param(
            lambda dcp, bound, folder: dcp.save(TENSORS, storage_writer=dcp.FileSystemWriter(folder, thread_count=2)), id="threads"
        ),
        pytest.param(
            lambda dcp, bound, folder: dcp.save_state_dict(TENSORS, dcp.FileSystemWriter(folder), no_dist=True),
            id="save_state_dict",
        ),
        pytest.param(lambda dcp, bound, folder: _result(dcp.async_save(TENSORS, checkpoint_id=folder)), id="async_save"),
    ],
)
def test_a_sharded_checkpoint_is_one_mark(record, distributed, tmp_path, save):
    assert record(lambda: save(*distributed, tmp_path / "saved")) == ["save_checkpoint"]
    assert (tmp_path / "saved" / ".metadata").is_file()


def _result(pending):
    getattr(pending, "upload_completion", pending).result()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_package_that_is_imported_during_the_capture(record, distributed, tmp_path, monkeypatch):
    checkpoint, _ = distributed
    name = "torch.distributed.checkpoint.state_dict_saver"
    loaded = sys.modules[name]
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(checkpoint, "state_dict_saver", loaded)

    def work():
        late = importlib.import_module(name)
        assert late is not loaded
        assert type(late.__spec__.loader) is type(loaded.__spec__.loader)
        late.save(TENSORS, checkpoint_id=tmp_path / "saved")

    assert record(work) == ["save_checkpoint"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_other_functions_that_save(record, tmp_path):
    scripted = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))

    def work():
        BOUND_SAVE({"a": torch.ones(2)}, io.BytesIO())
        BOUND_SAVE({"a": 1}, io.BytesIO(), _use_new_zipfile_serialization=False)
        torch.jit.save(scripted, str(tmp_path / "m.pt"))

    assert record(work) == ["save_checkpoint"] * 3


def test_loaders_inside_of_loaders_and_faults_in_them(record):
    class Outer(torch.utils.data.Dataset):
        inner = torch.utils.data.DataLoader([1, 2], batch_size=1)

        def __len__(self):
            return 2

        def __getitem__(self, index):
            if index == 1:
                raise IndexError("broken sample")
            return sum(int(value) for value in self.inner)

    def work():
        with pytest.raises(IndexError):
            list(torch.utils.data.DataLoader(Outer()))
        mstx.mark("end")

    assert record(work) == ["dataloader"] * 4 + ["end"]


@pytest.mark.parametrize(
    ("way", "first", "backend"),
    [
        *(
            (way, first, "eager")
            for way in ("module", "in place", "function")
            for first in ("before the capture", "in the capture")
        ),
        ("module", "in the capture", "aot_eager"),
    ],
)
def test_compiled_code_has_the_same_graphs_and_results(record, way, first, backend):
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    net = Net()
    wanted = net(INPUT)

    @mstx.mstx_range("inside compiled code")
    def marked(x):
        mstx.mark("and here")
        number = mstx.range_start("and here")
        out = net(x)
        mstx.range_end(number)
        return out

    if way == "module":
        compiled = torch.compile(net, backend=backend, fullgraph=True)
    elif way == "in place":
        net.compile(backend=backend, fullgraph=True)
        compiled = net
    else:
        compiled = torch.compile(marked, backend=backend, fullgraph=True)
    if first == "before the capture":
        compiled(INPUT)
    results = []
    calls = record(lambda: results.extend(compiled(INPUT) for _ in range(2)))
    results.append(compiled(INPUT))
    assert calls == ([] if way == "function" else ["forward", "forward"])
    assert all(torch.equal(result, wanted) for result in results)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


COMPILED_IN_PLACE = """
import sys
from pathlib import Path
import torch
from torch._dynamo.utils import counters
from stepscope.collect.marks import stages
from stepscope.collect.marks.api import Marks
from stepscope.collect.settings import Settings

given = torch.ones(2, 4)
stages.enable_forward_and_steps()
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
net.compile(backend="eager")
if sys.argv[2] == "before the capture":
    net(given)
recording = Marks(Path(sys.argv[1]), Settings(experimental={"_mstx": True}))
recording.start()
net(given), net(given)
recording.stop()
net(given)
assert not counters["frames"], counters["frames"]
"""


@pytest.mark.parametrize("first", ["before the capture", "in the capture"])
def test_a_plain_container_that_is_compiled_in_place_is_left_to_python(tmp_path, first):
    """Dynamo compiles no frame of torch's own modules; ours between them must not make it begin.

    In a process of its own: while a compiled function runs, Dynamo also begins, and counts, the frame of a callback that a garbage
    collection calls in between (`gc.callbacks`), and then leaves it to Python; so it does without stepscope. In a process with
    other tests the count therefore depends on when the collector runs.
    """
    command = [sys.executable, "-c", COMPILED_IN_PLACE, str(tmp_path), first]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = mark_lines.read_raw(tmp_path).sort("start", "mark_id")
    assert rows["message"].to_list() == ["forward", "forward"]


def test_somebody_elses_patch_over_ours_stays(tmp_path):
    before = torch.save
    try:
        recording = Marks(tmp_path, Settings(experimental={"_mstx": True}))
        recording.start()
        ours = torch.save

        def theirs(*arguments):
            return ours(*arguments)

        torch.save = theirs
        torch.save(1, io.BytesIO())
        recording.stop()
        assert torch.save is theirs
        torch.save(2, io.BytesIO())  # calls through ours, which is silent
        recording = Marks(tmp_path, Settings(experimental={"_mstx": True}))
        recording.start()
        torch.save(3, io.BytesIO())
        recording.stop()
    finally:
        torch.save = before
        stages._patches.clear()
    assert mark_lines.read_raw(tmp_path)["message"].to_list() == ["save_checkpoint"] * 2


def test_collectives_and_ddp(record, tmp_path):
    import torch.distributed as dist

    if not dist.is_available():
        pytest.skip("torch without torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        net = torch.nn.parallel.DistributedDataParallel(Net())
        given = torch.ones(3, 2, dtype=torch.bfloat16)

        def work():
            dist.all_reduce(given)
            out = [torch.empty(4, dtype=torch.int64)]
            dist.all_gather(out, torch.zeros(4, dtype=torch.int64), async_op=True).wait()
            net(INPUT).sum().backward()

        marked = record(work)
    finally:
        dist.destroy_process_group()
    group = '"groupName": "0","opName": '
    assert marked == [
        f'{{"streamId": "-1","count": "6","dataType": "bfp16",{group}"GlooAllreduce"}}',
        f'{{"streamId": "-1","count": "4","dataType": "int64",{group}"GlooAllGather"}}',
        "forward",
    ]
    assert mark_lines.read_raw(tmp_path)["domain"].to_list() == ["communication"] * 2 + ["default"]
