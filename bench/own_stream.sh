#!/bin/bash
# What a stream and a kernel of your own cost against feed's consumer, on a GPU host: samples of 1,024 floats in batches of 256, from
# host memory, in turn. Then the same with the last 8 batches held, and with batches released in the stream that stands for all. Prints samples/s of each round, their medians and ratios to feed's.
# usage: [KINDS="feed none touch hold any"] [ROUNDS=5] [SAMPLES=100000] [EPOCHS=200] [BATCH=256] [TMPDIR=/tmp] bench/own_stream.sh [DIST]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dist=$(cd "${1:-$here/..}" && pwd)
kinds=${KINDS:-feed none touch hold any} rounds=${ROUNDS:-5} samples=${SAMPLES:-100000} epochs=${EPOCHS:-200} batch=${BATCH:-256}
out=$(mktemp -d "${TMPDIR:-/tmp}/own-stream.XXXXXX")
trap 'rm -rf "$out"' EXIT
# shellcheck source=bench/steps.sh
. "$here/steps.sh"
find_millrace "$dist"
own=$(dirname "$millrace")/own_stream
if [ ! -x "$own" ]; then own=$(dirname "$millrace")/bench/own_stream; fi

python3 - "$out/f.npy" "$samples" <<'PYTHON'
import os, sys
path, n = sys.argv[1], int(sys.argv[2])
head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 1024), }" % n
head += " " * (-(len(head) + 11) % 64) + "\n"
with open(path, "wb") as f:
    f.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
    block = os.urandom(4096 * 1000)
    for i in range(0, n, 1000):
        f.write(block[: 4096 * min(1000, n - i)])
PYTHON

rate() { # of a JSON object on standard input
    python3 -c 'import json, sys; print(round(json.load(sys.stdin)["warm_samples_per_s"]))'
}
for ((i = 0; i < rounds; i++)); do
    for kind in $kinds; do
        if [ $kind = feed ]; then
            "$millrace" feed "npy:$out/f.npy" --cache host --shuffle --epochs "$epochs" --batch-size "$batch" \
                --rank 0 --world 1 --device cuda -q --json
        else
            "$own" "npy:$out/f.npy" "$batch" "$epochs" $kind
        fi >"$out/json" || { cat "$out/json"; exit 1; }
        echo "$kind $(rate <"$out/json")"
    done
done | tee "$out/rates"
python3 - "$out/rates" <<'PYTHON'
import statistics, sys
rates = {}
for line in open(sys.argv[1]):
    kind, rate = line.split()
    rates.setdefault(kind, []).append(int(rate))
names = {"feed": "feed's consumer", "none": "own stream", "touch": "own stream and kernel",
         "hold": "the last 8 held", "any": "released in any"}
for kind, all_of_it in rates.items():
    of_feed = statistics.median(own / feed for own, feed in zip(all_of_it, rates["feed"]))
    print("%-22s %11.0f samples/s  %.3f of feed's in the same round" % (names[kind], statistics.median(all_of_it), of_feed))
PYTHON
