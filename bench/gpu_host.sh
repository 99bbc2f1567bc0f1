#!/bin/bash
# Everything that only a GPU host can tell, in a few minutes: the GPU tests, doctor, MNIST on the CPU and on the GPU with
# the same digest, 1024-float samples in memory into the GPU, the experiments, and PyTorch's copies and streams as peers.
# Each step writes a file of its own under $OUT and one line to the terminal; the exit code is the number of steps that
# failed.
# usage: [OUT=.] [PYTHON=python3] [MNIST=DIR] [PHOTOS=DIR] bench/gpu_host.sh [DIST]
# PHOTOS: JPEGs, in class folders or not; default: imagenet-sample in $MILLRACE_TEST_DATA.
# DIST: the folder that `make dist` made (with -DMILLRACE_DIST_TESTS=ON for the tests); default: the folder above this one.
set -u
here=$(cd "$(dirname "$0")" && pwd)
dist=$(cd "${1:-$here/..}" && pwd)
out=${OUT:-.}
python=${PYTHON:-python3}
# shellcheck source=bench/steps.sh
. "$here/steps.sh"
find_millrace "$dist"

nvidia-smi >"$out/nvidia-smi.txt" 2>&1 || echo "nvidia-smi does not work" >&2
tests=$(find "$bin" "$bin/tests/gpu" -maxdepth 1 -name 'test_gpu_*' -type f -perm -u+x 2>/dev/null | sort)
sanitizer=$(command -v compute-sanitizer || find /usr/local/cuda*/bin -name compute-sanitizer 2>/dev/null | head -1)
for test in $tests; do
    [ -n "${PHOTOS:-}" ] && export MILLRACE_GPU_PHOTOS=folder:$PHOTOS
    step "$(basename "$test")" 60 "$test"
    if [ -n "$sanitizer" ]; then # errors that the tests provoke in calls are theirs
        step "memcheck-$(basename "$test")" 120 "$sanitizer" --report-api-errors no --error-exitcode 9 "$test"
    else
        echo "SKIP  memcheck-$(basename "$test"): no compute-sanitizer"
    fi
done
step doctor 30 "$millrace" doctor --no-disk
step doctor-json 30 "$millrace" doctor --no-disk --json

# The same set, order and transforms: the same digest, on the CPU and on the GPU, however the slots are made.
mnist=${MNIST:-${MILLRACE_TEST_DATA:+$MILLRACE_TEST_DATA/mnist}}
if [ -z "$mnist" ] || [ ! -d "$mnist" ]; then
    mnist=$out/digits
    step synth 60 "$millrace" synth digits "$mnist"
fi
chain='cast(f32),scale(1/255),normalize(0.1307,0.3081)'
mnist_feed=("$millrace" feed "$mnist" --batch-size 64 --shuffle --epochs 2 --transform "$chain" --digest)
step mnist-cpu 40 "${mnist_feed[@]}" --device cpu
step mnist-cuda 40 "${mnist_feed[@]}" --device cuda
step mnist-cuda-pageable 40 "${mnist_feed[@]}" --device cuda --no-pin
step mnist-cuda-alloc 40 "${mnist_feed[@]}" --device cuda:0,pinned=alloc
same_digest "mnist's digests" mnist-cpu mnist-cuda mnist-cuda-pageable mnist-cuda-alloc

# 1024 x f32 a sample, in memory (100,000 of them), shuffled: page-locked and pageable, two batch sizes, two ways to lock.
floats=$out/floats.npy
step make-floats 60 "$millrace" synth npy "$floats" --n 100000 --shape 1024 --force
feed=("$millrace" feed "npy:$floats" --cache host --shuffle --epochs 0 --time 5s)
for batch in 256 4096; do
    for way in cuda cuda:0,pinned=alloc; do
        name=floats-$batch-${way/cuda:0,pinned=/}
        step "$name" 20 "${feed[@]}" --batch-size $batch --device $way
        step "$name-json" 20 "${feed[@]}" --batch-size $batch --device $way --json
    done
    step floats-$batch-pageable 20 "${feed[@]}" --batch-size $batch --device cuda --no-pin
    step floats-$batch-cpu 20 "${feed[@]}" --batch-size $batch --device cpu
