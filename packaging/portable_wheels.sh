#!/usr/bin/env bash
# Build wheels for manylinux_2_28 on any Linux machine, without an image: packaging/portable_wheels.sh [OUT]
# They carry the kernels of the analyser, which need no torch; collector and simulated NPU are built on their first use, or come
# with the wheels of compiled_wheel.sh. zig brings the C library of any version for any kind of machine: pip install ziglang.
set -euo pipefail
out=$(realpath -m "${1:-dist}")
python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r "$here"/{src,native,packaging,pyproject.toml,README.md,LICENSE,CHANGELOG.md} "$folder"
cd "$folder"
rm -rf src/stepscope/native/prebuilt && mkdir src/stepscope/native/prebuilt
for machine in x86_64 aarch64; do
  name=$(PYTHONPATH=src "$python" -m stepscope.native.codec --name "$machine")
  "$python" -m ziglang c++ -target "$machine-linux-gnu.2.28" -std=c++17 -O2 -DNDEBUG -fPIC -shared -s -fvisibility=hidden \
    native/codec/*.cpp -o "src/stepscope/native/prebuilt/$name"
  STEPSCOPE_WHEEL_PLATFORM="manylinux_2_28_$machine" "$python" -m hatchling build -t wheel -d "$out"
  rm src/stepscope/native/prebuilt/*
done
