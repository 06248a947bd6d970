# SPDX-License-Identifier: Apache-2.0
"""Which host a rank is on when its capture does not say."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.cluster.analyse import hosts_by_device
from stepscope.cluster.digest import Digests
from stepscope.cluster.match import Group
from stepscope.cluster.run import _located
from stepscope.cluster.whatif.ideal import _with_missing
from stepscope.tables.cluster import CLUSTER_TABLES


def ranks(*devices, host=None):
    frame = pl.DataFrame({"rank": list(range(len(devices))), "device": devices, "host": [host] * len(devices)})
    return Digests({"cluster_ranks": CLUSTER_TABLES["cluster_ranks"].conform(frame)})


@pytest.mark.parametrize(
    ("path", "host"),
    [
        pytest.param("gpu-7_4242.1764246877000000000.pt.trace.json.gz", "gpu-7", id="name-of-a-trace"),
        pytest.param("a/node_b_31_20251127120000000_ascend_pt", "node_b", id="name-of-a-folder"),
        pytest.param("node-3/trace.json", "node-3", id="folder-above"),
        pytest.param("rank-3.pt.trace.json", None, id="unknown"),
    ],
)
def test_host_by_path(path, host):
    assert _located(ranks(0), {0: path})["cluster_ranks"]["host"].to_list() == [host]
    assert _located(ranks(0, host="said"), {0: path})["cluster_ranks"]["host"].to_list() == ["said"]


@pytest.mark.parametrize(
    ("devices", "blocks"),
    [
        pytest.param((0, 1, 0, 1), {0: "ranks 0-1", 1: "ranks 0-1", 2: "ranks 2-3", 3: "ranks 2-3"}, id="two-hosts"),
        pytest.param((0, 1, 2, 3), {}, id="one-host"),
        pytest.param((0, 0, 0, 0), {}, id="each-sees-its-own-device-only"),
    ],
)
def test_host_by_devices(devices, blocks):
    assert hosts_by_device(ranks(*devices)) == blocks


def test_host_of_a_missing_rank():
    groups = [Group((0, 1, 2, 3), "", (), True)]
    assert _with_missing([0, 1, 3], ["a", "a", "b"], groups)[2] == "b"
