#!/bin/bash
# Checks the hardening of shared libraries and programs: full RELRO, a stack that is not executable, position-independent
# code, no text relocations, CET's branch targets and a stack protector in each, and fortified calls somewhere. x86-64 only.
# usage: hardening.sh FILE...
set -eu
if [ "$(uname -m)" != x86_64 ] || [ $# = 0 ]; then
    echo "SKIP: the flags are checked on x86-64 only"
    exit 77
fi
status=0
lacks() {
    echo "$1: no $2"
    status=1
}

linked() { # file
    local headers dynamic
    headers=$(readelf -hlW "$1")
    dynamic=$(readelf -dW "$1")
    grep -q GNU_RELRO <<<"$headers" || lacks "$1" RELRO
    grep -qE 'BIND_NOW|Flags:.* NOW' <<<"$dynamic" || lacks "$1" BIND_NOW
    grep GNU_STACK <<<"$headers" | grep -q ' RW ' || lacks "$1" "non-executable stack"
    grep -qE 'Type: +DYN' <<<"$headers" || lacks "$1" "position-independent code"
    if grep -q TEXTREL <<<"$dynamic"; then lacks "$1" "text without relocations"; fi
}

# Counts the instructions, not the mark in the notes: the linker sets that only if Debian's start files have it, too.
compiled() { # file
    local symbols targets exported
    symbols=$(readelf -W --dyn-syms "$1")
    targets=$(LC_ALL=C grep -aoP '\xf3\x0f\x1e\xfa' "$1" | wc -l)
    exported=$(grep -cE 'FUNC +GLOBAL +DEFAULT +[0-9]' <<<"$symbols") || true
    [ "$targets" -ge $((exported + 10)) ] || lacks "$1" "CET: $targets endbr64, $exported exported functions"
    grep -q __stack_chk_fail <<<"$symbols" || lacks "$1" "stack protector"
    fortified+=$(grep -oE '__[a-z]+_chk\b' <<<"$symbols") || true
}

fortified=
for file in "$@"; do
    linked "$file"
    compiled "$file"
done
if [ -z "$fortified" ]; then lacks "any file" "fortified call"; fi
exit $status
