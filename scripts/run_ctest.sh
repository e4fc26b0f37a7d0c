#!/bin/sh
# Configures, builds and tests the C++ deployment runner with the active Python.
#
#   scripts/run_ctest.sh [BUILD_FOLDER]      default: build/runner
#   PYTHON=/path/to/python scripts/run_ctest.sh
#
# Needs CMake 3.22, a C++17 compiler, and tvm_tilex installed in that Python.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/runner}
python=$("${PYTHON:-python}" -c 'import sys; print(sys.executable)')

cmake -S "$root" -B "$build" -DPython_EXECUTABLE="$python"
cmake --build "$build" --parallel
ctest --test-dir "$build" --output-on-failure
