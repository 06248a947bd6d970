# SPDX-License-Identifier: Apache-2.0
"""What recording MindSpore costs, and how fast its records are decoded. Runs where MindSpore is installed:

    .venv-mindspore/bin/python -m benchmarks.mindspore all [--steps 300] [--records 500000]
    .venv-mindspore/bin/python -m benchmarks.mindspore overhead [--mode graph|pynative] [--steps 400]
    .venv-mindspore/bin/python -m benchmarks.mindspore decode [--records 1000000]

`all` measures both modes and the decoder in one run and compares them with their budgets (docs/formats/mindspore.md 12.1); the
exit code is 1 when one is exceeded. `met` is null where the machine was too busy to tell.

Overhead alternates steps with and without recording in one run and compares medians of CPU time, so that a busy machine
tells little. Decoding compares our reader with MindSpore's own decoder on the same bytes, both in CPU time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.formats.mindspore import ranges
from stepscope.formats.mindspore.clock import TickClock
from stepscope.formats.mindspore.records import OP_RANGE, encode
from stepscope.tables import Tables

MAX_PERCENT = {"graph": 18.0, "pynative": 11.0}
MAX_PERCENT_SHAPES = 23.0
MIN_SPEEDUP = 5.0
NOISE = 3.0  # percent between steps that do the same


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    cost = commands.add_parser("overhead")
    cost.add_argument("--mode", choices=("graph", "pynative"), default="graph")
    cost.add_argument("--steps", type=int, default=400)
    cost.set_defaults(run=lambda args: overhead(args.mode, args.steps))
    speed = commands.add_parser("decode")
    speed.add_argument("--records", type=int, default=1_000_000)
    speed.set_defaults(run=lambda args: decode(args.records))
    whole = commands.add_parser("all")
    whole.add_argument("--steps", type=int, default=300)
    whole.add_argument("--records", type=int, default=500_000)
    whole.set_defaults(run=lambda args: everything(args.steps, args.records))
    args = parser.parse_args(arguments)
    found = args.run(args)
    print(json.dumps(found, indent=2))
    return 0 if all(figure.get("met") is not False for figure in found.values() if isinstance(figure, dict)) else 1


def everything(steps: int, records: int) -> dict[str, Any]:
    """Each figure with its limit: percent of a step's CPU time, and how many times faster the decoder is."""
    found: dict[str, Any] = {}
    for mode, most in MAX_PERCENT.items():
        measured = overhead(mode, steps)
        found[f"op_range, {mode}"] = _compared(measured["recorded"]["percent"], most, measured["control"]["percent"])
    measured_shapes = shapes(steps)
    compared = _compared(measured_shapes["recorded"]["percent"], MAX_PERCENT_SHAPES, measured_shapes["control"]["percent"])
    found["shapes, pynative"] = {**compared, "own_us_per_call": measured_shapes["own_us_per_call"]}
    times = decode(records)
    found["decoding"] = {**times, "at_least": MIN_SPEEDUP, "met": times["times_faster"] >= MIN_SPEEDUP}
    return found


def _compared(percent: float, most: float, control: float) -> dict[str, Any]:
    """`met` is None if identical steps differ, or recording seems to save time: the machine is too busy."""
    sure = abs(control) <= NOISE and percent >= -NOISE
    return {"percent": percent, "at_most": most, "control": control, "met": percent <= most if sure else None}


def overhead(mode: str, steps: int) -> dict[str, Any]:
    """Median CPU time of steps with and without the host recorder, and with neither as a control."""
    train = _network(mode)
    from mindspore import _c_expression
    from stepscope.frameworks.mindspore.host_recorder import HostRecorder

    manager = _c_expression.ProfilerManager.get_instance()

    def switch(on: bool) -> None:
        manager.set_profile_framework("time" if on else "NULL")
        _c_expression._framework_profiler_enable_mi() if on else _c_expression._framework_profiler_disable_mi()

    for _ in range(30):
        train()
    with tempfile.TemporaryDirectory() as folder:
        recorder = HostRecorder()
        recorder.start(Path(folder))
        control = _alternating(train, lambda on: switch(False), steps)
        measured = _alternating(train, switch, steps)
        recorder.stop()
        size = (Path(folder) / "mindspore.op_range").stat().st_size
    return {"mode": mode, "steps": steps, "recorded": measured, "control": control, "bytes": size}


