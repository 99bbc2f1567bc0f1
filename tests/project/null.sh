#!/bin/sh
# tests/unit/test_null.c calls each function of libmillrace's public headers that takes a pointer: a new one cannot be forgotten.
# usage: null.sh SOURCE_ROOT
set -u
cd "$1" || exit 1
wrong=0
# The headers of libmillrace: the table of rooms says which.
rooms=$(sed -n 's/^library millrace: / /p' tests/project/layers.txt)
# shellcheck disable=SC2013 # no spaces in a line
for header in $(sed -n 's/^\(millrace\/[a-z]*\.h\) = \([a-z]*\)$/\1=\2/p' tests/project/layers.txt); do
    case "$rooms " in *" ${header#*=} "*) ;; *) continue ;; esac
    # Comments go, declarations come on one line each.
    # shellcheck disable=SC2020 # a set it is
    for name in $(sed 's://.*::' "include/${header%=*}" | tr '\n' ' ' | sed 's:/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/::g' |
        tr ';{}' '\n\n\n' | sed -n 's/.*MR_API .*[ *]\(mr_[a-z0-9_]*\)(.*\*.*/\1/p'); do
        # Constructors and their options are called by a macro.
        kind=$(echo "$name" | sed -n 's/^mr_dataset_open_\([a-z]*\)$/\1/p; s/^mr_\([a-z]*\)_opts_fill$/\1/p')
        if grep -q "\\b$name(" tests/unit/test_null.c; then continue; fi
        if [ -n "$kind" ] && grep -q "no_opts($kind)" tests/unit/test_null.c; then continue; fi
        echo "${header%=*}: $name(): tests/unit/test_null.c does not call it with NULL"
        wrong=1
    done
done
exit $wrong
