# SPDX-License-Identifier: Apache-2.0
"""`python -m stepscope.cluster.simulate`: write a simulated cluster with known truth.

Digests of up to 16,384 ranks, or whole captures of a few; `truth.json` says what is wrong and what it costs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import orjson

from stepscope.cluster.read.store import write_cluster
from stepscope.cluster.simulate.programs import FAULTS, WORKLOADS, Fault, Plan, calls_of
from stepscope.cluster.simulate.recording import digests_of, record

_LACKS = {
    "link": "sends nothing from rank to rank here; take megatron or interleaved with --pp 2 or more",
    "group": "has no groups beside the world here; take megatron or interleaved with --tp 2 or more, hsdp, or moe",
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m stepscope.cluster.simulate", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write into")
    parser.add_argument("--workload", choices=WORKLOADS, default="megatron")
    for name, size in (("tp", 1), ("pp", 1), ("dp", 8), ("micro", 4), ("layers", 2), ("steps", 4), ("per-host", 8), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--jitter", type=float, default=0.01, help="spread of computing times")
    parser.add_argument("--offset-ms", type=float, default=5.0, help="spread of the hosts' clocks")
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--rank", type=int, default=0, help="rank of the fault; of a host or stage, one of its ranks")
    parser.add_argument("--factor", type=float, default=1.3, help="how much slower computing or transfers are")
    parser.add_argument("--ns", type=float, default=5e6, help="time added per step, for faults of the host")
    parser.add_argument("--every", type=int, default=1, help="the fault hits each n-th step")
    parser.add_argument("--missing", type=int, nargs="*", default=[], help="ranks without a capture")
    parser.add_argument("--form", choices=("digests", "kineto", "db", "text"), default="digests")
    args = parser.parse_args(arguments)
    plan = Plan(
        args.workload, args.tp, args.pp, args.dp, args.micro, args.layers, args.per_host, jitter=args.jitter,
        shard=min(8, args.dp),
    )  # fmt: skip
    if args.fault and not 0 <= args.rank < plan.world:
        parser.error(f"--rank {args.rank}: there are {plan.world} ranks (tp x pp x dp), counted from 0")
    calls = calls_of(plan, args.fault, args.rank) if args.fault in ("link", "group") else ("", ())
    if calls is None:
        parser.error(f"--fault {args.fault}: {args.workload} {_LACKS[args.fault]}")
    fault = Fault(args.fault, args.rank, args.factor, args.ns, args.every, calls) if args.fault else Fault()
    recording = record(plan, args.steps, args.seed, fault, offset_ms=args.offset_ms)
    healthy = record(plan, args.steps, args.seed, offset_ms=args.offset_ms) if args.fault else recording
    if args.form == "digests":
        write_cluster(args.out, digests_of(recording, args.missing))
    else:
        from stepscope.cluster.simulate.captures import write_captures

        write_captures(args.out, recording, args.form, args.missing, analysis=True)
    truth = {
        "fault": args.fault, "rank": args.rank if args.fault else None, "ranks": list(calls[1]),
        "world": plan.world, "workload": args.workload,
        "cost_ms": float((recording.step_ns - healthy.step_ns).mean()) / 1e6, "step_ms": float(recording.step_ns.mean()) / 1e6,
        "offset_ns": recording.offset_ns.tolist(), "drift": recording.drift.tolist(), "missing": args.missing,
    }  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "truth.json").write_bytes(orjson.dumps(truth, option=orjson.OPT_INDENT_2))
    told = f"; {args.fault} costs {truth['cost_ms']:.2f} ms of a step of {truth['step_ms']:.2f} ms" if args.fault else ""
    print(f"wrote {plan.world - len(args.missing)} ranks to {args.out}{told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
