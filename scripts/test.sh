#!/bin/sh
# Builds a preset with its tests and runs them; leaves the counts in build/PRESET/ctest.xml. usage: scripts/test.sh PRESET
set -eu
cd "$(dirname "$0")/.."
preset=$1
rm -f "build/$preset/ctest.xml"
scripts/build.sh "$preset"
ctest --preset "$preset" --output-junit ctest.xml </dev/null
