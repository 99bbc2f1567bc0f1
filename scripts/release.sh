#!/bin/bash
# Makes everything that a release hands out, in dist/release-VERSION: source tarball, relocatable folder (with its SBOM), wheel,
# Debian packages, the version's section of CHANGELOG.md, and SHA256SUMS. All of it is of HEAD.
# usage: scripts/release.sh [check]        check: only say whether a release can be made
set -eu
cd "$(dirname "$0")/.."
version=$(scripts/version.sh)
out=dist/release-$version

refuse() {
    echo "release: $1" >&2
    exit 1
}

# The section without its heading, and without empty lines around it.
changes() {
    awk -v head="## [$version]" 'index($0, "## ") == 1 { inside = index($0, head) == 1; next } inside' CHANGELOG.md |
        sed -e '/./,$!d' | tac | sed -e '/./,$!d' | tac
}

dirty=$(git status --porcelain) || refuse "not a git checkout"
[ -z "$dirty" ] || refuse "the tree is dirty: commit or remove these first:
$dirty"
[ -n "$(changes)" ] || refuse "CHANGELOG.md has no section \"## [$version]\" with text: write it, or change include/millrace/version.h"
if awk '/^## / { inside = /\[Unreleased\]/; next } inside && NF { found = 1 } END { exit !found }' CHANGELOG.md; then
    echo "release: note: CHANGELOG.md has text under [Unreleased]: it is not in CHANGES-$version.md" >&2
fi
if [ "${1:-}" = check ]; then
    echo "release: $version can be made"
    exit 0
fi

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
# The three builds share what nvcc makes, but take nothing that was there before.
export SOURCE_DATE_EPOCH MILLRACE_KEPT_KERNELS=$PWD/build/release-kernels
rm -rf "$out" "$MILLRACE_KEPT_KERNELS" build/release build/deb build/wheel/build
mkdir -p "$out"
changes >"$out/CHANGES-$version.md"
scripts/source.sh "$out"
scripts/build.sh release
scripts/dist.sh build/release dist
cp "dist/millrace-$version-linux-$(uname -m).tar.gz" "$out/"
scripts/wheel.sh
cp dist/millrace-"$version"-*.whl "$out/"
scripts/deb.sh "$out"
(cd "$out" && sha256sum -- * >../SHA256SUMS && mv ../SHA256SUMS .)
chmod -R u=rwX,go=rX "$out"
echo "release: $out: $(find "$out" -type f | wc -l) files, $(du -sk "$out" | cut -f1) KiB, in $SECONDS s"
