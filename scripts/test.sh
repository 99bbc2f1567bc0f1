#!/bin/sh
# Builds a preset with its tests and runs them; leaves the counts in build/PRESET/ctest.xml.
# usage: scripts/test.sh PRESET [fast|slow]       fast: not the tests labelled slow; slow: only those
# MILLRACE_TRIES=2: a test that fails is run again, and counts as its second run does.
set -eu
cd "$(dirname "$0")/.."
case "${1:--}" in -*) echo "usage: scripts/test.sh PRESET [fast|slow]" >&2 && exit 2 ;; esac
preset=$1
rm -f "build/$preset/ctest.xml"
scripts/build.sh "$preset"
case ${2:-} in
fast) set -- -LE slow ;;
slow) set -- -L slow ;;
*) set -- ;;
esac
ctest --preset "$preset" "$@" --repeat "until-pass:${MILLRACE_TRIES:-1}" --output-junit ctest.xml </dev/null
