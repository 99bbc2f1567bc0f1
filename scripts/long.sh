#!/bin/bash
# The long runs: what .ci/run does by half within its 60 minutes, done whole. Each job ends with a PASS or FAIL line. They can
# be stopped at any time and started again: what passed on this commit is not repeated, and fuzzing and soaks go on where they
# were. docs/reliability.md says what each shows, and how far it got.
# usage: scripts/long.sh [list | status | JOB...]        without arguments: all jobs; list: their names; status: what the
#                                                        counters say, as rows of the table in docs/reliability.md
#   core                    the core build with musl and glibc, and its tests (scripts/core.sh)
#   arm64                   the core and all of it for arm64, and their tests under qemu-user (scripts/arm64.sh; needs root)
#   tidy                    clang-tidy with its analyzer on the tests, too (.ci/run: on all but the tests)
#   slow.tsan               the tests labelled slow under ThreadSanitizer (.ci/run: not at all)
#   arrow                   Arrow tables, Parquet and datasets by pyarrow, Polars, DuckDB and nanoarrow (.ci/run: not at all)
#   frameworks              Lightning, Accelerate, the HF Trainer, datasets, webdataset, jax (.ci/run: not at all)
#   faults.PRESET.TEST      a sweep of failures in which every call fails in turn (.ci/run: the first ones and a choice; cli and
#                           profile under a sanitizer: all ways to a call). Its parts, each a program and a kind of call, are
#                           noted when they passed: it goes on after them
#   reproduce               two builds in different circumstances give the same bits (scripts/reproduce.sh)
#   uring                   faults of io_uring by 1000 seeds (.ci/run: 4)
#   power.JOB               2000 power cuts in mid-run of pack, train, feed and the disk cache (.ci/run: 2 to 8)
#   threads.JOB             ThreadSanitizer with 64 workers (.ci/run: a few)
#   soak.KIND               a run of LONG_SECONDS, beside it others that are killed or whose disk is full: scripts/soak.py
#                           (.ci/run: none). python: with build/python and numpy in an environment, which this makes
#   fuzz.TARGET             a fuzzer for LONG_SECONDS of a processor, by default 7200 (.ci/run: 8)
# LONG_SLICE: soaks and fuzzers run in slices of at most so many seconds by the clock; what a slice did is counted at its end.
# By default 600 for a fuzzer, and all of its time for a soak. LONG_SLICES: a job ends after so many, so that a loop over jobs
# gives each its share.
# MILLRACE_LONG: the folder for corpora, counters and logs; default: ~/.cache/millrace-long. JOBS: at a time; default: all
# processors.
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-$(nproc)}
folder=${MILLRACE_LONG:-$HOME/.cache/millrace-long}
most=${LONG_SECONDS:-7200}
version=$(git describe --always --dirty)
mkdir -p "$folder/done" "$folder/log" "$folder/parts" "$folder/fuzz" "$folder/soak" || exit 1

list_jobs() {
    local kinds preset kind file
    mapfile -t kinds < <(sed -n 's/^foreach(kind \(.*\))/\1/p' tests/fault/CMakeLists.txt)
    printf "%s\n" tidy core arm64 reproduce arrow frameworks slow.tsan
    for preset in dev asan tsan; do
        for kind in ${kinds[0]}; do echo "faults.$preset.jobs.$kind"; done
        for kind in ${kinds[1]}; do echo "faults.$preset.profile.$kind"; done
        printf "faults.$preset.%s\n" cli record
    done
    echo uring
    printf 'power.%s\n' pack checkpoint state cache
    printf 'threads.%s\n' raw photos tar cache
    printf 'soak.%s\n' sim photos video http python
    for file in tests/fuzz/fuzz_*.c; do echo "fuzz.$(basename "${file#*fuzz_}" .c)"; done
}

# ---- one job ----

run_faults() { # preset, test: jobs.memory, cli, ...
    local programs=build/$1/tests/fault program=${2%%.*} argument=
    case $2 in
    *.*) argument=${2#*.} ;;
    cli) argument=$programs/millrace_faulty ;;
    esac
    # What is no test of reads does not wait for a disk. Under a sanitizer, where a run takes four to ten times as long, two
    # calls of those that come about in the same way fail, and the last (tests/fault/paths.h).
    case $2 in
    jobs.*) ;;
    *) if [ -w /dev/shm ]; then local -x TMPDIR=/dev/shm; fi ;;
    esac
    case $1.$2 in *san.profile.* | *san.cli) local -x MILLRACE_FAULT_PATHS=2 ;; esac
    local parts=$folder/parts/faults.$1.$2-$version
    case $version in *-dirty) rm -f "$parts" ;; esac # the next change would have the same name
    # As in CMakePresets.json.
    MILLRACE_FAULT_DONE=$parts MILLRACE_FAULT_RUNS=1000000000 \
        UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
        ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1:check_initialization_order=1 \
        TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 "$programs/fault_$program" ${argument:+"$argument"}
}

