#!/bin/bash
# Recordings of programs that were not changed, on a GPU host: our own feed; PyTorch training on MNIST with 0 and 2 workers, pageable
# and page-locked, recorded from cudaProfilerStart to Stop; CuPy and JAX, where $PYTHON has them; our own trainer. Of each the reports,
# the advice and the timeline, which CI tests as fixtures. Then the totals of one loop beside torch.profiler's.
# Each step writes a file of its own under $OUT (recordings in $OUT/rec), a line to the terminal; the exit code is the number of failed ones.
# usage: [OUT=.] [PYTHON=python3] [MNIST=DIR] [SAMPLES=20480] bench/gpu_profile.sh [DIST]
set -u
here=$(cd "$(dirname "$0")" && pwd)
dist=$(cd "${1:-$here/..}" && pwd)
out=${OUT:-.}
python=${PYTHON:-python3}
export MNIST=${MNIST:-${MILLRACE_TEST_DATA:?where is MNIST? MNIST=DIR}/mnist}
# shellcheck source=bench/steps.sh
. "$here/steps.sh"
find_millrace "$dist"
find_cublas
rec=$out/rec
mkdir -p "$rec"

# record NAME SECONDS OPTIONS... -- COMMAND...: the recording, and what is to be read of it.
record() {
    local name=$1 limit=$2
    shift 2
    step "record-$name" "$limit" "$millrace" profile -f -o "$rec/$name.sqlite" "$@"
    if [ ! -e "$rec/$name.sqlite" ]; then return; fi
    step "report-$name" 30 "$millrace" report "$rec/$name.sqlite"
    step "copies-$name" 30 "$millrace" report "$rec/$name.sqlite" -r mem_ops --sort duration -n 12
    step "steps-$name" 30 "$millrace" report "$rec/$name.sqlite" -r step_breakdown,overlap -n 12
    step "analyze-$name" 30 "$millrace" analyze "$rec/$name.sqlite"
    for format in html perfetto svg png; do
        step "timeline-$name-$format" 30 "$millrace" timeline -q -f -F $format -o "$rec/$name.$format" "$rec/$name.sqlite"
    done
}

record feed 30 -t cuda,nvtx,osrt,millrace -- "$millrace" feed "$MNIST" --shuffle --epochs 2 --batch-size 256 --device cuda \
    --transform 'cast(f32),scale(1/255),normalize(0.1307,0.3081)'
for workers in 0 2; do
    for pin in '' --pin; do
        # shellcheck disable=SC2086
        record "mnist-w$workers$pin" 60 -t cuda,nvtx,osrt -c cudaProfilerApi -- \
            "$python" "$here/profile_mnist.py" --workers $workers $pin --epochs 2 --samples "${SAMPLES:-20480}"
    done
done
for peer in cupy jax; do
    if "$python" -c "import $peer" 2>/dev/null; then
        record $peer 60 -t cuda,nvtx,osrt -- "$python" "$here/profile_$peer.py"
    else
        echo "SKIP  $peer: $python has none"
    fi
done
if [ -e "$rec/cupy.sqlite" ]; then
    step saving 20 "$python" "$here/profile_saving.py" "$millrace" "$rec/cupy.sqlite"
    tail -1 "$out/saving.txt"
fi
record train 40 -t cuda,nvtx,osrt,millrace --cuda-graph-trace node -- \
    "$millrace" train "$MNIST" --model mnist-cnn --epochs 1 --max-steps 200 --device cuda
record metrics 30 -t cuda,nvtx --gpu-metrics -- "$millrace" train "$MNIST" --model mnist-cnn --epochs 3 --device cuda
step report-gpu-metrics 20 "$millrace" report "$rec/metrics.sqlite" -r gpu_metrics_sum
# Killed in mid-run: at most the last interval is missing.
# shellcheck disable=SC2016
step record-killed 30 sh -c '"$0" profile -f -t cuda -o "$1" -- sh -c "\"\$0\" feed synthetic:n=1e9,shape=64 --device cuda --quiet & sleep 3; kill -9 \$!; wait" "$0"; "$0" report "$1" | tee /dev/stderr | grep -q Host-to-Device' \
    "$millrace" "$rec/killed.sqlite"

# The same loop under torch.profiler and under ours: number, bytes and duration of kernels and copies.
step totals-ours 60 "$millrace" profile -f -t cuda,nvtx -c cudaProfilerApi -o "$out/totals.sqlite" -- "$python" "$here/profile_overhead.py" --loop plain --repeats 1
step totals-torch 60 "$python" "$here/profile_overhead.py" --loop torch --repeats 1 --trace "$out/totals.json"
step totals 60 "$python" "$here/profile_overhead.py" --compare "$out/totals.json" "$out/totals.sqlite"
grep : "$out/totals.txt" 2>/dev/null
rm -f "$out/totals.json" "$out/totals.sqlite"
exit $failed
