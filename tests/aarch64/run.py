# SPDX-License-Identifier: Apache-2.0
"""Builds the native libraries for aarch64 and runs the observer under emulation: `make aarch64`.

Needs g++-aarch64-linux-gnu, qemu-user and, for linking, torch's wheel for that machine from the registry (about 430 MB).
The folder given as argument keeps wheel and libraries.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import torch

from stepscope.native.library import _torch_flags, cross_compile

HERE = Path(__file__).resolve().parent
COMPILER, EMULATOR, SYSROOT = "aarch64-linux-gnu-g++", "qemu-aarch64", "/usr/aarch64-linux-gnu"
VERSION = torch.__version__.split("+")[0]
# torch's wheel for this machine is one for CUDA, and its libraries want these; nothing of them is called.
STUBS = ("libcupti.so.13", "libcudart.so.13")
EXPECTED = ["aten::empty", "aten::view", "aten::t", "aten::transpose", "aten::as_strided"]


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    libraries = torch_libraries(folder)
    built = {}
    for name in ("observer", "simnpu"):
        built[name] = folder / f"lib{name}.so"
        problem = cross_compile(name, COMPILER, built[name], libraries)
        print(f"{name}: {problem or 'built for aarch64'}", flush=True)
        if problem:
            return 1
    return emulate(folder, libraries, built["observer"])


def torch_libraries(folder: Path) -> Path:
    """torch's libraries for aarch64, from its wheel; they are never installed."""
    target = folder / "torch" / "lib"
    if not (target / "libtorch_cpu.so").is_file():
        machine = ["--platform", "manylinux_2_28_aarch64", "--python-version", "3.11", "--only-binary=:all:"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *machine]
        subprocess.run([*command, f"torch=={VERSION}"], check=True)
        (wheel,) = folder.glob(f"torch-{VERSION}-*aarch64.whl")
        with zipfile.ZipFile(wheel) as content:
            wanted = [name for name in content.namelist() if name.startswith("torch/lib/") and "cuda" not in name]
            content.extractall(folder, wanted)
        wheel.unlink()
    return target


def emulate(folder: Path, libraries: Path, observer: Path) -> int:
    """Record a few operators and look for them in the file."""
    driver, records = folder / "driver", folder / "FRAMEWORK"
    records.mkdir(exist_ok=True)
    for name in STUBS:
        subprocess.run(
            [COMPILER, "-shared", "-fPIC", "-x", "c", "/dev/null", f"-Wl,-soname,{name}", "-o", str(folder / name)], check=True
        )
    undefined = ["-Wl,--unresolved-symbols=ignore-in-shared-libs", "-Wl,--allow-shlib-undefined"]
    link = [f"-L{libraries}", "-ltorch_cpu", "-lc10", "-ldl", *undefined]
    subprocess.run([COMPILER, "-O1", *_torch_flags(), str(HERE / "driver.cpp"), "-o", str(driver), *link], check=True)
    command = [EMULATOR, "-cpu", "max", "-L", SYSROOT, "-E", f"LD_LIBRARY_PATH={libraries}:{folder}"]
    done = subprocess.run([*command, str(driver), str(observer), str(records)], capture_output=True, text=True, check=False)
    print(done.stdout.strip() or done.stderr.strip()[-2000:])
    content = (records / "torch.op_range").read_bytes() if (records / "torch.op_range").is_file() else b""
    places = [content.find(name.encode()) for name in EXPECTED]
    if done.returncode or "ops 5 dropped 0 error 0" not in done.stdout or -1 in places:
        print("the observer did not record what it should under emulation")
        return 1
    print("the observer recorded under emulation what it should")
    return 0


if __name__ == "__main__":
    sys.exit(main())
