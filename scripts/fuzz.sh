#!/bin/bash
# Builds the fuzz targets and runs each for FUZZ_SECONDS (20), JOBS (all processors) at a time. Finds and crashes go to
# build/fuzz/work, or FUZZ_WORK; the corpora in tests/fuzz/corpus stay as they are. Ends with a PASS or FAIL line a target.
# usage: scripts/fuzz.sh [TARGET...]                 a target: idx for tests/fuzz/fuzz_idx.c
set -eu
cd "$(dirname "$0")/.."
if [ "${FUZZ_BUILT:-0}" != 1 ]; then scripts/build.sh fuzz fuzzers; fi
seconds=${FUZZ_SECONDS:-20}
work=${FUZZ_WORK:-$PWD/build/fuzz/work}
mkdir -p "$work"

fuzz_one() {
    local target=$1 dir=$work/$1 more=()
    # What libav does with broken files is libav's: from the same start each time, so that a find is a change of ours. So
    # with all of them in .ci/run: it judges a change, and does not draw lots. `make fuzz` looks elsewhere each time.
    if [ "$target" = video ] || [ "${CI:-}" = true ]; then more=(-seed=1); fi
    mkdir -p "$dir/finds" "$dir/crashes"
    rm -f "$dir"/crashes/*
    # A leak or a crash stops it; rss and timeout limits find what grows or hangs on a small input.
    local TIMEFORMAT='%U %S'
    if { time (cd "$dir" && nice "$2" -max_total_time="$3" "${more[@]}" -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$dir/crashes/" finds "$4" >log 2>&1 </dev/null); } 2>"$dir/time"; then
        echo "PASS fuzz.$target: $(sed -nE 's/^stat::number_of_executed_units: *//p' "$dir/log") runs in $3 s," \
            "$(awk '{ printf "%.0f", $1 + $2 }' "$dir/time") s of a processor"
    else
        grep -A40 -E 'ERROR: |runtime error: ' "$dir/log" | head -40 || tail -20 "$dir/log"
        echo "FAIL fuzz.$target: see $dir/log and $dir/crashes/"
    fi
}
export -f fuzz_one
export work

list=$*
if [ -z "$list" ]; then list=$(cd tests/fuzz && for file in fuzz_*.c; do basename "${file#fuzz_}" .c; done); fi
if [ "$list" = '*' ]; then
    echo "SKIP fuzz: no targets in tests/fuzz"
    exit 0
fi
results=$work/results.$$
for target in $list; do
    corpus=$PWD/tests/fuzz/corpus/$target
    printf '%s\0' "$target" "$PWD/build/fuzz/tests/fuzz/fuzz_$target" "$seconds" "$corpus"
done | xargs -0 -n4 -P"${JOBS:-$(nproc)}" bash -c 'fuzz_one "$@"' fuzz_one | tee "$results"
bad=$(grep -c '^FAIL' "$results") || true
rm -f "$results"
[ "$bad" = 0 ]
