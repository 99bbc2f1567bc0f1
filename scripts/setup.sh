#!/bin/sh
# Installs the packages of the given groups of packages.txt (default: all of them) that are not installed yet.
# Does nothing, and needs neither network nor rights, when they all are.
# usage: scripts/setup.sh [build] [test] [lint]        MILLRACE_SETUP=0: only look, never install
set -eu
cd "$(dirname "$0")/.."
groups=${*:-build test lint}

wanted() {
    for group in $groups; do
        awk -v group="$group" '$1 == group { print $2 }' packages.txt
    done
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

any_installed() {
    for name in $(echo "$1" | tr '|' ' '); do
        if installed "$name"; then return 0; fi
    done
    return 1
}

# The first alternative that the package lists have; the first one when they have none, so that apt names it; nothing where
# it may be left out ("-").
choose() {
    for name in $(echo "$1" | tr '|' ' '); do
        if [ "$name" = - ]; then return; fi
        if apt-cache policy "$name" 2>/dev/null | grep -q 'Candidate: [^(]'; then
            echo "$name"
            return
        fi
    done
    echo "${1%%|*}"
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "setup: not Debian or Ubuntu: install what packages.txt names by your own package manager" >&2
    exit 0
fi
missing= # what must be there
wished=  # what may be left out
for entry in $(wanted); do
    if any_installed "$entry"; then continue; fi
    case $entry in
        *'|-') wished="$wished $entry" ;;
        *) missing="$missing $entry" ;;
    esac
done
if [ -z "$missing" ]; then # no lists are fetched for a wish, and nobody is asked for a password
    for entry in $wished; do missing="$missing $(choose "$entry")"; done
    if [ -z "$(echo "$missing" | tr -d ' ')" ] || [ "${MILLRACE_SETUP:-1}" = 0 ] || [ "$(id -u)" != 0 ]; then exit 0; fi
    wished=
fi

if [ "${MILLRACE_SETUP:-1}" = 0 ]; then
    echo "setup: not installed:$missing (MILLRACE_SETUP=0: nothing was done)" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: not installed:$missing" >&2
        echo "setup: installing them takes root, and there is no sudo here. As root, run: scripts/setup.sh $groups" >&2
        exit 1
    fi
    as_root=sudo
    if ! [ -t 0 ] && ! sudo -n true 2>/dev/null; then
        echo "setup: not installed:$missing" >&2
        echo "setup: sudo asks for a password and there is no terminal. As root, run: scripts/setup.sh $groups" >&2
        exit 1
    fi
fi
echo "setup: installing$missing"
$as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
names=
for entry in $missing $wished; do names="$names $(choose "$entry")"; done
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086  # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 $names \
    >"$log" 2>&1 </dev/null || {
    cat "$log" >&2
    echo "setup: apt-get could not install:$names" >&2
    exit 1
}
