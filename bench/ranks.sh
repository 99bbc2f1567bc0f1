#!/bin/bash
# Ranks on the GPUs of one host, with PyTorch in the same call: bench comm and all_reduce by size;
# mnist-cnn bf16 at 64 and 1,024 a GPU on 1 and N of them, with DDP plain and as a CUDA graph.
# usage: bench/ranks.sh MILLRACE OUT [N]      N: GPUs, 2. Needs mpirun, torchrun. Takes about 100 s.
set -u
cd "$(dirname "$0")" || exit 1
mr=$1 out=$2 n=${3:-2}
export TMPDIR=/tmp NCCL_NVLS_ENABLE=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
nccl=$(python3 -c 'import torch,os;print(os.path.dirname(os.path.dirname(torch.__file__)))')
nccl=$nccl/nvidia/nccl/lib/libnccl.so.2
if [ -e "$nccl" ]; then export MILLRACE_NCCL=$nccl; fi
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT
"$mr" synth digits "$data/d" --n 20000 -q >/dev/null

# step NAME SECONDS COMMAND...: its output in $out/NAME, its status here.
step() {
    local name=$1 limit=$2
    shift 2
    timeout -k 3 "$limit" "$@" >"$out/$name" 2>"$out/$name.err"
    local rc=$?
    echo "$(date +%T) $name: $rc"
    if [ $rc -ne 0 ]; then tail -n 5 "$out/$name.err"; fi
    if [ ! -s "$out/$name.err" ]; then rm "$out/$name.err"; fi
}

# speed WORLD BATCH_OF_A_GPU: the median of the epochs' rates, without the first.
speed() {
    local world=$1 batch=$2 launch=()
    if [ "$world" -gt 1 ]; then launch=(mpirun --oversubscribe -n "$world"); fi
    local comm=none
    if [ "$world" -gt 1 ]; then comm=nccl; fi
    step "train-$world-$batch.json" 25 "${launch[@]}" "$mr" train "$data/d" --device cuda \
        --test none --seed 1 -m mnist-cnn --amp bf16 -o adadelta -b $((batch * world)) \
        --cache device --epochs 400 --max-steps 1500 --comm $comm --json
    python3 -c 'import json,statistics,sys
rates = [e["samples_per_s"] for e in json.load(open(sys.argv[1]))["epochs"][1:-1]]
print(f"  world {sys.argv[2]}, {sys.argv[3]} a GPU: {statistics.median(rates):,.0f} samples/s")' \
        "$out/train-$world-$batch.json" "$world" "$batch"
}

torch=(torchrun --nproc-per-node "$n")
step comm.json 25 mpirun --oversubscribe -n "$n" "$mr" bench comm --comm nccl --min-bytes 4800000 \
    --max-bytes 4800000 --json
step comm.txt 30 mpirun --oversubscribe -n "$n" "$mr" bench comm --comm nccl --min-bytes 1KiB \
    --max-bytes 1GiB --plot "$out/comm.svg"
step sums 30 "${torch[@]}" ranks.py sums 1024 65536 4800000 16777216 67108864 268435456 1073741824
for batch in 64 1024; do
    speed 1 $batch
    speed "$n" $batch
done
step ddp-1 25 torchrun --nproc-per-node 1 ranks.py ddp 64 1024
step ddp-n 25 "${torch[@]}" ranks.py ddp 64 1024
