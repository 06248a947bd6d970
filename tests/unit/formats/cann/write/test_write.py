# SPDX-License-Identifier: Apache-2.0
"""What the writers write is what the readers read: every kind of record, slices, dictionaries, flips."""

from __future__ import annotations

import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prof_folder import MS, SESSION, STREAM, T0, TID, write

from stepscope.formats import cann
from stepscope.formats.cann import layouts
from stepscope.formats.cann.device.side import read_device
from stepscope.formats.cann.folder import open_prof
from stepscope.formats.cann.host.dictionaries import read_dictionaries
from stepscope.formats.cann.host.side import read_host
from stepscope.formats.cann.layouts import LAYOUTS, LAYOUTS_OF_OTHER_CHIPS, TASK_TRACK, Layout
from stepscope.formats.cann.records import read_records
from stepscope.formats.cann.write.device import MIX_AIC, DeviceWriter, encode_ids
from stepscope.formats.cann.write.folder import ProfWriter, reorder, rows
from stepscope.formats.cann.write.host import HostWriter
from stepscope.formats.cann.write.settings import METRIC_EVENTS, Session
from stepscope.formats.cann.write.task_ids import PERIOD, TaskIds


def is_host(layout: Layout) -> bool:
    return layout.file.startswith(("compact", "additional", "api_event"))


@pytest.mark.parametrize("layout", [*LAYOUTS, *LAYOUTS_OF_OTHER_CHIPS], ids=lambda layout: f"{layout.file} {layout.size}")
@pytest.mark.parametrize("slice_bytes", [1 << 20, 1000])
def test_any_records_come_back_byte_for_byte(tmp_path: Path, layout: Layout, slice_bytes: int):
    records = np.random.default_rng(3).integers(0, 256, 25 * layout.size, np.uint8).view(layout.dtype)
    if layout.magic is not None:
        records["magic"] = layout.magic
    device = None if is_host(layout) else 0
    with ProfWriter(tmp_path, SESSION, slice_bytes=slice_bytes) as writer:
        for part in (records[:3], records[3:3], records[3:20], records[20:]):
            writer.append(layout, part, device=device)
    prof = open_prof(writer.path)
    part = prof.host if device is None else prof.devices[0]
    found = read_records(part, layout)
    assert found.rows.tobytes() == records.tobytes()
    assert found.lost == ()
    assert writer.written == {layout.file: 25}
    assert all(path.stat().st_size <= max(slice_bytes, layout.size) for paths in part.kinds().values() for path in paths)


