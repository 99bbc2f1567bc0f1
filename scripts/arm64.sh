#!/bin/bash
# Builds millrace for arm64 and runs its unit tests there, without such a machine: a root of its own by debootstrap with
# Debian's cross-compiler, arm64 libraries and qemu-user, so that nothing on this machine changes. Takes the working tree as it
# is. Says how long each part took, and which tests were skipped and why. Needs root and debootstrap; and Linux 6.7, or tests that
# start programs fail.
# usage: scripts/arm64.sh [-d FOLDER] [-K] [core | all] [CTEST ARGUMENTS...]
#   core  the core build (-DMILLRACE_CORE=ON) with its tests; first, as it takes a sixth of the time
#   all   the whole libraries with the unit tests; default. With arguments for ctest, such as -R, only the programs of the tests
#         that it would run are built
#   -d    where the root is made (default: a new folder under /tmp); a root that is there already is used again
#   -K    keep the root afterwards
#   e.g. scripts/arm64.sh core        scripts/arm64.sh -d /var/tmp/arm64 -K all -R 'test_(loader|state)'
# JOBS: at a time; default: all processors.
set -eu
arguments=("$@")
root='' keep=''
while getopts d:K option; do
    case $option in
    d) root=$OPTARG ;;
    K) keep=1 ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
what=${1:-all}
if [ $# -gt 0 ]; then shift; fi
case $what in core | all) ;; *) what='' ;; esac
if [ -z "$what" ] || [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    sed -n '2,/^set/ { /^#/ s/^# \{0,1\}//p }' "$0" >&2
    exit 2
fi
# Mounts live in a name space of this script's own: they end with it.
if [ -z "${MILLRACE_ARM64:-}" ]; then
    MILLRACE_ARM64=1 exec unshare --mount --propagation private "$0" "${arguments[@]}"
fi
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
# shellcheck disable=SC2016 # apt expands it
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -n 1)
if [ -z "$root" ]; then root=$(mktemp -d /tmp/millrace-arm64.XXXXXX); fi
root=$(realpath -m "$root")
if [ -e "$root" ] && [ ! -e "$root/.arm64" ] && [ -n "$(ls -A "$root")" ]; then
    echo "arm64: $root is not empty, and none of this script's roots" >&2
    exit 1
fi
mkdir -p "$root"
touch "$root/.arm64"
chmod 755 "$root"

cleanup() {
    local at
    for at in dev proc; do
        if mountpoint -q "$root/$at"; then umount "$root/$at" || { echo "arm64: $root/$at stays mounted" >&2; exit 1; }; fi
    done
    if [ -z "$keep" ]; then rm -rf --one-file-system "$root"; else echo "arm64: the root is kept: $root"; fi
}

inside() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        chroot "$root" "$@" </dev/null
}

# The libraries of packages.txt for arm64; the tools for this machine.
install_packages() {
    local libraries
    mapfile -t libraries < <(awk '$1 != "lint" && $2 ~ /^z?lib.*(-dev|pthread)$/ { print $2 ":arm64" }' packages.txt)
    inside dpkg --add-architecture arm64
    inside apt-get update -qq
    inside apt-get install -y -qq --no-install-recommends gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static cmake \
        ninja-build pkg-config python3 "${libraries[@]}"
}

trap cleanup EXIT
trap 'exit 1' INT TERM
start=$SECONDS
if [ ! -e "$root/.complete" ]; then
    { debootstrap --variant=minbase bookworm "$root" "$mirror" && cp -L /etc/resolv.conf "$root/etc/resolv.conf" &&
        install_packages; } >"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
    rm -f "$root.log"
    touch "$root/.complete"
fi
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
echo "arm64: the root, $root: $((SECONDS - start)) s"

start=$SECONDS
source=$root/root/millrace build=build/$what
fresh=$root/root/fresh
rm -rf "$fresh"
mkdir -p "$source/build" "$fresh"
git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - 2>/dev/null |
    tar -xm -C "$fresh"
# What has not changed keeps its time, so that it is not compiled again.
(cd "$fresh" && find . -type f -print0) | while IFS= read -r -d '' file; do
    if cmp -s "$source/$file" "$fresh/$file"; then touch -r "$source/$file" "$fresh/$file"; fi
done
mv "$source/build" "$fresh/"
rm -r "$source"
mv "$fresh" "$source"
options=(-DMILLRACE_WERROR=ON -DCMAKE_TOOLCHAIN_FILE=cmake/Arm64.cmake -DCMAKE_BUILD_TYPE=RelWithDebInfo)
label=unit
if [ "$what" = core ]; then
    options+=(-DMILLRACE_CORE=ON)
    label=core
fi
log=$root/root/$what.log
in_tree() {
    # shellcheck disable=SC2016 # expanded inside
    inside sh -c 'cd /root/millrace && exec "$@"' sh "$@"
}
# The unit tests' programs alone.
build_all() { # ctest arguments...
    local targets=()
    in_tree cmake -S . -B "$build" -G Ninja "${options[@]}" || return
    if [ "$what" = all ]; then
        mapfile -t targets < <(in_tree ctest --test-dir "$build" -N -L unit "$@" |
            sed -nE 's/.*: (unit|pages|fake)\.//p' | sort -u)
        targets+=(no_threads big_pages)
    fi
    in_tree ninja -C "$build" -j "$jobs" "${targets[@]}"
}
build_all "$@" >"$log" 2>&1 || {
    grep -E -A5 '(error|warning): |FAILED:|CMake Error' "$log" | tail -60 >&2 || true
    exit 1
}
echo "arm64: $what: built in $((SECONDS - start)) s"

# A program for arm64 starts another one only where binfmt_misc knows qemu. Each user name space has a binfmt_misc of its own:
# this machine's is not touched.
emulated() {
    # shellcheck disable=SC2016 # expanded inside
    unshare --user --map-root-user --mount env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        chroot "$root" sh -c 'mount -t binfmt_misc binfmt_misc /mnt &&
            sed "s/:OPF$/:OP/" /usr/lib/binfmt.d/qemu-aarch64.conf >/mnt/register && cd /root/millrace && exec "$@"' \
        sh "$@" </dev/null
}
run=emulated
if ! emulated true 2>/dev/null; then
    echo "arm64: no binfmt_misc for a user name space (Linux 6.7): tests that start programs fail" >&2
    run=in_tree
fi
start=$SECONDS
rc=0
$run ctest --test-dir "$build" -L "$label" -j "$jobs" --output-on-failure --no-tests=error "$@" >"$log" 2>&1 || rc=$?
sed -n '/tests passed/,$p' "$log"
awk '/^[0-9]+\/[0-9]+ Testing: / { test = $3 }
    /SKIP[: ]|SKIPPED \] [a-z]/ { print "arm64: skipped: " test ": " $0 }' \
    "$source/$build/Testing/Temporary/LastTest.log" | sort -u
echo "arm64: $what: tests: exit $rc after $((SECONDS - start)) s"
exit $rc
