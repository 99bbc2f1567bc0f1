#!/bin/bash
# Ours, plain memcpy (both in `millrace bench loader`) and, where $PYTHON can import it, PyTorch's DataLoader, in turn, ROUNDS
# times, so that a slow minute of the machine falls on all of them. Writes one markdown table with the machine's description.
# usage: bench/run.sh [OUT.md]     PYTHON=python3 ROUNDS=5 PEER_SECONDS=2 MNIST=DIR (default: $MILLRACE_TEST_DATA/mnist, else
# digits that `millrace synth` draws)
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/bench/loader.md}
rounds=${ROUNDS:-5}
python=${PYTHON:-python3}
scripts/build.sh release
millrace=$PWD/build/release/millrace
work=build/bench
mkdir -p "$work" "$(dirname "$out")"
: >"$work/ours.jsonl"
: >"$work/peer.jsonl"

mnist=${MNIST:-${MILLRACE_TEST_DATA:+$MILLRACE_TEST_DATA/mnist}}
if [ -z "$mnist" ] || [ ! -d "$mnist" ]; then
    mnist=$work/digits
    if [ ! -d "$mnist" ]; then "$millrace" synth digits "$mnist" >/dev/null; fi
fi
have_peer=
if "$python" -c 'import torch' 2>/dev/null; then
    have_peer=1
else
    echo "bench: $python has no torch: without the peer (PYTHON=... names another)" >&2
fi

ours=("$millrace" bench loader --json --mnist "$mnist")
peer=("$python" -W ignore bench/peers/dataloader.py --repeats 1 --seconds "${PEER_SECONDS:-2}" --mnist "$mnist")
for round in $(seq "$rounds"); do
    echo "bench: round $round of $rounds" >&2
    "${ours[@]}" </dev/null | tr -d '\n' >>"$work/ours.jsonl"
    echo >>"$work/ours.jsonl"
    if [ -n "$have_peer" ]; then "${peer[@]}" </dev/null >>"$work/peer.jsonl"; fi
done

cpu=$(sed -nE 's/^model name\s*: //p' /proc/cpuinfo | head -1)
memory=$(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)
{
    echo "Machine: $cpu, $(nproc) processors, $memory; $(uname -sr); millrace $("$millrace" --version | awk '{ print $NF }')" \
        "at $(git rev-parse --short HEAD 2>/dev/null || echo "no commit"), $(${CC:-cc} --version | head -1)."
    echo
    echo "Command: \`make bench\` (medians of $rounds rounds, one after the other: ours and memcpy, the peer)."
    echo
    python3 bench/table.py "$work/ours.jsonl" "$work/peer.jsonl"
} >"$out"
cat "$out"
echo "bench: $out" >&2
