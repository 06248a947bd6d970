# SPDX-License-Identifier: Apache-2.0
"""Sampled records of a device, from bytes written by hand to rows. See sampled_folder for the clocks."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from sampled_folder import DEVICE_TICK_0, HOST_TICK_0, ZERO, losses, points, records, sampled

from stepscope.formats import NONE32
from stepscope.formats.cann import layouts
from stepscope.formats.cann.sampled.tables import DEVICE_FILES, DEVICE_RECORDS, HOST_FILES, with_op_names
from stepscope.tables import ALL_TABLES

SECOND_US = 1_000_000
MB_OF_32 = 32768  # accesses of 32 bytes in a megabyte


def hbm(layout, *samples):
    return records(layout, *(dict(zip(("time_us", "event", "instance", "count"), sample, strict=True)) for sample in samples))


def test_hbm_counts_become_rates_over_the_time_since_the_sample_before(tmp_path):
    data = hbm(
        layouts.HBM,
        (0, 0, 0, 9), (0, 1, 0, 9), (0, 0, 1, 9), (0, 1, 1, 9),
        (SECOND_US, 0, 0, MB_OF_32), (SECOND_US, 1, 0, 2 * MB_OF_32), (SECOND_US, 0, 1, 0), (SECOND_US, 1, 1, 3 * MB_OF_32),
        (SECOND_US * 3, 0, 0, MB_OF_32), (SECOND_US * 3, 1, 0, 0), (SECOND_US * 3, 0, 1, 0), (SECOND_US * 3, 1, 1, 0),
    )  # fmt: skip
    tables = sampled(tmp_path, {"hbm.data": data})
    # The first sample has nothing before it: 0, as real captures show.
    assert points(tables, "HBM") == {
        ("HBM 0/Read", "Read(MB/s)", None): [(0, 0.0), (10**9, 1.0), (3 * 10**9, 0.5)],
        ("HBM 0/Write", "Write(MB/s)", None): [(0, 0.0), (10**9, 2.0), (3 * 10**9, 0.0)],
        ("HBM 1/Read", "Read(MB/s)", None): [(0, 0.0), (10**9, 0.0), (3 * 10**9, 0.0)],
        ("HBM 1/Write", "Write(MB/s)", None): [(0, 0.0), (10**9, 3.0), (3 * 10**9, 0.0)],
    }
    assert tables.counters["device"].unique().to_list() == [0]
    assert losses(tables) == {}


def test_hbm_samples_with_a_lost_record_count_for_nothing(tmp_path):
    times = [(us, event, 0, MB_OF_32) for us in (0, SECOND_US, 2 * SECOND_US) for event in (0, 1)]
    tables = sampled(tmp_path, {"hbm.data": hbm(layouts.HBM, *(row for row in times if row[:2] != (SECOND_US, 1)))})
    assert points(tables, "HBM")["HBM 0/Read", "Read(MB/s)", None] == [(0, 0.0), (2 * 10**9, 0.5)]
    assert losses(tables) == {"incomplete-sample": 1}


def test_hbm_of_version_2_stamped_since_1970(tmp_path):
    epoch = 1_700_000_000 * 10**9
    data = hbm(layouts.HBM_2, (epoch, 0, 3, 0), (epoch + 10**9, 0, 3, MB_OF_32))
    tables = sampled(tmp_path, {"hbm.data": data}, version="2.0")
    assert points(tables, "HBM") == {("HBM 3/Read", "Read(MB/s)", None): [(epoch - ZERO, 0.0), (epoch + 10**9 - ZERO, 1.0)]}


def llc_records(layout, mode, *samples):
    """Samples of (time, cache, eight counts)."""
    codes = {"read": (0, 1, 2, 0x13, 0x20, 0x22, 0x34, 0x36), "write": (0, 1, 3, 0x14, 0x21, 0x23, 0x35, 0x37)}[mode]
    rows = ((us, cache, code, count) for us, cache, counts in samples for code, count in zip(codes, counts, strict=True))
    return records(layout, *({"time_us": us, "instance": cache, "event": code, "count": count} for us, cache, code, count in rows))


@pytest.mark.parametrize(("layout", "version"), [(layouts.LLC, "1.0"), (layouts.LLC_2, "2.0")])
@pytest.mark.parametrize("mode", ["read", "write"])
def test_llc(tmp_path, layout, version, mode):
    # e0 + e1 = 256 accesses of 4096 bytes are a megabyte; hits e2 + e3 + e5 + e7 = 30 of e4 + e6 = 40.
    data = llc_records(
        layout, mode, (0, 0, (0, 0, 1, 0, 3, 0, 0, 0)), (SECOND_US, 0, (200, 56, 5, 5, 30, 10, 10, 10)), (0, 1, (0,) * 8)
    )
    tables = sampled(tmp_path, {"llc.data": data}, settings={"llc_profiling": mode}, version=version)
    shown = mode.capitalize()
    assert points(tables, "LLC") == {
        (f"LLC 0 {shown}/Throughput", "Throughput(MB/s)", None): [(0, 0.0), (10**9, 1.0)],
        (f"LLC 0 {shown}/Hit Rate", "Hit Rate(%)", None): [(0, 0.333), (10**9, 0.75)],
        (f"LLC 1 {shown}/Throughput", "Throughput(MB/s)", None): [(0, 0.0)],
        (f"LLC 1 {shown}/Hit Rate", "Hit Rate(%)", None): [(0, 0.0)],
    }


def test_llc_without_a_mode_or_with_strange_events_is_counted(tmp_path):
    data = llc_records(layouts.LLC, "read", (0, 0, (0,) * 8))
    assert losses(sampled(tmp_path / "a", {"llc.data": data})) == {"not-understood": 8}
    # Of the write events 0 and 1 are the same as those of read; cache 3 does not exist on this chip.
    more = llc_records(layouts.LLC, "write", (0, 0, (0,) * 8)) + llc_records(layouts.LLC, "read", (0, 3, (0,) * 8))
    tables = sampled(tmp_path / "b", {"llc.data": more}, settings={"llc_profiling": "read"})
    assert losses(tables) == {"unknown-kind": 6 + 8}
    # A hit rate of counts that are not there is 0.
    assert points(tables, "LLC")["LLC 0 Read/Hit Rate", "Hit Rate(%)", None] == [(0, 0.0)]


@pytest.mark.parametrize(("chip", "access"), [("5", 16), ("1", 32)])
def test_ddr_sums_channels_and_counts_from_the_start(tmp_path, chip, access):
    megabyte = 1024**2 // access
    rows = [
        (SECOND_US, megabyte, 0, 0), (SECOND_US, megabyte, 0, 1), (SECOND_US, megabyte, 1, 0),
        (3 * SECOND_US, megabyte, 0, 0), (3 * SECOND_US, 4 * megabyte, 1, 0),
    ]  # fmt: skip
    names = ("time_us", "count", "event", "instance")
    data = records(layouts.DDR, *({**dict(zip(names, row, strict=True)), "master": NONE32} for row in rows))
    data += records(layouts.DDR, {"time_us": SECOND_US, "count": 5, "master": 3})
    tables = sampled(tmp_path, {"ddr.data": data}, platform_version=chip)
    assert points(tables, "DDR") == {
        ("DDR/Read", "Read(MB/s)", None): [(10**9, 2.0), (3 * 10**9, 0.5)],
        ("DDR/Write", "Write(MB/s)", None): [(10**9, 1.0), (3 * 10**9, 2.0)],
    }
    assert losses(tables) == {"unsupported-kind": 1}


def test_qos_names_come_from_the_settings(tmp_path):
    data = records(layouts.QOS, {"counter": DEVICE_TICK_0 + 50, "bandwidth": [1908, 7, 0, 0, 0, 0, 0, 0, 0, 0]})
    tables = sampled(tmp_path / "a", {"qos.data": data}, settings={"qosEvents": "0:OTHERS,1:AIC_DAT_QOS"})
    assert points(tables, "QoS") == {
        ("QoS OTHERS", "value", None): [(1000, 1908.0)],
        ("QoS AIC_DAT_QOS", "value", None): [(1000, 7.0)],
    }
    assert losses(sampled(tmp_path / "b", {"qos.data": data})) == {"not-understood": 1}


@pytest.mark.parametrize(
    ("version", "app", "device"), [("1.0", layouts.NPU_MEM_APP, layouts.NPU_MEM), ("2.0", layouts.NPU_MEM_APP_2, layouts.NPU_MEM_2)]
)
def test_npu_memory(tmp_path, version, app, device):
    files = {
        "npu_mem.app": records(app, {"time_us": 20, "event": 0, "ddr": 1024, "hbm": 3072}),
        "npu_mem.data": records(device, {"time_us": 30, "event": 1, "ddr": 0, "hbm": 10 << 30}, {"time_us": 30, "event": 9}),
    }
    tables = sampled(tmp_path, files, version=version)
    assert points(tables, "NPU MEM") == {
        ("APP/DDR", "KB", None): [(20_000, 1.0)],
        ("APP/HBM", "KB", None): [(20_000, 3.0)],
        ("APP/Memory", "KB", None): [(20_000, 4.0)],
        ("Device/DDR", "KB", None): [(30_000, 0.0)],
        ("Device/HBM", "KB", None): [(30_000, 10 * 1024.0**2)],
        ("Device/Memory", "KB", None): [(30_000, 10 * 1024.0**2)],
    }
    assert losses(tables) == {"unknown-kind": 1}


def test_module_memory_is_stamped_by_the_hosts_counter(tmp_path):
    rows = [(3, 100, 2048), (33, 200, (1 << 64) - 5), (900, 300, 1024)]
    data = records(layouts.NPU_MODULE_MEM, *({"module": m, "counter": HOST_TICK_0 + at, "bytes": size} for m, at, size in rows))
    assert points(sampled(tmp_path, {"npu_module_mem.data": data}), "NPU Module Mem") == {
        ("HCCL", "Total Reserved(KB)", None): [(1000, 2.0)],
        ("APP", "Total Reserved(KB)", None): [(2000, -1.0)],
        ("module 900", "Total Reserved(KB)", None): [(3000, 1.0)],
    }


L2_SETTINGS = {"l2CacheTaskProfilingEvents": "0xF6,0xFB,0xFC,0xBF,0x90,0x91,0x9C,0x9D"}


def test_l2_cache_rates_of_tasks(tmp_path):
    rows = [{"stream": 4, "task": 9, "events": [0, 60, 40, 0, 20, 10, 25, 0]}, {"stream": 4, "task": 10, "events": [1] + [0] * 7}]
    tables = sampled(tmp_path, {"l2_cache.data": records(layouts.L2_CACHE, *rows)}, settings=L2_SETTINGS)
    # 25 victims of 60 + 40 requests; hits are unknown on this chip; no requests, no rate.
    assert tables.cache_rates.rows() == [("l2", 0, 4, 9, None, None, 0.25), ("l2", 0, 4, 10, None, None, 0.0)]


def test_l2_cache_of_the_simulated_device_tells_hits(tmp_path):
    data = records(layouts.L2_CACHE, {"stream": 4, "task": 9, "events": [0, 6, 2, 0, 3, 1, 2, 0]})
    tables = sampled(tmp_path, {"l2_cache.data": data}, settings={**L2_SETTINGS, "simulatedDevice": "on"})
    assert tables.cache_rates.rows() == [("l2", 0, 4, 9, None, 0.5, 0.25)]


def test_l2_cache_of_older_chips_tells_hits(tmp_path):
    data = records(layouts.L2_CACHE, {"stream": 1, "task": 2, "events": [10, 6, 3, 0, 0, 0, 0, 0]})
    settings = {"l2CacheTaskProfilingEvents": "0x59,0x5b,0x5c"}
    tables = sampled(tmp_path, {"l2_cache.data": data}, settings=settings, platform_version="1")
    assert tables.cache_rates.rows() == [("l2", 0, 1, 2, None, 0.6, 0.3)]


def test_l2_cache_without_the_needed_events(tmp_path):
    data = records(layouts.L2_CACHE, {"stream": 1, "task": 2})
    tables = sampled(tmp_path, {"l2_cache.data": data}, settings={"l2CacheTaskProfilingEvents": "0xF6,nonsense"})
    assert (losses(tables), tables.cache_rates.height) == ({"not-understood": 1}, 0)


def test_soc_pmu_holds_cache_and_translation(tmp_path):
    cache = {"stream": 1, "task": 2, "data_type": 1, "events": [0, 4, 0, 0, 0, 0, 1, 0]}
    translation = {"stream": 3, "task": 4, "data_type": 2, "events": [2, 8, 5, 1, 0, 0, 0, 0]}
    data = records(layouts.SOC_PMU, cache, translation, {"data_type": 4})
    tables = sampled(tmp_path, {"socpmu.data": data}, settings={**L2_SETTINGS, "npuEvents": "HA:0x0;SMMU:0x2,0x8A,0x8c,0x8d"})
    # 5 + 1 hits and 2 misses of 8 requests.
    assert tables.cache_rates.rows() == [("l2", 0, 1, 2, None, None, 0.25), ("tlb", 0, 3, 4, None, 0.75, 0.25)]
    assert losses(tables) == {"unsupported-kind": 1}


def soc(function, ticks, upper=0, **fields):
    return {"head": function | upper << 10, "counter": DEVICE_TICK_0 + ticks, **fields}


def test_soc_profile_has_one_reader_per_function(tmp_path):
    pa, pcie = 0b111111, 0b100010
    data = records(
        layouts.STARS_SOC_PROFILE,
        soc(26, 1, instance=3, first=10, second=20, third=30, fourth=40),
        soc(28, 2, levels=0b1101_101),
        soc(27, 3, pa, instance=64 + 5, first=7, second=8),
        soc(27, 4, pcie, instance=2, first=9, second=11),
        soc(27, 5, 1),
        soc(24, 6, bandwidth=[5] + [0] * 9),
        soc(29, 7),
        soc(63, 8),
    )
    tables = sampled(tmp_path, {"stars_soc_profile.data": data}, settings={"qosEvents": "OTHERS"})
    assert points(tables, "Acc PMU") == {
        ("read_bandwidth", "value", 3): [(20, 20.0)],
        ("write_bandwidth", "value", 3): [(20, 10.0)],
        ("read_ost", "value", 3): [(20, 40.0)],
        ("write_ost", "value", 3): [(20, 30.0)],
    }
    assert points(tables, "Stars Soc Info") == {
        ("Mata Bw Level", "Mata Bw Level", None): [(40, 5.0)],
        ("L2 Buffer Bw Level", "L2 Buffer Bw Level", None): [(40, 13.0)],
    }
    assert points(tables, "Stars Chip Trans") == {
        ("PA Link Rx", "PA Link Rx", 5): [(60, 7.0)],
        ("PA Link Tx", "PA Link Tx", 5): [(60, 8.0)],
        ("PCIE Write Bandwidth", "PCIE Write Bandwidth", 2): [(80, 9.0)],
        ("PCIE Read Bandwidth", "PCIE Read Bandwidth", 2): [(80, 11.0)],
    }
    assert points(tables, "QoS") == {("QoS OTHERS", "value", None): [(120, 5.0)]}
    assert losses(tables) == {"not-understood": 1, "unsupported-kind": 1, "unknown-kind": 1}


def test_sio_rates_need_a_sample_before(tmp_path):
    second = 50_000_000  # ticks
    megabytes = [n << 20 for n in range(1, 9)]
    data = records(
        layouts.STARS_SOC_PROFILE,
        soc(25, second, instance=0, sizes=megabytes),
        soc(25, second, instance=1, sizes=megabytes),
        soc(25, 3 * second, instance=0, sizes=megabytes),
    )
    names = [f"{what}_{way}" for way in ("rx", "tx") for what in ("req", "rsp", "snp", "dat")]
    assert points(sampled(tmp_path, {"stars_soc_profile.data": data}), "SIO") == {
        (name, "die 0", None): [(3 * 10**9, n / 2)] for n, name in enumerate(names, 1)
    }


def test_next_chips_name_dies(tmp_path):
    low_power = [0] * 20
    low_power[11] = 1650
    data = records(
        layouts.STARS_SOC_PROFILE,
        soc(24, 0, 1, bandwidth=[8, 8, 5] + [0] * 7),
        soc(29, 0, 1, low_power=low_power),
        soc(29, 0, 2, low_power=low_power),
    )
    tables = sampled(tmp_path, {"stars_soc_profile.data": data}, settings={"qosEvents": "X"}, platform_version="15")
    assert points(tables, "QoS") == {("QoS X", "die 1", None): [(0, 5.0)]}
    assert points(tables, "AI Core Freq") == {("AI Core Freq Die 1", "MHz", None): [(0, 1650.0)]}


def test_links_between_dies_of_next_chips(tmp_path):
    second = 50_000_000  # ticks
    received, sent = [n << 20 for n in (1, 2, 3, 4)], [n << 20 for n in (5, 6, 7, 8)]
    data = records(
        layouts.STARS_SOC_PROFILE,
        soc(25, second, 1, die_rx=received, die_tx=sent),
        soc(25, 3 * second, 1, die_rx=received, die_tx=sent),
        soc(27, second, 2, die_write=11, die_read=22),
    )
    tables = sampled(tmp_path, {"stars_soc_profile.data": data}, platform_version="15")
    names = [f"{what}_{way}" for way in ("rx", "tx") for what in ("req", "rsp", "snp", "dat")]
    assert points(tables, "SIO") == {(name, "die 1", None): [(3 * 10**9, n / 2)] for n, name in enumerate(names, 1)}
    assert {key[0]: value[0][1] for key, value in points(tables, "Stars Chip Trans").items()} == {
        "PCIE Write Bandwidth": 11.0, "PCIE Read Bandwidth": 22.0,
    }  # fmt: skip


def node(ticks, **fields):
    times = {"compute_start": 100, "memcpy_start": 107, "memcpy_end": 110, "dispatch_us": 12}
    ran = {"run_start_tick": DEVICE_TICK_0 + ticks, "run_end_tick": DEVICE_TICK_0 + ticks + 500}
    waited = {"submit_tick": DEVICE_TICK_0 + ticks - 100, "after_run_tick": DEVICE_TICK_0 + ticks + 600}
    return {"level": 6000, **times, **ran, **waited, **fields}


def test_ai_cpu_tasks(tmp_path):
    data = records(
        layouts.AICPU,
        node(1000, stream=0x8000 | 21, task=5),  # swapped: stream and task have changed places
        node(100, stream=5, task=20),
        node(0, run_end_tick=0),
        {"type": 1},
        {"type": 99},
    )
    wide = records(layouts.EXPAND_STREAM_SPEC, {"wide": 1})
    tables = sampled(tmp_path, {"aicpu.data": data}, {"unaging.compact.expand_stream_spec": wide})
    assert tables.aicpu_tasks.rows() == [
        (0, ZERO + 2_000, None, 7.0, 3.0, 10.0, 12.0, 14.0, 5, 20),
        (0, ZERO + 20_000, None, 7.0, 3.0, 10.0, 12.0, 14.0, 5, 21),
    ]
    assert losses(tables) == {"unpaired-record": 1, "unsupported-kind": 2}


def test_ai_cpu_tasks_of_the_older_file(tmp_path):
    row = {name: value for name, value in node(100, stream=5, task=20).items() if name != "level"}
    tables = sampled(tmp_path, {"DATA_PREPROCESS.AICPU": records(layouts.AICPU_OLD, row)})
    assert tables.aicpu_tasks.rows() == [(0, ZERO + 2_000, None, 7.0, 3.0, 10.0, 12.0, 14.0, 5, 20)]


def test_names_of_operators(tmp_path):
    files = {
        "l2_cache.data": records(layouts.L2_CACHE, {"stream": 5, "task": 20}, {"stream": 5, "task": 21}),
        "aicpu.data": records(
            layouts.AICPU, node(100, stream=5, task=20), node(100_000, stream=5, task=20), node(9, stream=6, task=1)
        ),
    }
    tables = sampled(tmp_path, files, settings=L2_SETTINGS)
    runs = [("first", ZERO, ZERO + 20_000), ("second", ZERO + 2_000_000, ZERO + 2_020_000)]
    kernels = ALL_TABLES["kernels"].conform(
        pl.DataFrame(
            [("compute", 0, 5, 20, start, end, name) for name, start, end in runs] + [("event", 0, 5, 21, ZERO, ZERO + 1, "EVENT")],
            schema=["kind", "device", "stream", "task_id", "start_ns", "end_ns", "name"],
            orient="row",
        )
    )
    named = with_op_names(tables, kernels).check()
    assert named.cache_rates["op_name"].to_list() == ["second", None]
    assert named.aicpu_tasks["node"].to_list() == [None, "first", "second"]


def test_what_was_sampled_before_the_start_is_left_out(tmp_path):
    data = records(layouts.QOS, {"counter": DEVICE_TICK_0 - 1}, {"counter": DEVICE_TICK_0})
    tables = sampled(tmp_path, {"qos.data": data}, settings={"qosEvents": "X"})
    assert points(tables, "QoS") == {("QoS X", "value", None): [(0, 0.0)]}
    assert losses(tables) == {"before-recording": 1}


def test_a_cut_tail_is_counted(tmp_path):
    data = records(layouts.QOS, {"counter": DEVICE_TICK_0})
    assert losses(sampled(tmp_path, {"qos.data": data + b"123"}, settings={"qosEvents": "X"})) == {"truncated-record": 1}


@pytest.mark.parametrize("chip", ["1", "5", "15", "junk"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_no_bytes_stop_the_reader(tmp_path, chip, version):
    """Random bytes, bytes with every bit set, and records whose magic is right."""
    rng = np.random.default_rng(int(chip) if chip.isdigit() else 0)
    layout_of = {kind.file: kind.layouts[-1 if version == "2.0" else 0] for kind in DEVICE_RECORDS} | {"aicpu.data": layouts.AICPU}
    settings = {"llc_profiling": "read", "qosEvents": "a,b,,c:d:e", "npuEvents": "SMMU:0x2,0x8A,0x8c,0x8d", **L2_SETTINGS}
    for round_, fill in enumerate(("random", "ones", "sound")):
        files = {}
        for file in DEVICE_FILES:
            data = np.full(4096, 255, np.uint8) if fill == "ones" else rng.integers(0, 256, 4099, np.uint8)
            layout = layout_of.get(file)
            if fill == "sound" and layout is not None and layout.magic is not None:
                rows = data[: len(data) // layout.size * layout.size].view(layout.dtype)
                rows["magic"] = layout.magic
                if file == layouts.STARS_SOC_PROFILE.file:
                    rows["head"] = (rows["head"] & 0xFC00) | rng.integers(24, 30, len(rows)).astype(np.uint16)
                data = rows.view(np.uint8)
            files[file] = data.tobytes()
        host = {file: rng.integers(0, 256, 4099, np.uint8).tobytes() for file in HOST_FILES}
        tables = sampled(tmp_path / str(round_), files, host, settings=settings, platform_version=chip, version=version)
        assert tables.quality.height
