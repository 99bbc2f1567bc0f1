#!/bin/bash
# JPEG on a GPU: nvJPEG alone at batches of 256, beside the loader with the host's decoders alone, the device's alone, both
# by halves, and the share that auto chooses; the test of its pixels against the host's first.
# Each step writes a file of its own under $OUT and one line to the terminal; the exit code is the number of failed steps.
# usage: [OUT=.] [PHOTOS=DIR] [SECONDS_EACH=6] bench/gpu_decode.sh [DIST]
# DIST: the folder that `make dist` made with -DMILLRACE_DIST_TESTS=ON; default: the folder above this one.
# PHOTOS: a folder of class folders; default: imagenet-sample of $MILLRACE_TEST_DATA. MILLRACE_NVJPEG: the library, where it is not found.
set -u
here=$(cd "$(dirname "$0")" && pwd)
dist=$(cd "${1:-$here/..}" && pwd)
out=${OUT:-.}
each=${SECONDS_EACH:-6}
# shellcheck source=bench/steps.sh
. "$here/steps.sh"
find_one() { find "$dist/bin" "$dist/build/release" -name "$1" -type f -perm -u+x 2>/dev/null | head -1; }
millrace=$(find_one millrace)
if [ -z "$millrace" ]; then
    echo "gpu_decode: no millrace under $dist/bin or $dist/build/release" >&2
    exit 1
fi
if [ -z "${MILLRACE_NVJPEG:-}" ]; then
    found=$(find /usr/local/cuda*/ /usr/lib /opt "$(python3 -c 'import site; print(site.getsitepackages()[0])' 2>/dev/null)" \
        -name 'libnvjpeg*.so.1[123]*' 2>/dev/null | head -1)
    [ -n "$found" ] && export MILLRACE_NVJPEG=$found
fi
echo "nvJPEG: ${MILLRACE_NVJPEG:-by its usual names}"

photos=${PHOTOS:-}
sample=${MILLRACE_TEST_DATA:-$here/../../shared/data}/imagenet-sample
if [ -z "$photos" ] && [ -d "$sample" ]; then # a folder of pictures: made into one of classes
    photos=$(mktemp -d)/photos
    mkdir -p "$photos/a" "$photos/b"
    cp "$sample"/*.JPEG "$photos/a"
    cp "$sample"/*.JPEG "$photos/b"
fi
if [ -z "$photos" ]; then
    echo "gpu_decode: no photos: set PHOTOS, or MILLRACE_TEST_DATA to where imagenet-sample is" >&2
    exit 1
fi
MILLRACE_GPU_PHOTOS=folder:$photos step test_gpu_jpeg 120 "$(find_one test_gpu_jpeg)"
grep '^  ' "$out/test_gpu_jpeg.txt"
list=$(mktemp)
find -L "$photos" -name '*.[jJ][pP]*[gG]' | sort | head -2000 >"$list"
# shellcheck disable=SC2016
step nvjpeg-alone 90 sh -c '"$0" "$1" <"$2"' "$(find_one bench_nvjpeg)" "$each" "$list"
grep '^nvJPEG' "$out/nvjpeg-alone.txt"
chain='random_resized_crop(224),hflip(0.5),cast(f32),scale(1/255),normalize([0.485,0.456,0.406],[0.229,0.224,0.225])'
for share in off on 0.5 auto; do
    step "loader-$share" 60 "$millrace" feed "folder:$photos" --cache host --shuffle --epochs 0 --time "${each}s" -b 256 \
        --device cuda --transform "$chain" --gpu-decode $share
    grep -E 'samples/s|JPEG decoded|first batch|bottleneck' "$out/loader-$share.txt" | sed "s/^ */      $share: /"
done
exit $failed
