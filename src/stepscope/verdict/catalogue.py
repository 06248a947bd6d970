# SPDX-License-Identifier: Apache-2.0
"""All rules: their codes, families and functions. A function may answer for several rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stepscope.verdict.case import Case, Draft
from stepscope.verdict.rules import communication, counters, device, fusible, host, limits_of_data, steps

Ask = Callable[[Case], Iterator[Draft]]


@dataclass(frozen=True)
class Rule:
    code: str
    name: str
    family: str
    ask: Ask | None  # None: another rule's function answers for it too, or it needs several ranks


RULES = (
    Rule("H1", "sync-stall", "host", host.sync_stall),
    Rule("H2", "launch-blocking", "host", None),
    Rule("H3", "data-wait", "host", host.data_wait),
    Rule("H4", "gc-pause", "host", host.gc_pause),
    Rule("H5", "conjectured-gc", "host", host.conjectured_gc),
    Rule("H6", "host-dispatch", "host", host.host_dispatch),
    Rule("H7", "host-python", "host", host.host_python),
    Rule("H8", "allocator", "host", host.allocator),
    Rule("H9", "checkpoint", "host", host.checkpoint),
    Rule("H10", "compile", "host", host.compiling),
    Rule("H11", "queue-thread", "host", None),
    Rule("H12", "host-contention", "host", host.host_contention),
    Rule("H13", "profiler-cost", "host", host.profiler_cost),
    Rule("H14", "logging", "host", host.logging),
    Rule("D1", "ai-cpu", "device", device.ai_cpu),
    Rule("D2", "low-blocks", "device", device.low_blocks),
    Rule("D3", "misaligned-shapes", "device", device.misaligned_shapes),
    Rule("D4", "transpose-overhead", "device", device.transposes),
    Rule("D5", "cast-overhead", "device", device.casts),
    Rule("D6", "fp32-matmul", "device", device.fp32_matmul),
    Rule("D7", "small-kernels", "device", device.small_kernels),
    Rule("D8", "fusible", "device", fusible.fusible),
    Rule("D9", "repeated-sequence", "device", fusible.repeated_sequence),
    Rule("D10", "dynamic-shapes", "device", device.dynamic_shapes),
    Rule("D11", "frequency-drop", "device", counters.frequency_drop),
    Rule("D12", "cache-misses", "device", counters.cache_misses),
    Rule("D13", "no-bound-pipe", "device", counters.no_bound_pipe),
    Rule("D14", "bound", "device", counters.bound),
    Rule("D15", "below-roofline", "device", counters.below_roofline),
    Rule("D16", "mfu", "device", counters.mfu),
    Rule("D17", "recompute", "device", device.recompute),
    Rule("D18", "exposed-copy", "device", device.exposed_copies),
    Rule("D19", "optimizer-loop", "device", device.optimizer_loop),
    Rule("D20", "icache-miss", "device", counters.icache_miss),
    Rule("C1", "exposed-communication", "communication", communication.exposed),
    Rule("C2", "peer-wait", "communication", None),
    Rule("C3", "small-packets", "communication", communication.small_packets),
    Rule("C4", "small-collectives", "communication", communication.small_collectives),
    Rule("C5", "misaligned-bytes", "communication", communication.misaligned_bytes),
    Rule("C6", "retransmission", "communication", communication.retransmission),
    Rule("C7", "slow-link", "communication", communication.slow_link),
    Rule("C8", "contention", "communication", communication.contention),
    Rule("C9", "rank-imbalance", "communication", None),
    Rule("C10", "syncbn", "communication", communication.syncbn),
    Rule("C11", "serial-groups", "communication", communication.serial_groups),
    Rule("M1", "memory-leak", "memory", steps.leak),
    Rule("M2", "peak-owners", "memory", steps.peak_owners),
    Rule("M3", "fragmentation", "memory", steps.fragmentation),
    Rule("M4", "near-full", "memory", steps.near_full),
    Rule("M5", "workspace", "memory", steps.workspace),
    Rule("S1", "slow-steps", "steps", steps.slow_steps),
    Rule("S2", "variance", "steps", steps.variance),
    Rule("S3", "warm-up", "steps", steps.warm_up),
    Rule("S4", "drift", "steps", steps.drift),
    Rule("E1", "environment", "environment", limits_of_data.environment),
)
BY_NAME = {rule.name: rule for rule in RULES}
