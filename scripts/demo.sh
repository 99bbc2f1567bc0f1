#!/bin/bash
# The first minute with millrace: builds it, draws a set of digits, and feeds it to the host and to a simulated accelerator.
set -eu
cd "$(dirname "$0")/.."
scripts/build.sh release
export PATH=$PWD/build/release:$PATH
data=build/demo/digits
rm -rf build/demo
mkdir -p build/demo

show() {
    printf '\n$'
    for word in "$@"; do
        case $word in *[\(\),]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    echo
    "$@" </dev/null
}

transform='cast(f32),scale(1/255),normalize(0.1307,0.3081)'
show millrace synth digits "$data"
show millrace feed "$data" --batch-size 64 --shuffle --epochs 3 --transform "$transform"
show millrace feed "$data" --batch-size 64 --shuffle --epochs 3 --transform "$transform" --device sim:h2d=12,step=3ms
