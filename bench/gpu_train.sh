#!/bin/bash
# Training on a GPU host: MNIST's CNN as PyTorch's example has it, in each precision, to 99% with five seeds, three epochs from start to
# exit; the story from starved to fed; steps of nets and of optimizers beside PyTorch's.
# Each step writes a file of its own under $OUT, a line to the terminal; the exit code is the number of failed steps.
# usage: [OUT=.] [PYTHON=python3] [MNIST=DIR] bench/gpu_train.sh [DIST]
set -u
here=$(cd "$(dirname "$0")" && pwd)
dist=$(cd "${1:-$here/..}" && pwd)
out=${OUT:-.}
python=${PYTHON:-python3}
mnist=${MNIST:-${MILLRACE_TEST_DATA:?where is MNIST? MNIST=DIR}/mnist}
# shellcheck source=bench/steps.sh
. "$here/steps.sh"
find_millrace "$dist"
find_cublas
find_one() { find "$dist/bin" "$dist/build/release" -name "$1" -type f -perm -u+x 2>/dev/null | head -1; }
train=("$millrace" train "$mnist" --model mnist-cnn --optimizer adadelta --lr 1.0 --device cuda)

step train 60 "${train[@]}" --schedule step:0.7 --epochs 10
for amp in off tf32 bf16 fp16; do
    step train-$amp 30 "${train[@]}" --schedule step:0.7 --epochs 4 --amp $amp --json
done
# shellcheck disable=SC2016
step train-1024 30 bash -c 'time "$@"' train "${train[@]}" --epochs 3 --batch-size 1024 --amp bf16
step train-mlp 30 "$millrace" train "$mnist" --model mlp:300s,100r,50s --optimizer adam --lr 1e-3 --epochs 10 --device cuda
for seed in 1 2 3 4 5; do
    step train-to-99-$seed 30 "${train[@]}" --schedule step:0.7 --epochs 14 --amp bf16 --target-acc 0.99 --seed $seed
done
step story 90 "$millrace" bench story "$mnist" --device cuda
step nets 150 "$python" "$here/nn_step.py" --device cuda --seconds 0.3 --program "$(find_one nn_step)" --models mnist-cnn
step optimizers 150 "$python" "$here/optim_step.py" --device cuda --n 1e8 --seconds 0.3 --rounds 3 --program "$(find_one optim_step)"
exit $failed
