#!/bin/bash
# Static checks; each ends with a PASS, FAIL or SKIP line. usage: scripts/lint.sh [format] [lines] [tidy] [cppcheck] [shell] [man] [abi]
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-$(nproc)}
steps=${*:-format lines tidy cppcheck shell man abi}
failed=0
sources() {
    git ls-files -co --exclude-standard -- 'src/*.[ch]' 'include/*.h' 'cli/*.[ch]' 'tests/*.[ch]' 'examples/*.[ch]' \
        'bench/*.[ch]' 'python/*.[ch]'
}
# The library's, the program's and the recorder's own C files that the dev build compiles. Not the video module: its errors
# come through a table, and the analyzer would follow paths on which one is success.
compiled() {
    git ls-files -co --exclude-standard -- 'src/*.c' 'cli/*.c' 'tests/*.c' 'python/*.c' ':!src/codec/video/' | while read -r file; do
        if grep -q "\"file\": \"$PWD/$file\"" build/dev/compile_commands.json; then echo "$file"; fi
    done
}

# Tables that a script made (tests/support/*_vectors.h) are left alone. The format's fine points differ between versions; the tree is kept in that of Debian 12.
lint_format() {
    local version
    version=$(clang-format --version | sed -E 's/.*version ([0-9]+).*/\1/')
    if [ "$version" != 14 ]; then
        echo "clang-format is version $version, the tree is formatted by version 14"
        return 77
    fi
    sources | grep -v '_vectors\.h$' | xargs -r clang-format --dry-run -Werror
}

# At most 100 columns in all C sources and Markdown pages. Left alone: tables that a script made; in Markdown the rows of
# tables, and lines that end in a word of more than 60 characters (an address, an argument), which cannot be broken.
lint_lines() {
    local found
    found=$(
        export LC_ALL=C.UTF-8
        git ls-files -co --exclude-standard -- '*.c' '*.h' '*.cu' '*.cuh' ':!*_vectors.h' |
            xargs -d '\n' grep -HnE '^.{101}'
        git ls-files -co --exclude-standard -- '*.md' | xargs -d '\n' grep -HnE '^.{101}' |
            grep -vE '^[^:]+:[0-9]+:( *\||.*[^ ]{61}$)'
    )
    [ -z "$found" ] && return
    echo "$found"
    echo "expected at most 100 columns a line"
    return 1
}

# The tests without the analyzer, which takes 85% of the time, unless LINT_DEEP=1 (scripts/long.sh): what it looks for in
# them, leaks and bad accesses, AddressSanitizer finds when they run.
lint_tidy() {
    local shallow='--checks=-clang-analyzer-* --extra-arg=-Wno-error' tidy='nice clang-tidy --quiet -p build/dev' files
    local known="--extra-arg=-include$PWD/scripts/analyzer.h --extra-arg=-I$PWD/src --extra-arg=-I$PWD/include"
    # The analyzer gives a function up after so many states; by its own choice (225000) the whole takes three times as long.
    known+=' --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=60000'
    if [ "${LINT_DEEP:-0}" = 1 ]; then shallow=; fi
    # shellcheck disable=SC2086  # both are several words
    { # what defines the error functions can't have them as macros
        files=$(compiled)
        echo "$files" | grep -vx src/base/error.c | grep -v '^tests/' | xargs -r -P"$jobs" -n1 $tidy $known &&
            echo "$files" | grep '^tests/' | xargs -r -P"$jobs" -n1 $tidy $known $shallow && $tidy src/base/error.c
    } >build/lint-tidy.log 2>build/lint-tidy.err && return
    # Findings in headers come once a file; the way to each finding is in the log.
    grep -E '(error|warning): ' build/lint-tidy.log | sort -u
    grep -E '^(Error|error|.*fatal)' build/lint-tidy.err | head -20
    echo "the whole: build/lint-tidy.log"
    return 1
}

# It does not see the system's headers, so it is told of their macros that are no expressions.
lint_cppcheck() {
    nice cppcheck --quiet -j"$jobs" --error-exitcode=1 --std=c11 --inline-suppr --enable=warning,portability,performance \
        --suppress=missingIncludeSystem --suppress=missingInclude --suppressions-list=.cppcheck-suppressions \
        -Iinclude -Isrc -Icli -Ipython/src -D_GNU_SOURCE -DMILLRACE_HAVE_URING=1 -DMILLRACE_HAVE_HTTP=1 \
        '-DcJSON_ArrayForEach(e, a)=while ((e = next_of(a)))' '-DPy_RETURN_NONE=return 0' src cli python
}

lint_shell() {
    git ls-files -co --exclude-standard | while read -r file; do
        if head -c 64 "$file" | head -1 | grep -qE '^#!.*\b(ba|da)?sh\b'; then echo "$file"; fi
    done | xargs shellcheck -x
}

lint_man() {
    local pages
    pages=$(find build/dev/man build/dev/reference/man3 -name '*.[13]' -size +1k 2>/dev/null) # not links: they are small
    if [ -z "$pages" ]; then
        echo "no man pages were built"
        return 1
    fi
    # Style messages are about taste; warnings and errors are about broken pages. The pages have no date on purpose: the
    # same sources make the same pages on any day.
    # shellcheck disable=SC2086  # a list of files
    ! mandoc -T lint -W warning $pages | grep -v 'missing date, using'
}

# Against the baseline, which `scripts/abi.sh update` makes when a change is meant.
lint_abi() {
    scripts/abi.sh check build/dev
}

lint_build() { # compile commands and man pages; warnings are errors in the dev preset
    scripts/build.sh dev
}

for step in build $steps; do
    start=$SECONDS
    "lint_$step"
    case $? in
    0) result="PASS lint.$step ($((SECONDS - start)) s)" ;;
    77) result="SKIP lint.$step" ;;
    *)
        result="FAIL lint.$step ($((SECONDS - start)) s)"
        failed=1
        ;;
    esac
    echo "$result"
done
exit $failed
