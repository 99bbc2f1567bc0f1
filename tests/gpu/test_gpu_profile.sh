#!/bin/sh
# The recorder on a real GPU: what the driver did is in the recording, of a whole run, of a killed one, and without kernels.
# usage: test_gpu_profile.sh [MILLRACE]; default: the program beside this file
set -u
millrace=${1:-$(dirname "$0")/millrace}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "$*" >&2
    exit 1
}
set -- "$millrace" feed synthetic:n=6400,shape=1024 --batch-size 64 --device cuda --quiet
if ! "$@" >"$dir/feed.txt" 2>&1; then
    echo "SKIP no usable GPU: $(tail -1 "$dir/feed.txt")"
    exit 77
fi
# column REPORT N PATTERN FILE: field N of the row of that report that has the pattern.
column() {
    "$millrace" report "$dir/$4.sqlite" -r "$1" -f csv | grep -F "$3" | cut -d, -f"$2"
}

"$millrace" profile -q -o "$dir/feed" -- "$@" >/dev/null || fail "profile: exit status $?"
copies=$(column cuda_gpu_mem_size_sum 2 Host-to-Device feed)
megabytes=$(column cuda_gpu_mem_size_sum 1 Host-to-Device feed | cut -d. -f1)
[ "${copies:-0}" -ge 100 ] || fail "${copies:-0} copies of 100 batches"
# 100 batches of 64 x 1,024 floats are 26.2 MB; labels and tables come on top.
{ [ "${megabytes:-0}" -ge 26 ] && [ "$megabytes" -le 28 ]; } || fail "${megabytes:-0} MB copied of 26.2"
"$millrace" analyze "$dir/feed.sqlite" --json >"$dir/advice.json" || fail "analyze: exit status $?"
for format in html perfetto svg; do
    "$millrace" timeline -q -F $format -o "$dir/feed.$format" "$dir/feed.sqlite" >/dev/null || fail "timeline: $format"
done

"$millrace" profile -q -t cuda-light -o "$dir/light" -- "$@" >/dev/null || fail "cuda-light: exit status $?"
[ "$(column cuda_gpu_mem_size_sum 2 Host-to-Device light)" = "$copies" ] || fail "cuda-light has other copies"

# Killed: at most the last interval is missing.
"$millrace" profile -q -t cuda -o "$dir/killed" -- sh -c '"$@" & sleep 3; kill -9 $!; wait' sh "$@" --epochs 1000000 >/dev/null 2>&1
[ "$(column cuda_gpu_mem_size_sum 2 Host-to-Device killed)" -ge 100 ] || fail "the killed program's copies are missing"
# GPU metrics where the machine permits them, else one line that says why not.
"$millrace" profile -t cuda --gpu-metrics -o "$dir/metrics" -- sh -c '"$@" & sleep 5; kill $!; wait' sh "$@" --epochs 1000000 >/dev/null 2>"$dir/metrics.txt"
if ! grep 'no GPU metrics are recorded: ' "$dir/metrics.txt"; then
    samples=$(column gpu_metrics_sum 3 'SMs Active' metrics)
    [ "${samples:-0}" -ge 1000 ] || fail "${samples:-0} samples of GPU metrics in 5 s, and no reason: $(cat "$dir/metrics.txt")"
    "$millrace" report "$dir/metrics.sqlite" -r gpu_metrics_sum
fi
echo "ok: $copies copies, $megabytes MB; $(sed -n 's/^ *"summary": //p' "$dir/advice.json")"
