#!/bin/bash
# The relocatable folder: the same tarball when made twice; unpacked elsewhere it runs in an empty environment; nothing in it
# resolves outside of it but glibc and the compiler's run-time library, and it asks for no glibc younger than Debian 12's.
# usage: dist.sh BUILD SCRATCH
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$1 scratch=$2
newest=2.36
glibc=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)
if [ "$(printf '%s\n' "$newest" "$glibc" | sort -V | tail -1)" != "$newest" ]; then
    echo "SKIP: this machine's glibc is $glibc: bundles for others are built where it is $newest or older"
    exit 77
fi

rm -rf "$scratch"
mkdir -p "$scratch/elsewhere"
for turn in one two; do
    DIST_LEVEL=1 "$root/scripts/dist.sh" "$build" "$scratch/$turn"
done
tarball=$(cd "$scratch/one" && echo *.tar.gz)
cmp "$scratch/one/$tarball" "$scratch/two/$tarball"
tar -xzf "$scratch/one/$tarball" -C "$scratch/elsewhere"
rm -rf "$scratch/one" "$scratch/two"
bundle=$(cd "$scratch"/elsewhere/millrace-* && pwd)

env -i "$bundle/bin/millrace" --version
ls "$bundle"/share/man/man1/millrace*.1 "$bundle/include/millrace/millrace.h" "$bundle"/lib/libmillrace{,-profile,-train}.a >/dev/null

# Where each library comes from, when the program or ours is loaded: our RPATH holds for what theirs need, too.
foreign=$(for file in "$bundle/bin/millrace" "$bundle"/lib/libmillrace{,-profile,-train}.so; do env -i PATH="$PATH" ldd "$file"; done |
    awk '$2 == "=>" && !/linux-vdso/ { print $1, $3 }' | grep -vF " $bundle/" |
    grep -vE '^(libc|libm|libpthread|libdl|librt|libgcc_s)\.so\.[0-9]+ /' | sort -u) || true
if [ -n "$foreign" ]; then
    echo "resolved outside of the folder, or not at all:"
    echo "$foreign"
    exit 1
fi

needed=$(readelf -VW "$bundle/bin/millrace" "$bundle"/lib/*.so* | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
echo "needs at most $needed"
if [ "$(printf '%s\n' "GLIBC_$newest" "$needed" | sort -V | tail -1)" != "GLIBC_$newest" ]; then
    echo "newer than $newest"
    exit 1
fi
for library in "$bundle"/lib/lib*.so.*; do
    soname=${library##*/}
    case $soname in libmillrace*.so*) continue ;; esac
    if [ ! -s "$bundle/share/doc/millrace/licences/$soname.txt" ]; then
        echo "$soname comes without its licence"
        exit 1
    fi
done

# The SBOM lists every library with its version and checksum; the check notices a changed file and a missing field.
"$root/scripts/sbom.py" --check "$bundle"
sbom=$bundle/share/doc/millrace/millrace.spdx.json
cp "$sbom" "$scratch/sbom"
sed -i '0,/"versionInfo"/s//"version"/' "$sbom"
if "$root/scripts/sbom.py" --check "$bundle"; then echo "a package without version passed"; exit 1; fi
cp "$scratch/sbom" "$sbom"
echo >>"$bundle/lib/libmillrace.so"
if "$root/scripts/sbom.py" --check "$bundle"; then echo "a changed library passed"; exit 1; fi
rm -rf "$scratch"
