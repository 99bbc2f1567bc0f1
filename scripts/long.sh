#!/bin/bash
# The long runs: what .ci/run does by half within its 60 minutes, done whole. Each job ends with a PASS or FAIL line. They can
# be stopped at any time and started again: what passed on this commit is not repeated, and fuzzing goes on where it was.
# usage: scripts/long.sh [list | JOB...]         without arguments: all jobs; list: their names
#   core                    the core build with musl and glibc, and its tests (scripts/core.sh)
#   arm64                   the core and all of it for arm64, and their tests under qemu-user (scripts/arm64.sh; needs root)
#   tidy                    clang-tidy with its analyzer on the tests, too (.ci/run: on all but the tests)
#   slow.tsan               the tests labelled slow under ThreadSanitizer (.ci/run: not at all)
#   faults.PRESET.TEST      a sweep of failures in which every call fails in turn (.ci/run: the first ones and a choice)
#   reproduce               two builds in different circumstances give the same bits (scripts/reproduce.sh)
#   fuzz.TARGET             a fuzzer for LONG_SECONDS of a processor, by default 7200 (.ci/run: 8)
# MILLRACE_LONG: the folder for corpora, counters and logs; default: ~/.cache/millrace-long. JOBS: at a time; default: all
# processors.
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-$(nproc)}
folder=${MILLRACE_LONG:-$HOME/.cache/millrace-long}
most=${LONG_SECONDS:-7200}
slice=600 # what is lost of a fuzzer's time when it is stopped
version=$(git describe --always --dirty)
mkdir -p "$folder/done" "$folder/log" "$folder/fuzz" || exit 1

list_jobs() {
    local kinds preset kind file
    mapfile -t kinds < <(sed -n 's/^foreach(kind \(.*\))/\1/p' tests/fault/CMakeLists.txt)
    printf "%s\n" tidy core arm64 reproduce slow.tsan
    for preset in dev asan tsan; do
        for kind in ${kinds[0]}; do echo "faults.$preset.jobs.$kind"; done
        for kind in ${kinds[1]}; do echo "faults.$preset.profile.$kind"; done
        printf "faults.$preset.%s\n" cli record
    done
    for file in tests/fuzz/fuzz_*.c; do echo "fuzz.$(basename "${file#*fuzz_}" .c)"; done
}

# ---- one job ----

run_faults() { # preset, test: jobs.memory, cli, ...
    local programs=build/$1/tests/fault program=${2%%.*} argument=
    case $2 in
    *.*) argument=${2#*.} ;;
    cli) argument=$programs/millrace_faulty ;;
    esac
    # As in CMakePresets.json.
    MILLRACE_FAULT_RUNS=1000000000 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
        ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1:check_initialization_order=1 \
        TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 "$programs/fault_$program" ${argument:+"$argument"}
}

# In slices, which are counted in a file: the next run adds to it.
run_fuzz() { # target
    local counter=$folder/fuzz/$1.seconds spent next
    spent=$(cat "$counter" 2>/dev/null || echo 0)
    while [ "$spent" -lt "$most" ]; do
        next=$((most - spent < slice ? most - spent : slice))
        JOBS=1 FUZZ_SECONDS=$next FUZZ_WORK=$folder/fuzz FUZZ_BUILT=1 scripts/fuzz.sh "$1" || return
        spent=$((spent + next))
        echo $spent >"$counter"
    done
}

run_job() { # name
    case $1 in
    core) JOBS=1 scripts/core.sh ;;
    arm64)
        JOBS=1 scripts/arm64.sh -d "$folder/arm64" -K core && JOBS=1 scripts/arm64.sh -d "$folder/arm64" -K all
        ;;
    tidy) LINT_DEEP=1 scripts/lint.sh tidy ;;
    slow.tsan) scripts/test.sh tsan slow ;;
    reproduce) scripts/reproduce.sh ;;
    faults.*.*) run_faults "$(echo "$1" | cut -d. -f2)" "$(echo "$1" | cut -d. -f3-)" ;;
    fuzz.*) run_fuzz "${1#fuzz.}" ;;
    *) echo "no such job: $1" && return 2 ;;
    esac
}

# Fuzzers count what they did themselves.
has_passed() { # name
    case $1 in fuzz.*) return 1 ;; esac
    [ "$(cut -d' ' -f1 "$folder/done/$1" 2>/dev/null)" = "$version" ]
}

report_job() { # name
    local start=$SECONDS
    if has_passed "$1"; then
        echo "PASS $1: $(cat "$folder/done/$1"), before"
    elif run_job "$1" >"$folder/log/$1" 2>&1 </dev/null; then
        echo "$version $((SECONDS - start)) s" >"$folder/done/$1"
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
    if echo "$*" | grep -q 'fuzz\.'; then scripts/build.sh fuzz fuzzers || exit 1; fi
}

case ${1:-} in
list) list_jobs ;;
--job) report_job "$2" ;;
*)
    names=${*:-$(list_jobs)}
    # shellcheck disable=SC2086  # a list of words
    build_for $names
    echo "$names" | tr ' ' '\n' | xargs -n1 -P"$jobs" "$0" --job | tee "$folder/results"
    ! grep -q '^FAIL' "$folder/results"
    ;;
esac
