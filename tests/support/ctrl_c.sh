#!/bin/bash
# Runs examples/ctrl_c.c, interrupts it, runs it again from the state that it saved, interrupts it again. The second run must
# begin with the batch after the last one of the first. A third one is interrupted before it has a loader, and ends, too.
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

# Before there is a loader: it waits for the state, which is a pipe that nobody has opened. Where it is exactly when the signal
# comes does not matter.
mkfifo "$folder/pipe"
"$1" "$2" "$folder/pipe" >"$folder/out" 2>&1 &
pid=$!
caught() { # is SIGINT, bit 1 of the mask?
    [ $((0x$(sed -n 's/^SigCgt:\t*//p' "/proc/$pid/status" | tail -c 9) & 2)) != 0 ]
}
until caught; do sleep 0.05; done
sleep 0.5
kill -INT "$pid"
cat "$folder/pipe" >/dev/null & # for the state that it may save
reader=$!
(sleep 60; kill -KILL "$pid") >/dev/null 2>&1 &
watchdog=$!
rc=0
wait "$pid" || rc=$?
kill "$reader" "$watchdog" 2>/dev/null || true
if [ "$rc" != 0 ] && ! grep -q cancelled "$folder/out"; then
    echo "interrupted before it had a loader, it ended with status $rc"
    cat "$folder/out"
    exit 1
fi
