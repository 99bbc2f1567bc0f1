#!/bin/bash
# Each public header compiles alone, and twice, in C11, C17 and C++17, without a warning and without _GNU_SOURCE; and
# leaves no macro defined that does not start with MR_ or MILLRACE_, but those that Arrow's C data interface prescribes. Its
# first comment says what holds for threads and after a fork.
# usage: headers.sh INCLUDE CC CXX
set -u
include=$1 cc=$2 cxx=$3
failed=0
compile() { # header, compiler, language, standard
    printf '#include <millrace/%s>\n#include <millrace/%s>\nextern int mr_unused;\n' "$1" "$1" |
        "$2" -x "$3" -std="$4" -I"$include" -Wall -Wextra -Werror -pedantic -fsyntax-only - && return
    echo "millrace/$1 does not compile alone as $4"
    failed=1
}

n=0
for path in "$include"/millrace/*.h; do
    header=${path##*/}
    n=$((n + 1))
    compile "$header" "$cc" c c11
    compile "$header" "$cc" c c17
    compile "$header" "$cxx" c++ c++17
    undone=$(sed -nE 's/^[[:space:]]*#[[:space:]]*undef[[:space:]]+([A-Za-z0-9_]+).*/\1/p' "$path")
    macros=$(sed -nE 's/^[[:space:]]*#[[:space:]]*define[[:space:]]+([A-Za-z0-9_]+).*/\1/p' "$path" |
        grep -vE '^(MR_|MILLRACE_|ARROW_C_(DATA|STREAM)_INTERFACE$|ARROW_FLAG_)' | grep -vxF "${undone:--}")
    if [ -n "$macros" ]; then
        echo "millrace/$header defines $macros"
        failed=1
    fi
    for word in Threads fork; do # of the first comment
        if [ "$header" != millrace.h ] && ! sed '/^ \*\/$/q' "$path" | grep -q "$word"; then
            echo "millrace/$header does not say what holds for $word"
            failed=1
        fi
    done
    if [ "$header" != millrace.h ] && ! grep -q "^#include <millrace/$header>" "$include/millrace/millrace.h"; then
        echo "millrace/millrace.h does not include millrace/$header"
        failed=1
    fi
done
echo "$n headers"
[ "$n" -gt 0 ] && [ $failed = 0 ]
