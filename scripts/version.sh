#!/bin/sh
# Prints the version, as the public header has it: 0.1.0.
# usage: scripts/version.sh [set X.Y.Z]
#   set  changes it in all files that name it: the header, from which CMake, the SONAMEs and the Python package have it; the
#        recipes in packaging/; what examples/CMakeLists.txt asks for; from 1.0.0 on "stable" in the wheel's metadata; and
#        CHANGELOG.md, whose section "Unreleased" becomes that version's, of today. What else a first release of a major
#        version needs: CONTRIBUTING.md, "Releases".
set -eu
header=include/millrace/version.h
cd "$(dirname "$0")/.."

get() {
    sed -nE 's/^#define MR_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+)$/\2/p' $header | paste -sd.
}

if [ $# = 0 ]; then
    get
    exit 0
fi
if [ $# != 2 ] || [ "$1" != set ] || ! echo "$2" | grep -qxE '(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}'; then
    sed -n '2,/^set/ { /^#/ s/^# \{0,1\}//p }' scripts/version.sh >&2
    exit 2
fi
old=$(get) new=$2
sed -i -E "s/^(#define MR_VERSION_MAJOR +).*/\1$(echo "$new" | cut -d. -f1)/
    s/^(#define MR_VERSION_MINOR +).*/\1$(echo "$new" | cut -d. -f2)/
    s/^(#define MR_VERSION_PATCH +).*/\1$(echo "$new" | cut -d. -f3)/
    s/(as text: \")[0-9.]+/\1$new/" $header
sed -i -E "s/(find_package\(millrace )[0-9.]+/\1${new%.*}/" examples/CMakeLists.txt
if [ "${new%%.*}" -ge 1 ]; then
    sed -i 's/"Development Status :: 4 - Beta"/"Development Status :: 5 - Production\/Stable"/' python/pyproject.toml
fi
sed -i -E "s/^(  version: )[0-9].*/\1$new/" packaging/conda/recipe.yaml
sed -i -E "s/(\bversion=)[0-9][^ ]*/\1$new/" packaging/apptainer/millrace.def
# Spack's recipe names releases only: each is a tag.
spack=packaging/spack/packages/millrace/package.py
sed -i -E '/^ *version\("[0-9]/d' $spack
sed -i -E "s/^( *)(version\(\"main\".*)/\1\2\n\1version(\"$new\", tag=\"v$new\")/" $spack
if [ -e CHANGELOG.md ]; then
    sed -i "s/^## \[Unreleased\].*/## [Unreleased]\n\n## [$new] - $(date -u +%F)/" CHANGELOG.md
fi
echo "$old -> $(get)"
