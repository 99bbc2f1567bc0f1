#!/bin/bash
# Runs examples/ctrl_c.c, interrupts it, runs it again from the state that it saved, interrupts it again. The second run must
# begin with the batch after the last one of the first.
# usage: ctrl_c.sh PROGRAM DATASET [again]
# again: sends the signal until the program has ended. For TSan, which loses signals that arrive while sem_wait() returns.
set -eu
again=${3:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

number() { # name: of the saved state
    sed -nE "s/.*\"$1\": ([0-9]+).*/\1/p" "$folder/state"
}

interrupt() { # program, data set: leaves what it printed in $out
    local line
    coproc program { exec "$1" "$2" "$folder/state"; }
    local pid=$! # of the coprocess
    exec {from}<&"${program[0]}"
    read -r line <&"$from"
    kill -INT "$pid"
    if [ "$again" ]; then
        while sleep 0.2 && kill -INT "$pid" 2>/dev/null; do :; done &
    fi
    out=$line$'\n'$(cat <&"$from")
    exec {from}<&-
    wait "$pid"
}

interrupt "$1" "$2"
grep -q "^saved $folder/state\$" <<<"$out"
expected="from batch $(number next_batch) of epoch $(number epoch);"
interrupt "$1" "$2"
if [[ $out != "$expected"* ]]; then
    echo "expected '$expected', found: $out"
    exit 1
fi
