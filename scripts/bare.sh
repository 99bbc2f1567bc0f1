#!/bin/bash
# Does what a new user does, on a machine that has nothing: a fresh Debian (or Ubuntu) root by debootstrap, git and make in
# it, a clean clone of HEAD, one make target in it. Says how long that took. Needs root and debootstrap; commits only count.
# usage: scripts/bare.sh [-s SUITE] [-m MIRROR] [-k KEYRING] [-d FOLDER] [-K] COMMAND...
#   -s  suite: bookworm (default), noble, ...
#   -m  mirror (default: the one that this machine's apt uses first; name one for another distribution's suites)
#   -k  keyring of the mirror, where debootstrap does not find it by itself
#   -d  where the root is made (default: a new folder under /tmp); a root that is there already is used again
#   -K  keep the root afterwards (to look at it, or for -d next time)
#   e.g. scripts/bare.sh make demo      scripts/bare.sh -s noble make check      scripts/bare.sh .ci/run
# usage: scripts/bare.sh [options] wheel
#   What a user of the Python package does: a root with python3 and python3-venv only; pip installs the wheel of dist/ (make
#   wheel) and numpy in it, README.md's Python example runs there, then the tests. PIP_CERT: certificates for pip, if set.
# usage: scripts/bare.sh [options] deb
#   What a user of the Debian packages does: a root with nothing; apt-get installs those of dist/release-VERSION (make release,
#   or scripts/deb.sh FOLDER and DEBS=FOLDER) and what they depend on; the program runs, a C program is built and runs; they
#   are purged and leave nothing behind.
set -eu
arguments=("$@")
suite=bookworm mirror='' keyring='' root='' keep=''
while getopts s:m:k:d:K option; do
    case $option in
    s) suite=$OPTARG ;;
    m) mirror=$OPTARG ;;
    k) keyring=$OPTARG ;;
    d) root=$OPTARG ;;
    K) keep=1 ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# = 0 ] || [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    sed -n '2,/^set/ { /^#/ s/^# \{0,1\}//p }' "$0" >&2
    exit 2
fi
# Mounts live in a name space of this script's own: they end with it, and nothing spreads to the host's.
if [ -z "${MILLRACE_BARE:-}" ]; then
    MILLRACE_BARE=1 exec unshare --mount --propagation private "$0" "${arguments[@]}"
fi
cd "$(dirname "$0")/.."
script='' components=main
case $suite in
noble | jammy | focal | oracular | plucky)
    components=main,universe
    # A debootstrap that is older than the suite: all of Ubuntu's are made alike.
    if [ ! -e "/usr/share/debootstrap/scripts/$suite" ]; then script=/usr/share/debootstrap/scripts/gutsy; fi
    ;;
esac
# shellcheck disable=SC2016 # apt expands it
if [ -z "$mirror" ]; then mirror=$(apt-get indextargets --format '$(REPO_URI)' | head -n 1); fi
if [ -z "$root" ]; then root=$(mktemp -d /tmp/millrace-bare.XXXXXX); fi
root=$(realpath -m "$root")
mkdir -p "$root"
chmod 755 "$root" # apt downloads as a user of its own

# What the tests started may need a moment to end: until then a mount is busy.
unmount() { # path
    for _ in {1..20}; do
        if ! mountpoint -q "$1" || umount "$1" 2>/dev/null; then return 0; fi
        sleep 0.5
    done
    umount "$1" || { echo "bare: $1 stays mounted" >&2; return 1; }
}

# Unmounts before anything is deleted, and deletes on one file system only: the host's /dev is bound into the root.
cleanup() {
    local at
    for at in dev/pts dev sys proc; do unmount "$root/$at" || exit 1; done
    if [ -z "$keep" ]; then rm -rf --one-file-system "$root"; else echo "bare: the root is kept: $root"; fi
}

start=$SECONDS
if [ ! -x "$root/usr/bin/apt-get" ]; then
    debootstrap --variant=minbase --components=$components ${keyring:+--keyring="$keyring"} "$suite" "$root" "$mirror" \
        $script >"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
    rm -f "$root.log"
fi
trap cleanup EXIT
trap 'exit 1' INT TERM
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys" # without it MPICH's UCX prints an error to standard output
mount --bind /dev "$root/dev"
mount --bind /dev/pts "$root/dev/pts"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
rm -rf "$root/root/origin" "$root/root/millrace"
case $1 in wheel | deb) ;; *) git clone -q --bare . "$root/root/origin" ;; esac
echo "bare: $suite root in $root: $((SECONDS - start)) s"

