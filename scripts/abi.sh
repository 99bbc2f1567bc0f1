#!/bin/bash
# The ABI of the libraries against the baseline in scripts/abi/: what breaks programs fails, additions pass (breaks.py).
# Needs libabigail (abigail-tools). usage: scripts/abi.sh check|update [BUILD] | compare OLD NEW   (BUILD: build/dev)
set -u
cd "$(dirname "$0")/.." || exit 1
here=scripts/abi
libraries='libmillrace libmillrace-profile libmillrace-train'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Only what public headers declare.
dump() { # library, output
    abidw --suppressions "$here/rules.ini" --headers-dir include/millrace --drop-private-types --drop-undefined-syms \
        --no-show-locs --no-corpus-path --no-comp-dir-path --type-id-style hash "$1" >"$2"
}

major=$(scripts/version.sh | cut -d. -f1) # of the SONAMEs

compare() { # old, new: libraries with debugging information, or dumps
    local rc=0
    abidiff --suppressions "$here/rules.ini" --leaf-changes-only --no-added-syms --no-show-locs "$1" "$2" >"$work/diff" || rc=$?
    [ $((rc & 3)) = 0 ] || return 1 # abidiff itself failed
    python3 "$here/breaks.py" <"$work/diff"
}

check() { # build
    local failed=0
    for library in $libraries; do
        if [ ! -f "$here/$library.abi.xz" ]; then
            echo "no baseline: scripts/abi.sh update makes it"
            exit 77
        fi
        xz -dc "$here/$library.abi.xz" >"$work/$library.abi" && dump "$1/$library.so.$major" "$work/new.abi" &&
            compare "$work/$library.abi" "$work/new.abi" && continue
        echo "$library: what programs were built with has changed; if that is meant: scripts/abi.sh update"
        failed=1
    done
    return $failed
}

update() { # build
    for library in $libraries; do
        dump "$1/$library.so.$major" "$work/new.abi" && xz -9e -c "$work/new.abi" >"$work/new.xz" &&
            cp "$work/new.xz" "$here/$library.abi.xz" || return 1
        echo "$here/$library.abi.xz"
    done
}

if ! command -v abidiff >/dev/null; then
    echo "no abidiff: install abigail-tools"
    exit 77
fi
case ${1:-} in
check | update) "$1" "${2:-build/dev}" ;;
compare) compare "$2" "$3" ;;
*)
    echo "usage: scripts/abi.sh check|update [BUILD] | compare OLD NEW" >&2
    exit 2
    ;;
esac
