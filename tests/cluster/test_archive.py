# SPDX-License-Identifier: Apache-2.0
"""All ranks in one archive: put on the clock of the manifest, the ends of one call come together."""

from __future__ import annotations

import tarfile

import orjson
import pytest

from stepscope.cli import main
from stepscope.cluster.simulate import Plan, record
from stepscope.cluster.simulate.captures import write_captures


def members(path):
    with tarfile.open(path) as archive:
        return {name: archive.extractfile(name).read() for name in archive.getnames()}


@pytest.mark.parametrize("drift", [0.0, 300.0], ids=["no-drift", "300-ppm"])
def test_ranks_on_one_clock(tmp_path, capsys, drift):
    recording = record(Plan("ddp", dp=3, micro=2, layers=1, per_host=1), 8, 4, offset_ms=50.0, drift_ppm=drift)
    write_captures(tmp_path / "run", recording, "kineto")
    target = tmp_path / "all.tar"
    assert main(["cluster", str(tmp_path / "run"), "--no-cache", "--workers", "1", "--perfetto", str(target)]) == 0
    assert str(target) in capsys.readouterr().out
    found = members(target)
    assert next(iter(found)) == "perfetto_manifest.json"
    assert found["perfetto_manifest.json"].startswith(b'{"perfetto_manifest"')
    manifest = orjson.loads(found["perfetto_manifest.json"])["perfetto_manifest"]
    assert manifest["version"] == 1
    assert [one["machine"]["name"] for one in manifest["files"]] == ["host0 rank 0", "host1 rank 1", "host2 rank 2"]
    assert manifest["files"][0]["clocks"] == {"offset_ns": 0}
    assert manifest["files"][2]["clocks"]["sync_to"] == {"file": "rank-00000.json"}
    assert 0 < manifest["attributes"]["stepscope.uncertainty_ns.max"] < 1e6
    ends = []
    for one in manifest["files"]:
        events = orjson.loads(found[one["path"]])["traceEvents"]
        calls = sorted((event["ts"], event["dur"]) for event in events if event.get("name", "").startswith("nccl"))
        ends.append([(start + length) * 1000 + one["clocks"]["offset_ns"] for start, length in calls])
    assert len({len(one) for one in ends}) == 1
    assert max(max(row) - min(row) for row in zip(*ends, strict=True)) < 60_000  # they end within 3 µs or so; clocks were 50 ms off


def test_what_has_no_timeline(tmp_path, capsys):
    recording = record(Plan("ddp", dp=2, micro=2, layers=1), 2, 4)
    write_captures(tmp_path / "run", recording, "kineto")
    assert main(["cluster", str(tmp_path / "run"), "--no-cache", "--digests", str(tmp_path / "small")]) == 0
    assert main(["cluster", str(tmp_path / "small"), "--perfetto", str(tmp_path / "all.tar")]) == 2
    assert "needs the captures on a disk" in capsys.readouterr().err
    assert not (tmp_path / "all.tar").exists()
