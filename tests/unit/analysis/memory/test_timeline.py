"""Categories of memory in one small training step, and the files made of them."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
from typing import Any

import polars as pl
import pytest

from stepscope.analysis.memory.categories import Category, categorised
from stepscope.analysis.memory.data_flow import data_flow, op_kinds
from stepscope.analysis.memory.mutated_inputs import changed_inputs, is_operator
from stepscope.analysis.memory.storages import followed
from stepscope.analysis.memory.timeline import Action, memory_timeline, running_sums
from stepscope.errors import CaptureError
from stepscope.export import memory_timeline as memory_page
from stepscope.export.memory_timeline import export_memory_timeline
from stepscope.tables import ALL_TABLES, Tables

# Addresses of the blocks of the step.
X, W, Y, LOSS, ONES, GRAD, GRAD_X, WORK, MOMENTUM, BARE = range(0x1000, 0xB000, 0x1000)
SIZES = {X: 100, W: 200, Y: 300, LOSS: 4, ONES: 8, GRAD: 200, GRAD_X: 100, WORK: 50, MOMENTUM: 200, BARE: 1000}
NPU = 20


def table(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    schema = ALL_TABLES[name].schema
    columns = {key: [row.get(key) for row in rows] for key in schema if any(key in row for row in rows)}
    return ALL_TABLES[name].conform(pl.DataFrame(columns, schema={key: schema[key] for key in columns}, strict=False))


def tensor(address: int) -> str:
    return f"{address + 1:#x};{address:#x};float;1;{SIZES[address]};1;{NPU};0"


class Step:
    """A capture written operator by operator; the clock advances by 1000 ns with everything that happens."""

    def __init__(self) -> None:
        self.time = 0
        self.ops: list[dict[str, Any]] = []
        self.inputs: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def tick(self) -> int:
        self.time += 1000
        return self.time

    def op(
        self, name: str, *addresses: int, makes: int = 0, scope: int = 0, inside: tuple[Any, ...] = (), parent: int | None = None
    ) -> None:
        row = len(self.ops)
        record = {"pid": 1, "tid": 1, "name": name, "scope": scope, "parent": parent, "start_ns": self.tick()}
        self.ops.append(record)
        if addresses:
            record["dtypes"] = ";".join("float" for _ in addresses)
            self.inputs.append({"op": row, "tensors": ")".join(map(tensor, addresses))})
        for call in inside:
            call(row)
        if makes:
            self.event(makes, "malloc")
        record["end_ns"] = self.tick()

    def event(self, address: int, action: str, sign: int = 0) -> None:
        size = SIZES[address] * (sign or (1 if action == "malloc" else -1))
        where = {"pid": 1, "tid": 1, "device_type": "npu", "device": 0, "component": "PTA", "inner": True, "ptr": address}
        totals = {"total_allocated": 2.0 * 1024**3, "total_reserved": 3.0 * 1024**3}
        self.events.append({**where, "time_ns": self.tick(), "action": action, "bytes": size, **totals})

    def tables(self, **more: pl.DataFrame) -> Tables:
        frames = {"ops": self.ops, "op_inputs": self.inputs, "memory_events": self.events}
        return Tables({**{name: table(name, rows) for name, rows in frames.items()}, **more}).check()


def training_step() -> Step:
    """y = x @ w; loss = y.sum(); loss.backward(); w += gradient."""
    step = Step()

    def inside(name: str, *addresses: int, **more: Any) -> Any:
        return lambda parent: step.op(name, *addresses, parent=parent, **more)

    def backward(name: str, *calls: Any) -> None:
        wrapped = inside(name, scope=1, inside=calls)
        step.op(f"autograd::engine::evaluate_function: {name}", inside=(wrapped,))

    step.op("aten::matmul", X, W, inside=(
        lambda _: step.event(WORK, "malloc"), inside("aten::mm", X, W, WORK), lambda _: step.event(WORK, "free"),
    ), makes=Y)  # fmt: skip
    step.op("aten::sum", Y, makes=LOSS)
    step.op("aten::ones_like", LOSS, makes=ONES)
    step.event(BARE, "malloc")
    backward("SumBackward0", inside("aten::expand", ONES))
    backward("MmBackward0", inside("aten::mm", X, ONES, makes=GRAD), inside("aten::mm", ONES, W, makes=GRAD_X))
    backward("NopBackward0", inside("aten::neg", GRAD_X))
    backward("torch::autograd::AccumulateGrad", inside("aten::detach", GRAD))
    step.event(Y, "free")
    step.op("Optimizer.step#SGD.step", scope=7, inside=(inside("aten::add_", MOMENTUM, GRAD), inside("aten::add_", W, MOMENTUM)))
    step.event(BARE, "free")
    return step


def categories(tables: Tables) -> dict[int, list[Category | None]]:
    """Per address the categories of its versions."""
    storages, kinds = followed(tables), op_kinds(tables.ops)
    nodes = data_flow(tables, storages, kinds)
    found = categorised(tables, storages, nodes, kinds)
    last = {block: version + 1 for node in nodes for block, version in node.changes}
    addresses = {}
    for use in storages.uses:
        for value, blocks in zip(use.inputs, use.blocks, strict=True):
            addresses.update(dict.fromkeys(blocks, value.storage))
    return {
        address: [found.get((block, version)) for version in range(last.get(block, 0) + 1)] for block, address in addresses.items()
    }


def test_categories_of_a_training_step_without_module_records():
    found = categories(training_step().tables())
    assert found[GRAD] == [Category.GRADIENT]
    assert found[X] == [Category.INPUT]
    assert found[W] == [Category.PARAMETER, Category.PARAMETER]
    assert found[Y] == found[LOSS] == [Category.ACTIVATION]
    assert found[WORK] == [Category.TEMPORARY]
    assert found[GRAD_X] == [Category.AUTOGRAD_DETAIL]


def test_the_optimizer_names_parameters_gradients_and_state():
    key = 77
    text = f"{tensor(W)}){tensor(GRAD)})momentum_buffer>{tensor(MOMENTUM)}]"
    calls = [{"pid": 1, "tid": 1, "start_ns": 500, "end_ns": 600, "name": "step", "kind": "python", "key": key}]
    more = {
        "param_tensors": table("param_tensors", [{"key": key, "kind": "optimizer", "text": text}]),
        "python_calls": table("python_calls", calls),
    }
    found = categories(training_step().tables(**more))
    assert found[MOMENTUM] == [Category.OPTIMIZER_STATE] * 2
    assert found[W] == [Category.PARAMETER] * 2


def test_modules_name_parameters_before_they_are_used():
    step = Step()
    step.op("aten::mm", X, W, makes=Y)
    text = f"weight){tensor(W)})"
    found = categories(step.tables(param_tensors=table("param_tensors", [{"key": 5, "kind": "module", "text": text}])))
    assert found[W] == [Category.PARAMETER]
    # X stands beside a parameter but no gradient was ever seen: it leads to w's node, so it is an input.
    assert found[X] == [Category.INPUT]


def test_an_address_used_again_after_its_free_is_another_block():
    step = Step()
    step.event(X, "malloc")
    step.op("aten::relu", X)
    step.event(X, "free")
    step.event(X, "block_free")
    step.op("aten::relu", X)
    storages = followed(step.tables())
    assert [use.blocks for use in storages.uses] == [[[0]], [[1]]]
    assert (storages.blocks[0].created_ns, storages.blocks[0].freed_ns) == (1000, 4000)
    assert storages.blocks[1].created_ns is None


def test_timeline_rows():
    rows = memory_timeline(training_step().tables())
    before = rows.filter(pl.col("time_ns").is_null())
    assert before.select("action", "bytes", "category").rows() == [
        (Action.PREEXISTING, 100, Category.INPUT),
        (Action.PREEXISTING, 200, Category.PARAMETER),
        (Action.PREEXISTING, 200, Category.UNKNOWN),
    ]
    assert rows.filter(pl.col("bytes").abs() == 1000).select("action", "bytes", "category").rows() == [
        (Action.CREATE, 1000, Category.UNKNOWN),
        (Action.DESTROY, -1000, Category.UNKNOWN),
    ]
    changes = rows.filter((pl.col("action") == Action.INCREMENT_VERSION) & (pl.col("category") == Category.PARAMETER))
    assert changes["bytes"].to_list() == [-200, 200]
    assert rows["time_ns"].is_sorted()
    freed = SIZES[Y] + SIZES[WORK] + SIZES[BARE]
    assert rows["bytes"].sum() == sum(SIZES.values()) - freed


def test_running_sums():
    rows = [
        {"time_ns": None, "bytes": 10, "category": 0},
        {"time_ns": 5_000, "bytes": 3, "category": 4},
        {"time_ns": 5_999, "bytes": 4, "category": 4},
        {"time_ns": 7_000, "bytes": -3, "category": 4},
    ]
    times, sums = running_sums(pl.DataFrame(rows, schema_overrides={"time_ns": pl.Int64}))
    assert times == [5, 5, 7]
    assert sums == [[10, 0, 0, 0, 0, 0, 0, 0], [10, 0, 0, 0, 7, 0, 0, 0], [10, 0, 0, 0, 4, 0, 0, 0]]


def test_raw_file(tmp_path):
    capture = training_step().tables()
    path = export_memory_timeline(capture, tmp_path / "timeline.raw.json.gz", "npu:0")
    rows = json.loads(gzip.decompress(path.read_bytes()))
    assert rows[0] == [-1, 0, 100, 2]
    assert [rows[3][1], *rows[3][2:]] == [1, 50, 3]
    assert len(rows) == memory_timeline(capture).height


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_file_of_sums(tmp_path, name):
    content = export_memory_timeline(training_step().tables(), tmp_path / name, "npu:0").read_bytes()
    times, sums = json.loads(gzip.decompress(content) if name.endswith("gz") else content)
    assert len(times) == len(sums)
    assert {len(row) for row in sums} == {9}
    assert {row[0] for row in sums} == {0}
    assert sums[0][1 + Category.PARAMETER] == 200
    assert times[0] == times[1]


@pytest.mark.slow  # imports matplotlib
def test_page_holds_one_picture(tmp_path):
    pytest.importorskip("matplotlib")
    page = export_memory_timeline(training_step().tables(), tmp_path / "t.html", "npu:0").read_text()
    (encoded,) = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", page)
    picture = base64.b64decode(encoded)
    assert picture.startswith(b"\x89PNG\r\n")
    width, height = int.from_bytes(picture[16:20], "big"), int.from_bytes(picture[20:24], "big")
    assert (width, height) == (1600, 960)


@pytest.mark.parametrize(
    ("reserved", "shown"),
    [
        pytest.param(3 << 30, "Max memory allocated: 2.00 GB. Max memory reserved: 3.00 GB.", id="large"),
        pytest.param(3 << 20, "Max memory allocated: 2.00 MB. Max memory reserved: 3.00 MB.", id="a small model is not 0.00 GB"),
        pytest.param(3 << 10, "Max memory allocated: 2.00 KB. Max memory reserved: 3.00 KB.", id="a few tensors"),
    ],
)
def test_page_chooses_its_unit(tmp_path, monkeypatch, reserved, shown):
    axis = []
    monkeypatch.setattr(memory_page, "_picture", lambda times, layers, unit, title: axis.append(unit) or b"")
    tables = training_step().tables()
    totals = {"total_allocated": reserved // 3 * 2, "total_reserved": reserved}
    tables = tables.replace(memory_events=tables.memory_events.with_columns(**{name: pl.lit(n) for name, n in totals.items()}))
    assert shown in export_memory_timeline(tables, tmp_path / "t.html", "npu:0").read_text()
    assert axis == [shown[-3:-1]]


def test_picture_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(CaptureError, match=r"stepscope\[picture\]"):
        export_memory_timeline(training_step().tables(), tmp_path / "t.html", "npu:0")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("device", "message"),
    [
        pytest.param("npu:3", "choose one of npu:0", id="no such device"),
        pytest.param("disk", "is not a device", id="no device at all"),
    ],
)
def test_other_devices(tmp_path, device, message):
    with pytest.raises(CaptureError, match=message):
        export_memory_timeline(training_step().tables(), tmp_path / "t.json", device)


@pytest.mark.parametrize("events", [[], [{"time_ns": 1, "device_type": "npu", "device": 0, "total_allocated": 1.0}]])
def test_without_addresses_there_is_no_timeline(tmp_path, events):
    with pytest.raises(CaptureError, match="profile_memory=True"):
        export_memory_timeline(Tables({"memory_events": table("memory_events", events)}), tmp_path / "t.json", "npu:0")


@pytest.mark.parametrize(
    ("name", "count", "changed"),
    [
        ("aten::mm", 2, ()),
        ("aten::mm", 3, (2,)),
        ("aten::add", 3, ()),
        ("aten::add_", 3, (0,)),
        ("aten::_foreach_addcdiv_", 3, (0,)),
        ("aten::_fused_adamw_", 6, (0, 1, 2, 3, 4)),
        ("aten::_copy_from", 2, (1,)),
        ("aten::__and__", 2, ()),
        ("aten::__ior__", 2, (0,)),
        ("npu::fused_out", 3, (2,)),
    ],
)
def test_changed_inputs(name, count, changed):
    assert changed_inputs(name, [[]] * count) == changed


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("aten::mm", True),
        ("npu::npu_dtype_cast", True),
        ("c10d::allreduce_", True),
        ("autograd::engine::evaluate_function: MmBackward0", False),
        ("torch::autograd::AccumulateGrad", False),
        ("ProfilerStep#5", False),
    ],
)
def test_what_is_an_operator(name, operator):
    assert is_operator(name) is operator