inside() {
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        ${PIP_CERT:+PIP_CERT=/root/certificates.crt} chroot "$root" "$@" </dev/null
}

install_packages() {
    inside apt-get update -qq
    inside env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

# The tests and documents of HEAD without the package's sources, so that only the wheel can be imported.
try_wheel() {
    local wheels
    wheels=$(find dist -name 'millrace-*-cp310-abi3-*.whl' 2>/dev/null)
    if [ ! -f "$wheels" ]; then
        echo "bare: expected one wheel in dist/: run make wheel" >&2
        return 1
    fi
    start=$SECONDS
    install_packages python3 python3-venv || return
    mkdir "$root/root/millrace"
    git archive HEAD README.md docs python/README.md examples tests | tar -x -C "$root/root/millrace" || return
    cp "$wheels" "$root/root/" || return
    if [ -n "${PIP_CERT:-}" ]; then cp "$PIP_CERT" "$root/root/certificates.crt" || return; fi
    echo "bare: $(inside python3 --version), $(inside dpkg-query -W -f '.' | wc -c) packages: $((SECONDS - start)) s"
    start=$SECONDS
    inside sh -ec "cd /root && rm -rf venv && python3 -m venv venv && venv/bin/pip install -q --disable-pip-version-check \
        /root/$(basename "$wheels") numpy && venv/bin/pip list --disable-pip-version-check &&
        venv/bin/millrace --version" || return
    echo "bare: pip install: $((SECONDS - start)) s"
    inside sh -ec 'cd /root && venv/bin/pip install -q --disable-pip-version-check pytest && cd millrace &&
        echo "bare: README.md:" && export MILLRACE_WHEEL=1 &&
        ../venv/bin/python -m pytest -q -s -p no:cacheprovider tests/python/test_docs.py -k "README.md and not python/" &&
        echo "bare: the tests:" && ../venv/bin/python -m pytest -q -p no:cacheprovider tests/python'
}

try_debs() {
    local folder debs
    folder=${DEBS:-dist/release-$(scripts/version.sh)}
    mapfile -t debs < <(find "$folder" -maxdepth 1 -name '*.deb' -printf '%f\n' 2>/dev/null | sort)
    if [ ${#debs[@]} = 0 ]; then
        echo "bare: no packages in $folder: run make release" >&2
        return 1
    fi
    rm -rf "$root/root/debs"
    mkdir "$root/root/debs"
    cp "${debs[@]/#/$folder/}" "$root/root/debs/" || return
    install_packages "${debs[@]/#//root/debs/}" || return
    echo "bare: installed: ${debs[*]}"
    inside sh -ec 'cd /tmp && millrace --version && millrace synth digits digits && millrace feed digits --device cpu --epochs 1 &&
        millrace train digits --model mlp:32r --max-steps 3 --device cpu' || return
    install_packages gcc libc6-dev pkg-config make || return
    cp tests/project/consumer*.c "$root/tmp/"
    # shellcheck disable=SC2016  # expanded inside
    inside sh -ec 'cd /tmp && for part in "" -profile -train; do
        gcc consumer$(echo "$part" | tr - _).c -o consumer $(pkg-config --cflags --libs millrace$part) && ./consumer; done' || return
    # shellcheck disable=SC2016  # expanded inside
    inside sh -ec 'dpkg -P $(dpkg-query -W -f "\${Package}\n" "*millrace*") >/dev/null &&
        left=$(find /usr /etc /var/lib/dpkg/info -name "*millrace*") && echo "bare: left behind: ${left:-nothing}" && [ -z "$left" ]'
}
if [ "$1" = deb ]; then
    rc=0
    try_debs || rc=$?
    echo "bare: the Debian packages on $suite with $(nproc) processors: exit $rc"
    exit $rc
fi
if [ "$1" = wheel ]; then
    rc=0
    try_wheel || rc=$?
    echo "bare: the wheel on $suite with $(nproc) processors: exit $rc"
    exit $rc
fi

start=$SECONDS
install_packages git make
inside git clone -q /root/origin /root/millrace
echo "bare: git, make and the clone: $((SECONDS - start)) s"

start=$SECONDS
rc=0
# shellcheck disable=SC2016  # expanded inside
inside sh -c 'cd /root/millrace && exec "$@"' sh "$@" || rc=$?
seconds=$((SECONDS - start))
echo "bare: $* on $suite with $(nproc) processors: exit $rc after $((seconds / 60)) min $((seconds % 60)) s"
exit $rc
