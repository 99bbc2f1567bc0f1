#!/bin/sh
# Configures and builds a preset (quietly: the log is shown when it fails). The release preset is built without tests, which
# it needs no test packages for. usage: scripts/build.sh PRESET [TARGET...]
set -eu
cd "$(dirname "$0")/.."
case "${1:--}" in -*) echo "usage: scripts/build.sh PRESET [TARGET...]" >&2 && exit 2 ;; esac
preset=$1
shift
tests=ON
case $preset in release | fuzz) tests=OFF ;; esac
mkdir -p "build/$preset"
log=build/$preset/build.log
echo "build: $preset ($log)"
# shellcheck disable=SC2086  # one --target option and its words
{ cmake --preset "$preset" -DMILLRACE_TESTS=$tests && cmake --build --preset "$preset" -j "${JOBS:-$(nproc)}" \
    ${1:+--target} "$@"; } >"$log" 2>&1 </dev/null || {
    grep -E -A5 '(error|warning): |FAILED:|CMake Error' "$log" | tail -60 >&2 || true
    echo "build: $preset failed; the whole log: $log" >&2
    exit 1
}
