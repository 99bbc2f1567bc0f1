#!/bin/bash
# The recipes in packaging/ and the examples' CMakeLists.txt name the project's version wherever they name one, and the wheel's
# metadata say whether it is stable. Spack's has no version but main, until there is a release: then it has to name that.
# usage: packaging.sh SOURCE_ROOT [SCRATCH]
# SCRATCH: does the same with another version in a copy, too, and expects that each recipe is reported; then that
# scripts/version.sh changes them all.
set -eu
if [ $# = 2 ]; then
    rm -rf "$2"
    mkdir -p "$2/scripts" "$2/include/millrace" "$2/examples" "$2/python"
    cp -r "$1/packaging" "$2/"
    cp "$1/examples/CMakeLists.txt" "$2/examples/"
    cp "$1/python/pyproject.toml" "$2/python/"
    cp "$1/scripts/version.sh" "$2/scripts/"
    sed -E 's/^(#define MR_VERSION_MAJOR +).*/\1987/' "$1/include/millrace/version.h" >"$2/include/millrace/version.h"
    reported=$("$0" "$2") && echo "nothing was reported of version 987" && exit 1
    for name in recipe.yaml millrace.def package.py CMakeLists.txt; do
        if ! grep -qE "$name: names .*expected 987\." <<<"$reported"; then
            echo "of version 987 $name was not reported: $reported"
            exit 1
        fi
    done
    "$2/scripts/version.sh" set 988.7.6 >"$2/set"
    [ "$("$2/scripts/version.sh")" = 988.7.6 ] && "$0" "$2"
    if "$2/scripts/version.sh" set 988.7 2>"$2/set"; then echo "version.sh set took 988.7" && exit 1; fi
    if grep -rnF "$("$1/scripts/version.sh")" "$2/packaging" "$2/include"; then echo "version.sh set left these" && exit 1; fi
fi
cd "$1"
version=$(scripts/version.sh)
failed=0

expect() { # file, what sed finds the versions with, version
    local found version=$3
    mapfile -t found < <(sed -nE "$2" "$1")
    if [ ${#found[@]} = 0 ]; then
        echo "$1: names no version: expected $version"
        failed=1
    fi
    for name in "${found[@]}"; do
        if [ "$name" != "$version" ]; then
            echo "$1: names version $name: expected $version, as include/millrace/version.h"
            failed=1
        fi
    done
}
expect packaging/conda/recipe.yaml 's/^  version: ([0-9].*)$/\1/p' "$version"
expect packaging/apptainer/millrace.def 's/.*\bversion=([0-9][^ ]*).*/\1/p' "$version"
expect examples/CMakeLists.txt 's/.*find_package\(millrace ([0-9.]+).*/\1/p' "${version%.*}"
spack=packaging/spack/packages/millrace/package.py
if grep -qE 'version\("[0-9]' $spack || [ "${version%%.*}" -ge 1 ]; then
    expect $spack 's/^ *version\("([0-9][^"]*)".*/\1/p' "$version"
fi
if [ "${version%%.*}" -ge 1 ] && ! grep -q 'Development Status :: 5' python/pyproject.toml; then
    echo "python/pyproject.toml: expected that $version is stable"
    failed=1
fi
exit $failed
