# SPDX-License-Identifier: Apache-2.0
"""Links, network ports and the host's usage: mostly text. See sampled_folder for the clocks."""

from __future__ import annotations

import random

import pytest
from sampled_folder import DEVICE_NS_0, HOST_NS_0, losses, points, records, sampled

from stepscope.formats.cann import layouts
from stepscope.formats.cann.sampled.tables import DEVICE_TEXTS, HOST_TEXTS

SECOND = 10**9
MB = 1 << 20


def device_time(ns):
    return DEVICE_NS_0 + ns


def host_time(ns):
    return HOST_NS_0 + ns


def pcie_values(*, tx_post=(0, 0, 0), rx_cpl=(0, 0, 0), latency=(0, 0, 0)):
    return [*tx_post, *[0] * 6, *latency, *[0] * 6, *rx_cpl]


def pcie_file():
    rows = [
        (10, pcie_values(tx_post=(0xFFFFF, 2 * MB, MB), rx_cpl=(MB, MB, MB), latency=(1000, 3000, 2000))),
        (20, pcie_values(tx_post=(MB, 4 * MB, 3 * MB), rx_cpl=(0, 0, 0), latency=(0, 1000, 500))),
        (30, pcie_values(tx_post=(7, 1, 1))),
    ]
    # In the last, the least lies above the most: nothing was counted. 0xFFFFF is a least that never was set.
    return records(layouts.PCIE, *({"counter": device_time(at), "values": values} for at, values in rows))


def test_pcie_in_megabytes_a_second_and_microseconds(tmp_path):
    tables = sampled(tmp_path, {"pcie.data": pcie_file()})
    found = points(tables, "PCIe")
    assert found["PCIe_post", "Tx", None] == [(10, 1e6), (20, 3e6)]
    assert found["PCIe_post", "Tx Min", None] == [(20, 1e6)]
    assert found["PCIe_post", "Tx Max", None] == [(10, 2e6), (20, 4e6)]
    assert found["PCIe_cpl", "Rx", None] == [(10, 1e6), (20, 0.0)]
    assert found["PCIe_nonpost_latency", "Tx", None] == [(10, 2.0), (20, 0.5)]
    assert ("PCIe_nonpost_latency", "Rx", None) not in found
    assert losses(tables) == {"empty-sample": 1}


@pytest.mark.parametrize("chip", ["5", "1"])
def test_summary_of_pcie_is_of_the_whole_capture(tmp_path, chip):
    rows = sampled(tmp_path, {"pcie.data": pcie_file()}, platform_version=chip).link_summary.rows()
    assert [row[2] for row in rows] == [
        "Tx_p_avg(MB/s)", "Tx_np_avg(MB/s)", "Tx_cpl_avg(MB/s)", "Tx_latency_avg(us)",
        "Rx_p_avg(MB/s)", "Rx_np_avg(MB/s)", "Rx_cpl_avg(MB/s)",
    ]  # fmt: skip
    assert rows[0] == ("PCIe", 0, "Tx_p_avg(MB/s)", 1e6, 4e6, 2e6)
    assert rows[3] == ("PCIe", 0, "Tx_latency_avg(us)", 0.0, 3.0, 1.25)
    assert rows[6] == ("PCIe", 0, "Rx_cpl_avg(MB/s)", 0.0, 1e6, 0.5e6)


def lines(*rows):
    return "\n".join(rows).encode()


def test_hccs_shows_growth(tmp_path):
    times = [device_time(n * SECOND) for n in range(5)]
    data = lines(
        "time tx rx",
        f"{times[1]}: {3 * MB} {8 * MB}",
        f"{times[0]}: {MB} {2 * MB}",  # in the wrong order
        f"{times[2]}: {4 * MB} {MB}",  # one total fell
        f"{times[4]}: {8 * MB} {3 * MB}",
        f"{times[3]}: x {MB}",
        f"{times[3]}: {MB}",
    )
    tables = sampled(tmp_path, {"hccs.data": data})
    assert points(tables, "HCCS") == {
        ("Tx", "Tx(MB/s)", None): [(SECOND, 2.0), (4 * SECOND, 2.0)],
        ("Rx", "Rx(MB/s)", None): [(SECOND, 6.0), (4 * SECOND, 1.0)],
    }
    assert tables.link_summary.rows() == [("HCCS", 0, "Tx (MB/s)", 2.0, 2.0, 2.0), ("HCCS", 0, "Rx (MB/s)", 1.0, 6.0, 3.5)]
    assert losses(tables) == {"unreadable-line": 2, "incomplete-sample": 1}


