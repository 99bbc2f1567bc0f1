#!/bin/bash
# Photos in tar shards, read from the disk (page cache), from an HTTP server on loopback that answers after 50 ms, and from the
# same through a warm disk cache, in turn, ROUNDS times; then arrays of 100 KB the same way. Prints markdown tables of medians of
# ratios within a round, and what the server gives to a client that only takes (bench/range_limit.c), for arrays as long.
# The rate "warm" leaves out what is made until the first batch is there.
# usage: bench/remote.sh FOLDER_OF_JPEGS [BUILD]     ROUNDS=5 LATENCY_MS=50 COPIES=2 EPOCHS=12 ARRAYS=4000 SERVERS=2 (threads)
set -eu
cd "$(dirname "$0")/.."
photos=${1:?usage: bench/remote.sh FOLDER_OF_JPEGS [BUILD]}
build=${2:-build/release}
millrace=$build/millrace tools=$build/bench
work=$(mktemp -d)
trap 'exec 9>&-; rm -rf "$work"' EXIT

for copy in $(seq "${COPIES:-2}"); do
    mkdir -p "$work/pictures/class$copy"
    find "$photos" -iname '*.jp*g' -exec cp {} "$work/pictures/class$copy/" \;
done
"$millrace" pack "folder:$work/pictures" "$work/photos" --shard-size 64GiB -q >/dev/null
"$millrace" synth npy "$work/x.npy" --n "${ARRAYS:-4000}" --shape 25600 --dtype f32 --classes 0 -q >/dev/null
"$millrace" pack "npy:$work/x.npy" "$work/arrays" --shard-size 64GiB -q >/dev/null
rm -r "$work/x.npy" "$work/pictures"
shard="shard-000000.tar"

mkfifo "$work/in"
"$tools/range_server" "$work" "${LATENCY_MS:-50}" "${SERVERS:-2}" <"$work/in" >"$work/port" &
exec 9>"$work/in"
while [ ! -s "$work/port" ]; do sleep 0.1; done
port=$(awk '{ print $2 }' "$work/port")

chain='resize(256),center_crop(224),hflip,cast(f32),scale(1/255),layout(nchw)'
feed() { # what, source, data set, more options
    "$millrace" feed "$3" --shuffle --epochs "${EPOCHS:-12}" --batch-size 32 --device cpu --digest --json "${@:4}" |
        python3 -c "
import json, sys
r = json.load(sys.stdin)
warm = (r['samples'] - 32) / (r['seconds'] - r['first_batch_ms'] / 1000)
print('$1', '$2', r['samples_per_s'], r['first_batch_ms'], r['digest'], warm, r['samples_per_s'] * r['bytes'] / r['samples'] / 1e9)"
}
round() { # what, more options
    feed "$1" local "tar:$work/$1/$shard" "${@:2}"
    feed "$1" http "tar:http://127.0.0.1:$port/$1/$shard" "${@:2}"
    feed "$1" http+cache "tar:http://127.0.0.1:$port/$1/$shard" --cache-dir "$work/cache" "${@:2}"
}
round photos -t "$chain" >/dev/null
round arrays >/dev/null
for _ in $(seq "${ROUNDS:-5}"); do
    round photos -t "$chain"
    round arrays
    echo "limit" "$("$tools/range_limit" "$port" "arrays/$shard" "$(stat -c %s "$work/arrays/$shard")" 102400 1024 2 2)"
done >"$work/results"

python3 - "$work/results" <<'PY'
import statistics
import sys

rows = [line.split() for line in open(sys.argv[1])]
median = statistics.median
for what in ("photos", "arrays"):
    mine = [r for r in rows if r[0] == what]
    if len({r[4] for r in mine}) != 1:
        sys.exit("bench: the digests differ")
    of = {name: [r for r in mine if r[1] == name] for name in dict.fromkeys(r[1] for r in mine)}
    print(f"| {what} | samples/s | of local | warm, of local | first batch |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, some in of.items():
        share = {i: 100 * median(float(a[i]) / float(b[i]) for a, b in zip(some, of["local"])) for i in (2, 5)}
        print(f"| {name} | {median(float(r[2]) for r in some):,.0f} | {share[2]:.1f}% | {share[5]:.1f}% | "
              f"{median(float(r[3]) for r in some):.0f} ms |")
    print()
limit = [float(r[1]) for r in rows if r[0] == "limit"]
print(f"The server, to a client that only takes, by 1,024 connections: {median(limit):,.0f} arrays/s.")
PY
