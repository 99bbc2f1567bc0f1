#!/bin/bash
# The Python package. usage:
#   scripts/python.sh build      build/python/: the package, to import from with PYTHONPATH=build/python
set -eu
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

# Links instead of copies: changes of Python files need no new build.
python_build() {
    local log=build/python.log file
    mkdir -p build/python/millrace
    {
        cmake -S . -B build/python/build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMILLRACE_WERROR=ON \
            -DMILLRACE_TESTS=OFF -DMILLRACE_PYTHON=ON ${PYTHON:+-DPython_EXECUTABLE="$PYTHON"} \
            ${MILLRACE_SANITIZE:+-DMILLRACE_SANITIZE="$MILLRACE_SANITIZE"} &&
            cmake --build build/python/build -j "$jobs" --target millrace_python millrace-profile millrace_cli millrace-record
    } >"$log" 2>&1 </dev/null || {
        grep -E -A5 '(error|warning): |FAILED:|CMake Error' "$log" | tail -60 >&2 || true
        echo "python: the build failed; the whole log: $log" >&2
        return 1
    }
    find build/python/millrace -xtype l -delete
    for file in "$PWD"/python/millrace/*; do
        ln -sfn "$file" build/python/millrace/
    done
    rm -f build/python/millrace/__pycache__
    ln -sfn "$PWD/build/python/build/python/_core.abi3.so" build/python/millrace/
}

case ${1:-} in
build) python_build ;;
*)
    sed -n '2,/^set/{/^#/p}' "$0" | sed 's/^# \?//' >&2
    exit 2
    ;;
esac
