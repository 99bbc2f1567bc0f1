#!/bin/bash
# The shared library exports exactly the functions that the public headers declare with MR_API, all of them mr_*; the static
# one defines no global name that does not start with mr_. usage: symbols.sh LIBMILLRACE_SO LIBMILLRACE_A INCLUDE
set -u
shared=$1 static=$2 include=$3
failed=0
exported=$(nm -D --defined-only "$shared" | awk '$2 ~ /[A-Z]/ { sub(/@.*/, "", $3); print $3 }' | sort)
declared=$(cat "$include"/millrace/*.h | grep -v '^ *#' | tr '\n' ' ' | sed 's/;/;\n/g' | grep -oE '\bMR_API [^(;]*\(' |
    sed -E 's/.*[ *](mr_[a-z0-9_]+)\($/\1/' | sort)
if [ -z "$exported" ] || [ -z "$declared" ]; then
    echo "nothing exported or nothing declared: this test reads something wrong"
    exit 1
fi

alien=$(echo "$exported" | grep -v '^mr_')
if [ -n "$alien" ]; then
    echo "exported, but not mr_*: ${alien//$'\n'/ }"
    failed=1
fi
extra=$(comm -23 <(echo "$exported") <(echo "$declared"))
if [ -n "$extra" ]; then
    echo "exported, but not declared with MR_API in a public header: ${extra//$'\n'/ }"
    failed=1
fi
lacking=$(comm -13 <(echo "$exported") <(echo "$declared"))
if [ -n "$lacking" ]; then
    echo "declared in a public header, but not exported: ${lacking//$'\n'/ }"
    failed=1
fi
alien=$(nm -g --defined-only "$static" | awk 'NF == 3 && $3 !~ /^mr_/ { print $3 }')
if [ -n "$alien" ]; then
    echo "global in the static library, neither static nor mr_*: ${alien//$'\n'/ }"
    failed=1
fi
echo "$(echo "$exported" | wc -l) functions exported"
exit $failed
