#!/usr/bin/env bash
# Build wheels for manylinux_2_28 on any Linux machine, without an image: packaging/portable_wheels.sh [OUT [MACHINE …]]
# They carry the kernels of the analyser, and collector and simulated NPU for the torch of TORCH_PYTHON where that is given (a
# Python with torch and stepscope's dependencies); those for aarch64 need the folder of torch's libraries for it, too
# (TORCH_AARCH64, which `make aarch64` leaves in .venv/aarch64/torch/lib). What a wheel lacks is built on its first use.
# zig brings the C library of any version for any kind of machine: pip install ziglang.
set -euo pipefail
[ $# -ge 2 ] || set -- "${1:-dist}" x86_64 aarch64
out=$(realpath -m "$1")
python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r "$here"/{src,native,packaging,pyproject.toml,README.md,LICENSE,CHANGELOG.md} "$folder"
cd "$folder"
prebuilt=src/stepscope/native/prebuilt
rm -rf $prebuilt && mkdir $prebuilt

# For this machine with the trial in which each library must work; for another one, compiled only.
with_torch() {
  export PORTABLE_PYTHON=$python PORTABLE_MACHINE=$1 CXX=$folder/packaging/portable/cxx PYTHONPATH=src XDG_CACHE_HOME=$folder/cache
  if [ "$1" = "$(uname -m)" ]; then
    "$TORCH_PYTHON" -m stepscope.collect --into $prebuilt
    "$TORCH_PYTHON" -m stepscope.simnpu --into $prebuilt
  elif [ -n "${TORCH_AARCH64:-}" ]; then
    "$TORCH_PYTHON" - "$1" <<'PYTHON'
import os, platform, sys
from pathlib import Path
from stepscope.native.library import cross_compile, shipped_name

machine, prebuilt = sys.argv[1], Path("src/stepscope/native/prebuilt")
for name in ("observer", "simnpu"):
    target = prebuilt / shipped_name(name).replace(f"-{platform.machine()}.so", f"-{machine}.so")
    if problem := cross_compile(name, os.environ["CXX"], target, Path(os.environ["TORCH_AARCH64"])):
        sys.exit(f"{name}: {problem}")
    print(target)
PYTHON
  fi
}

for machine in "${@:2}"; do
  name=$(PYTHONPATH=src "$python" -m stepscope.native.codec --name "$machine")
  "$python" -m ziglang c++ -target "$machine-linux-gnu.2.28" -std=c++17 -O2 -DNDEBUG -fPIC -shared -s -fvisibility=hidden \
    native/codec/*.cpp -o "$prebuilt/$name"
  if [ -n "${TORCH_PYTHON:-}" ]; then (with_torch "$machine"); fi
  STEPSCOPE_WHEEL_PLATFORM="manylinux_2_28_$machine" "$python" -m hatchling build -t wheel -d "$out"
  rm $prebuilt/*
done
