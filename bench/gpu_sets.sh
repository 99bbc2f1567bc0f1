#!/bin/bash
# Real data of every kind into the GPU: class folders, CSV with landmarks, tar shards (from the disk, from an S3 server, through
# the disk cache), videos, safetensors. Of each kind one digest, on the CPU with 1, 2 and 4 workers and on the GPU.
# Each run writes a file of its own under $OUT; a line a kind to the terminal; the exit code is the number of failed steps.
# usage: [OUT=.] [DATA=DIR] [PYTHON=python3] [S3_PYTHON=python3] [DEVICES='cpu cuda'] bench/gpu_sets.sh [DIST]
# DATA: a folder with faces/, imagenet-sample/, video/, formats/; default: $MILLRACE_TEST_DATA. S3_PYTHON: one that has moto.
# MILLRACE_VIDEO_MODULE and LD_LIBRARY_PATH: the module for videos and libav, where DIST has them not.
set -u
here=$(cd "$(dirname "$0")" && pwd)
dist=$(cd "${1:-$here/..}" && pwd)
data=${DATA:-${MILLRACE_TEST_DATA:?where is the test data? DATA=DIR}}
out=${OUT:-.}
s3_python=${S3_PYTHON:-python3}
read -r -a devices <<<"${DEVICES:-cpu cuda}"
# shellcheck source=bench/steps.sh
. "$here/steps.sh"
find_millrace "$dist"
work=$(mktemp -d)
server=''
stop() {
    if [ -n "$server" ]; then kill "$server" 2>/dev/null; fi
    rm -rf "$work"
}
trap stop EXIT

# digests KIND DATASET OPTIONS...: the runs, and whether they agree; $also: names of other runs that must agree, too.
digests() {
    local kind=$1 device workers names=()
    shift
    for device in "${devices[@]}"; do
        for workers in 1 2 4; do
            step "$kind-$device-$workers" 60 "$millrace" feed "$@" --shuffle --epochs 2 --digest --workers $workers --device "$device"
            names+=("$kind-$device-$workers")
        done
    done
    # shellcheck disable=SC2086
    same_digest "$kind: one digest" "${names[@]}" ${also:-}
}

photos='random_resized_crop(96),hflip,color_jitter(0.2,0.2,0.2),cast(f32),scale(1/255),normalize([0.485,0.456,0.406],[0.229,0.224,0.225]),layout(nchw)'
mkdir -p "$work/classes/faces" "$work/classes/photos" "$work/clips"
find "$data/faces" -name '*.jpg' -exec cp -t "$work/classes/faces" {} +
find "$data/imagenet-sample" -iname '*.jp*g' | sort | head -80 | xargs cp -t "$work/classes/photos"
digests folder "folder:$work/classes" --batch-size 32 --transform "$photos"
digests csv "csv:$data/faces/face_landmarks.csv" --batch-size 16 \
    --transform 'resize(140),random_crop(128,128),rotate(20),hflip,cast(f32),scale(1/255),layout(nchw)'

step pack 60 "$millrace" pack "folder:$work/classes" "$work/shards" --shard-count 50
also=''
digests tar "tar:$work/shards" --batch-size 32 --transform "$photos"
if "$s3_python" -c 'import moto' 2>/dev/null; then
    mkfifo "$work/hold"
    sleep 600 >"$work/hold" &
    server=$!
    "$s3_python" "$here/../tests/support/s3_server.py" --files "$work"/shards/*.tar <"$work/hold" >"$work/port" &
    for _ in $(seq 100); do
        if grep -q PORT "$work/port"; then break; fi
        sleep 0.1
    done
    export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret AWS_DEFAULT_REGION=us-east-1
    AWS_ENDPOINT_URL=http://127.0.0.1:$(sed 's/PORT //' "$work/port")
    also=tar-${devices[0]}-1
    digests s3 "tar:s3://photos/" --batch-size 32 --transform "$photos"
    digests s3-cache "tar:s3://photos/" --batch-size 32 --transform "$photos" --cache-dir "$work/cache"
    also=''
else
    echo "SKIP  s3: $s3_python has no moto (tests/support/s3_server.sh FOLDER makes one that has)"
fi

find "$data/video/torchvision" -maxdepth 1 \( -name '*.avi' -o -name '*.mp4' \) -exec cp -t "$work/clips" {} +
if "$millrace" inspect "video:$work/clips" >/dev/null 2>&1; then
    digests video "video:$work/clips,frames=8,stride=2,clips=2,size=112x112" --batch-size 4 \
        --transform 'cast(f32),scale(1/255)'
else
    echo "SKIP  video: $("$millrace" inspect "video:$work/clips" 2>&1 | tail -1)"
fi
digests safetensors \
    "safetensors:$data/formats/safetensors/SafeTensors.jl/non_sharded/model.numpy.safetensors,fields=[float32_357,int32_357]" --batch-size 2
exit $failed
