"""Times, packets, links and matrix of communication operators, with numbers that can be added up by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from stepscope.analysis.communication import collectives as comm
from stepscope.export import analysis_db
from stepscope.export.communication_json import communication_json, communication_matrix_json, write
from stepscope.tables import ALL_TABLES, Tables

MS, MB = 1_000_000, 1_000_000


def table(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    schema = ALL_TABLES[name].schema
    columns = {key: [row.get(key) for row in rows] for key in schema if any(key in row for row in rows)}
    return ALL_TABLES[name].conform(pl.DataFrame(columns, schema={key: schema[key] for key in columns}, strict=False))


def op(name: str, start: int = 0, end: int = 100, group: str | None = "77") -> dict[str, Any]:
    return {"device": 0, "start_ns": start * MS, "end_ns": end * MS, "name": name, "group": group}


def task(
    start: float, length: float, kind: str, *, plane: int = 1, link: str | None = "HCCS", mb: float = 0, **more: Any
) -> dict[str, Any]:
    places = {"collective": 0, "plane": plane, "src_rank": 0, "dst_rank": 1, "transport": "SDMA"}
    span = {"start_ns": int(start * MS), "end_ns": int((start + length) * MS)}
    return {"device": 0, **span, "task_type": kind, "link": link, "bytes": int(mb * MB), **places, **more}


def tables(ops: list[dict[str, Any]], tasks: list[dict[str, Any]], steps: list[dict[str, Any]] | None = None) -> Tables:
    return Tables(
        {"collectives": table("collectives", ops), "transfers": table("transfers", tasks), "steps": table("steps", steps or [])}
    )


def time_row(capture: Tables) -> tuple[float, ...]:
    frame = comm.times(capture.collectives, capture.transfers)
    ALL_TABLES["collective_times"].check(frame)
    assert frame.height == 1
    return frame.select("start_us", "elapse_ms", "transit_ms", "wait_ms", "sync_ms", "idle_ms").row(0)


TWO_PLANES = [
    task(1, 2, "Notify_Wait"),
    task(3, 4, "Memcpy"),
    task(7, 1, "Notify_Wait"),
    task(8, 2, "Reduce_Inline"),
    task(10, 5, "Memcpy", link="ON_CHIP"),
    task(2, 30, "Memcpy", plane=2),
]


def test_times_are_those_of_plane_one_and_the_extent_of_all_planes():
    capture = tables([op("hcom_allReduce__1", start=1)], TWO_PLANES)
    assert time_row(capture) == (1000.0, 31.0, 6.0, 3.0, 2.0, 22.0)


def test_a_plane_marked_master_gives_everything():
    marked = [{**row, "is_master": row["plane"] == 2} for row in TWO_PLANES]
    assert time_row(tables([op("hcom_allReduce__1", start=1)], marked)) == (2000.0, 30.0, 30.0, 0.0, 0.0, 0.0)


def test_without_plane_one_the_lowest_plane_counts():
    lanes = [task(0, 1, "Memcpy", plane=3), task(0, 8, "Memcpy", plane=5)]
    assert time_row(tables([op("hcom_send__1")], lanes))[2] == 1.0


def test_without_any_transit_all_waiting_is_synchronization():
    assert time_row(tables([op("hcom_barrier__1")], [task(0, 3, "Notify_Wait")])) == (0.0, 3.0, 0.0, 3.0, 3.0, 0.0)


def test_durations_keep_parts_of_a_nanosecond():
    exact = task(0, 1, "Memcpy", duration_ns=1_000_000.25)
    assert time_row(tables([op("hcom_allReduce__1")], [exact]))[1:3] == (1.00000025, 1.00000025)


def rdma(start: float, kind: str | None, mb: float = 0, **more: Any) -> dict[str, Any]:
    kind = f"RDMA_SEND_{kind}" if kind else None
    return task(start, 1, "RDMASend", link="ROCE", mb=mb, rdma_type=kind, **{"transport": "RDMA", **more})


@pytest.mark.parametrize(
    ("name", "transit"),
    [
        pytest.param("hcom_send__1", 4.0, id="send: two tasks follow"),
        pytest.param("hcom_allReduce__1", 6.0, id="others: four tasks follow"),
    ],
)
def test_rdma_block(name, transit):
    lane = [rdma(0, "PAYLOAD", 0.4), rdma(1, "PAYLOAD", 0.2), *(rdma(at, "NOTIFY") for at in range(2, 6))]
    capture = tables([op(name)], lane)
    assert time_row(capture)[2] == transit
    packet = comm.packets(capture.collectives, capture.transfers).row(0, named=True)
    assert (packet["transport"], packet["packet_mb"], packet["packets"], packet["packets_ms"]) == ("RDMA", 0.6, 1, transit)
    assert packet["large_packet_ratio"] == 1.0
    assert comm.links(capture.collectives, capture.transfers)["transport"].to_list() == ["RDMA"]


def test_rdma_block_cut_off_by_the_end_of_its_plane_does_not_count():
    capture = tables([op("hcom_send__1")], [rdma(0, "PAYLOAD", 1), rdma(1, "NOTIFY"), rdma(2, "NOTIFY", plane=2)])
    assert time_row(capture)[2] == 0.0
    assert comm.packets(capture.collectives, capture.transfers).height == 0


def test_a_wait_inside_an_rdma_block_is_not_counted_twice():
    lane = [rdma(0, "PAYLOAD", 1), task(1, 1, "Notify_Wait"), task(2, 1, "Notify_Wait"), task(3, 1, "Notify_Wait")]
    assert time_row(tables([op("hcom_send__1")], lane)) == (0.0, 4.0, 3.0, 1.0, 0.0, 0.0)


def test_payloads_inside_a_block_do_not_start_another():
    lane = [
        rdma(0, "PAYLOAD", 1),
        rdma(1, "NOTIFY"),
        rdma(2, "PAYLOAD", 8),
        rdma(3, "PAYLOAD", 2),
        rdma(4, "NOTIFY"),
        rdma(5, "NOTIFY"),
    ]
    found = comm.packets(*(tables([op("hcom_send__1")], lane)[name] for name in ("collectives", "transfers")))
    assert found.select("packet_mb", "packets_ms").rows() == [(1.0, 3.0), (2.0, 3.0)]


def test_packets_by_class_and_size():
    tasks = [
        task(0, 1, "Memcpy", mb=40), task(1, 3, "Memcpy", mb=8, link="HCCS_SW"), task(4, 2, "Memcpy", mb=8, plane=2),
        task(6, 1, "Reduce_Inline", mb=32, link="PCIE"), task(7, 1, "Memcpy", mb=1, link="SIO"),
        task(8, 1, "Memcpy", mb=5, link="ROCE"),
        task(9, 1, "Memcpy", mb=100, link="ON_CHIP"), task(10, 1, "Notify_Wait"), task(11, 1, "Memcpy", mb=7, transport="LOCAL"),
    ]  # fmt: skip
    capture = tables([op("hcom_allReduce__1")], tasks)
    frame = comm.packets(capture.collectives, capture.transfers)
    ALL_TABLES["collective_packets"].check(frame)
    columns = ["transport", "transit_mb", "transit_ms", "bandwidth", "large_packet_ratio", "packet_mb", "packets", "packets_ms"]
    assert frame.select(columns).rows() == [
        ("HCCS", 56.0, 6.0, 9.3333, 0.3333, 40.0, 1, 1.0),
        ("HCCS", 56.0, 6.0, 9.3333, 0.3333, 8.0, 2, 5.0),
        ("PCIE", 32.0, 1.0, 32.0, 0.0, 32.0, 1, 1.0),
        ("SDMA", 94.0, 9.0, 10.4444, 0.0, None, None, None),
        ("SIO", 1.0, 1.0, 1.0, 0.0, 1.0, 1, 1.0),
    ]


def test_sizes_are_divided_not_multiplied():
    tasks = [task(0, 1, "Memcpy", mb=0, bytes=8_290_304)]
    capture = tables([op("hcom_allReduce__1")], tasks)
    assert comm.packets(capture.collectives, capture.transfers)["packet_mb"][0] == 8.290304


def test_links():
    tasks = [
        task(0, 1, "Memcpy", mb=4, link="ON_CHIP", dst_rank=None), task(1, 2, "Memcpy", mb=6), task(3, 2, "Memcpy", mb=2),
        task(5, 1, "Memcpy", mb=2, link="HCCS_SW", dst_rank=2), task(6, 0, "Memcpy", mb=2, link="SIO", dst_rank=3),
        task(7, 1, "Memcpy", mb=9, src_rank=None),
    ]  # fmt: skip
    capture = tables([op("hcom_allReduce__1")], tasks)
    frame = comm.links(capture.collectives, capture.transfers)
    ALL_TABLES["collective_links"].check(frame)
    assert frame.select("src_rank", "dst_rank", "transport", "transit_mb", "transit_ms", "bandwidth").rows() == [
        (0, 0, "LOCAL", 4.0, 1.0, 4.0),
        (0, 1, "HCCS", 8.0, 4.0, 2.0),
        (0, 2, "HCCS", 2.0, 1.0, 2.0),
        (0, 3, "SIO", 2.0, 0.0, 0.0),
    ]


def step(number: int | None, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"step": number, "pid": 1, "start_ns": start * MS, "end_ns": end * MS, **more}


def steps_of(ops: list[dict[str, Any]], steps: list[dict[str, Any]]) -> tuple[list[tuple[Any, ...]], int]:
    tasks = [task(1, 1, "Memcpy", collective=number) for number in range(len(ops))]
    found, quality = comm.step_of_collectives(tables(ops, tasks, steps))
    return found.select("name", "step", "kind").rows(), sum(frame["count"].sum() for frame in quality)


def test_one_step_takes_all_operators():
    ops = [op("hcom_allGather__1", start=5), op("hcom_batchSendRecv__1", start=500)]
    assert steps_of(ops, [step(50, 90, 100)]) == (
        [("hcom_allGather__1", "step50", "collective"), ("hcom_batchSendRecv__1", "step50", "p2p")],
        0,
    )


def test_without_steps_there_is_one_nameless_step():
    assert steps_of([op("hcom_send__1")], [])[0] == [("hcom_send__1", "step", "p2p")]


def test_with_several_steps_the_start_decides():
    ops = [op(f"hcom_allReduce__{start}", start=start) for start in (9, 10, 20, 21, 25, 30, 31)]
    ranges = [
        step(1, 0, 1, device_start_ns=10 * MS, device_end_ns=20 * MS),
        step(2, 0, 1, device_start_ns=20 * MS, device_end_ns=30 * MS),
    ]
    placed, dropped = steps_of(ops, ranges)
    # 20 is in both: the first step wins; both borders are inside.
    assert [row[1] for row in placed] == ["step1", "step1", "step2", "step2", "step2"]
    assert dropped == 2


def test_a_step_that_launched_nothing_does_not_count():
    ops = [op("hcom_allReduce__1", start=5), op("hcom_allReduce__2", start=25)]
    ranges = [step(1, 0, 4, device_start_ns=5 * MS, device_end_ns=8 * MS), step(2, 20, 30)]
    # One step is left, and it takes all.
    assert [row[1] for row in steps_of(ops, ranges)[0]] == ["step1", "step1"]


def test_the_analysis_database_goes_by_time_even_with_one_step():
    ops = [op(f"hcom_allReduce__{start}", start=start) for start in (9, 10, 20, 21)]
    tasks = [task(1, 1, "Memcpy", collective=number) for number in range(len(ops))]
    capture = tables(ops, tasks, [step(50, 0, 1, device_start_ns=10 * MS, device_end_ns=20 * MS)])
    assert comm.stepped(capture, "collective_times").height == 4
    assert analysis_db.communication_rows(capture)["CommAnalyzerTime"].select("hccl_op_name", "step").rows() == [
        ("hcom_allReduce__10", "step50"),
        ("hcom_allReduce__20", "step50"),
    ]


def test_a_long_step_over_a_short_one_wins_where_it_starts_first():
    ops = [op(f"hcom_allReduce__{start}", start=start) for start in (15, 25, 35)]
    assert [row[1] for row in steps_of(ops, [step(1, 10, 40), step(2, 20, 22), step(3, 30, 50)])[0]] == ["step1"] * 3


def pairs(*bandwidths: float, name: str = "hcom_allReduce__271_{}_1") -> pl.DataFrame:
    link = {"group": "77", "src_rank": 0, "dst_rank": 1, "transport": "HCCS", "transit_ms": 1.0}
    rows = [{**link, "name": name.format(k), "transit_mb": value, "bandwidth": value} for k, value in enumerate(bandwidths)]
    return table("collective_links", rows).with_columns(step=pl.lit("step1"), kind=pl.lit("collective"))


@pytest.mark.parametrize(
    ("bandwidths", "expected"),
    [
        ([5.0], {"top1": 0, "middle": 0, "bottom1": 0, "total": None}),
        ([5.0, 7.0], {"top1": 1, "middle": 0, "bottom1": 0, "total": None, "bottom2": 1}),
        ([1.0, 4.0, 2.0, 3.0], {"top1": 1, "middle": 2, "bottom1": 0, "total": None, "bottom2": 2, "bottom3": 3}),
        ([2.0, 2.0, 2.0], {"top1": 0, "middle": 1, "bottom1": 2, "total": None, "bottom2": 1, "bottom3": 0}),
    ],
)
def test_matrix_tags(bandwidths, expected):
    tagged = comm.matrix_tags(pairs(*bandwidths))
    names = {tag: None if at is None else f"hcom_allReduce__271_{at}_1" for tag, at in expected.items()}
    assert dict(tagged.select("tag", "op_name").rows()) == names
    assert tagged["tag"].to_list() == list(expected)
    total = tagged.filter(pl.col("tag") == "total").row(0, named=True)
    assert (total["transit_mb"], total["transit_ms"]) == (sum(bandwidths), len(bandwidths))
    assert total["bandwidth"] == round(sum(bandwidths) / len(bandwidths), 4)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("hcom_allReduce__271_0_1", "allreduce"),
        ("hcom_reduceScatter__271_0_1", "reduce"),
        ("hcom_alltoallv__271_0_1", "alltoall"),
        ("hcom_batchSendRecv__271_0_1", "batchsendrecv"),
        ("hcom_send__271_0_1", "send"),
        ("hcom_barrier__271_0_1", "hcom_barrier"),
    ],
)
def test_type_of_an_operator_in_the_matrix(name, kind):
    assert comm.matrix_tags(pairs(1.0, name=name))["operator_type"].unique().to_list() == [kind]


def small_capture() -> Tables:
    ops = [op("hcom_allReduce__77_0_1", start=0), op("hcom_allReduce__77_1_1", start=50), op("hcom_send__77_2_1", start=70)]
    tasks = [
        task(0, 1, "Notify_Wait"), task(1, 3, "Memcpy", mb=6),
        task(50, 2, "Memcpy", mb=6, collective=1), task(52, 2, "Memcpy", mb=2, collective=1),
        task(70, 1, "Memcpy", mb=1, collective=2),
    ]  # fmt: skip
    return tables(ops, tasks, [step(3, 0, 100)])


def test_communication_json():
    document = communication_json(small_capture())
    assert list(document) == ["step3"]
    assert list(document["step3"]) == ["p2p", "collective"]
    assert list(document["step3"]["p2p"]) == ["hcom_send__77_2_1@77", "Total Op Info"]
    total = document["step3"]["collective"]["Total Op Info"]
    assert total["Communication Time Info"] == {
        "Elapse Time(ms)": 8.0, "Transit Time(ms)": 7.0, "Wait Time(ms)": 1.0, "Synchronization Time(ms)": 1.0,
        "Idle Time(ms)": 0.0, "Wait Time Ratio": 0.125, "Synchronization Time Ratio": 0.125,
    }  # fmt: skip
    assert total["Communication Bandwidth Info"]["HCCS"] == {
        "Transit Time(ms)": 7.0,
        "Transit Size(MB)": 14.0,
        "Size Distribution": {"6.0": [2, 5.0], "2.0": [1, 2.0]},
    }
    one = document["step3"]["collective"]["hcom_allReduce__77_0_1@77"]
    assert one["Communication Time Info"]["Wait Time Ratio"] == 0.25
    assert list(one["Communication Bandwidth Info"]) == ["RDMA", "HCCS", "PCIE", "SDMA", "SIO"]
    assert one["Communication Bandwidth Info"]["SDMA"]["Transit Size(MB)"] == 6.0
    assert one["Communication Bandwidth Info"]["RDMA"]["Transit Size(MB)"] == 0


def test_communication_matrix_json():
    document = communication_matrix_json(small_capture())
    assert list(document["step3"]["collective"]) == [
        f"allreduce-{tag}@77" for tag in ("top1", "middle", "bottom1", "total", "bottom2")
    ]
    assert document["step3"]["collective"]["allreduce-total@77"]["0-1"] == {
        "Transport Type": "HCCS", "Transit Size(MB)": 14.0, "Transit Time(ms)": 7.0, "Bandwidth(GB/s)": 2.0,
    }  # fmt: skip
    assert document["step3"]["p2p"]["send-top1@77"]["0-1"]["Op Name"] == "hcom_send__77_2_1"


def test_rows_of_the_analysis_database():
    capture = small_capture()
    found = analysis_db.communication_rows(capture)
    assert found["CommAnalyzerTime"].select("hccl_op_name", "group_name", "transit_time", "step", "type").rows() == [
        ("hcom_allReduce__77_0_1", "77", 3.0, "step3", "collective"),
        ("hcom_allReduce__77_1_1", "77", 4.0, "step3", "collective"),
        ("hcom_send__77_2_1", "77", 1.0, "step3", "p2p"),
    ]
    assert found["CommAnalyzerBandwidth"].select(
        "hccl_op_name", "transport_type", "package_size", "count", "total_duration"
    ).rows()[:2] == [
        ("hcom_allReduce__77_0_1", "HCCS", 6.0, 1, 3.0),
        ("hcom_allReduce__77_0_1", "SDMA", 0.0, 0, 0.0),
    ]
    matrix = found["CommAnalyzerMatrix"].select("hccl_op_name", "src_rank", "dst_rank", "op_name").rows()
    assert matrix[0] == ("allreduce-top1", "0", "1", "hcom_allReduce__77_0_1")
    assert ("allreduce-total", "0", "1", "") in matrix


def test_tables_of_the_vendor_win_and_name_the_groups():
    given = table(
        "collective_times",
        [{"collective": 0, "name": "hcom_allReduce__77_0_1", "group": "12377", "start_us": 0.0, "elapse_ms": 9.0}],
    )
    capture = small_capture().replace(collective_times=given)
    filled = comm.of_tables(capture)
    assert filled.collective_times.equals(given)
    assert filled.collective_packets["group"].unique(maintain_order=True).to_list() == ["12377", "77"]
    # Operators that only the computed tables know are listed too.
    assert comm.step_of_collectives(capture)[0]["name"].to_list() == [
        "hcom_allReduce__77_0_1",
        "hcom_allReduce__77_1_1",
        "hcom_send__77_2_1",
    ]


def test_operators_of_the_vendor_find_their_row_by_name():
    given = table("collective_times", [{"name": "hcom_allReduce__77_1_1", "group": "other", "start_us": 1.0}])
    capture = small_capture().replace(collective_times=given, transfers=table("transfers", []))
    assert comm.step_of_collectives(capture)[0].select("collective", "start_ns").rows() == [(1, 50 * MS)]


def test_files_appear_only_with_content(tmp_path):
    assert write(Tables(), tmp_path) == []
    assert [path.name for path in write(small_capture(), tmp_path)] == ["communication.json", "communication_matrix.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["communication.json", "communication_matrix.json"]
