#!/bin/bash
# Clips from `video:` on one worker beside libav alone decoding the same frames, in turn in one run. The figure is the last
# line's percentages. usage: bench/video.sh FOLDER      ROUNDS=7 FRAMES=16 STRIDE=4 CLIPS=4 SIDE=112
set -eu
cd "$(dirname "$0")/.."
folder=${1:?usage: bench/video.sh FOLDER}
[ -x build/release/bench/video_limit ] || scripts/build.sh release
export MILLRACE_VIDEO_MODULE=$PWD/build/release/libmillrace-video.so
build/release/bench/video_limit "${ROUNDS:-7}" "${FRAMES:-16}" "${STRIDE:-4}" "${CLIPS:-4}" "${SIDE:-112}" "$folder"
