# SPDX-License-Identifier: Apache-2.0
"""Viewers of the real captures, opened once for all tests of a process."""

from __future__ import annotations

import shutil

import pytest
from viewer.numbers import CAPTURES, GPU, NCCL, Viewer, folder


@pytest.fixture(scope="session")
def npu(golden, tmp_path_factory):
    """The text captures in the literal layout of the seed: <run>/<worker>_<span>/ASCEND_PROFILER_OUTPUT."""
    root = tmp_path_factory.mktemp("samples")
    for level, rank in CAPTURES:
        target = root / level / f"worker{rank}_1" / "ASCEND_PROFILER_OUTPUT"
        shutil.copytree(folder(golden, level, rank), target)
        target.chmod(0o755)
        target.parent.chmod(0o755)
    viewer = Viewer(root)
    yield viewer
    viewer.catalogue.close()


@pytest.fixture(scope="session")
def gpu(golden, tmp_path_factory):
    root = tmp_path_factory.mktemp("kineto")
    for name in (GPU, NCCL):
        shutil.copy(golden / "kineto" / name, root / name)
    viewer = Viewer(root)
    yield viewer
    viewer.catalogue.close()
