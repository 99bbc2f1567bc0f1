#!/bin/bash
# Static checks; each ends with a PASS, FAIL or SKIP line. usage: scripts/lint.sh [format] [tidy] [cppcheck] [shell] [man]
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-$(nproc)}
steps=${*:-format tidy cppcheck shell man}
failed=0
sources() {
    git ls-files -co --exclude-standard -- 'src/*.[ch]' 'include/*.h' 'cli/*.[ch]' 'tests/*.[ch]' 'examples/*.[ch]' \
        'bench/*.[ch]'
}
compiled() { # the library's and the program's own C files that the dev build compiles
    git ls-files -co --exclude-standard -- 'src/*.c' 'cli/*.c' 'tests/*.c' | while read -r file; do
        if grep -q "\"file\": \"$PWD/$file\"" build/dev/compile_commands.json; then echo "$file"; fi
    done
}

# The format's fine points differ between versions; the tree is kept in that of Debian 12.
lint_format() {
    local version
    version=$(clang-format --version | sed -E 's/.*version ([0-9]+).*/\1/')
    if [ "$version" != 14 ]; then
        echo "clang-format is version $version, the tree is formatted by version 14"
        return 77
    fi
    sources | xargs -r clang-format --dry-run -Werror
}

lint_tidy() {
    compiled | xargs -r -P"$jobs" -n2 nice clang-tidy --quiet -p build/dev 2>build/lint-tidy.err || {
        grep -vE '^[0-9]+ warnings? generated' build/lint-tidy.err | tail -20
        return 1
    }
}

lint_cppcheck() {
    nice cppcheck --quiet -j"$jobs" --error-exitcode=1 --std=c11 --inline-suppr --enable=warning,portability,performance \
        --suppress=missingIncludeSystem --suppress=missingInclude --suppressions-list=.cppcheck-suppressions \
        -Iinclude -Isrc -D_GNU_SOURCE -DMILLRACE_HAVE_URING=1 src cli
}

lint_shell() {
    git ls-files -co --exclude-standard | while read -r file; do
        if head -c 64 "$file" | head -1 | grep -qE '^#!.*\b(ba|da)?sh\b'; then echo "$file"; fi
    done | xargs shellcheck -x
}

lint_man() {
    local pages
    pages=$(find build/dev/man -name '*.1' 2>/dev/null)
    if [ -z "$pages" ]; then
        echo "no man pages were built"
        return 1
    fi
    # STYLE messages are about taste (line lengths); warnings and errors are about broken pages.
    # shellcheck disable=SC2086  # a list of files
    mandoc -T lint -W warning $pages
}

scripts/build.sh dev || { echo "FAIL lint.build"; exit 1; }
: >build/lint.results
for step in $steps; do
    "lint_$step"
    case $? in
    0) result="PASS lint.$step" ;;
    77) result="SKIP lint.$step" ;;
    *)
        result="FAIL lint.$step"
        failed=1
        ;;
    esac
    echo "$result" | tee -a build/lint.results
done
exit $failed
