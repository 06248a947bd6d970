# SPDX-License-Identifier: Apache-2.0
"""Write a Kineto-like GPU trace of a given size, and measure how fast and in how much memory it is read.

python benchmarks/kineto_trace.py write /tmp/trace.json --events 1000000
python benchmarks/kineto_trace.py read /tmp/trace.json
"""

from __future__ import annotations

import argparse
import gzip
import resource
import time
from pathlib import Path

DEVICE = '{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85021163520, "computeMajor": 9, "computeMinor": 0, "numSms": 132}'
HEAD = f"""{{
  "schemaVersion": 1,
  "deviceProperties": [
    {DEVICE}
  ],
  "distributedInfo": {{"backend": "nccl", "rank": 0, "world_size": 8}},
  "record_shapes": 1,
  "traceEvents": ["""
TAIL = """
  ],
  "traceName": "generated.json",
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1735632360000000000
}
"""
KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >"
    "(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)"
)
NAMES = ("aten::add", "aten::mm", "aten::linear", "aten::copy_", "aten::native_layer_norm", "aten::gelu", "aten::mul", "aten::sum")

OPERATOR = """
  {{
    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 4242, "tid": {tid},
    "ts": {ts:.3f}, "dur": 21.437,
    "args": {{
      "External id": {op},"Record function id": {op}, "Sequence number": {seq}, "Fwd thread id": {fwd},\
 "Concrete Inputs": ["", "", "1"], "Input type": ["float", "float", "Scalar"],\
 "Input Strides": [[{dim}, 1], [{dim}, 1], []], "Input Dims": [[{rows}, {dim}], [{rows}, {dim}], []], "Ev Idx": {op}
    }}
  }},"""
LAUNCH = """
  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4242, "tid": {tid},
    "ts": {launch:.3f}, "dur": 5.117,
    "args": {{
      "External id": {op}, "cbid": 211, "correlation": {correlation}
    }}
  }},"""
FLOW_START = """
  {{
    "ph": "s", "id": {correlation}, "pid": 4242, "tid": {tid}, "ts": {launch:.3f},
    "cat": "ac2g", "name": "ac2g"
  }},"""
DEVICE_TASK = """
  {{
    "ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": 7,
    "ts": {run:.3f}, "dur": 7.904,
    "args": {{
      "External id": {op}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {correlation},\
 "registers per thread": 22, "shared memory": 0, "blocks per SM": 232.296295, "warps per SM": 929.185181,\
 "grid": [{rows}, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 100
    }}
  }},"""
FLOW_END = """
  {{
    "ph": "f", "id": {correlation}, "pid": 0, "tid": 7, "ts": {run:.3f},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }},"""
STEP = """
  {{
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 4242, "tid": 4242,
    "ts": {ts:.3f}, "dur": {length:.3f},
    "args": {{
      "External id": {op}, "Record function id": 0, "Ev Idx": {op}
    }}
  }},"""
LAST = """
  {
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": 4203669613175.703
  }"""


def write(path: Path, events: int) -> None:
    """Each operator call is two operators, a launch, a kernel and the arrow between them: six events."""
    calls = events // 6
    per_step = max(calls // 20, 1)
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as file:
        file.write(HEAD)
        for call in range(calls):
            ts = 4203669604595.407 + call * 25.003
            if call % per_step == 0:
                file.write(STEP.format(step=call // per_step, ts=ts - 1, length=per_step * 25.003, op=10_000_000 + call))
            values = {
                "op": 2 * call + 1, "ts": ts, "launch": ts + 8.25, "run": ts + 40.125, "correlation": 1_000_000 + call,
                "tid": 4242 + call % 2, "seq": call, "fwd": call % 2, "rows": 8 << call % 7, "dim": 128 << call % 5,
                "name": NAMES[call % len(NAMES)], "kernel": KERNEL,
            }  # fmt: skip
            file.write(OPERATOR.format(**values))
            values.update(op=2 * call + 2, ts=ts + 2.5)
            file.write("".join(part.format(**values) for part in (OPERATOR, LAUNCH, FLOW_START, DEVICE_TASK, FLOW_END)))
        file.write(LAST + TAIL)


def read(path: Path) -> None:
    from stepscope.formats.kineto import read as kineto

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    tables = kineto.read(path)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = path.stat().st_size
    print(f"{size / 1e6:.0f} MB in {seconds:.2f} s: {size / 1e6 / seconds:.0f} MB/s")
    print(
        f"peak memory {peak / 1024:.0f} MiB, of which {before / 1024:.0f} MiB before reading; {peak * 1024 / size:.2f} x the file"
    )
    print({name: tables[name].height for name in tables.filled()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write", help="write a trace")
    writing.add_argument("path", type=Path)
    writing.add_argument("--events", type=int, default=1_000_000)
    reading = commands.add_parser("read", help="measure reading it")
    reading.add_argument("path", type=Path)
    args = parser.parse_args()
    if args.command == "write":
        write(args.path, args.events)
    else:
        read(args.path)


if __name__ == "__main__":
    main()
