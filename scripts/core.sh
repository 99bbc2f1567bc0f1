#!/bin/bash
# The core build, -DMILLRACE_CORE=ON: libmillrace for arrays and callbacks, with the C library alone. Builds it twice, with
# musl (by musl-gcc, package musl-tools) and with glibc, runs its tests, and says how large the libraries are.
# usage: scripts/core.sh [musl] [glibc]        JOBS: at a time; default: all processors
set -eu
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
[ $# -gt 0 ] || set -- musl glibc
for libc in "$@"; do
    folder=build/core-$libc
    toolchain=()
    case $libc in
    musl)
        if ! command -v musl-gcc >/dev/null; then
            echo "core: musl-gcc is not here: install musl-tools" >&2
            exit 1
        fi
        toolchain=(-DCMAKE_TOOLCHAIN_FILE=cmake/Musl.cmake)
        ;;
    glibc) ;;
    *) echo "usage: scripts/core.sh [musl] [glibc]" >&2 && exit 2 ;;
    esac
    mkdir -p "$folder"
    { cmake -S . -B "$folder" -G Ninja -DMILLRACE_CORE=ON -DMILLRACE_WERROR=ON "${toolchain[@]}" &&
        cmake --build "$folder" -j "$jobs"; } >"$folder/build.log" 2>&1 </dev/null || {
        grep -E -A5 '(error|warning): |FAILED:|CMake Error' "$folder/build.log" | tail -60 >&2 || true
        echo "core: $libc: the build failed; the whole log: $folder/build.log" >&2
        exit 1
    }
    # The libraries of other projects would be named here.
    needed=$(readelf -d "$folder/libmillrace.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
    case $needed in
    'libc.so ' | 'libc.so.6 ' | 'ld-linux-'*' libc.so.6 libm.so.6 ' | 'libc.so.6 libm.so.6 ') ;;
    *) echo "core: $libc: libmillrace.so needs $needed" >&2 && exit 1 ;;
    esac
    ctest --test-dir "$folder" -j "$jobs" --output-on-failure --no-tests=error >"$folder/test.log" 2>&1 || {
        tail -60 "$folder/test.log" >&2
        exit 1
    }
    strip -o "$folder/stripped.so" "$folder/libmillrace.so"
    echo "core: $libc: $(sed -n 's/.*tests passed.* out of \([0-9]*\)/\1/p' "$folder/test.log") tests;" \
        "libmillrace.so: $(stat -c %s "$folder/stripped.so") bytes stripped, needs $needed"
done