# In slices, each of which adds a line to a file: the seconds that count, and figures. The next run goes on from there.
in_slices() { # file, seconds of a slice, command...: it gets a slice's seconds, and prints the line
    local file=$1 slice=$(($2 < most ? $2 : most)) spent line n=0
    shift 2
    touch "$file"
    while spent=$(awk '{ n += $1 } END { printf "%d", n }' "$file") && [ "$spent" -lt "$most" ] &&
        [ $n -lt "${LONG_SLICES:-1000000}" ]; do
        line=$("$@" "$slice") || return
        echo "$line" >>"$file"
        n=$((n + 1))
    done
}

# Its line: seconds of a processor, seconds by the clock, runs, commit.
fuzz_slice() { # target, seconds
    local dir=$folder/fuzz/$1
    if ! JOBS=1 FUZZ_SECONDS=$2 FUZZ_WORK=$folder/fuzz FUZZ_BUILT=1 scripts/fuzz.sh "$1" >&2; then
        mkdir -p "$dir/failed" # the next run empties crashes/
        cp -r "$dir/log" "$dir"/crashes/. "$dir/failed/"
        return 1
    fi
    awk -v wall="$2" -v version="$version" 'FNR == NR { cpu = $1 + $2; next } /^stat::number_of_executed_units/ { runs = $2 }
        END { printf "%.0f %d %d %s\n", cpu, wall, runs, version }' "$dir/time" "$dir/log"
}

# Its line: seconds, commit, figures.
soak_slice() { # kind, seconds
    local python=python3 line
    if [ "$1" = python ]; then python=$folder/venv/bin/python; fi
    line=$(MILLRACE_VIDEO_MODULE=$PWD/build/dev/libmillrace-video.so PYTHONPATH=build/python SOAK_PROGRESS=$folder/soak/$1.now \
        "$python" scripts/soak.py "$1" "$2" "$folder/soak/$1") || {
        echo "$line" >&2
        return 1
    }
    echo "$line" >&2
    echo "$2 $version ${line#*: }"
}

run_power() { # job
    python3 tests/fault/power_cuts.py build/dev/millrace build/dev/tests/fault/libpower_log.so tests/support/fault_server.py \
        "$1" 2000 "$(date +%s)"
}

# As many workers as no machine of ours has processors: what they do at once differs from run to run.
run_threads() { # job
    local program=build/tsan/millrace data=$folder/threads/$1 source
    rm -rf "$data"
    mkdir -p "$data"
    case $1 in
    raw)
        $program synth raw "$data/x.bin" --n 20000 --shape 512 --dtype u8 -q || return
        source="raw:$data/x.bin,shape=512,dtype=u8"
        ;;
    *)
        $program synth photos "$data/photos" --n 400 --side 48 -q || return
        source="folder:$data/photos"
        ;;
    esac
    if [ "$1" = tar ]; then
        $program pack "$source" "$data/shards" --shard-count 50 -w 64 -q || return
        source="tar:$data/shards"
    fi
    local options=(-w 64 -p 16 -b 8 -e 3 --shuffle -d 'sim:h2d=20' -q --digest --json)
    if [ "$1" = cache ]; then options+=(--cache host); fi
    if [ "$1" != raw ]; then options+=(-t 'random_resized_crop(32),hflip(0.5),cast(f32)'); fi
    local few many
    many=$(TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 $program feed "$source" "${options[@]}") || return
    few=$($program feed "$source" "${options[@]}" -w 1) || return
    rm -rf "$data"
    [ "$(grep '"digest"' <<<"$few")" = "$(grep '"digest"' <<<"$many")" ] && grep -q '"digest"' <<<"$many"
}

run_job() { # name
    case $1 in
    core) JOBS=1 scripts/core.sh ;;
    arm64)
        JOBS=1 scripts/arm64.sh -d "$folder/arm64" -K core && JOBS=1 scripts/arm64.sh -d "$folder/arm64" -K all
        ;;
    tidy) LINT_DEEP=1 scripts/lint.sh tidy ;;
    arrow) scripts/python.sh arrow ;;
    frameworks) scripts/python.sh frameworks ;;
    slow.tsan) scripts/test.sh tsan slow ;;
    reproduce) scripts/reproduce.sh ;;
    faults.*.*) run_faults "$(echo "$1" | cut -d. -f2)" "$(echo "$1" | cut -d. -f3-)" ;;
    uring) MILLRACE_FAULT_RUNS=1000 build/dev/tests/fault/fault_uring ;;
    power.*) run_power "${1#power.}" ;;
    threads.*) run_threads "${1#threads.}" ;;
    soak.*) in_slices "$folder/soak/${1#soak.}-$version.runs" "${LONG_SLICE:-$most}" soak_slice "${1#soak.}" ;;
    fuzz.*) in_slices "$folder/fuzz/${1#fuzz.}.runs" "${LONG_SLICE:-600}" fuzz_slice "${1#fuzz.}" ;;
    *) echo "no such job: $1" && return 2 ;;
    esac
}