def shapes(steps: int) -> dict[str, Any]:
    """Cost of the dispatch mode that records input shapes in PyNative: per step, and of one call alone."""
    train = _network("pynative")
    from stepscope.frameworks.mindspore.dispatch import _the_mode

    mode = _the_mode()
    inside = False

    def switch(on: bool) -> None:
        nonlocal inside
        if on != inside:
            mode.__enter__() if on else mode.__exit__(None, None, None)
            mode.calls, inside = ([] if on else None), on

    for _ in range(30):
        train()
    # The work is the calling thread's; MindSpore's others spin while they wait for it, which would be counted as theirs.
    control = _alternating(train, lambda on: switch(False), steps, time.thread_time)
    recorded = _alternating(train, switch, steps, time.thread_time)
    return {"control": control, "recorded": recorded, "own_us_per_call": _own_cost(mode)}


def _own_cost(mode: Any, calls: int = 20_000) -> float:
    """CPU time of recording one call with two tensors, without the operator itself."""
    import numpy as np

    from mindspore import Tensor

    def nothing(*_inputs: Any) -> None:
        return None

    nothing.name = "Add"  # type: ignore[attr-defined]
    inputs = (Tensor(np.ones((4, 8), np.float32)), Tensor(np.ones((4, 8), np.float32)), 1)
    mode.calls = []
    began = time.thread_time()
    for _ in range(calls):
        mode.__ms_dispatch__(nothing, inputs)
    spent = time.thread_time() - began
    mode.calls = None
    return round(spent / calls * 1e6, 2)


def _alternating(
    train: Callable[[], None], switch: Callable[[bool], None], steps: int, spent_by: Callable[[], float] = time.process_time
) -> dict[str, float]:
    spent: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * steps):
        on = number % 4 in (0, 3)  # on off off on: what recurs every second step cannot look like a cost
        switch(on)
        began = spent_by()
        train()
        spent[on].append(spent_by() - began)
    switch(False)
    off, on_ms = (statistics.median(spent[key]) * 1000 for key in (False, True))
    return {"off_ms": round(off, 4), "on_ms": round(on_ms, 4), "percent": round(100 * (on_ms / off - 1), 2)}


def _network(mode: str) -> Callable[[], None]:
    """Layers of 64 x 64: small kernels are the worst case."""
    import numpy as np

    import mindspore as ms
    from mindspore import Tensor, nn

    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
    layers = [layer for _ in range(4) for layer in (nn.Dense(64, 64), nn.ReLU())]
    net = nn.SequentialCell(*layers)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    x, y = Tensor(np.ones((64, 64), np.float32)), Tensor(np.zeros(64, np.int32))

    def train() -> None:
        step(x, y).asnumpy()

    return train


def decode(records: int) -> dict[str, Any]:
    """CPU time per record: MindSpore's decoder alone, and ours with names, operators, arrows and steps."""
    from mindspore.profiler.analysis.parser.timeline_event.fwk_event import FwkFixSizeFormat
    from mindspore.profiler.common.tlv_decoder import TLVDecoder

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mindspore.op_range"
        path.write_bytes(_records(records))
        content = path.read_bytes()
        ours, found = _least(lambda: _ours(Path(folder)))
        theirs, decoded = _least(lambda: TLVDecoder.decode(content, FwkFixSizeFormat.OpRangeStruct, OP_RANGE.fixed.itemsize))
        assert found.ops.height == len(decoded) == records
    return {
        "records": records,
        "megabytes": round(len(content) / 1e6, 1),
        "ours_us": round(ours / records * 1e6, 3),
        "mindspore_us": round(theirs / records * 1e6, 3),
        "times_faster": round(theirs / ours, 1),
    }


def _least(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU time of the best of three runs, and its result: others use the machine too."""
    times = []
    for _ in range(3):
        began = time.process_time()
        result = work()
        times.append(time.process_time() - began)
    return min(times), result


def _ours(folder: Path) -> Tables:
    return ranges.tables(ranges.read(folder, TickClock(2445.0), version="2.10.0", pid=1, quality=[]))


def _records(count: int) -> bytes:
    """Launches of 200 kernels over and over, as a graph makes them."""
    kernels = [f"Gradients/Default/network/layer{number % 20}/Grad_MatMul/MatMul-op{number}" for number in range(200)]
    texts = {"name": "Kernel", "module_text": "", "event_text": ""}
    block = [
        {
            "tid": 4000 + number % 8,
            "start": 1 + number * 500,
            "end": 400 + number * 500,
            "module": 4,
            "event": 4,
            "full_name": name,
            **texts,
        }
        for number, name in enumerate(kernels)
    ]
    whole = encode(OP_RANGE, block)
    times, rest = divmod(count, len(kernels))
    return whole * times + encode(OP_RANGE, block[:rest])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
