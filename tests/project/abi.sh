#!/bin/bash
# scripts/abi.sh tells what breaks programs from what does not. usage: abi.sh SCRATCH CC
set -u
cd "$(dirname "$0")/../.." || exit 1
scratch=$1 cc=$2
command -v abidiff >/dev/null || exit 77
rm -rf "$scratch"
mkdir -p "$scratch"

# A library whose functions take the public structs, with headers that a sed script changed.
library() { # name, header, sed script
    cp -r include "$scratch/$1"
    sed -i -E "$3" "$scratch/$1/millrace/$2" || exit 1
    [ "$1" = base ] || ! cmp -s "include/millrace/$2" "$scratch/$1/millrace/$2" || { echo "$1: nothing changed"; exit 1; }
    cat >"$scratch/$1.c" <<'END'
#include <millrace/loader.h>
int mr_loader_stats(struct mr_loader *loader, struct mr_loader_stats *out) { return loader && out->size; }
int mr_loader_next(struct mr_loader *loader, struct mr_stream *s, struct mr_batch *out) { return loader && s && out->size; }
#ifndef GONE
int mr_loader_release(struct mr_loader *loader, struct mr_batch *batch, struct mr_stream *s) { return loader && s && batch; }
#endif
#ifdef ADDED
int mr_loader_added(struct mr_loader *loader) { return !!loader; }
#endif
END
    "$cc" -g -shared -fPIC -w ${4:+"$4"} -I"$scratch/$1" "$scratch/$1.c" -o "$scratch/$1.so" || exit 1
}

failed=0
expect() { # passes|fails, name
    local got=passes
    scripts/abi.sh compare "$scratch/base.so" "$scratch/$2.so" >"$scratch/$2.log" 2>&1 || got=fails
    [ "$got" = "$1" ] && return
    echo "$2: expected that it $1"
    cat "$scratch/$2.log"
    failed=1
}

library base loader.h ''
library same loader.h '1s/$/ /'
library statistic loader.h '/^struct mr_loader_stats \{/,/^\};/ s/^\};/uint64_t added;\n&/'
library function loader.h '1s/$/ /' -DADDED
library middle loader.h 's/^( *)uint64_t bad_samples;/uint64_t added;\n&/'
library shorter loader.h 's/^( *)char reason\[192\];.*//'
library type loader.h 's/^( *)uint64_t epoch; \/\* from 0 \*\//uint32_t epoch;/'
library field loader.h 's/^( *)uint64_t reserved\[11\];.*/&\nuint64_t added;/'
library spec tensor.h 's/^( *)uint64_t reserved\[3\];.*/&\nuint64_t added;/'
library gone loader.h '1s/$/ /' -DGONE
expect passes same
expect passes statistic
expect passes function
for name in middle shorter type field spec gone; do expect fails $name; done
exit $failed
