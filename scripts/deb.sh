#!/bin/bash
# Makes the Debian packages of this machine's distribution into OUT: one for each library, the program, the video module, and
# -dev. Builds in build/deb. Checks them with lintian where it is installed. usage: scripts/deb.sh OUT
# DEB_OPTIONS: more options of cmake, for instance -DMILLRACE_CUDA_KERNELS=OFF.
set -eu
cd "$(dirname "$0")/.."
case "${1:--}" in -*) echo "usage: scripts/deb.sh OUT" >&2 && exit 2 ;; esac
out=$1
build=build/deb
log=$build/deb.log
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)}"
: "${DEB_MAINTAINER:=$(git log -1 --format='%an <%ae>')}"
export SOURCE_DATE_EPOCH
umask 022
mkdir -p "$build/deb" "$out"
version=$(scripts/version.sh)

{
    echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
    printf '\nFiles: *\nCopyright: 2026 the millrace contributors\nLicense: Apache-2.0\n\n'
    printf 'License: Apache-2.0\n The text is in /usr/share/common-licenses/Apache-2.0.\n'
} >"$build/deb/copyright"
{
    printf 'millrace (%s-1) unstable; urgency=medium\n\n  * Release %s; CHANGELOG.md of the source has the changes.\n\n' \
        "$version" "$version"
    printf ' -- %s  %s\n' "$DEB_MAINTAINER" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
} | gzip -9 -n >"$build/deb/changelog.Debian.gz"

echo "deb: $log"
{
    # shellcheck disable=SC2086  # a list of words
    cmake -S . -B "$build" -G Ninja ${DEB_OPTIONS:-} -DCMAKE_BUILD_TYPE=Release -DMILLRACE_TESTS=OFF -DMILLRACE_DEB=ON \
        -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR="lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)" \
        -DCMAKE_INSTALL_DOCDIR=share/doc/libmillrace-dev -DCMAKE_SKIP_INSTALL_RPATH=ON \
        -DMILLRACE_DEB_MAINTAINER="$DEB_MAINTAINER" &&
        cmake --build "$build" -j "${JOBS:-$(nproc)}" && rm -f "$build"/*.deb && (cd "$build" && cpack)
} >"$log" 2>&1 </dev/null || {
    grep -E -A5 '(error|warning): |FAILED:|CMake Error|CPack Error' "$log" | tail -40 >&2
    echo "deb: failed; the whole log: $log" >&2
    exit 1
}
cp "$build"/*.deb "$out/"
for package in "$build"/*.deb; do
    echo "deb: $out/$(basename "$package") ($(du -k "$package" | cut -f1) KiB)"
done
if command -v lintian >/dev/null; then
    lintian --fail-on error --suppress-tags-from-file packaging/lintian.txt "$build"/*.deb
else
    echo "deb: lintian is not installed: the packages were not checked" >&2
fi
