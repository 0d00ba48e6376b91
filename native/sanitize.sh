#!/bin/sh
# Builds the extension with AddressSanitizer and UndefinedBehaviorSanitizer and runs its tests under them.
# PYTHON chooses the interpreter (it needs the test dependencies, scikit-build-core is not used); build files go to
# build/sanitize. Further arguments go to pytest.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
python=${PYTHON:-python3}
build=$root/build/sanitize
mkdir -p "$build"
cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFEDTIDE_SANITIZE=ON \
    -DPython_EXECUTABLE="$(command -v "$python")" >"$build/configure.log" 2>&1 || { cat "$build/configure.log"; exit 1; }
cmake --build "$build" --parallel 2

# A package of links to the sources with the instrumented extension beside them: what is installed stays as it is.
rm -rf "$build/package"
mkdir -p "$build/package"
cp -rs "$root/src/fedtide" "$build/package/fedtide"
find "$build/package" -name '_native*.so' -delete
cp "$build"/_native*.so "$build/package/fedtide/"

# The interpreter is not instrumented: the runtime must come first, and its leaks are not ours. C++ exceptions pass through
# libstdc++, so that must be loaded early as well.
runtime="$(c++ -print-file-name=libasan.so) $(c++ -print-file-name=libstdc++.so.6)"
cd "$root"
# The finder of an editable installation would come first and load the extension that is installed.
start='import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
import fedtide._native, pytest
if "/build/sanitize/" not in fedtide._native.__file__:
    sys.exit("the extension under test is not the instrumented one: " + fedtide._native.__file__)
sys.exit(pytest.main(sys.argv[1:]))'
LD_PRELOAD="$runtime" ASAN_OPTIONS=detect_leaks=0:abort_on_error=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    PYTHONPATH="$build/package" FEDTIDE_SANITIZED=1 \
    "$python" -P -c "$start" -p no:cacheprovider tests/learning/test_native.py tests/learning/test_native_contract.py \
    tests/policy/test_certified.py tests/twins tests/codec/test_hostile.py tests/data/test_virtual.py "$@"
