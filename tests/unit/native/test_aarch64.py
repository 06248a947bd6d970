"""The observer compiles for the machines that most NPUs are in; `make aarch64` builds, links and runs everything."""

from __future__ import annotations

import os
import shutil
import struct

import pytest

from stepscope.native import library

COMPILER = "aarch64-linux-gnu-g++"
AARCH64 = 183  # e_machine


@pytest.mark.slow  # compiles against torch's headers
def test_the_observer_compiles_for_aarch64(tmp_path):
    if shutil.which(COMPILER) is None:
        if os.environ.get("CI"):
            pytest.fail(f"CI must cross-compile; install {COMPILER}")
        pytest.skip(f"no {COMPILER}")
    source = library._source("observer")
    target = tmp_path / "observer.o"
    flags = [word for word in library._flags() if word != "-shared" and not word.startswith("-Wl,")]
    flags[flags.index("-O2")] = "-O0"
    command = [COMPILER, *flags, f"-I{source}", *library._torch_flags(), "-c", str(source / "observer.cpp"), "-o", str(target)]
    assert library._run(command) == ""
    assert struct.unpack_from("<H", target.read_bytes(), 18) == (AARCH64,)
