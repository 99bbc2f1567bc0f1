#!/bin/sh
# A unit test that includes a private header says "White-box" in its first comment; no other does.
# usage: whitebox.sh SOURCE_ROOT
set -u
cd "$1/tests/unit" || exit 1
wrong=0
for file in test_*.c; do
    private=no says=no
    if grep -qE '^#include "[a-z_]+/' "$file"; then private=yes; fi
    if sed '/\*\//q' "$file" | grep -q 'White-box'; then says=yes; fi
    if [ $private != $says ]; then
        echo "$file: includes private headers: $private; says that it is white-box: $says"
        wrong=1
    fi
done
exit $wrong
