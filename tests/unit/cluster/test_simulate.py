# SPDX-License-Identifier: Apache-2.0
"""`python -m stepscope.cluster.simulate`: the fault that is asked for is there, is found, and is refused where it cannot be."""

from __future__ import annotations

import orjson
import pytest

from stepscope.cluster.read.store import read_cluster
from stepscope.cluster.run import analyse_run, load
from stepscope.cluster.simulate.__main__ import main
from stepscope.cluster.simulate.programs import FAULTS

PIPELINE = ["--tp", "4", "--pp", "2", "--dp", "2", "--layers", "1"]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_costs_what_the_truth_says(tmp_path, capsys, fault):
    assert main([str(tmp_path), *PIPELINE, "--fault", fault, "--rank", "5", "--factor", "6"]) == 0
    truth = orjson.loads((tmp_path / "truth.json").read_bytes())
    assert truth["cost_ms"] > 0.01 * truth["step_ms"]
    assert f"{fault} costs {truth['cost_ms']:.2f} ms" in capsys.readouterr().out
    assert read_cluster(tmp_path)["cluster_ranks"].height == 16


@pytest.mark.parametrize(("fault", "kind"), [("link", "slow_link"), ("group", "slow_group")])
def test_slow_transfers_are_found_where_they_were_put(tmp_path, fault, kind):
    main([str(tmp_path), *PIPELINE, "--fault", fault, "--rank", "5", "--factor", "8"])
    truth = orjson.loads((tmp_path / "truth.json").read_bytes())
    first = analyse_run(load([tmp_path])).findings[0]
    assert (first.kind, sorted(first.ranks)) == (kind, truth["ranks"])
    assert first.cost_ns / 1e6 == pytest.approx(truth["cost_ms"], rel=0.25)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["--fault", "link"], "--fault link: megatron sends nothing from rank to rank here", id="no-stages"),
        pytest.param(
            ["--workload", "ddp", "--fault", "group"], "--fault group: ddp has no groups beside the world", id="one-group"
        ),
        pytest.param(["--fault", "gc", "--rank", "8"], "--rank 8: there are 8 ranks", id="no-such-rank"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, capsys, words, said):
    with pytest.raises(SystemExit):
        main([str(tmp_path / "run"), *words])
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
