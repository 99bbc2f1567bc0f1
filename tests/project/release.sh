#!/bin/bash
# scripts/release.sh refuses a dirty tree and a changelog without the version's section; scripts/source.sh makes the same
# tarball in another folder, with another umask. usage: release.sh SOURCE_ROOT SCRATCH
set -eu
root=$1 scratch=$2
if ! git -C "$root" rev-parse --git-dir >/dev/null 2>&1; then
    echo "SKIP: not a git checkout"
    exit 77
fi
rm -rf "$scratch"
mkdir -p "$scratch"
git clone -q --shared --no-checkout "$root" "$scratch/clone"
cd "$scratch/clone"
git sparse-checkout set --no-cone /include/millrace/version.h /CHANGELOG.md /scripts/release.sh /scripts/source.sh /scripts/version.sh
git checkout -q
git config user.name test
git config user.email test@example.invalid

refused() { # what its message says
    if scripts/release.sh check >"$scratch/out" 2>&1 || ! grep -qF "$1" "$scratch/out"; then
        echo "expected a refusal that says: $1"
        cat "$scratch/out"
        exit 1
    fi
}
version=$(scripts/version.sh)
scripts/release.sh check
touch strange
refused 'strange'
rm strange

scripts/source.sh "$scratch/one"
(umask 077 && TZ=Asia/Tokyo scripts/source.sh "$scratch/two")
cmp "$scratch"/one/*.tar.gz "$scratch"/two/*.tar.gz

sed -i "s/^## \[$version\]/## [0.0.0]/" CHANGELOG.md
git commit -qam 'no section'
refused "has no section \"## [$version]\""
printf '## [%s]\n\n## [0.0.0]\n\ntext\n' "$version" >CHANGELOG.md
git commit -qam 'no text'
refused "has no section \"## [$version]\""
