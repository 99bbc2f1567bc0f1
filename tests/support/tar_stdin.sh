#!/bin/bash
# Runs examples/tar_stdin.c on an archive of three samples of two texts, and on none. usage: tar_stdin.sh PROGRAM
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for i in 1 2 3; do
    echo "text $i" >$i.txt
    echo "{\"n\": $i}" >$i.json
done
out=$(tar -cf - 1.txt 1.json 2.txt 2.json 3.txt 3.json | "$1")
grep -qx '3 samples' <<<"$out" || { echo "expected 3 samples, found: $out"; exit 1; }
grep -q ' json string' <<<"$out" || { echo "expected a field of strings, found: $out"; exit 1; }
if out=$("$1" </dev/null 2>&1); then
    echo "no archive, but no error: $out"
    exit 1
fi
grep -q 'tar_stdin: stdin: ' <<<"$out" || { echo "expected an error that names stdin, found: $out"; exit 1; }