def test_every_file_says_its_size_when_done(tmp_path: Path):
    path = write(tmp_path, slice_bytes=500)
    files = [file for file in path.rglob("*") if file.is_file() and file.suffix != ".done"]
    for file in files:
        first, *more = Path(f"{file}.done").read_text().splitlines()
        assert first == f"filesize:{file.stat().st_size}"
        assert more == (["starttime:0", "endtime  :0"] if ".slice_" in file.name else [])
    assert len([file for file in files if "ffts_profile" in file.name]) == -(-43 * 128 // 384)


def test_the_reference_parsers_keys_are_there(tmp_path: Path):
    prof = open_prof(write(tmp_path))
    device = prof.devices[0]
    for part in prof.parts:
        assert {"platform_version", "pid", "CPU", "DeviceInfo", "hostname", "memoryTotal", "netCard"} <= part.info.keys()
        assert {"llc_profiling", "ai_core_profiling_mode"} <= part.sample.keys()
        assert {"clockMonotonicRaw", "collectionTimeBegin"} <= part.start.keys()
    assert {"hwts_frequency", "aic_frequency"} <= device.device_info.keys()
    assert device.sample["ai_core_metrics"] == "PipeUtilizationExct"
    assert all(len(events.split(",")) <= 8 for sets in METRIC_EVENTS.values() for events in sets)


@pytest.mark.parametrize("mhz", [None, 100.0])
@pytest.mark.parametrize("started", [T0, T0 + 123])
def test_a_reader_finds_the_writers_clocks(tmp_path: Path, mhz: float | None, started: int):
    session = replace(SESSION, host_mhz=mhz, started_ns=started, devices=(0, 3))
    writer = ProfWriter(tmp_path, session)
    writer.close(T0 + 5000)
    prof = open_prof(writer.path)
    assert prof.host.clock == writer.clock()
    assert [part.clock for part in prof.devices] == [writer.clock(0), writer.clock(3)]
    assert prof.devices[1].sampled_zero_ns == session.sampled_zero_ns == started
    (back,) = prof.host.clock.ns(writer.clock().ticks(np.array([T0 + 1230]))).tolist()
    assert abs(back - T0 - 1230) <= (0 if mhz is None else 5)  # half a tick


def test_names_come_back_even_when_nothing_closes_the_folder(tmp_path: Path):
    writer = ProfWriter(tmp_path, SESSION)
    host = HostWriter(writer)
    host.calls(level=20000, type=writer.acl_type("aclnnAdd"), tid=1, start_ns=T0, end_ns=T0 + 5, item="Größe: a\nb")
    words = read_dictionaries(open_prof(writer.path).host)
    call = read_records(open_prof(writer.path).host, layouts.API_EVENT).rows
    assert words.hashes.text(call["item"]).to_list() == ["Größe: a b"]
    assert words.type_names(call["level"], call["type"]).to_list() == ["aclnnAdd"]
    assert writer.acl_type("aclnnAdd") == writer.acl_type("aclnnAdd") == 5 << 16
    writer.close()
    writer.close()


def test_level_0_leaves_the_descriptions_out(tmp_path: Path):
    kinds = open_prof(write(tmp_path, replace(SESSION, level=0))).host.kinds()
    assert set(kinds) == {
        "api_event.data", "compact.task_track", "compact.expand_stream_spec", "additional.hash_dic", "additional.type_info_dic",
        "additional.context_id_info", "additional.msproftx", "compact.hccl_op_info",
    }  # fmt: skip


def test_tensors_fill_records_of_five(tmp_path: Path):
    found = read_records(open_prof(write(tmp_path)).host, layouts.TENSOR_INFO).rows
    assert found["count"].tolist() == [3, 5, 1]
    assert found["tensors"]["shape"][:, :, 1].tolist() == [[1, 2, 3, 0, 0], [4, 5, 6, 7, 8], [9, 0, 0, 0, 0]]
    assert found["tensors"]["kind"].tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert found["op_name"][1] == found["op_name"][2] != found["op_name"][0]


def test_a_long_message_takes_several_marks(tmp_path: Path):
    found = read_records(open_prof(write(tmp_path)).host, layouts.MSPROFTX).rows
    assert (found["segment"].tolist(), b"".join(found["message"].tolist())) == ([0, 1], b"step " + b"x" * 200)
    assert set(found["mark"].tolist()) == {1}


@given(st.text("aé数🎉", max_size=400))
def test_every_part_of_a_long_message_is_text(message: str):
    with tempfile.TemporaryDirectory() as folder:
        with ProfWriter(Path(folder), SESSION) as writer:
            HostWriter(writer).marks(pid=1, tid=1, start_ns=T0, end_ns=T0, mark=1, message=message)
        found = read_records(open_prof(writer.path).host, layouts.MSPROFTX).rows
    # The vendor's parser decodes them one by one, and gives the file up at the first that it cannot.
    assert "".join(part.decode() for part in found["message"].tolist()) == message
    assert found["segment"].tolist() == list(range(len(found)))


def test_a_shape_ends_at_its_first_zero(tmp_path: Path):
    with ProfWriter(tmp_path, SESSION) as writer:
        shape = [[2, 3, 0, 0, 0, 0, 0, 0], [0, 3, 0, 0, 0, 0, 0, 0], [4, 0, 5, 6, 0, 0, 0, 0]]
        HostWriter(writer).tensors(tid=1, at_ns=[T0], name=["a"], op=np.zeros(3, int), kind=0, format=2, dtype=0, shape=shape)
    (found,) = read_records(open_prof(writer.path).host, layouts.TENSOR_INFO).rows
    assert found["tensors"]["shape"][:3, :3].tolist() == [[2, 3, 0], [0, 0, 0], [4, 0, 0]]


def test_a_copy_is_never_above_the_largest_that_is_one_task(tmp_path: Path):
    with ProfWriter(tmp_path, SESSION) as writer:
        HostWriter(writer).copies(tid=1, at_ns=[T0, T0 + 9], bytes=[5, 3 << 30], direction=1)
    found = read_records(open_prof(writer.path).host, layouts.MEMCPY_INFO).rows
    assert found["maximum"].tolist() == [1 << 30, 3 << 30]


def test_dictionaries_are_cut_between_their_lines(tmp_path: Path):
    with ProfWriter(tmp_path, SESSION, slice_bytes=100) as writer:
        for number in range(40):
            writer.append(TASK_TRACK, rows(TASK_TRACK, kernel=writer.ids(f"a kernel with a name {number}")))
    slices = sorted((writer.path / "host" / "data").glob("unaging.additional.hash_dic.slice_*[0-9]"))
    assert len(slices) > 10
    assert all(path.read_bytes().endswith(b"\n") for path in slices)


def test_a_record_of_another_kind_is_refused(tmp_path: Path):
    with ProfWriter(tmp_path, SESSION) as writer, pytest.raises(TypeError, match=r"stars_soc\.data"):
        writer.append(layouts.STARS, rows(TASK_TRACK))


def test_threads_may_share_a_writer(tmp_path: Path):
    def work(number: int) -> None:
        for at in range(50):
            writer.append(TASK_TRACK, rows(TASK_TRACK, tid=number, task=np.full(7, at), kernel=writer.ids(f"kernel {at}")))

    with ProfWriter(tmp_path, SESSION, slice_bytes=3000) as writer:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    host = open_prof(writer.path).host
    found = read_records(host, TASK_TRACK)
    assert (len(found), found.lost) == (4 * 50 * 7, ())
    assert read_dictionaries(host).hashes.missing(found.rows["kernel"]) == 0


@given(st.integers(0, 0x7FFF), st.integers(0, 0xFFFF), st.booleans())
def test_wide_numbers_come_back_from_their_code(stream: int, task: int, swapped: bool):
    first, second = (int(field) for field in encode_ids(stream, task, swapped=swapped))
    if first & 0x8000:  # docs/formats/cann.md 4.3
        assert (second & 0x7FFF, second & 0x8000 | first & 0x7FFF) == (stream, task)
    else:
        assert (first, second, swapped) == (stream, task, False)


@given(st.integers(0, 2047), st.integers(0, 0xFFFF), st.booleans())
def test_narrow_numbers_come_back_from_their_code(stream: int, task: int, swapped: bool):
    first, second = (int(field) for field in encode_ids(stream, task, wide=False, swapped=swapped))
    assert not first & 0x1000 or first & 0x2000
    if first & 0x2000 and not first & 0x1000:
        assert ((second & 0xFFF) % 2048, first & 0xFFF | second & 0xF000) == (stream, task)


def test_task_numbers_begin_anew_after_65535():
    ids = TaskIds()
    first = ids.assign(np.full(PERIOD - 1, 5), np.arange(PERIOD - 1, dtype=np.uint64))
    assert (first.task[-1], len(first.flips)) == (65533, 0)
    then = ids.assign(np.array([5, 6, 5, 5]), np.array([70000, 70001, 70010, 70020], np.uint64))
    assert then.task.tolist() == [65534, 0, 0, 1]
    assert then.batch.tolist() == [0, 0, 1, 1]
    assert (then.flips.stream.tolist(), then.flips.number.tolist(), then.flips.stamp.tolist()) == ([5], [1], [70009])


def test_host_and_device_flip_together(tmp_path: Path):
    count = 140_000
    begin = T0 + 1000 * np.arange(1, count + 1)
    with ProfWriter(tmp_path, replace(SESSION, level=0)) as writer:
        host, device = HostWriter(writer), DeviceWriter(writer, 0)
        for chunk in np.array_split(np.arange(count), 7):
            given = host.tasks(device=0, stream=9, tid=TID, at_ns=begin[chunk], task_type=0)
            span = {"start_ns": begin[chunk] + 500, "end_ns": begin[chunk] + 1500}  # each begins when the last one ends
            device.tasks(stream=9, task=given.task, batch=given.batch, **span)
            device.counters(stream=9, task=given.task, core="AIC", cycles=1, counters=1, **span)
    prof = open_prof(writer.path)
    tracks = read_records(prof.host, TASK_TRACK).rows
    turned = tracks[tracks["task_type"] == 98]
    assert turned["flip"].tolist() == [1, 2]
    side = read_device(prof.devices[0], True)
    expected = np.arange(count)
    found = side.tasks.sort("start_ns")
    assert (found["task_id"].to_numpy() == expected % PERIOD).all()
    assert (found["batch_id"].to_numpy() == expected // PERIOD).all()
    assert (found["start_ns"].to_numpy() == begin + 500).all()
    assert (side.pmu["batch_id"].to_numpy() == expected // PERIOD).all()


def test_device_tasks_come_back_in_nanoseconds(tmp_path: Path):
    tasks = read_device(open_prof(write(tmp_path)).devices[0], True).tasks
    whole = tasks.filter(tasks["context_id"].is_null()).sort("start_ns")
    assert whole["stream"].to_list() == [STREAM] * 6
    assert (whole["start_ns"] - T0).to_list() == [at * MS + 600_000 for at in range(1, 7)]
    assert (whole["end_ns"] - whole["start_ns"]).to_list() == [300_000] * 6
    assert tasks.filter(tasks["context_id"] == 0)["task_id"].to_list() == [2]


def test_running_numbers_of_stars_go_round(tmp_path: Path):
    with ProfWriter(tmp_path, SESSION) as writer:
        device = DeviceWriter(writer, 0)
        for at in range(5):
            device.tasks(stream=1, task=at, start_ns=T0 + at * MS, end_ns=T0 + at * MS + 10, mix=MIX_AIC)
    heads = read_records(open_prof(writer.path).devices[0], layouts.STARS).rows["head"]
    assert (heads >> 6 & 15).tolist() == [at % 16 for at in range(20)]


def test_gaps_between_fields_move_with_their_record():
    records = np.arange(3 * 64, dtype=np.uint8).view(layouts.STARS.dtype)
    assert reorder(records, np.array([2, 0])).tobytes() == records.tobytes()[128:] + records.tobytes()[:64]


def test_a_session_of_now_has_a_folder_of_its_own():
    names = {Session.now(1, rank=rank).folder_name() for rank in range(20)}
    assert len(names) == 20
    assert all(len(name) == len("PROF_000001_20260101000000000_00000001ABCDEFGH") for name in names)


def test_host_records_come_back_joined(tmp_path: Path):
    host = read_host(open_prof(write(tmp_path)))
    whole = host.tasks.filter(pl.col("role") != "placeholder")
    assert whole.select("task_id", "context_id", "role", "host_type", "kernel_name").rows() == [
        (0, None, "compute", "KERNEL_AIVEC", "add_kernel"),
        (1, None, "compute", "KERNEL_AICORE", "matmul_kernel"),
        (2, 0, "compute", "KERNEL_MIX_AIC", "flash_kernel"),
        (3, None, "plain", "MEMCPY_ASYNC", None),
        (4, None, "compute", "KERNEL_AICPU", "cpu_kernel"),
        (5, None, "hccl", "NOTIFY_WAIT", None),
    ]
    assert (whole["stamp_ns"] - T0).to_list() == [at * MS + 400_000 for at in range(1, 7)]
    assert whole.row(3, named=True)["bytes"] == 4096
    assert host.descriptions.select("op_name", "op_type", "core", "block_num", "mix_block_num", "attrs").rows() == [
        ("Add_1", "Add", "AI_VECTOR_CORE", 40, 0, "alpha=1"),
        ("MatMul_1", "MatMulV2", "AI_CORE", 20, 0, None),
        ("Flash_1", "Flash", "MIX_AIC", 20, 40, None),
        ("AiCpu_1", "Where", "AI_CPU", 0, 0, None),
        ("hcom_allReduce_", "allReduce", "COMMUNICATION", 0, 0, None),
    ]
    assert host.descriptions.select("input_shapes", "output_shapes").rows()[:2] == [
        ("2,1;2,2", "2,3"),
        ("2,4;2,5;2,6;2,7;2,8", "2,9"),
    ]
    assert host.big_ops.select("name", "group_name", "data_type", "alg_type", "count").rows() == [
        ("hcom_allReduce_", "world", "FP32", "RING", 1024)
    ]
    transfer = host.hccl_tasks.select("name", "group_name", "remote_rank", "bytes", "link", "transport", "estimated_us", "stage")
    assert transfer.rows() == [("Notify_Wait", "world", 1, 512, "HCCS", "SDMA", 1.5, None)]
    assert host.marks.select("message", "mark_id").rows() == [("step " + "x" * 200, 1)]
    assert host.op_memory.height == 1
    assert host.lost == ()


def test_the_newer_records_of_tasks_say_the_same(tmp_path: Path):
    folder = write(tmp_path / "old")
    data = write(tmp_path / "new") / "host" / "data"
    expected = cann.read(folder)
    old = read_records(open_prof(data.parents[1]).host, TASK_TRACK).rows
    new = rows(layouts.TASK_TRACK_V2, **{name: old[name] for name in TASK_TRACK.dtype.names or ()})
    for path in data.glob("*.compact.task_track.*"):
        path.unlink()
    (data / "aging.compact.task_track_v2.slice_0").write_bytes(new.tobytes())
    found = cann.read(data.parents[1])
    assert expected.kernels.height
    for name in ("kernels", "collectives", "transfers", "api_calls", "kernel_metrics"):
        assert found[name].equals(expected[name]), name
    assert found.quality.equals(expected.quality)
