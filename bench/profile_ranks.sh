#!/bin/bash
# A straggling rank, live: bench/profile_ranks.py on two GPUs under torchrun, each rank recorded into
# a file of its own, then `millrace analyze FOLDER`. It has to name rank 1 and why it is slow: as the
# script says it with ranges, as the automatic ranges say it without (bare), and from torch.profiler's
# traces. Where no rank is made slow (even) one may be so by itself, so that is only printed.
# Exit status: the number of verdicts that were wrong.
# usage: profile_ranks.sh PROGRAM PYTHON FOLDER        the recordings go to FOLDER
set -u
program=${1:?"usage: profile_ranks.sh PROGRAM PYTHON FOLDER"}
python=${2:?"usage: profile_ranks.sh PROGRAM PYTHON FOLDER"}
out=${3:?"usage: profile_ranks.sh PROGRAM PYTHON FOLDER"}
here=$(cd "$(dirname "$0")" && pwd)
export OMP_NUM_THREADS=4 NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
failed=0

# torchrun LIMIT WORDS...: on both ranks
torchrun() {
    timeout -k 5 "$1" "$python" -m torch.distributed.run --standalone --nproc-per-node 2 "${@:2}" \
        >"$out/$name.log" 2>&1 || { echo "$name: torchrun failed:" && tail -20 "$out/$name.log"; }
}

# record NAME MODE WORDS... [-- OPTIONS OF PROFILE...]
record() {
    local name=$1 mode=$2 words=()
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do words+=("$1") && shift; done
    shift
    mkdir -p "$out/$name"
    torchrun 60 --no-python "$program" profile -q -f -t cuda,nvtx,osrt "$@" -o "$out/$name/run" \
        -- "$python" "$here/profile_ranks.py" "$mode" "${words[@]}"
}

# verdict NAME TEXT...: prints the first paragraph, which has each text.
verdict() {
    local name=$1 said text
    shift
    said=$(timeout 60 "$program" analyze "$out/$name" 2>&1 | awk 'NF == 0 { exit } { printf "%s ", $0 }')
    echo "$name: $said"
    for text; do
        [[ $said == *"$text"* ]] || { echo "WRONG: $name: no \"$text\"" && failed=$((failed + 1)); }
    done
}

record load load -- -c cudaProfilerApi
verdict load "rank 1 holds up the job" "cause: waiting for the loader" "data-bound: the GPU"
record compute compute -- -c cudaProfilerApi
verdict compute "rank 1 holds up the job" "cause: compute"
record even even -- -c cudaProfilerApi
verdict even
record bare load --bare --
verdict bare "rank 1 holds up the job" "cause: waiting for the loader"
for name in load compute even bare; do
    timeout 60 "$program" report -r comm_sum,rank_breakdown "$out/$name" 2>&1
done
name=kineto
mkdir -p "$out/kineto"
torchrun 60 "$here/profile_ranks.py" load --kineto "$out/kineto"
verdict kineto "rank 1 holds up the job" "cause: waiting for the loader"
exit $failed
