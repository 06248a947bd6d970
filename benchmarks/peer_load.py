# SPDX-License-Identifier: Apache-2.0
"""Load a Kineto trace with another tool, as its users do: `python peer_load.py tb|hta FOLDER_WITH_THE_TRACE`."""

from __future__ import annotations

import sys


def tensorboard_plugin(folder: str) -> None:
    from torch_tb_profiler import io
    from torch_tb_profiler.profiler import RunLoader

    with io.Cache() as caches:
        run = RunLoader("run", folder, caches).load()
    print(f"{len(run.profiles)} profiles")


def holistic(folder: str) -> None:
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_dir=folder)
    print(analysis.get_temporal_breakdown(visualize=False).shape)


if __name__ == "__main__":
    {"tb": tensorboard_plugin, "hta": holistic}[sys.argv[1]](sys.argv[2])