done
rm -f "$floats" "${floats%.npy}-labels.npy"
step trace 20 "$millrace" feed "$mnist" --batch-size 256 --shuffle --epochs 3 --transform "$chain" --device cuda \
    --trace "$out/feed-cuda.trace.json"

# Photos, decoded by the CPU: beside libjpeg-turbo alone, and Pillow and torchvision where $PYTHON has them. The digest of an epoch
# is the same on both devices, whoever flips and normalizes.
photos=${PHOTOS:-${MILLRACE_TEST_DATA:+$MILLRACE_TEST_DATA/imagenet-sample}}
if [ -n "$photos" ] && [ -d "$photos" ]; then
    photos_chain='random_resized_crop(224),hflip,cast(f32),scale(1/255),normalize([0.485,0.456,0.406],[0.229,0.224,0.225]),layout(nchw)'
    folder=$photos
    if [ -z "$(find "$photos" -mindepth 2 -iname '*.jp*g' -print -quit)" ]; then
        folder=$out/photos
        mkdir -p "$folder/all"
        find "$photos" -maxdepth 1 -iname '*.jp*g' -exec cp -t "$folder/all" {} +
    fi
    photos_feed=("$millrace" feed "folder:$folder" --batch-size 256 --shuffle --transform "$photos_chain")
    for device in cpu cuda; do
        step photos-digest-$device 60 "${photos_feed[@]}" --epochs 1 --digest --device $device
        step photos-$device 30 "${photos_feed[@]}" --epochs 0 --time 5s --device $device
        step photos-$device-json 30 "${photos_feed[@]}" --epochs 0 --time 5s --device $device --json
    done
    step photos-cuda-first-batch 30 "${photos_feed[@]}" --batch-size 64 --epochs 1 --device cuda
    same_digest "photos' digests" photos-digest-cpu photos-digest-cuda
    limit=$bin/photos_limit
    if [ ! -x "$limit" ]; then limit=$bin/bench/photos_limit; fi
    if [ -x "$limit" ]; then
        step photos-table 400 env PHOTOS="$photos" PYTHON="$python" "$python" "$here/photos.py" --millrace "$millrace" \
            --photos-limit "$limit" --device cpu --device cuda --rounds 3
    else
        echo "SKIP  photos-table: no photos_limit: configure with -DMILLRACE_DIST_TESTS=ON"
    fi
else
    echo "SKIP  photos: no folder PHOTOS='$photos'"
fi

# The experiments, each as text, as JSON and as a chart.
find_cublas
step bench-transfer 60 "$millrace" bench transfer --device cuda --plot "$out/transfer.svg"
step bench-transfer-json 40 "$millrace" bench transfer --device cuda --max 16MiB --repeats 5 --json
step bench-streams 30 "$millrace" bench streams --device cuda --plot "$out/streams.svg"
step bench-streams-json 30 "$millrace" bench streams --device cuda --json
step bench-workers 40 "$millrace" bench workers --device cuda --workers-list 1,2,4,8,16 --time 200ms --plot "$out/workers.svg"
step bench-workers-json 40 "$millrace" bench workers --device cuda --workers-list 4,16 --time 200ms --json
step bench-hostmem 30 "$millrace" bench hostmem --device cuda --plot "$out/hostmem.svg"
step bench-hostmem-json 30 "$millrace" bench hostmem --device cuda --repeats 1 --json

if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    step torch-pinned-copy 60 "$python" "$here/peers/pinned_copy.py"
    step torch-streams 60 "$python" "$here/peers/streams.py"
else
    echo "SKIP  torch-pinned-copy, torch-streams: $python has no torch with a GPU"
fi
exit $failed
