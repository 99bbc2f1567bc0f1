#!/bin/bash
# The first minute with millrace: builds it, draws a set of digits, feeds it to the host and to a simulated accelerator, and trains
# a net on it.
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
show millrace train "$data" --model mlp:300s,100r,50s --optimizer adam --epochs 5 --device cpu --plot build/demo/mlp.svg
show millrace train "$data" --model 'conv:8,relu,maxpool:2,conv:16,relu,maxpool:2,flatten,linear:10' --optimizer adam --epochs 2 --device cpu
