#!/bin/sh
# Makes the source tarball of HEAD, OUT/millrace-VERSION.tar.gz: what git has, the same bits each time.
# usage: scripts/source.sh OUT
set -eu
cd "$(dirname "$0")/.."
case "${1:--}" in -*) echo "usage: scripts/source.sh OUT" >&2 && exit 2 ;; esac
out=$1
name=millrace-$(scripts/version.sh)
mkdir -p "$out"
git -c tar.umask=0022 archive --format=tar --prefix="$name/" HEAD | gzip -9 -n >"$out/$name.tar.gz"
echo "source: $out/$name.tar.gz ($(du -k "$out/$name.tar.gz" | cut -f1) KiB)"