PORT = "100 5 6553600 20 0 4 2 7 1310720 0 0 3 1"  # half of 100 MB/s is 6 553 600 bytes by 8 bits


@pytest.mark.parametrize(("file", "source"), [("nic.data", "NIC"), ("roce.data", "RoCE")])
def test_ports(tmp_path, file, source):
    data = lines(
        "timestamp bandwidth rxPacket/s rxByte/s",
        f"{device_time(10)}: {PORT}",
        f"{device_time(20)}: {PORT} 1",
        f"{device_time(30)}: {PORT} 1 9",
        f"{device_time(40)}: {PORT} 1 9 9",
        "5: junk",
    )
    tables = sampled(tmp_path, {file: data})
    found = points(tables, source)
    assert {key[0] for key in found} == {"Port 0", "Port 0/Rx", "Port 0/Tx", "Port 1", "Port 1/Rx", "Port 1/Tx"}
    assert found["Port 1", "Bandwidth(MB/s)", 1] == [(20, 100.0), (30, 100.0)]
    assert {series: values for (name, series, _), values in found.items() if name == "Port 0/Rx"} == {
        "Rx Packets": [(10, 5.0)],
        "Rx Error Rate": [(10, 0.2)],
        "Rx Dropped Rate": [(10, 0.1)],
        "Rx Bandwidth Efficiency": [(10, 0.5)],
    }
    # The totals, for the database.
    totals = {
        series: values[0][1] for (name, series, _), values in found.items() if name == "Port 0" and series != "Bandwidth(MB/s)"
    }
    assert totals == {
        "rxPackets": 20.0, "rxBytes": 0.0, "rxErrors": 4.0, "rxDropped": 2.0,
        "txPackets": 0.0, "txBytes": 0.0, "txErrors": 3.0, "txDropped": 1.0,
    }  # fmt: skip
    # No packets: no share of them was lost.
    assert found["Port 0/Tx", "Tx Error Rate", None] == [(10, 0.0)]
    assert found["Port 0/Tx", "Tx Bandwidth Efficiency", None] == [(10, 0.1)]
    assert losses(tables) == {"unreadable-line": 2}


def test_network_device(tmp_path):
    first = [10 * n for n in range(15)]
    second = [0 if n == 0 else value + n for n, value in enumerate(first)]
    data = lines(
        "timestamp mac_tx_pfc_pkt …",
        f"{host_time(0)} " + " ".join(map(str, first)),
        f"{host_time(2 * SECOND)} " + " ".join(map(str, second)),
        f"{host_time(2 * SECOND)} " + " ".join(map(str, first)),
        "1 2 3",
    )
    tables = sampled(tmp_path, {"netdev_stats.data": data})
    found = {series: values for (_, series, _), values in points(tables, "Net Device").items()}
    assert len(found) == 19
    assert found["macTxPfcPkt"] == [(2 * SECOND, 0.0)]
    assert (found["macTxByte"], found["macTxBandwidth"]) == ([(2 * SECOND, 2.0)], [(2 * SECOND, 1.0)])
    assert (found["macRxByte"], found["macRxBandwidth"]) == ([(2 * SECOND, 3.0)], [(2 * SECOND, 1.5)])
    assert (found["nicRxByte"], found["nicRxBandwidth"]) == ([(2 * SECOND, 14.0)], [(2 * SECOND, 7.0)])
    assert losses(tables) == {"unreadable-line": 1}


def stat(tid, user, system, processor, name="python"):
    return f"{tid} ({name}) R 1 {' '.join(['0'] * 9)} {user} {system} {' '.join(['0'] * 23)} {processor} 0"


