"""How well devices were used."""

from __future__ import annotations

from capture_rows import collective, collectives, kernels, rows, steps, tables, task

from stepscope.analysis.kernels.device_summary import gpu_summary, npu_summary
from stepscope.analysis.link.capture import link
from stepscope.analysis.step_time import device_time
from stepscope.tables import Facts


def figures(listed):
    return [(one.name, one.value, one.unit) for one in listed]


def test_npu():
    counters = [
        *(
            {"source": "AI Core Freq", "name": "MHz", "device": 0, "time_ns": at, "value": value}
            for at, value in ((0, 800.0), (9, 1650.0))
        ),
        *(
            {"source": "HBM", "name": f"0/{word}", "device": 0, "time_ns": 5, "value": value}
            for word, value in (("Read", 10.0), ("Write", 4.0))
        ),
    ]
    linked = link(
        tables(
            kernels=kernels(task(0, 30, core="AI_CORE"), task(40, 50, core="AI_VECTOR_CORE")),
            collectives=collectives(collective(50, 90)),
            counters=rows("counters", *counters),
        ).replace(meta=Facts(device_kind="npu", device_names={"0": "Ascend910B"}).table())
    )
    assert figures(npu_summary(linked)) == [
        ("Device", "Ascend910B", ""),
        ("Computing share", 100 * device_time(linked).share(40), "%"),
        ("AI Core time share", 75.0, "%"),
        ("AI Core Freq min", 800.0, "MHz"),
        ("AI Core Freq max", 1650.0, "MHz"),
        ("HBM read mean", 10.0, "MB/s"),
        ("HBM write mean", 4.0, "MB/s"),
    ]
    assert device_time(linked).share(40) == 40 / 90  # 40 of computing, 40 exposed, 10 free


def test_gpu():
    linked = link(
        tables(
            # The second kernel reaches 20 beyond the step, where it does not count as busy.
            kernels=kernels(
                task(0, 40, name="sgemm_16816", blocks_per_sm=0.5, occupancy=50.0),
                task(80, 120, name="copy", blocks_per_sm=4.0, occupancy=100.0),
            ),
            steps=steps((1, 0, 100)),
        ).replace(
            meta=Facts(
                device_kind="cuda", device_properties={"0": {"totalGlobalMem": 1024, "computeMajor": 9, "computeMinor": 0}}
            ).table()
        )
    )
    assert figures(gpu_summary(linked)) == [
        ("Name", "GPU 0", ""),
        ("Memory", 1024, "bytes"),
        ("Compute Capability", "9.0", ""),
        ("GPU Utilization", 60.0, "%"),
        ("Est. SM Efficiency", 60.0, "%"),  # 40 at half a block and 40 full, of 100
        ("Est. Achieved Occupancy", 75.0, "%"),
        ("Kernel Time using Tensor Cores", 50.0, "%"),
    ]
    assert {one.device for one in gpu_summary(linked)} == {0}
