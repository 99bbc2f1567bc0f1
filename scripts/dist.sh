#!/bin/bash
# Makes the relocatable folder and its tarball: program, libraries, headers, man pages, and the shared libraries that they
# need besides glibc, with their licences and an SBOM (SPDX). Files and tarball are the same for the same build, whenever it is packed.
# usage: scripts/dist.sh BUILD OUT        DIST_LEVEL=9: gzip's
set -eu
cd "$(dirname "$0")/.."
[ $# = 2 ] || { echo "usage: scripts/dist.sh BUILD OUT" >&2; exit 2; }
build=$1 out=$2
version=$(sed -nE 's/^CMAKE_PROJECT_VERSION:STATIC=(.*)/\1/p' "$build/CMakeCache.txt")
name=millrace-$version-linux-$(uname -m)
folder=$out/$name
rm -rf "$folder" "$folder.tar.gz"
mkdir -p "$folder"
cmake --install "$build" --prefix "$folder" --strip >"$build/dist.log"
libdir=$folder/lib
if [ ! -e "$libdir/libmillrace.so" ]; then
    echo "dist: no $libdir/libmillrace.so: configure with -DCMAKE_INSTALL_LIBDIR=lib" >&2
    exit 1
fi

# A build with tests is not fortified (cmake/Flags.cmake), and others than Release are not hardened.
cached() { sed -nE "s/^$1:[A-Z]+=(.*)/\1/p" "$build/CMakeCache.txt"; }
if [ "$(cached CMAKE_BUILD_TYPE),$(cached MILLRACE_TESTS),$(cached MILLRACE_SANITIZE)" = Release,OFF, ]; then
    mapfile -t ours < <(find "$libdir" -type f -name 'libmillrace*.so*')
    scripts/hardening.sh "$folder/bin/millrace" "${ours[@]}" >&2
fi

# glibc's own libraries and the compiler's run-time library are every system's; they must not come along.
system='^(linux-vdso|ld-linux.*|libc|libm|libpthread|libdl|librt|libgcc_s)\.so'
doc=$folder/share/doc/millrace/licences
mkdir -p "$doc"
copied=$(mktemp)
trap 'rm -f "$copied"' EXIT
LD_PRELOAD='' LD_LIBRARY_PATH=$libdir ldd "$folder/bin/millrace" "$libdir"/libmillrace{,-profile,-train}.so | awk '$2 == "=>" { print $1, $3 }' |
    sort -u | while read -r soname path; do
    if [[ $soname =~ $system ]] || [[ $soname == libmillrace* ]]; then continue; fi
    install -m 644 "$(readlink -f "$path")" "$libdir/$soname"
    # dpkg knows a file by the path before or after the merge of /lib into /usr/lib.
    real=$(readlink -f "$path")
    package=$(dpkg -S "$path" "$real" "${real#/usr}" 2>/dev/null | head -1 | cut -d: -f1) || true
    if [ ! -f "/usr/share/doc/$package/copyright" ]; then
        echo "dist: no licence file of $soname ($path): not from a package?" >&2
        exit 1
    fi
    install -m 644 "/usr/share/doc/$package/copyright" "$doc/$soname.txt"
    # shellcheck disable=SC2016  # dpkg-query's own variables
    dpkg-query -W -f "$soname "'${Package} ${Version}\n' "$package:$(dpkg --print-architecture)" >>"$copied"
done

: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)}"
scripts/sbom.py "$folder" "$version" "$SOURCE_DATE_EPOCH" "$copied"
find "$folder" -exec chmod u=rwX,go=rX {} +
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu \
    -C "$out" -cf - "$name" | gzip -"${DIST_LEVEL:-9}" -n >"$folder.tar.gz"
echo "dist: $folder.tar.gz ($(du -k "$folder.tar.gz" | cut -f1) KiB)"
