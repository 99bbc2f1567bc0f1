#!/bin/bash
# Arrays of 100 KB, packed into tar shards and read back from the page cache (each time, or once: --cache host), beside plain
# memcpy in as many threads, in turn in one run. The figure is the column "of memcpy".
# usage: bench/tar.sh [MILLRACE]      SAMPLES=4000 ROUNDS=5 WORKERS=0
set -eu
cd "$(dirname "$0")/.."
millrace=${1:-}
if [ -z "$millrace" ]; then
    scripts/build.sh release
    millrace=build/release/millrace
fi
samples=${SAMPLES:-4000}
work=build/bench/tar-$samples
if [ ! -f "$work/shards/XXH64SUMS" ]; then
    mkdir -p "$work"
    "$millrace" synth npy "$work/x.npy" --n "$samples" --shape 25600 --dtype f32 --classes 0 --force -q
    "$millrace" pack "npy:$work/x.npy" "$work/shards" --shard-size 64MiB -q
    rm "$work/x.npy"
fi
last=$(find "$work/shards" -name 'shard-*.tar' | sort | tail -1 | sed -E 's/.*-([0-9]+)\.tar/\1/')
cat "$work"/shards/*.tar >/dev/null
for cache in none host; do
    echo "--cache $cache:"
    "$millrace" bench loader --cases dataset --dataset "tar:$work/shards/shard-{000000..$last}.tar" \
        --rounds "${ROUNDS:-5}" --workers "${WORKERS:-0}" --cache "$cache"
done