def test_processors(tmp_path):
    # 100 ticks a second; one second passes, then ten.
    data = lines(
        f"time {host_time(0)}", "50.00 9", stat(1, 100, 0, 2), stat(2, 0, 0, 3),
        f"time {host_time(SECOND)}", "51.00 9", stat(1, 120, 5, 2, "a b) c"), stat(2, 10, 0, 2), stat(3, 99, 0, 1),
        f"time {host_time(2 * SECOND)}", "51.00 9", "nonsense", stat(1, 120, 5, 2),
    )  # fmt: skip
    tables = sampled(tmp_path, host={"host_cpu.data": data})
    # Threads 1 and 2 were seen on processor 2 with 25 and 10 ticks of 100; thread 3 is new. 35 of 4 x 100 on average.
    assert points(tables, "CPU Usage") == {("CPU 2", "Usage(%)", None): [(0, 35.0)], ("CPU Avg", "Usage(%)", None): [(0, 8.75)]}
    assert tables.counters["device"].null_count() == tables.counters.height
    assert losses(tables) == {"unreadable-line": 1}


def test_memory_of_the_host(tmp_path):
    # Pages of 4 KB of 800 000 KB; the value of a line stands at the time of the line before.
    data = lines(f"{host_time(0)} 9 1000 1", f"{host_time(5)} 9 2000 1", "x y z", f"{host_time(9)} 9 4000 1")
    tables = sampled(tmp_path, host={"host_mem.data": data})
    assert points(tables, "Memory Usage") == {("Memory Usage", "Usage(%)", None): [(0, 1.0), (5, 2.0)]}
    assert losses(tables) == {"unreadable-line": 1}


def test_disk_of_the_host(tmp_path):
    data = lines(
        f"start_time {host_time(0)}",
        "Total DISK READ : 0.00 B/s",
        "12:00:00 77 be/4 root 2.00 M/s 1024.00 B/s 0.00 % 12.50 % python",
        "12:00:00 77 be/4 root 3.00 K/s 0.00 B/s ?unavailable?",
        "12:00:00 77 be/4 root x K/s 0.00 B/s",
    )
    tables = sampled(tmp_path / "a", host={"host_disk.data": data}, settings={"host_disk_freq": 50})
    assert points(tables, "Disk Usage") == {
        ("Disk Usage", "Usage(%)", None): [(0, 12.5), (20_000_000, 0.0)],
        ("Disk Usage", "Read(KB/s)", None): [(0, 2048.0), (20_000_000, 3.0)],
        ("Disk Usage", "Write(KB/s)", None): [(0, 1.0), (20_000_000, 0.0)],
    }
    assert losses(tables) == {"unreadable-line": 1}
    assert losses(sampled(tmp_path / "b", host={"host_disk.data": data})) == {"unreadable-line": 3}


def card(name, received, sent):
    return f"  {name}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0"


def test_network_of_the_host(tmp_path):
    data = lines(
        f"time {host_time(0)}", "Inter-|   Receive", card("eth0", 0, 0), card("lo", 0, 0),
        f"time {host_time(2 * SECOND)}", card("eth0", 1024 * 100, 1024 * 100), card("lo", 10**9, 0),
        f"time {host_time(3 * SECOND)}", card("eth0", 0, 0),
    )  # fmt: skip
    tables = sampled(tmp_path, host={"host_network.data": data})
    # 200 KB in two seconds over a card of 8 Mbit/s, a million bytes a second.
    assert points(tables, "Network Usage") == {
        ("Network Usage", "Usage(%)", None): [(0, 10.24)],
        ("Network Usage", "Speed(KB/s)", None): [(0, 100.0)],
    }


def test_no_lines_stop_the_reader(tmp_path):
    """Lines made of the words that the files are made of, in any order."""
    rng = random.Random(5)
    words = [
        "time",
        "start_time",
        ":",
        "1",
        "-1",
        "9" * 30,
        "1e999",
        "nan",
        "0x1",
        "é",
        "",
        "(",
        ")",
        "eth0:",
        "M/s",
        "%",
        "²",
        "1_0",
        "\x00",
    ]
    words += [str(host_time(n)) for n in range(5)]

    def text():
        return lines(*(" ".join(rng.choices(words, k=rng.randrange(0, 45))) for _ in range(300)))

    device = {kind.file: text() for kind in DEVICE_TEXTS}
    host = {kind.file: text() for kind in HOST_TEXTS}
    tables = sampled(tmp_path, device, host, settings={"host_disk_freq": 50})
    assert tables.quality.height
