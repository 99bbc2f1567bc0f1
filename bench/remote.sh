#!/bin/bash
# Photos in tar shards, read from the disk (page cache), from an HTTP server on loopback that answers after 50 ms, and from the
# same through a warm disk cache, in turn, ROUNDS times. Prints one markdown table of medians, with the ratio to local.
# usage: bench/remote.sh FOLDER_OF_JPEGS     ROUNDS=3 LATENCY_MS=50 COPIES=1 EPOCHS=4 MILLRACE=build/release/millrace
set -eu
cd "$(dirname "$0")/.."
photos=${1:?usage: bench/remote.sh FOLDER_OF_JPEGS}
millrace=${MILLRACE:-build/release/millrace}
work=$(mktemp -d)
trap 'exec 9>&-; rm -rf "$work"' EXIT

for copy in $(seq "${COPIES:-1}"); do
    mkdir -p "$work/photos/class$copy"
    find "$photos" -iname '*.jp*g' -exec cp {} "$work/photos/class$copy/" \;
done
"$millrace" pack "folder:$work/photos" "$work/shards" >/dev/null
shard=$(basename "$(find "$work/shards" -name '*.tar' | sort | head -1)")

mkfifo "$work/in"
python3 tests/support/fault_server.py "$work" --latency "${LATENCY_MS:-50}" <"$work/in" >"$work/port" &
exec 9>"$work/in"
while [ ! -s "$work/port" ]; do sleep 0.1; done
port=$(awk '{ print $2 }' "$work/port")

chain='resize(256),center_crop(224),hflip,cast(f32),scale(1/255),layout(nchw)'
feed() { # name, data set, more options
    "$millrace" feed "$2" --shuffle --epochs "${EPOCHS:-4}" --batch-size 32 --transform "$chain" --device cpu --digest --json "${@:3}" |
        python3 -c "import json, sys; r = json.load(sys.stdin); print('$1', r['samples_per_s'], r['first_batch_ms'], r['digest'])"
}
local=tar:$work/shards/$shard remote=tar:http://127.0.0.1:$port/ok/shards/$shard
feed warm "$remote" --cache-dir "$work/cache" >/dev/null
for _ in $(seq "${ROUNDS:-3}"); do
    feed local "$local"
    feed http "$remote"
    feed http+cache "$remote" --cache-dir "$work/cache"
done >"$work/results"

python3 - "$work/results" <<'PY'
import statistics
import sys

rows = [line.split() for line in open(sys.argv[1])]
if len({row[3] for row in rows}) != 1:
    sys.exit("bench: the digests differ")
rate = {name: statistics.median(float(r[1]) for r in rows if r[0] == name) for name in dict.fromkeys(r[0] for r in rows)}
print("| source | samples/s | of local | first batch |")
print("| --- | --- | --- | --- |")
for name, value in rate.items():
    first = statistics.median(float(r[2]) for r in rows if r[0] == name)
    print(f"| {name} | {value:,.0f} | {100 * value / rate['local']:.1f}% | {first:.0f} ms |")
PY