# Fuzzers and soaks count what they did themselves.
has_passed() { # name
    case $1 in fuzz.* | soak.*) return 1 ;; esac
    [ "$(cut -d' ' -f1 "$folder/done/$1" 2>/dev/null)" = "$version" ]
}

# A sweep of failures may have been stopped, and gone on: all of its parts count.
seconds_of() { # name, seconds of this run
    local parts=$folder/parts/$1-$version
    if [ -e "$parts" ]; then awk -F'\t' '{ n += $2 } END { printf "%.0f", n }' "$parts"; else echo "$2"; fi
}

report_job() { # name
    local start=$SECONDS
    if has_passed "$1"; then
        echo "PASS $1: $(cat "$folder/done/$1"), before"
    elif run_job "$1" >"$folder/log/$1" 2>&1 </dev/null; then
        echo "$version $(seconds_of "$1" $((SECONDS - start))) s" >"$folder/done/$1"
        echo "PASS $1: $(cat "$folder/done/$1")"
    else
        tail -5 "$folder/log/$1"
        echo "FAIL $1: the whole log: $folder/log/$1"
    fi
}

# ---- all ----

build_for() { # names
    local preset
    for preset in dev asan tsan; do
        if echo "$*" | grep -q "faults\.$preset\."; then scripts/build.sh $preset || exit 1; fi
    done
    if echo "$*" | grep -qE 'uring|power\.|soak\.'; then scripts/build.sh dev || exit 1; fi
    if echo "$*" | grep -q 'threads\.'; then scripts/build.sh tsan || exit 1; fi
    if echo "$*" | grep -q 'soak\.python'; then
        scripts/python.sh build || exit 1
        [ -x "$folder/venv/bin/pip" ] || python3 -m venv "$folder/venv" || exit 1
        "$folder/venv/bin/pip" install -q numpy || exit 1
    fi
    if echo "$*" | grep -q 'fuzz\.'; then scripts/build.sh fuzz fuzzers || exit 1; fi
}

# ---- what was done ----

in_hours() { # seconds
    awk -v s="$1" 'BEGIN { if (s < 600) printf "%d s", s; else if (s < 7200) printf "%.0f min", s / 60; else printf "%.1f h", s / 3600 }'
}

# A run that has not ended has its figures so far in KIND.now.
show_soaks() {
    local file kind spent version line
    for file in "$folder"/soak/*.runs; do
        [ -e "$file" ] || continue
        kind=$(basename "$file" .runs)
        while read -r spent version line; do
            echo "| \`soak.${kind%%-*}\` | $(in_hours "$spent"), $version | ${line#*, } |"
        done <"$file"
    done
    for file in "$folder"/soak/*.now; do
        [ -e "$file" ] || continue
        kind=$(basename "$file" .now)
        [ -n "$(find "$folder"/soak -name "$kind-*.runs" -newer "$file" -size +0)" ] && continue
        echo "| \`soak.$kind\` | not ended $(date -u -d "@$(stat -c %Y "$file")" +%H:%M) | $(sed 's/^[^:]*: //' "$file") |"
    done
}

show_fuzzers() {
    local file target cpu wall runs result
    for file in "$folder"/fuzz/*.runs; do
        [ -s "$file" ] || continue
        target=$(basename "$file" .runs)
        read -r cpu wall runs <<<"$(awk '{ c += $1; w += $2; r += $3 } END { printf "%d %d %d", c, w, r }' "$file")"
        result='nothing'
        [ -e "$folder/fuzz/$target/failed" ] && result="see $folder/fuzz/$target/failed"
        echo "| \`fuzz.$target\` | $(in_hours "$wall"), $(in_hours "$cpu") of a processor, $runs runs | $result |"
    done
}

show_others() {
    local file job
    for file in "$folder"/done/*; do
        [ -e "$file" ] || continue
        job=$(basename "$file")
        case $job in fuzz.* | soak.*) continue ;; esac
        echo "| \`$job\` | $(date -u -r "$file" +%F), $(cut -d' ' -f1 "$file") | passed in $(cut -d' ' -f2- "$file") |"
    done
    # Sweeps that were stopped, of this commit.
    for file in "$folder"/parts/*-"$version"; do
        [ -e "$file" ] || continue
        job=$(basename "$file" "-$version")
        has_passed "$job" || echo "| \`$job\` | $(date -u -r "$file" +%F), $version |" \
            "not ended: $(wc -l <"$file") parts passed in $(seconds_of "$job" 0) s |"
    done
}

case ${1:-} in
list) list_jobs ;;
status)
    printf '| job | how far | result |\n| --- | --- | --- |\n'
    show_soaks
    show_fuzzers
    show_others
    ;;
--job) report_job "$2" ;;
*)
    names=${*:-$(list_jobs)}
    # shellcheck disable=SC2086  # a list of words
    build_for $names
    echo "$names" | tr ' ' '\n' | xargs -n1 -P"$jobs" "$0" --job | tee "$folder/results"
    ! grep -q '^FAIL' "$folder/results"
    ;;
esac
