#!/bin/bash
# Checks the hardening of each shared library and program: full RELRO, a stack that is not executable, position-independent
# code, no text relocations, a stack protector, fortified calls, and on x86-64 CET's branch targets. Fortified calls are not
# looked for in the recorder, which is not fortified, and in the video module: gcc finds none there that it can check.
# usage: hardening.sh FILE...
set -eu
[ $# -gt 0 ] || { echo "usage: scripts/hardening.sh FILE..." >&2; exit 2; }
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
branch_targets() { # file, its dynamic symbols
    local targets exported
    targets=$(LC_ALL=C grep -aoP '\xf3\x0f\x1e\xfa' "$1" | wc -l)
    exported=$(grep -cE 'FUNC +GLOBAL +DEFAULT +[0-9]' <<<"$2") || true
    [ "$targets" -ge $((exported + 10)) ] || lacks "$1" "CET: $targets endbr64, $exported exported functions"
}

compiled() { # file
    local symbols
    symbols=$(readelf -W --dyn-syms "$1")
    grep -q __stack_chk_fail <<<"$symbols" || lacks "$1" "stack protector"
    case $1 in
    *libmillrace-record* | *libmillrace-video*) ;;
    *) grep -qE '__[a-z]+_chk\b' <<<"$symbols" || lacks "$1" "fortified call" ;;
    esac
    [ "$(uname -m)" != x86_64 ] || branch_targets "$1" "$symbols"
}

for file in "$@"; do
    linked "$file"
    compiled "$file"
done
exit $status
